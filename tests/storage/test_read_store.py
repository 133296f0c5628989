"""What was read, as files: found by longest common beginnings, bounded, private, and never used where one byte is wrong."""

import os
import random
import stat
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.storage import read_store
from localspec.storage.files import write_atomic
from localspec.storage.read_store import (
    Shelf,
    UnusableError,
    common_beginning,
    forget_conversation,
    held,
    make_room,
    may_be_written,
    remove_old,
    tail_of,
)

Patch = pytest.MonkeyPatch
SIZE = 4


def put(shelf: Shelf, tokens: list[int], owner: str = "", content: bytes = b"cells") -> list[str]:
    """Write a text as its user does; return the names of its files."""
    parent, names = shelf.beginning(owner), list[str]()
    for start in range(0, len(tokens), SIZE):
        own = shelf.child(parent, tokens[start : start + SIZE])
        names.append(f"{parent}.{own}")
        shelf.write(names[-1], tokens[start : start + SIZE], b"about", [content])
        parent = own
    return names


def found(shelf: Shelf, tokens: list[int], owner: str = "") -> int:
    return sum(each.common for each in shelf.chain(tokens, owner))


TEXTS = st.lists(st.lists(st.integers(0, 1), max_size=14), max_size=6)


@given(texts=TEXTS, wanted=st.lists(st.integers(0, 1), max_size=14))
def test_the_longest_common_beginning_is_found(
    texts: list[list[int]], wanted: list[int], tmp_path_factory: pytest.TempPathFactory
) -> None:
    shelf = Shelf(tmp_path_factory.mktemp("store"), "model", SIZE)
    for text in texts:
        put(shelf, text)
    longest = max((common_beginning(each, wanted) for each in texts), default=0)
    chain = shelf.chain(wanted, "")
    assert sum(each.common for each in chain) == longest
    assert [token for each in chain for token in each.tokens][:longest] == wanted[:longest]
    for each in chain:
        stored = shelf.read(each.file)
        assert (stored.tokens, stored.about, bytes(stored.content)) == (
            each.tokens,
            b"about",
            b"cells",
        )
    assert (
        shelf.chain(wanted, "another")
        == Shelf(shelf._directory, "other", SIZE).chain(wanted, "")
        == []
    )


def test_what_texts_begin_with_is_there_once_and_private(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "reads", "model", SIZE)
    names = {*put(shelf, [1] * 9), *put(shelf, [1] * 8 + [2])}
    assert len(names) == 4
    shelf.write(tail_of("a" * 20), (), b"", [b"tail"])
    assert bytes(shelf.read(tail_of("a" * 20)).content) == b"tail"
    for path in (tmp_path / "reads", *(tmp_path / "reads").rglob("*")):
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600)
    assert held(tmp_path / "reads")[1] == 1


def test_not_one_wrong_byte_is_used_and_its_file_goes(tmp_path: Path) -> None:
    shelf, moments = Shelf(tmp_path, "model", SIZE), random.Random(0)
    (name,) = put(shelf, [1, 2, 3], content=b"x" * 50)
    (path,) = (each for each in tmp_path.rglob(name))
    whole = path.read_bytes()
    wrong = [whole[:length] for length in (0, 1, 40, len(whole) - 1)]
    wrong += [whole + b"x", random.Random(1).randbytes(len(whole))]
    for _ in range(20):
        at = moments.randrange(len(whole))
        wrong.append(whole[:at] + bytes([whole[at] ^ 1 << moments.randrange(8)]) + whole[at + 1 :])
    for each in wrong:
        path.write_bytes(each)
        assert found(shelf, [1, 2, 3, 4]) <= 3
        with pytest.raises(UnusableError):
            shelf.read(name)
        assert not path.exists()
    other = shelf.child(shelf.beginning(""), [9])
    path.with_name(f"{shelf.beginning('')}.{other}").write_bytes(whole)
    with pytest.raises(UnusableError):  # whole, but not what its name says
        shelf.read(f"{shelf.beginning('')}.{other}")
    path.mkdir()
    with pytest.raises(UnusableError):
        shelf.read(name)


