"""The ids of two vocabularies, brought together by bytes: rows, joins, and texts cut another way."""

from difflib import SequenceMatcher
from pathlib import Path
from random import Random

import numpy as np
import pytest

from localspec.llama.token_map import MappedIds, TokenMap
from tests.llama.test_vocabulary import loaded
from tests.toy_vocabulary import ToyTokens, random_pieces

TARGET = ToyTokens(
    [b"", b"a", b"b", b" ", b"(", b"self", b"(self", b" b", b"", b"\xc3", b"\xa9"],
    {0: "<end>", 8: "<only here>"},
    eog=[0],
)
DRAFT = ToyTokens(
    [b"self", b"(", b"b", b"a", b" ", b" ba", b"", b"", b"\xc3\xa9", b"ab", b"c"],
    {6: "<end>", 7: "<of the draft model>"},
    eog=[6, 7],
)


@pytest.fixture
def table() -> TokenMap:
    return TokenMap(TARGET, DRAFT)


def test_ids_stand_for_bytes_and_rows_for_all_that_begin_so(table: TokenMap) -> None:
    assert table.alone[:6] == [(5,), (4,), (2,), (1,), (3,), (7, 1)]
    assert table.alone[6:8] == [(0,), (0,)], "an end is an end"
    assert table.alone[8:] == [(9, 10), (1, 2), ()]
    assert table.spelling().read([1, 0, 2, 8, 1]) == [3, 6, 2, 3]
    chances = np.array([3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37], dtype=np.float64)
    spelling, logits = table.spelling(), np.log(chances).astype(np.float32)
    expected = [19 + 23, 11 + 31, 7, 13, 5, 3, 0, 17, 0, 29, 0]
    assert np.exp(spelling.row(logits)) == pytest.approx(expected, rel=1e-5)
    assert spelling.next(logits, 1) == 9, "the likelier of the two"
    assert [spelling.next(logits, token) for token in (0, 2)] == [7, 2]
    row = table.spelling().row(np.full(11, np.nan, dtype=np.float32))
    assert np.isnan(row.max()), "what is unusable stays so"


@pytest.mark.parametrize(
    ("before", "drafted", "spelled"),
    [
        (None, 0, (5,)),
        (4, 0, (6,)),  # `(` and `self` are one token of the target's
        (3, 2, (7,)),
        (3, 9, (3, 1, 2)),
        (1, 5, (1, 7, 1)),
        (4, 6, (4, 0)),
        (0, 2, (0, 2)),
        (9, 3, (9, 1)),  # half a character can be written nowhere else
    ],
)
def test_what_stands_before_may_be_written_together(
    table: TokenMap, before: int | None, drafted: int, spelled: tuple[int, ...]
) -> None:
    for _ in range(2):
        assert table.spelling().spell(before, drafted) == spelled


def test_a_text_is_cut_and_begins_as_the_draft_model_wants_it(table: TokenMap) -> None:
    spelling = table.spelling()
    assert spelling.read([6, 7, 1]) == [1, 0, 5]
    assert spelling.read([6, 7]) == [1, 0, 4, 2]
    assert spelling.read([]) == []
    assert spelling.read([1, 9, 10]) == [3, 8]
    assert spelling.read([1, 9]) is None, "it ends within a character"
    assert spelling.read([1, -3, -8, 9, 10]) == [3, 8], "a picture is nothing to a draft model"
    target = ToyTokens([b"", b"a"], {0: "<s>"}, bos=0)
    draft = ToyTokens([b"a", b"", b""], {1: "<bos>", 2: "<s>"}, bos=1)
    assert TokenMap(target, draft).spelling().read([0, 1]) == [1, 0]
    assert TokenMap(target, draft).spelling().read([1]) == [1, 0]
    assert TokenMap(draft, target).spelling().read([1, 0]) == [0, 1]


