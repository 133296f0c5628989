from pathlib import Path

import pytest

from localspec.tui.commands import COMMANDS
from localspec.tui.composer import complete
from tests.tui.driving import Chat, driven


@pytest.mark.parametrize(
    ("typed", "texts"),
    [
        ("/his", ["/history "]),
        ("/export ", ["/export md ", "/export json "]),
        ("/export j", ["/export json "]),
        ("/export json", []),
        ("Sum up @no| now", ["Sum up @notes.md  now"]),
        ("@my", ['@"my file.md" ']),
        ("@s", ["@src/"]),
        ("me@not", []),
    ],
)
def test_commands_arguments_and_paths_are_completed(
    typed: str, texts: list[str], tmp_path: Path
) -> None:
    for name in ("notes.md", "my file.md"):
        (tmp_path / name).write_text("x")
    (tmp_path / "src").mkdir()
    before, _, after = typed.partition("|")
    assert [each.text for each in complete(before + after, len(before), tmp_path)] == texts


def test_a_command_is_whole_and_a_name_that_would_move_the_cursor_is_clean(tmp_path: Path) -> None:
    (tmp_path / "a\x1b[2J").write_text("x")
    (command,) = complete("/new", 4, tmp_path)
    assert command.whole
    (path,) = complete("@a", 2, tmp_path)
    assert path.label == "a␛[2J"


@driven(size=(60, 20))
async def test_a_menu_that_is_cut_says_how_much_there_is(chat: Chat) -> None:
    await chat.ready()
    await chat.press("/")
    await chat.until_text(f"6 of {sum(not each.rare for each in COMMANDS)} · ")
    await chat.press("e", "d", "i")
    await chat.until(lambda: "/edit" in chat.text() and " shows the others" not in chat.text())
