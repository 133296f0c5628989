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


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("See @a.py. And (@a.py)!", ["a.py"]),
        ('Sum up @"my file.txt" please', ["my file.txt"]),
        ("@src", []),
        ("mail me@example.org", []),
        ("@nobody is here", []),
        ("@", []),
        ("@/no/such", []),
        ("@" + "x" * 5000, []),
    ],
)
def test_what_names_a_file_is_attached_and_the_rest_is_text(
    text: str, names: list[str], tmp_path: Path
) -> None:
    for name in ("a.py", "my file.txt"):
        (tmp_path / name).write_text("x")
    (tmp_path / "src").mkdir()
    assert [each.name for each in attached(text, tmp_path)] == names


@pytest.mark.parametrize(
    ("content", "word"),
    [(b"\xff\xfe\x00", "is not UTF-8 text"), (b"x" * ((1 << 20) + 1), "longer than 1 MB")],
)
def test_what_no_context_can_hold_is_refused(content: bytes, word: str, tmp_path: Path) -> None:
    (tmp_path / "a.bin").write_bytes(content)
    with pytest.raises(UsageError, match=word):
        attached("@a.bin", tmp_path)


def test_completions_have_sizes_and_folders(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "main.py").write_bytes(b"x" * 1500)
    (tmp_path / "setup.py").write_bytes(b"x")
    (tmp_path / ".hidden").write_bytes(b"x")
    (tmp_path / "sgone.py").symlink_to(tmp_path / "nowhere")
    offers = {
        "s": [("setup.py", "1 B"), ("src/", "")],
        "src/m": [("src/main.py", "1.5 KB")],
        "": [("setup.py", "1 B"), ("src/", "")],
        ".h": [(".hidden", "1 B")],
        "nowhere/x": [],
    }
    assert {typed: completions(typed, tmp_path) for typed in offers} == offers
    sizes = [file_size(each) for each in (0, 999, 1000, 2_500_000)]
    assert sizes == ["0 B", "999 B", "1.0 KB", "2 MB"]
