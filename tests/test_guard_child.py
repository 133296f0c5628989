"""Texts of any length, in any script, get a verdict from a guard whose context holds 4096 tokens."""

from collections.abc import Sequence
from typing import cast

import numpy as np
import pytest

from localspec.chat.guard_prompt import GuardPrompt
from localspec.chat.template import ChatTemplate
from localspec.decoding.model import LanguageModel, Logits
from localspec.launch.guard_child import Guarding
from tests.chat.test_guard_prompt import TEMPLATES
from tests.chat.toy_tokenizer import FIRST_BYTE, ToyTokenizer, shown

N_CTX = 4096


class Reader:
    """Finds unsafe what has a bomb in it, and nothing to say about what has a riddle."""

    n_ctx = N_CTX

    def __init__(self) -> None:
        self.read: list[str] = []

    def logits(self, tokens: Sequence[int], rows: int) -> Logits:
        assert len(tokens) < N_CTX, "a token of the answer has to fit, too"
        text = shown([*tokens])
        self.read.append(text)
        row = np.full((rows, FIRST_BYTE + 256), -20.0, dtype=np.float32)
        says = "?" if "riddle" in text else "Y" if "bomb" in text else "N"
        row[-1, FIRST_BYTE + ord(says)] = 0
        return row


def judged(question: str, before: str, text: str) -> tuple[float | None, list[str]]:
    """Return a verdict, and what was read for it."""
    template = ChatTemplate(TEMPLATES["Granite Guardian"], "<s>", "</s>")
    reader = Reader()
    pieces = list[int]()
    guarding = Guarding(
        GuardPrompt(template, ToyTokenizer()),
        cast("LanguageModel", reader),
        lambda: pieces.append(len(reader.read)),
    )
    share = guarding.unsafe(question, before, text)
    assert {*pieces} >= {*range(1, len(reader.read) - 1)}, "it is told after every pass"
    return share, reader.read


@pytest.mark.parametrize("at", [0, 3_000, 19_000])
def test_long_text_is_as_unsafe_as_its_worst_piece(at: int) -> None:
    text = "0123456789" * 2_000
    assert judged("Why?", "", text)[0] == pytest.approx(0, abs=1e-6)
    share, read = judged("Why?", "", text[:at] + " bomb " + text[at:])
    assert share == pytest.approx(1)
    assert all(len(each) <= N_CTX for each in read)


def test_long_text_has_no_verdict_where_a_piece_has_none() -> None:
    text = "0123456789" * 600
    assert judged("Why?", "", f"{text} riddle {text}")[0] is None


def test_text_of_three_bytes_a_character_has_a_verdict() -> None:
    river = "\u6cb3" * 2_000
    assert judged("Why?", river, river)[0] == pytest.approx(0, abs=1e-6)
    assert judged("Why?", river, f"{river} bomb")[0] == pytest.approx(1)


def test_question_is_cut_until_it_fits_and_its_end_stays() -> None:
    share, (read,) = judged("\u6cb3" * 4_000 + " which?", "It is long. ", "Very long. ")
    assert share == pytest.approx(0, abs=1e-6)
    assert " which?" in read
    assert "It is long. Very long." in read
