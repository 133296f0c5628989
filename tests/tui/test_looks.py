"""What the screens show to a person, and for how long: one run of the chat for several facts."""

from pathlib import Path

import pytest

from localspec.chat.request import Request
from localspec.session.preferences import read_preferences
from localspec.tui.race import Race
from localspec.tui.sheets import RaceSheet, TextSheet
from tests.tui.answers import exchange, finished, tokens
from tests.tui.driving import Chat, drive, driven

CODE = "Two blocks:\n\n```python\nx = 1\n```\n\n日本語 👩‍👩‍👧\n\n```sh\nls\n```\n"
INDENTED = "def f():\n    return some_function(an_argument, another_one)\n"


@driven({"otherwise": [CODE]})
async def test_code_is_copied_by_a_click_and_by_a_key_without_its_frame(chat: Chat) -> None:
    await chat.ask("code?")
    assert chat.contents == ["code?", CODE]
    assert "```" not in chat.text()
    assert "日本語" in chat.text()
    reply = chat.transcript.views[-1]
    lines = chat.text().splitlines()
    row = next(at for at, line in enumerate(lines) if "copy" in line)
    await chat.pilot.click(offset=(lines[row].index("copy"), row))
    await chat.settle()
    assert chat.app.clipboard == "x = 1"
    reply.focus()
    await chat.press("k")
    assert chat.app.clipboard == "ls"
    await chat.press("k")
    assert chat.app.clipboard == "x = 1"
    await chat.press("c")
    assert chat.app.clipboard == CODE
    await chat.press("escape")
    assert chat.app.focused is chat.composer
    await chat.pilot.mouse_down(reply, offset=(2, 4))
    await chat.pilot.hover(reply, offset=(40, 4))
    await chat.pilot.mouse_up(reply, offset=(40, 4))
    await chat.settle()
    assert chat.app.screen.get_selected_text() == "  x = 1"
    # Text does not touch the scroll bar.
    assert all(line[-2:].strip() == "" for line in lines[: row + 3] if len(line) >= 79)


@driven({"otherwise": ["some answer that is drafted"], "drafts": 3})
async def test_stats_stand_beside_the_conversation_where_there_is_room(chat: Chat) -> None:
    await chat.press("f2")
    await chat.ask("one?")
    panel, transcript = chat.app.view.stats, chat.app.view.transcript
    assert panel.region.y >= transcript.region.bottom
    await chat.sized(110, 24)
    await chat.until(lambda: panel.region.x >= transcript.region.right)
    assert panel.region.height == transcript.region.height
    await chat.until(lambda: "tokens per step" in chat.text())
    await chat.sized(80, 24)
    await chat.until(lambda: panel.region.y >= transcript.region.bottom)


@pytest.mark.parametrize("no_color", [False, True])
def test_the_lens_and_the_race_keep_the_indentation_of_code(
    no_color: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")

    async def look(chat: Chat) -> None:
        await chat.ready()
        cursor = chat.composer.get_component_rich_style("text-area--cursor")
        assert cursor.reverse or not no_color, "it would not be seen"
        drafted = tokens(INDENTED, by="model", drafted=1, accepted=1)
        made = exchange(INDENTED, tokens=[drafted, tokens("\n" * 40)], done=finished())
        chat.session.exchange = made
        await chat.until_sheet(TextSheet, "f3")
        shown = chat.text()
        assert f"│     {'[' * no_color}return some_function" in shown
        # Marks only where there are no colours; what they mean stays in sight.
        assert ("[def f():" in shown) == no_color
        await chat.press("end")
        assert "proposed by the draft model" in chat.text()
        await chat.press("escape")

        race = Race(chat.session.engine, Request(0))
        race.lanes = [
            exchange(INDENTED, done=finished(text=INDENTED, tokens_per_s=speed))
            for speed in (30.0, 15.0)
        ]
        race.done = True
        chat.app.push_screen(RaceSheet(race))
        await chat.until(lambda: "30.0 tokens/s" in chat.text())
        lines = chat.text().splitlines()
        first = next(at for at, line in enumerate(lines) if "def f()" in line)
        assert lines[first + 1][2:].startswith("    return")

    drive(look, tmp_path, size=(60, 20))


def test_news_goes_when_it_holds_no_more(tmp_path: Path) -> None:
    async def look(chat: Chat) -> None:
        await chat.begin("one?")
        assert "Assistant" not in chat.text()
        await chat.run("/new")
        assert "still answering: wait before /new, or press Esc" in chat.text()
        loaded.touch()
        await chat.until_rest()
        await chat.until(lambda: "wait before" not in chat.text())
        await chat.press("ctrl+c")
        assert chat.composer.text == ""  # which had /new, to be sent again
        await chat.press("ctrl+c")
        assert "Ctrl+C again quits" in chat.text()
        chat.app._advised_s -= 10.0
        await chat.press("f6")
        assert "editing question 1" in chat.text()
        await chat.press("escape")
        assert "editing" not in chat.text()

    loaded = tmp_path / "loaded"
    script = {"otherwise": ["word " * 10], "pass_s": 0.01, "load_s": str(loaded)}
    drive(look, tmp_path, script, size=(160, 24))


def test_a_killed_engine_is_reported_until_it_is_back(tmp_path: Path) -> None:
    loaded, go_on = tmp_path / "loaded", tmp_path / "go on"

    async def look(chat: Chat) -> None:
        await chat.begin("one?")
        loaded.touch()
        await chat.ready()
        loaded.unlink()  # the next load takes as long as it is looked at
        go_on.touch()
        await chat.until(lambda: "memory ran out; " in chat.text())
        loaded.touch()
        await chat.ready()
        await chat.until(lambda: "memory ran out" not in chat.text())
        assert "interrupted, /continue resumes" in chat.text()

    script = {
        "otherwise": ["word " * 20],
        "load_s": str(loaded),
        "death": {"on": "token", "at": 40},
    }
    script["rests"] = {"at": 10, "until": str(go_on)}
    drive(look, tmp_path, script, size=(120, 24))


def test_the_usual_colours_follow_the_terminal_and_chosen_ones_are_kept(tmp_path: Path) -> None:
    file = tmp_path / "chat.toml"

    async def begin(chat: Chat) -> None:
        await chat.ready()
        assert chat.app.theme == "dark"
        assert not file.exists()

    drive(begin, tmp_path, preferences=read_preferences(file))
    file.write_text('theme = "light"\n')

    async def look(chat: Chat) -> None:
        assert chat.app.theme == "light"
        await chat.run("/theme dark")
        await chat.until(lambda: read_preferences(file).theme == "dark")
        await chat.run("/theme plaid")
        assert "there is no theme 'plaid': choose one of dark, light, " in chat.text()

    drive(look, tmp_path, preferences=read_preferences(file))
