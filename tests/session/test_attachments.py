from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.messages import Message
from localspec.session.attachments import attached, completions, file_size, label


def test_a_mentioned_file_goes_with_the_text(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    files = attached("What does @a.py do?", tmp_path)
    said = Message.user("What does @a.py do?", files)
    assert said.text == 'What does @a.py do?\n\n<file name="a.py">\nx = 1\n</file>'
    assert [label(each) for each in said.documents] == ["a.py · 5 B · ≈ 1 tokens"]


def test_a_full_stop_behind_a_name_is_not_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("x")
    assert [each.name for each in attached("See @a.py. And (@a.py)!", tmp_path)] == ["a.py"]


def test_a_name_with_spaces_is_quoted(tmp_path: Path) -> None:
    (tmp_path / "my file.txt").write_text("y")
    assert [each.name for each in attached('Sum up @"my file.txt" please', tmp_path)] == [
        "my file.txt"
    ]


@pytest.mark.parametrize(
    "text", ["mail me@example.org", "@nobody is here", "@", "@/no/such", "@" + "x" * 5000]
)
def test_what_names_no_file_is_just_text(text: str, tmp_path: Path) -> None:
    assert attached(text, tmp_path) == []


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    assert attached("@src", tmp_path) == []


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(UsageError, match="is not UTF-8 text"):
        attached("@a.bin", tmp_path)


def test_a_file_beyond_any_context_is_refused(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * ((1 << 20) + 1))
    with pytest.raises(UsageError, match="longer than 1 MB"):
        attached("@big", tmp_path)


def test_completions_tell_sizes_and_folders(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_bytes(b"x" * 1500)
    (tmp_path / "setup.py").write_bytes(b"x")
    (tmp_path / ".hidden").write_bytes(b"x")
    assert completions("s", tmp_path) == [("setup.py", "1 B"), ("src/", "")]
    assert completions("src/m", tmp_path) == [("src/main.py", "1.5 KB")]
    assert completions("", tmp_path) == [("setup.py", "1 B"), ("src/", "")]
    assert completions(".h", tmp_path) == [(".hidden", "1 B")]
    assert completions("nowhere/x", tmp_path) == []


def test_sizes_as_people_read_them() -> None:
    assert [file_size(each) for each in (0, 999, 1000, 2_500_000)] == [
        "0 B",
        "999 B",
        "1.0 KB",
        "2 MB",
    ]
