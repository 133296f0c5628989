from pathlib import Path

from localspec.tui.commands import COMMANDS
from localspec.tui.composer import complete
from tests.tui.driving import Chat, driven


def texts(text: str, folder: Path, offset: int | None = None) -> list[str]:
    found = complete(text, len(text) if offset is None else offset, folder)
    return [each.text for each in found]


def test_commands_are_completed(tmp_path: Path) -> None:
    assert texts("/his", tmp_path) == ["/history "]
    (only,) = complete("/new", 4, tmp_path)
    assert only.whole


def test_arguments_are_completed(tmp_path: Path) -> None:
    assert texts("/export ", tmp_path) == ["/export md ", "/export json "]
    assert texts("/export j", tmp_path) == ["/export json "]
    assert texts("/export json", tmp_path) == []


def test_a_path_is_completed_in_the_middle_of_a_text(tmp_path: Path) -> None:
    (tmp_path / "notes.md").write_text("x")
    assert texts("Sum up @no now", tmp_path, offset=10) == ["Sum up @notes.md  now"]


def test_a_path_with_spaces_gets_quotes(tmp_path: Path) -> None:
    (tmp_path / "my notes.md").write_text("x")
    assert texts("@my", tmp_path) == ['@"my notes.md" ']


def test_a_folder_stays_open(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    assert texts("@s", tmp_path) == ["@src/"]


def test_an_address_is_not_completed(tmp_path: Path) -> None:
    (tmp_path / "example").write_text("x")
    assert texts("me@exa", tmp_path) == []


def test_a_name_that_would_move_the_cursor_is_shown_clean(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[2J").write_text("x")
    (only,) = complete("@a", 2, tmp_path)
    assert only.label == "a␛[2J"


@driven(size=(60, 20))
async def test_a_menu_that_is_cut_says_how_much_there_is(chat: Chat) -> None:
    await chat.ready()
    await chat.press("/")
    known = sum(not each.rare for each in COMMANDS)
    await chat.until(lambda: f"6 of {known} · " in chat.text())
    await chat.press("e", "d", "i")
    await chat.until(lambda: "/edit" in chat.text() and " shows the others" not in chat.text())
