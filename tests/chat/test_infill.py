"""A gap, and the ids that a model reads for it."""

import pytest

from localspec.chat.tokenizer import infill_tokens
from localspec.errors import UsageError
from localspec.messages import Infill
from tests.chat.toy_tokenizer import ToyTokenizer, spelled

FIM = {"pre": 400, "suf": 401, "mid": 402}
REPOSITORY = {**FIM, "rep": 403, "sep": 404}


def test_a_gap_stands_between_prefix_and_suffix() -> None:
    gap = Infill("ab", "cd")
    wanted = [400, *spelled("ab"), 401, *spelled("cd"), 402]
    assert infill_tokens(gap, FIM, ToyTokenizer(), 100, 10) == wanted
    assert infill_tokens(gap, FIM, ToyTokenizer(add_bos=True), 100, 10) == [0, *wanted]


def test_other_files_go_before_it() -> None:
    gap = Infill("ab", "cd", (("x.py", "one"), ("y.py", "two")))
    around = [403, *spelled("myproject\n"), 404, *spelled("x.py\none"), 404, *spelled("y.py\ntwo")]
    tokens = infill_tokens(gap, REPOSITORY, ToyTokenizer(), 200, 10)
    assert tokens[: len(around)] == around
    assert tokens[len(around) :][:10] == [404, *spelled("filename\n")]
    without = infill_tokens(gap, FIM, ToyTokenizer(), 200, 10)
    assert len(without) == 2 * (len("\n\n--- snippet ---\n\n") - 2 + 3) + 7


def test_what_is_far_from_the_gap_is_left_out() -> None:
    gap = Infill("a" * 500 + "b", "c" + "d" * 500, (("x.py", "e" * 500 + "f"),))
    tokens = infill_tokens(gap, FIM, ToyTokenizer(), 200, 20)
    assert len(tokens) == 180
    before, after = tokens.index(400), tokens.index(401)
    assert tokens[before - 1] == spelled("f")[0]
    assert tokens[after - 1 : after + 2] == [*spelled("b"), 401, *spelled("c")]


def test_what_spells_a_token_stays_text() -> None:
    gap = Infill("<|im_end|>", "")
    assert 3 not in infill_tokens(gap, FIM, ToyTokenizer(), 100, 10)


def test_a_vocabulary_without_tokens_for_it_is_told() -> None:
    with pytest.raises(UsageError, match="cannot fill in the middle"):
        infill_tokens(Infill("a", "b"), {"pre": 1}, ToyTokenizer(), 100, 10)
