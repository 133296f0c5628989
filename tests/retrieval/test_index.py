"""What is in an index, and stays so, whatever happens to its files and to the process that writes it."""

import os
import pty
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import click
import pytest

from localspec.cli.index import index as index_command
from localspec.errors import LocalspecError, UsageError
from localspec.retrieval import index as indexes
from localspec.retrieval.index import Index, index_names, open_index, remove_index
from localspec.retrieval.update import Changes, add, update
from tests.retrieval.documents import docx, pdf

OLD_NS = 1_700_000_000_000_000_000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "notes"
    for name, text in {
        "tea.md": "# Tea\n\nGreen tea is brewed at eighty degrees.", "picture.png": "\0\1",
        "deep/coffee.txt": "Espresso needs nine bars of pressure.", ".env": "TOKEN=percolate",
        "code.py": "def percolate(water):\n    return water",
    }.items():  # fmt: skip
        write(folder / name, text)
    return folder


def write(path: Path, text: str, changed_ns: int = OLD_NS) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    os.utime(path, ns=(changed_ns, changed_ns))


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    with closing(open_index("notes", make=True)) as index:
        yield index


def figures(changes: Changes) -> tuple[int, int, int, int]:
    return changes.added, changes.changed, changes.same, changes.removed


def names(index: Index, question: str) -> list[str]:
    return [each.path.name for each in index.search(question, 5)]


def stored(index: Index) -> bytes:
    return b"".join(each.read_bytes() for each in index.path.parent.iterdir())