def test_what_was_of_no_use_for_longest_goes_first_and_ends_before_beginnings(
    tmp_path: Path, monkeypatch: Patch
) -> None:
    shelf, other = Shelf(tmp_path, "model", SIZE), Shelf(tmp_path, "other", SIZE)
    old, new = put(shelf, [1] * 12), put(other, [2] * 12)
    for names, owner in ((old, shelf), (new, other)):
        owner.touch(names)
        time.sleep(0.01)
    total, models = held(tmp_path)
    assert models == 2
    monkeypatch.setattr(read_store, "MOST_BYTES", total - 1)
    make_room(tmp_path)
    assert (found(shelf, [1] * 12), found(other, [2] * 12)) == (8, 12)
    monkeypatch.setattr(read_store, "MOST_BYTES", total // 3)
    make_room(tmp_path)
    assert (found(shelf, [1] * 12), found(other, [2] * 12)) == (0, 8)


def test_no_more_is_written_in_an_hour_than_may_be_kept(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setattr(read_store, "MOST_BYTES", 1000)
    assert may_be_written(tmp_path, 600)
    assert not may_be_written(tmp_path, 600)
    assert may_be_written(tmp_path, 300)
    ledger = tmp_path / "written"
    os.utime(ledger, (ledger.stat().st_mtime - 3600,) * 2)
    assert may_be_written(tmp_path, 600)
    ledger.write_text("?")
    assert may_be_written(tmp_path, 600), "a damaged account forbids nothing"
    monkeypatch.setattr(read_store, "free_bytes", lambda _: read_store.SPARE_BYTES)
    os.utime(ledger, (1, 1))
    assert not may_be_written(tmp_path, 1), "the disk is nearly full"


KILLED = """
import sys, time
from pathlib import Path
from localspec.storage.read_store import Shelf
shelf = Shelf(Path(sys.argv[1]), "model", 4)
print("ready", flush=True)
for number in range(10**6):
    parent, text = shelf.beginning(""), [number, *range(11)]
    for start in (0, 4, 8):
        own = shelf.child(parent, text[start : start + 4])
        shelf.write(f"{parent}.{own}", text[start : start + 4], b"about", [bytes(1 << 18)])
        parent = own
"""


@pytest.mark.slow
def test_a_killed_writer_leaves_nothing_that_is_used(tmp_path: Path) -> None:
    shelf, moments = Shelf(tmp_path, "model", SIZE), random.Random(2)
    for _ in range(30):
        child = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(tmp_path)], stdout=subprocess.PIPE
        )
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(moments.random() / 20)
        child.kill()
        child.wait()
        child.stdout.close()
        for number in range(1000):
            chain = shelf.chain([number, *range(11)], "")
            if not chain:
                break
            for each in chain:
                assert shelf.read(each.file).content == bytes(1 << 18)
        make_room(tmp_path)
    left = list(tmp_path.rglob(".*"))
    for path in left:
        os.utime(path, (1, 1))
    make_room(tmp_path)
    assert not [*tmp_path.rglob(".*")]


def test_what_was_said_in_a_conversation_leaves_with_it(tmp_path: Path) -> None:
    shelf = Shelf(tmp_path / "reads", "model", SIZE)
    shelf.note(7, put(shelf, [1] * 5))
    shelf.note(7, put(shelf, [2] * 5))
    put(shelf, [3] * 5)
    (tmp_path / "else").write_text("stays")
    shelf.note(8, ["../../else"])
    forget_conversation(tmp_path / "reads", 7)
    forget_conversation(tmp_path / "reads", 8)
    forget_conversation(tmp_path / "reads", 9)
    assert [found(shelf, [each] * 5) for each in (1, 2, 3)] == [0, 0, 5]
    shelf.note(7, put(shelf, [1] * 5))  # by an engine that still held it
    assert found(shelf, [1] * 5) == 0
    assert (tmp_path / "else").exists()


def test_what_is_noted_at_the_same_time_leaves_too(tmp_path: Path, monkeypatch: Patch) -> None:
    shelf = Shelf(tmp_path / "reads", "model", SIZE)
    texts = [[each] * 5 for each in range(4)]
    files = [put(shelf, each) for each in texts]

    def slowly(path: Path, content: bytes) -> None:
        time.sleep(0.05)
        write_atomic(path, content)

    monkeypatch.setattr(read_store, "write_atomic", slowly)
    with ThreadPoolExecutor() as threads:
        for names in files[:3]:
            threads.submit(shelf.note, 7, names)
    with ThreadPoolExecutor() as threads:
        threads.submit(shelf.note, 7, files[3])
        time.sleep(0.02)
        forget_conversation(tmp_path / "reads", 7)
    assert [found(shelf, each) for each in texts] == [0] * 4


def test_what_earlier_versions_kept_goes(tmp_path: Path) -> None:
    for name in ("prefixes/a/0", "history/state/7", "history/media"):
        (tmp_path / name).mkdir(parents=True)
    remove_old(tmp_path)
    assert {each.name for each in tmp_path.rglob("*")} == {"history", "media"}
