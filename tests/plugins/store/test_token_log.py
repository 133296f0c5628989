"""Tokens of earlier texts: matched, bounded, forgotten to the last byte, and not lost by kills."""

import random
import sqlite3
import subprocess
import sys
import time
import zlib
from array import array
from collections.abc import Sequence
from contextlib import closing, suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.history.archive import History
from localspec.messages import Message
from localspec.plugins.store import token_log
from localspec.plugins.store.token_log import FILE, TokenLog, of_conversation, wipe
from tests.examples import examples

SIZE = 1_000_000
KILLS = pytest.param(25, marks=pytest.mark.slow)
LONG = pytest.param((5000, 5001), marks=pytest.mark.slow)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store" / FILE


def small(path: Path, vocabulary: int = 0, n_vocab: int = 1 << 20) -> TokenLog:
    return TokenLog(path, vocabulary, n_vocab, megabytes=1)


@pytest.fixture
def log(path: Path) -> TokenLog:
    return small(path)


def follows_of(log: TokenLog, text: Sequence[int], most: int = 50) -> list[int]:
    found = log.find(text)
    return [] if found is None else log.read(found[2], most)


def text_of(seed: int, length: int, n_vocab: int = 40_000) -> list[int]:
    draw = Random(seed)
    return [draw.randrange(n_vocab) for _ in range(length)]


def stored(tokens: Sequence[int]) -> bytes:
    """Return how tokens stand in the file."""
    return array("I", tokens).tobytes()


def content(path: Path) -> bytes:
    """Return what stands in the files of a store, the log that SQLite writes ahead included."""
    return b"".join(each.read_bytes() for each in path.parent.glob(f"{path.name}*"))


def test_what_followed_is_found_by_the_four_tokens_before_it(log: TokenLog, path: Path) -> None:
    assert log.find([1, 2, 3, 4]) is None
    log.append("a", [1, 2, 3, 4, 5, 6])
    assert log.find([9, 1, 2, 3, 4]) == (4, False, log.find([1, 2, 3, 4])[2])  # type: ignore[index]
    assert follows_of(log, [1, 2, 3, 4]) == [5, 6]
    assert follows_of(log, [1, 2, 3, 4], 1) == [5]
    assert log.find([2, 3, 4]) is None
    assert log.find([1, 2, -3, 4]) is None, "of a picture nothing was said"
    assert log.find([3, 4, 5, 6]) is None, "nothing followed"
    assert follows_of(small(path), [2, 3, 4, 5]) == [6], "another process sees it"


def test_longest_match_wins_then_the_most_frequent_then_the_latest(log: TokenLog) -> None:
    for owner, follows in enumerate((5, 6, 6, 7)):
        log.append(str(owner), [90 + owner, 80, 1, 2, 3, 4, follows, 99])
    assert log.find([1, 2, 3, 4])[:2] == (4, True)  # type: ignore[index]
    assert follows_of(log, [1, 2, 3, 4]) == [6, 99]
    log.append("more", [7, 3, 1, 4, 1, 2, 3, 4, 5])
    assert follows_of(log, [7, 3, 1, 4, 1, 2, 3, 4]) == [5]
    assert log.find([7, 3, 1, 4, 1, 2, 3, 4])[:2] == (8, False)  # type: ignore[index]
    for name, token in (("later", 7), ("later", 8), ("latest", 8), ("latest", 7)):
        log.append(name, [1, 2, 3, 4, token])
    assert follows_of(log, [1, 2, 3, 4]) == [7], "as often as 6 and later"