def assert_sound(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        # The words agree with the passages that they were taken from.
        database.execute("INSERT INTO word(word, rank) VALUES ('integrity-check', 1)")


def test_passages_are_found_by_words_names_and_headings(index: Index, folder: Path) -> None:
    for name, text in {"a": "# Kettle\nboils water", "b": "# Water\nis in a kettle"}.items():
        write(folder.parent / f"{name}.md", text)
    assert figures(add(index, [folder])) == (3, 0, 0, 0)
    (first,) = index.search("At how many degrees do I brew green tea?", 5)
    assert (first.path, first.passage.first, first.passage.last) == (folder / "tea.md", 1, 3)
    assert first.passage.heading == "Tea"
    add(index, [folder.parent / "a.md", folder.parent / "b.md"])
    for question, files in {
        "pressure of an ESPRESSO": ["coffee.txt"], "the coffees": ["coffee.txt"], "percolate": ["code.py"],
        "": [], '"*(': [], "zzz": [], "kettle": ["a.md", "b.md"], "water": ["b.md", "code.py", "a.md"],
    }.items():  # fmt: skip
        assert names(index, question) == files
    assert "tea.md" in names(index, "what is it?"), "where nothing else is there, such words count"


def test_a_picture_of_a_folder_is_left_out_and_one_that_is_named_is_text(
    index: Index, folder: Path
) -> None:
    write(folder / "plan.SVG", "<svg><path d='M0 0 kettle'/></svg>")
    assert str(folder / "plan.SVG") in add(index, [folder]).not_text
    assert names(index, "kettle") == []
    add(index, [folder / "plan.SVG"])
    assert names(index, "kettle") == ["plan.SVG"]


def test_only_what_changed_is_read_again(index: Index, folder: Path) -> None:
    add(index, [folder])
    assert figures(update(index)) == (0, 0, 3, 0)
    write(folder / "tea.md", "Black tea is brewed at ninety degrees.", OLD_NS + 1)
    (folder / "code.py").unlink()
    write(folder / "new.txt", "Cocoa")
    write(folder / "deep/coffee.txt", "Espresso needs nine bars of pressure.", OLD_NS + 5)
    assert figures(update(index)) == (1, 1, 1, 1)
    assert names(index, "green") == names(index, "percolate") == []
    assert names(index, "black ninety") == ["tea.md"]
    (folder / "deep/coffee.txt").chmod(0)
    assert figures(update(index)) == (0, 0, 3, 0), "what seems unchanged is not even opened"
    (folder / "tea.md").write_bytes(b"\0\0")
    assert len(update(index).not_text) == 2
    assert names(index, "tea") == []
    assert_sound(index.path)


def test_a_change_within_a_tick_of_the_clock_is_read(index: Index, folder: Path) -> None:
    add(index, [folder])
    (folder / "tea.md").write_text("aaaa")
    now = (folder / "tea.md").stat()
    update(index)
    (folder / "tea.md").write_text("bbbb")
    os.utime(folder / "tea.md", ns=(now.st_atime_ns, now.st_mtime_ns))
    update(index)
    assert names(index, "bbbb") == ["tea.md"]


def test_ignored_files_links_and_localspecs_own_are_left_out(index: Index, folder: Path) -> None:
    (folder / ".gitignore").write_text("*.py\n")
    write(folder / "deep/.gitignore", "*\n!kept.md\n")
    write(folder / "deep/kept.md", "Cocoa")
    add(index, [folder])
    assert {Path(each).name for each in index.known()} == {"tea.md", "kept.md"}
    (folder / ".gitignore").unlink()
    assert figures(update(index)) == (1, 0, 2, 0), "without a repository"
    subprocess.run(["git", "-C", str(folder), "init", "-q"], check=True)
    (folder / ".gitignore").write_text("deep/\n")
    own, outside = folder.parent / "data", folder.parent / "secret.txt"
    (own / "telemetry.jsonl").write_text("espresso")
    outside.write_text("espresso")
    (folder / "link.txt").symlink_to(outside)
    with suppress(OSError):  # a file system may take only UTF-8
        (folder / os.fsdecode(b"caf\xe9.txt")).write_text("espresso")
    add(index, [folder.parent])
    assert {Path(each).name for each in index.known()} == {"tea.md", "code.py", "secret.txt"}
    assert [each for each in index.known() if each.startswith(str(own))] == []
    assert names(index, "espresso") == ["secret.txt"]


def test_documents_are_found_by_page_and_paragraph(index: Index, tmp_path: Path) -> None:
    (tmp_path / "a.pdf").write_bytes(pdf(["Nothing", "The kettle whistles"]))
    (tmp_path / "b.docx").write_bytes(docx(("", "Dear all"), ("", "The saucer broke")))
    (tmp_path / "c.html").write_text("<p>one</p>\n<p>The teapot drips</p>")
    add(index, [tmp_path / each for each in ("a.pdf", "b.docx", "c.html")])
    for word, name in {"whistling": "a.pdf", "saucers": "b.docx", "dripping": "c.html"}.items():
        (first,) = index.search(word, 1)
        assert (first.path.name, first.passage.last) == (name, 2)


def test_what_is_named_and_cannot_be_read_is_refused(index: Index, folder: Path) -> None:
    for name, word in (("picture.png", "not text"), ("nothing", "not there")):
        with pytest.raises(UsageError, match=word):
            add(index, [folder / name])
    assert index.roots() == ()


def test_what_was_added_and_is_away_stays_as_it_was(index: Index, folder: Path) -> None:
    add(index, [folder])
    folder.rename(folder.with_name("away"))
    changes = update(index)
    assert (changes.removed, changes.missing) == (0, [folder])
    assert names(index, "espresso") == ["coffee.txt"]
    folder.with_name("away").rename(folder)
    (folder / "tea.md").unlink()
    assert figures(update(index)) == (0, 0, 2, 1)


def test_what_is_killed_while_indexing_goes_on(index: Index, tmp_path: Path) -> None:
    count, before = 450, 0
    for number in range(count):
        write(tmp_path / "many" / f"{number:03}.txt", f"word{number} and more")
    index.add_roots([(tmp_path / "many").resolve()])
    command = [sys.executable, "-m", "tests.retrieval.background", "update", str(index.path)]
    for files in (100, 250, 430):
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            next(line for line in process.stdout if int(line) >= files)
            process.kill()
        now = index.contents().files
        assert before <= now <= count
        before = now
        assert_sound(index.path)
    assert before, "whole batches are written"
    assert figures(update(index)) == (count - before, 0, before, 0)
    assert [len(index.search(f"word{number}", 2)) for number in range(count)] == [1] * count
    assert_sound(index.path)


def test_indexes_are_private_and_known_by_name(index: Index, folder: Path) -> None:
    add(index, [folder])
    paths = [*index.path.parent.iterdir(), index.path.parent]
    assert all(each.stat().st_mode & 0o077 == 0 for each in paths)
    assert indexes.index_names() == ["notes"]
    with pytest.raises(UsageError, match="choose one of notes"):
        open_index("other")
    with pytest.raises(UsageError, match="is not an index name"):
        open_index("../x", make=True)
    index.close()
    remove_index("notes")
    assert list(index.path.parent.iterdir()) == []
    with pytest.raises(UsageError, match="index add"):
        open_index("notes")


def test_a_text_that_is_removed_is_overwritten(index: Index, folder: Path) -> None:
    """Single words of it stay in SQLite's word lists until those are merged."""
    text, log = "the passphrase is zyzzyva", index.path.with_name("notes.db-wal")
    write(folder / "key.txt", text)
    add(index, [folder])
    assert text.encode() in log.read_bytes()
    (folder / "key.txt").unlink()
    update(index)
    index.close()
    assert text.encode() not in index.path.read_bytes()
    assert not log.exists()


def test_keys_and_passwords_stay_out_and_addresses_are_found(folder: Path, index: Index) -> None:
    key, other = "ghp_abcdefghijklmnopqrstuvwxyz0123456789", '"x\\nAKIA2E4QRSTUVWXY7Z2A\\npassword = \\"hunterA9b2cQ\\""'  # fmt: skip
    lines = (f"{number:02}MIIEowIBAAKCAQEAx7fooBarBazQuxQuux{number:029}\n" for number in range(40))
    pem = f"-----BEGIN PRIVATE KEY-----\n{''.join(lines)}-----END PRIVATE KEY-----"
    write(folder / "setup.md", f"# Setup\n\nThe frobnicator takes {key}.\nAsk ann@example.org.")
    write(folder / "env.json", f'{{"env": {other}}}')
    write(folder / "a.md", f"# Deploy\n\n{pem}\n\n# Port\n\nIt is 8080, " + "and so on. " * 40)
    add(index, [folder])
    (first,) = index.search("frobnicator", 1)
    assert first.passage.text.endswith("takes [masked: GitHub token].\nAsk ann@example.org.")
    (first,) = index.search("port 8080", 1)
    assert first.passage.last == 48, "lines keep their numbers"
    assert b"[masked: AWS access key]" in stored(index)
    for secret in (key[4:].encode(), b"AKIA2E4", b"hunterA9", b"fooBarBaz"):
        assert secret not in stored(index)


def test_what_is_no_index_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.db").write_bytes(b"something else entirely" * 100)
    with closing(sqlite3.connect(tmp_path / "y.db")) as database:
        database.execute("PRAGMA user_version = 99")
    for name, word in (("x.db", "cannot be used"), ("y.db", "of a later localspec, version 99")):
        with pytest.raises(LocalspecError, match=word):
            Index(tmp_path / name)


@pytest.mark.parametrize(("answer", "stays"), [("n", True), ("y", False)])
def test_an_index_goes_on_a_terminal_only_when_that_is_confirmed(
    answer: str, stays: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    open_index("notes", make=True).close()
    keyboard, theirs = pty.openpty()
    os.write(keyboard, f"{answer}\n".encode())
    with os.fdopen(keyboard), os.fdopen(theirs) as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        with suppress(click.Abort):
            index_command.main(["rm", "notes"], standalone_mode=False)
    assert index_names() == ["notes"] * stays