def test_a_space_before_every_text_is_there_once_and_of_twins_the_usual_token_counts() -> None:
    target = ToyTokens([b"a", b" a", b" "])
    draft = ToyTokens([b" a", b"a", b" "], adds_space=True)
    spelling = TokenMap(target, draft).spelling()
    assert spelling.read([1] * 200) == [0] * 200
    assert spelling.read([1, 0, 1]) == [0, 1, 0]
    back = TokenMap(draft, target)
    assert back.spelling().read([0, 1, 0]) == [0, 0, 1], "the first one was not written"
    assert back.alone == [(1,), (0,), (2,)]
    assert back.joined(2, 0) == (0,)
    target = ToyTokens([b"a", b"\n", b"b", b" a", b"b", b" "], adds_space=True)
    table = TokenMap(target, ToyTokens([b"b", b"ba", b"a", b" "]))
    assert table.alone == [(2,), (2, 0), (0,), (5,)]
    assert table.joined(0, 1) == (0, 2, 0)


def _content(tokens: ToyTokens, ids: list[int]) -> bytes:
    return b"".join(tokens.pieces()[each] for each in ids)


def check_reading(random: Random) -> None:
    """Assert that what is cached of a text changes nothing: it grows, loses its end, and is another one, in any order."""
    target = ToyTokens([*random_pieces(random, 9), b""], {9: "<end>"})
    draft = ToyTokens([*random_pieces(random, 10), b""], {10: "<end>"})
    table = TokenMap(target, draft)
    spelling, text = table.spelling(), list[int]()
    for _ in range(60):
        if random.random() < 0.2:
            del text[random.randrange(len(text) + 1) :]
        text += [random.randrange(10) for _ in range(random.choice((1, 2, 5, 60)))]
        if random.random() < 0.05:
            text[random.randrange(len(text))] = random.randrange(10)
        read = spelling.read(text)
        assert read == MappedIds(table).read(text)
        whole = _content(target, text).decode(errors="replace")
        if read is not None and "\ufffd" not in whole:
            assert _content(draft, list(read)) == whole.encode()


@pytest.mark.slow
def test_what_is_cached_of_a_text_changes_nothing() -> None:
    for seed in range(60):
        check_reading(Random(seed))


def test_of_a_text_that_grows_little_is_cut_again() -> None:
    random = Random(1)
    target = ToyTokens([b"a", b" a", b"b"])
    draft = ToyTokens([b"ab", b" ", b"a", b"b"])
    spelling, text = TokenMap(target, draft).spelling(), [random.randrange(3) for _ in range(2000)]
    spelling.read(text)
    before = draft.asked
    for _ in range(100):
        text.append(random.randrange(3))
        spelling.read(text)
    assert draft.asked - before < 100 * 2 * 40


WRITTEN = """def twice(self, numbers: list[int]) -> list[int]:
    # Größe, naïve, 日本語 and 🙂: more bytes than characters.
    return [2 * each for each in numbers if not self.is_empty()]


The bridge has five arches, and the widest of them spans 22 metres; it's 1,234 years old...
"""


@pytest.mark.first(1)
@pytest.mark.parametrize(
    ("target", "draft"),
    [
        *(("gpt-2", "starcoder"), ("qwen2", "gpt-2"), ("qwen2", "llama-spm")),
        *(("llama-spm", "llama-bpe"), ("gemma-4", "qwen2"), ("phi-3", "starcoder")),
    ],
)
def test_real_tokenizers_agree(vocabularies: dict[str, Path], target: str, draft: str) -> None:
    with loaded(vocabularies[target]) as (ours, _), loaded(vocabularies[draft]) as (theirs, _):
        table, text = TokenMap(ours, theirs), WRITTEN * 4
        here, there = ours.pieces(), theirs.pieces()
        written = ours.tokenize(text, add_special=False, parse_special=False)
        read = list(table.spelling().read(written) or ())[len(table.bos) :]
        assert b"".join(there[each] for each in read).strip() == text.encode().strip()
        assert read == theirs.tokenize(text, add_special=False, parse_special=False)
        for piece, spelled in zip(there, table.alone, strict=True):
            assert not piece or b"".join(here[each] for each in spelled) in {piece, b""}
        back: list[int] = []
        for each in read:
            back += table.joined(back.pop(), each) if back else table.alone[each]
        if all(table.alone[each] for each in read):  # a part of a character may be nothing
            assert b"".join(here[each] for each in back).strip() == text.encode().strip()
        assert SequenceMatcher(None, back, written, autojunk=False).ratio() > 0.9
