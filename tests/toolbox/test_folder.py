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
    (tmp_path / "inside/a.txt").write_text("a")
    (tmp_path / "inside/sub/b.txt").write_text("b")
    (tmp_path / "secret.txt").write_text("secret")
    return tmp_path


@pytest.fixture
def folder(ground: Path) -> Iterator[Folder]:
    opened = Folder(ground / "inside")
    yield opened
    opened.close()


def read(folder: Folder, name: str) -> str | None:
    found = folder.read(name, 100)
    return None if found is None else found[1].decode()


@pytest.mark.parametrize(
    "name",
    [
        "../secret.txt", "sub/../../secret.txt", "./../secret.txt", "sub/../../inside/../secret.txt", "..",
    ],
)  # fmt: skip
def test_dots_lead_nowhere_else(folder: Folder, name: str) -> None:
    with pytest.raises(UsageError, match="outside"):
        folder.read(name, 100)
    with pytest.raises(UsageError, match="outside"):
        folder.write(name, b"x")


def test_an_absolute_name_is_one_in_the_folder_or_none(ground: Path, folder: Folder) -> None:
    assert read(folder, str(ground / "inside/a.txt")) == "a"
    assert folder.canonical(str(ground / "inside")) == "."
    for name in (str(ground / "secret.txt"), "/etc/passwd", f"{ground}/inside2/a", "/"):
        with pytest.raises(UsageError, match="outside"):
            folder.read(name, 100)


def test_links_are_followed_inside_and_not_outside(ground: Path, folder: Folder) -> None:
    inside = ground / "inside"
    for name, target in {
        "good": "sub/b.txt",
        "absolute": str(inside / "a.txt"),
        "up": "../secret.txt",
        "far": str(ground / "secret.txt"),
        "door": "..",
        "loop": "loop",
        "sub/back": "../a.txt",
    }.items():
        (inside / name).symlink_to(target)
    assert (read(folder, "good"), read(folder, "absolute"), read(folder, "sub/back")) == (
        "b",
        "a",
        "a",
    )
    assert folder.canonical("good") == "sub/b.txt"
    for name in ("up", "far", "door/secret.txt", "door/../secret.txt"):
        with pytest.raises(UsageError, match="outside"):
            folder.read(name, 100)
        with pytest.raises(UsageError, match="outside"):
            folder.write(name, b"gone")
    with pytest.raises(UsageError, match="Too many levels"):
        folder.read("loop", 100)
    assert (ground / "secret.txt").read_text() == "secret"


@pytest.mark.parametrize("name", ["", "a\0b", "x" * 5000, "\ud800"])
def test_what_is_no_name_is_refused(folder: Folder, name: str) -> None:
    with pytest.raises(UsageError, match="no name"):
        folder.read(name, 100)


def test_a_name_that_looks_like_a_flag_is_a_name(ground: Path, folder: Folder) -> None:
    folder.write("-rf", b"flag")
    folder.write("--help/-x", b"flag")
    assert (ground / "inside/-rf").read_text() == "flag"
    assert read(folder, "--help/-x") == "flag"


def test_what_is_no_regular_file_is_refused_at_once(ground: Path, folder: Folder) -> None:
    os.mkfifo(ground / "inside/pipe")
    for name in ("pipe", "sub", "."):
        with pytest.raises(UsageError):
            folder.read(name, 100)
        with pytest.raises(UsageError):
            folder.write(name, b"x")


def test_a_file_is_replaced_whole_and_keeps_its_mode(ground: Path, folder: Folder) -> None:
    script = ground / "inside/run.sh"
    script.write_text("old")
    script.chmod(0o755)
    folder.write("run.sh", b"new")
    assert (script.read_text(), script.stat().st_mode & 0o777) == ("new", 0o755)
    assert sorted(each.name for each in (ground / "inside").iterdir()) == ["a.txt", "run.sh", "sub"]


@pytest.mark.parametrize(
    "name", [".git/hooks/pre-commit", "sub/.git/config", ".GIT/config", "x/.git", "door/config"]
)
def test_what_git_runs_is_not_written(ground: Path, folder: Folder, name: str) -> None:
    (ground / "inside/.git").mkdir()
    (ground / "inside/door").symlink_to(".git")
    with pytest.raises(UsageError, match="belongs to git"):
        folder.write(name, b"x")


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux exchanges two names at once")
def test_a_swap_between_look_and_use_does_not_lead_out(ground: Path, folder: Folder) -> None:
    """A folder is swapped for a link out of the tree, and back, all the time; what is read is never the secret."""
    (ground / "out").mkdir()
    (ground / "out/b.txt").write_text("secret")
    place, link = ground / "inside/sub", ground / "link"
    link.symlink_to(ground / "out")
    done = threading.Event()
    exchange = 2  # RENAME_EXCHANGE of renameat2(2)
    pauses = random.Random(0)

    def swap() -> None:
        libc = ctypes.CDLL(None)
        while not done.is_set():
            here = -100
            assert not libc.renameat2(here, bytes(place), here, bytes(link), exchange)
            # Without it the two threads can fall into step, and every look meets the same one of the two.
            time.sleep(pauses.random() / 5000)

    swapping = threading.Thread(target=swap)
    swapping.start()
    seen: set[str | None] = set()
    number, latest = 0, time.monotonic() + 60
    try:
        while number < 1500 or (len(seen) < 2 and time.monotonic() < latest):
            number += 1
            try:
                seen.add(read(folder, "sub/b.txt"))
                folder.write("sub/new.txt", str(number).encode())
            except UsageError:
                seen.add("refused")
    finally:
        done.set()
        swapping.join()
    assert "secret" not in seen
    assert seen == {"b", "refused"}
    assert [each.name for each in (ground / "out").iterdir()] == ["b.txt"]