def test_a_text_that_grows_is_one_text_and_two_never_are(log: TokenLog, path: Path) -> None:
    text, end = text_of(0, 500), None
    for start in range(0, 500, 7):
        end = log.append("a", text[start : start + 7], end)
    assert all(follows_of(log, text[:at], 500) == text[at:] for at in range(4, 500))
    log.append("b", [1, 2, 3])
    end = log.append("a", [*text[:3], 5], end)
    assert follows_of(log, text[-4:]) == [*text[:3], 5], "though another text came between"
    log.append("a", [6, 7], end)
    assert follows_of(log, [*text[:3], 5]) == [6, 7]
    log.forget("a", for_good=False)
    for length in (1, 2, 3, 61, 62, 63, 64, 65):
        log.append("a", [7] * length)
        log.append("b", [8, 9])
    assert log.find([7, 7, 7, 8]) is None
    assert log.find([7, 7, 8, 9]) is None
    small(path, vocabulary=1).append("a", [1, 2, 3, 4, 5])
    other, larger = small(path, vocabulary=2), small(path, vocabulary=1, n_vocab=5)
    assert other.find([1, 2, 3, 4]) is None
    assert larger.find([1, 2, 3, 4]) is None, "5 is no id of this one"
    assert follows_of(small(path, vocabulary=1), [1, 2, 3, 4]) == [5]


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [(700, 1), LONG])
def test_the_oldest_texts_leave_a_full_file(path: Path, lengths: tuple[int, int]) -> None:
    log, draw = small(path), Random(0)
    texts = list[list[int]]()
    while sum(map(len, texts)) < 150_000:
        share = sum(map(len, texts)) / 150_000
        length = round(lengths[0] + share * (lengths[1] - lengths[0]))
        texts.append(text_of(len(texts), draw.randrange(1, 2 * length + 1)))
        log.append(str(len(texts)), texts[-1])
    assert path.stat().st_size < 1.3 * SIZE
    tokens, owners = log.figures()
    assert 25_000 < tokens < 60_000
    assert owners < len(texts)
    later = [sum(map(len, texts[at + 1 :])) for at in range(len(texts))]
    for text, after in zip(texts, later, strict=True):
        if len(text) > 40 and not 20_000 < after < 80_000:
            assert follows_of(log, text[:30], 10) == (text[30:40] if after <= 20_000 else [])
            assert (stored(text[30:38]) in content(path)) is (after <= 20_000)


def test_a_text_longer_than_the_file_leaves_its_end(log: TokenLog) -> None:
    text = text_of(1, 150_000)
    end = log.append("a", text)
    assert follows_of(log, text[-30:-10]) == text[-10:]
    log.append("a", [1, 2], end)
    assert follows_of(log, text[-30:]) == [1, 2]


words = st.lists(st.integers(0, 3), min_size=1, max_size=90)


@given(st.lists(st.tuples(st.integers(0, 5), words), min_size=1, max_size=25), st.randoms())
@examples(100)
def test_whatever_is_added_and_forgotten_a_match_is_of_a_text_that_is_left(
    tmp_path_factory: pytest.TempPathFactory,
    added: list[tuple[int, list[int]]],
    chance: random.Random,
) -> None:
    """Blocks of a few tokens, so that texts stand in many."""
    path = tmp_path_factory.mktemp("store") / FILE
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(token_log, "_BLOCK", 40)
        log = small(path)
        left: list[tuple[int, list[int]]] = []
        for owner, text in added:
            if chance.random() < 0.2:
                log.forget(str(owner), for_good=False)
                left = [each for each in left if each[0] != owner]
            log.append(str(owner), text)
            left.append((owner, text))
            for _, each in left[-3:]:
                for at in range(len(each) - 1, 3, -5):
                    found = log.find(each[:at])
                    assert found is not None
                    assert check_found(found[0], log.read(found[2], 9), each[:at], left)
        check_nothing_leads_elsewhere(path)


def check_found(
    length: int, follows: list[int], text: list[int], left: list[tuple[int, list[int]]]
) -> bool:
    """Return whether a text that is left has the end of this one, and then what was read."""
    end = text[-4:]
    starts = [(each, at) for _, each in left for at in range(4, len(each))]
    return 4 <= length <= len(text) and any(
        each[at - 4 : at] == end and each[at : at + len(follows)] == follows for each, at in starts
    )


