"""Names that lead out of a folder, by every way that there is."""

import ctypes
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.toolbox.folder import Folder


@pytest.fixture
def ground(tmp_path: Path) -> Path:
    (tmp_path / "inside/sub").mkdir(parents=True)
    for name in ("inside/a.txt", "inside/sub/b.txt", "secret.txt"):
        (tmp_path / name).write_text(Path(name).stem)
    return tmp_path


@pytest.fixture
def folder(ground: Path) -> Iterator[Folder]:
    opened = Folder(ground / "inside")
    yield opened
    opened.close()


def read(folder: Folder, name: str) -> str | None:
    file = folder.read(name, 100)
    return None if file is None else file[1].decode()


def assert_refused(folder: Folder, word: str, *names: str) -> None:
    for name in names:
        with pytest.raises(UsageError, match=word):
            folder.read(name, 100)
        with pytest.raises(UsageError, match=word):
            folder.write(name, b"gone")


def test_names_lead_nowhere_else(ground: Path, folder: Folder) -> None:
    dots = ("../secret.txt", "sub/../../secret.txt", "./../secret.txt", "sub/../../inside/../secret.txt", "..")  # fmt: skip
    assert_refused(folder, "outside", *dots)
    assert_refused(folder, "outside", f"{ground}/secret.txt", "/etc/passwd", f"{ground}/inside2/a", "/")  # fmt: skip
    assert_refused(folder, "file name", "", "a\0b", "x" * 5000, "\ud800")
    assert read(folder, str(ground / "inside/a.txt")) == "a"
    assert read(folder, "none") is None
    assert folder.canonical(str(ground / "inside")) == "."


def test_links_are_followed_inside_and_not_outside(ground: Path, folder: Folder) -> None:
    inside = ground / "inside"
    for name, target in {
        "good": "sub/b.txt", "absolute": str(inside / "a.txt"), "up": "../secret.txt", "door": "..",
        "far": str(ground / "secret.txt"), "loop": "loop", "sub/back": "../a.txt",
    }.items():  # fmt: skip
        (inside / name).symlink_to(target)
    assert [read(folder, each) for each in ("good", "absolute", "sub/back")] == ["b", "a", "a"]
    assert folder.canonical("good") == "sub/b.txt"
    assert_refused(folder, "outside", "up", "far", "door/secret.txt", "door/../secret.txt")
    with pytest.raises(UsageError, match="Too many levels"):
        folder.read("loop", 100)
    assert (ground / "secret.txt").read_text() == "secret"


def test_what_is_no_regular_file_is_refused_at_once(ground: Path, folder: Folder) -> None:
    os.mkfifo(ground / "inside/pipe")
    assert_refused(folder, "regular|directory", "pipe", "sub", ".")


def test_a_file_is_replaced_whole_and_keeps_its_mode(ground: Path, folder: Folder) -> None:
    script = ground / "inside/run.sh"
    script.write_text("old")
    script.chmod(0o755)
    folder.write("run.sh", b"new")
    assert (script.read_text(), script.stat().st_mode & 0o777) == ("new", 0o755)
    assert sorted(each.name for each in (ground / "inside").iterdir()) == ["a.txt", "run.sh", "sub"]
    folder.write("-rf", b"flag")
    folder.write("--help/-x", b"flag")
    assert (read(folder, "-rf"), read(folder, "--help/-x")) == ("flag", "flag")


def test_what_git_runs_is_not_written(ground: Path, folder: Folder) -> None:
    (ground / "inside/.git").mkdir()
    (ground / "inside/door").symlink_to(".git")
    for name in (".git/hooks/pre-commit", "sub/.git/config", ".GIT/config", "x/.git", "door/config"):  # fmt: skip
        with pytest.raises(UsageError, match="belongs to git"):
            folder.write(name, b"x")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux exchanges two names at once")
def test_a_swap_between_look_and_use_does_not_lead_out(ground: Path, folder: Folder) -> None:
    """A folder is swapped for a link out of the tree, and back, all the time; what is read is never the secret."""
    (ground / "out").mkdir()
    (ground / "out/b.txt").write_text("secret")
    place, link = ground / "inside/sub", ground / "link"
    link.symlink_to(ground / "out")
    done, pauses = threading.Event(), random.Random(0)
    exchange, here = 2, -100  # RENAME_EXCHANGE of renameat2(2), AT_FDCWD

    def swap() -> None:
        libc = ctypes.CDLL(None)
        while not done.is_set():
            assert not libc.renameat2(here, bytes(place), here, bytes(link), exchange)
            # Without it the two threads can fall into step, and every look meets the same one of the two.
            time.sleep(pauses.random() / 5000)

    swapping = threading.Thread(target=swap)
    swapping.start()
    results: set[str | None] = set()
    number, latest = 0, time.monotonic() + 60
    try:
        while number < 1500 or (len(results) < 2 and time.monotonic() < latest):
            number += 1
            try:
                results.add(read(folder, "sub/b.txt"))
                folder.write("sub/new.txt", str(number).encode())
            except UsageError:
                results.add("refused")
    finally:
        done.set()
        swapping.join()
    assert results == {"b", "refused"}
    assert [each.name for each in (ground / "out").iterdir()] == ["b.txt"]