def check_nothing_leads_elsewhere(path: Path) -> None:
    """Assert that every n-gram has a block in which it stands, and that SQLite finds nothing wrong."""
    with closing(sqlite3.connect(path)) as file:
        assert file.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        blocks = {
            block: (vocabulary, array("I", tokens))
            for block, _, vocabulary, tokens in file.execute("SELECT * FROM block")
        }
        for number, place in file.execute("SELECT hash, place FROM gram"):
            vocabulary, tokens = blocks[place // 1024]
            at = place % 1024
            assert at < len(tokens)
            assert zlib.crc32(tokens[at - 4 : at], vocabulary) == number


def test_nothing_is_left_of_an_owner_who_is_forgotten_and_all_of_the_others(path: Path) -> None:
    log, texts = small(path), {str(seed): text_of(seed, 700) for seed in range(20)}
    ends: dict[str, int | None] = {}
    for start in range(0, 700, 50):  # all grow at once
        for owner, text in texts.items():
            ends[owner] = log.append(owner, text[start : start + 50], ends.get(owner))
    shared = texts["3"][100:140]
    log.append("4", [*shared, 11])
    before = content(path)
    gone = texts.pop("3")
    pieces = [stored(gone[at : at + 2]) for at in range(0, 698, 2)]
    assert all(piece in before for piece in pieces)
    log.forget("3")
    left = [piece for piece in pieces if piece in content(path)]
    assert left == [stored(gone[at : at + 2]) for at in range(100, 140, 2)], "said by another, too"
    check_nothing_leads_elsewhere(path)
    assert follows_of(log, shared, 1) == [11]
    for text in texts.values():
        for at in range(4, 700, 50):
            follows = follows_of(log, text[:at], 5)
            assert follows == text[at : at + len(follows)] != []
    assert log.append("3", gone, ends["3"]) is None, "nor does it come back"
    assert log.find(gone[:50]) is None
    log.forget("4", for_good=False)
    log.append("4", [1, 2, 3, 4, 5])
    assert follows_of(log, [1, 2, 3, 4]) == [5]


def test_after_a_wipe_nothing_is_left_and_whoever_has_it_open_goes_on(path: Path) -> None:
    log, text = small(path), text_of(2, 3000)
    end = log.append("a", text)
    reader = small(path)
    assert follows_of(reader, text[:20], 3) == text[20:23]
    path.with_name("said").write_bytes(b"the ring of earlier versions")
    assert wipe(path)
    assert not path.with_name("said").exists()
    assert not any(stored(text[at : at + 2]) in content(path) for at in range(2998))
    assert reader.find(text[:20]) is None
    assert not wipe(path)
    log.append("a", [1, 2, 3, 4, 5], end)
    assert follows_of(log, [1, 2, 3, 4]) == follows_of(reader, [1, 2, 3, 4]) == [5]
    assert follows_of(small(path), text[:20]) == []


@pytest.mark.parametrize("maker_was_killed", [False, True])
def test_a_log_that_is_made_later(path: Path, *, maker_was_killed: bool) -> None:
    path.parent.mkdir()
    if maker_was_killed:
        path.touch()
    early, other = small(path), small(path)
    assert early.find([1, 2, 3, 4]) is None
    small(path).append("a", [1, 2, 3, 4, 5])
    assert follows_of(early, [1, 2, 3, 4]) == [5]
    other.forget("a")
    assert follows_of(early, [1, 2, 3, 4]) == []


def test_a_smaller_bound_takes_effect_while_texts_are_added(path: Path) -> None:
    log = TokenLog(path, megabytes=4)
    for seed in range(30):
        log.append(str(seed), text_of(seed, 5000))
    size = path.stat().st_size
    assert size > 3 * SIZE
    log = small(path)
    for seed in range(100):
        log.append(f"later {seed}", text_of(1000 + seed, 200))
    log.give_back()
    assert path.stat().st_size < 1.4 * SIZE
    assert follows_of(log, text_of(1099, 200)[:30], 5) == text_of(1099, 200)[30:35]
    check_nothing_leads_elsewhere(path)


def test_a_program_that_writes_is_not_waited_for_long(log: TokenLog, path: Path) -> None:
    end = log.append("a", [1, 2, 3, 4])
    with closing(sqlite3.connect(path)) as other:
        other.execute("BEGIN IMMEDIATE")
        start = time.monotonic()
        with pytest.raises(BlockingIOError, match="locked"):
            log.append("a", [5], end)
        assert time.monotonic() - start < 2
    log.append("a", [5], end)
    assert follows_of(log, [1, 2, 3, 4]) == [5]


def test_deleting_a_conversation_deletes_what_it_put_into_the_store(path: Path) -> None:
    history = History(path.parents[1] / "history")
    numbers = [history.create(), history.create()]
    for number in numbers:
        history.add_user(number, None, Message.user("Hi"))
    history.delete(numbers[0])  # without a store
    log = small(path)
    for number in numbers:
        log.append(of_conversation(number), text_of(number, 100))
    assert stored(text_of(numbers[1], 100)[:60]) in content(path)
    history.delete(numbers[1])
    history.close()
    assert stored(text_of(numbers[1], 100)[:2]) not in content(path)
    assert stored(text_of(numbers[0], 100)[:60]) in content(path)


@pytest.mark.parametrize("seed", range(5))
def test_damage_hides_texts_and_does_no_more(path: Path, seed: int) -> None:
    log, chance = small(path, n_vocab=500), Random(seed)
    texts = [text_of(each, 300, 500) for each in range(30)]
    for number, text in enumerate(texts):
        log.append(str(number), text)
    log.forget("nobody")  # empties the log that is written ahead
    size = path.stat().st_size
    with path.open("r+b") as file:
        for _ in range(2000):
            file.seek(chance.randrange(4096, size - 8))
            file.write(chance.randbytes(4))
    with suppress(OSError):
        log = small(path, n_vocab=500)
        for text in texts:
            for at in range(4, 300, 3):
                assert all(0 <= token < 500 for token in follows_of(log, text[:at]))
        log.append("new", [1, 2, 3, 4, 5, 6])
        log.forget("3")
    wipe(path)
    log = small(path, n_vocab=500)
    log.append("new", [1, 2, 3, 4, 5, 6])
    assert follows_of(log, [2, 3, 4, 5]) == [6]


@pytest.mark.parametrize("content", [b"x" * 5000, b"SQLite format 3\0" + b"\1" * 5000])
def test_a_file_of_something_else_is_refused_and_can_be_wiped(path: Path, content: bytes) -> None:
    path.parent.mkdir()
    path.write_bytes(content)
    with pytest.raises(OSError, match="not a database"):
        small(path)
    assert wipe(path)
    small(path).append("a", [1, 2, 3, 4])


WRITER = """
import sys, time
from pathlib import Path
from random import Random
from localspec.plugins.store.token_log import TokenLog
log = TokenLog(Path(sys.argv[1]), megabytes=1)
print("open", flush=True)
for seed in range(int(sys.argv[2]), 1 << 30):
    draw, end = Random(seed), None
    for piece in range(4):
        end = log.append(f"conversation {seed}", [draw.randrange(40000) for _ in range(50)], end)
        print(seed, piece, flush=True)
        if seed % 5 == 4:
            log.forget(f"conversation {seed - 2}")
            print("gone", seed - 2, flush=True)
"""


@pytest.mark.parametrize("kills", [4, KILLS])
def test_no_kill_loses_or_brings_back_a_text(path: Path, kills: int) -> None:
    moments = Random(7)
    for kill in range(kills):
        first = kill * 100_000
        command = [sys.executable, "-c", WRITER, str(path), str(first)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            assert writer.stdout.readline() == "open\n"
            time.sleep(moments.uniform(0.0, 0.15))
            writer.kill()
            lines = writer.stdout.read().splitlines(keepends=True)
        rows = [line.split() for line in lines if line.endswith("\n")]
        log = small(path)
        gone = {int(number) for word, number in rows if word == "gone"}
        pieces = {int(word): int(piece) for word, piece in rows if word != "gone"}
        for seed, piece in list(pieces.items())[-20:]:
            text = text_of(seed, 50 * (piece + 1))
            if seed in gone:
                assert log.find(text[:30]) is None
            elif seed + 2 != max(pieces):  # which may have been forgotten when it was killed
                assert follows_of(log, text[:30], len(text))[: len(text) - 30] == text[30:]
        for number in list(gone)[-20:]:
            log.forget(of_conversation(number))
            # Two of its tokens may stand side by side in another text by chance.
            text = text_of(number, 50)
            triples = zip(text, text[1:], text[2:], strict=False)
            assert all(stored(each) not in content(path) for each in triples)


def test_looking_up_takes_as_long_as_sixty_hashes(path: Path) -> None:
    """That is less than fifty microseconds where a hash, with reading sixteen tokens, takes one."""
    log, draw = TokenLog(path, megabytes=3), Random(0)
    phrases = [text_of(seed, draw.randrange(3, 30), 30_000) for seed in range(2000)]
    text = [each for phrase in draw.choices(phrases, k=6000) for each in phrase]
    log.append("a", text)
    places = draw.sample(range(100, len(text)), 2000)
    words = memoryview(array("I", text))
    took, hashing = [], []
    for _ in range(12):  # other programs may take the processor meanwhile
        start = time.process_time()
        found = [log.find(text[at - 16 : at]) for at in places]
        took.append(time.process_time() - start)
        start = time.process_time()
        for at in places:
            zlib.crc32(array("I", words[at - 16 : at].tolist()[-4:]))
        hashing.append(time.process_time() - start)
    assert sum(each is not None for each in found) > 1950
    assert min(took) < 60 * min(hashing)
