"""The screens that open over the chat, driven by keys."""

import tomllib
from dataclasses import replace
from pathlib import Path

import pytest
from textual.widgets import Input

from localspec.messages import Message
from localspec.session.model_list import ModelRow
from localspec.tui.commands import COMMANDS
from localspec.tui.history_sheet import HistorySheet
from localspec.tui.picker import Picker
from localspec.tui.sheets import LineSheet, ListSheet, TextSheet
from tests.tui.driving import Chat, drive, driven

OTHER = "qwen3-4b"
"""A model that there is, beside the engine double's own; it is never downloaded."""


async def write(chat: Chat, text: str) -> None:
    """Give an open line a text."""
    chat.app.screen.query_one(Input).value = text
    await chat.press("enter")


@pytest.mark.slow
@driven({"answers": {"rivers": "The Rhine.", "trees": "The oak."}})
async def test_a_conversation_is_searched_opened_renamed_and_deleted(chat: Chat) -> None:
    history = chat.session.talk.history
    for question in ("about rivers?", "about trees?"):
        await chat.ask(question)
        await chat.run("/new")
        await chat.until(lambda: chat.contents == [])
    # What can be pressed is told in whole words.
    told = "Enter opens · Ctrl+R renames · Ctrl+X deletes · Ctrl+E exports ─╯"
    await chat.run("/history", HistorySheet, shows=told)
    await chat.sized(40, 24)
    await chat.until_text("Enter opens · Ctrl+R renames … ─╯")
    await chat.sized(80, 24)
    await chat.until_sheet(LineSheet, "ctrl+r")
    await write(chat, "Forests")
    await chat.until_text("Forests")
    assert [each.title for each in history.conversations()] == ["Forests", "about rivers?"]
    await chat.press(*"rhine", lacks="Forests")
    await chat.press("enter", shows="The Rhine.")
    assert chat.contents == ["about rivers?", "The Rhine."]
    await chat.run("/history", HistorySheet)
    for answer, left in ((["enter"], 2), (["down", "enter"], 1), (["down", "enter"], 0)):
        await chat.press("ctrl+x", shows="Delete")
        await chat.until(lambda: not isinstance(chat.app.screen, HistorySheet))
        await chat.press(*answer)
        await chat.until_sheet(HistorySheet)
        assert len(history.conversations()) == left
    await chat.until_text("no conversations yet")
    await chat.back()
    await chat.until_text("attaches a file")
    await chat.ask("again?")
    assert chat.contents[0] == "again?", "the one that was visible is gone"
    number = chat.session.talk.conversation
    asks = ["Delete “again?”?", "keep it"]
    await chat.run(f"/history delete #{number}", ListSheet, shows=asks)
    await chat.press("enter")
    await chat.until(lambda: not isinstance(chat.app.screen, ListSheet))
    assert len(history.conversations()) == 1
    await chat.run(f"/history delete #{number}", ListSheet, shows=asks)
    await chat.press("down", "enter", shows=f"deleted conversation {number}")
    assert history.conversations() == []


@driven()
async def test_what_is_exported_has_no_files_in_it_and_is_written_over_none(chat: Chat) -> None:
    folder = chat.session.folder
    (folder / "big.txt").write_text("one two three four")
    await chat.ask("sum @big.txt")
    await chat.run("/history", HistorySheet)
    assert chat.app.screen.rows[0].text == "sum @big.txt"  # type: ignore[attr-defined]
    await chat.press("ctrl+e", shows="written to")
    assert (folder / "sum-big-txt.md").exists(), "whose name may be on two lines"
    await chat.back()
    await chat.run("/export")
    await chat.run("/export json all.json")
    names = sorted(each.name for each in folder.iterdir())
    assert names == ["all.json", "big.txt", "sum-big-txt-2.md", "sum-big-txt.md"]
    exported = (folder / "sum-big-txt.md").read_text()
    assert "one two" not in exported
    assert "sum @big.txt\n\n+ big.txt · 18 B · ≈ 4 tokens\n" in exported
    assert "one two three four" in (folder / "all.json").read_text()
    await chat.run("/copy all")
    assert "one two" not in chat.app.clipboard
    await chat.run("/export md no/such/folder.md", shows="cannot be written")
    for argument in ("-", "json -"):
        await chat.run(f"/export {argument}", shows="'-' is no file")
    assert not (folder / "-").exists()


@driven()
async def test_a_setting_is_changed_and_a_wrong_one_refused(chat: Chat) -> None:
    await chat.run("/set", ListSheet, shows="a dialog is open")
    await chat.until_sheet(LineSheet, "enter")
    await write(chat, "0.25")
    await chat.until_text("temperature        0.25")
    assert chat.session.settings.current.options.sampling.temperature == 0.25
    await chat.back()
    await chat.run("/set top_p 7", shows="top_p is 7", lacks="a dialog is open")


@driven({"download": {"bytes": 2_000_000_000, "seconds": 5.0}, "otherwise": ["Fine."]}, ready=False)
async def test_a_download_shows_its_progress_and_esc_stops_it(chat: Chat) -> None:
    await chat.until_text("downloading toy: ", "of 2.0 GB")
    await chat.press(
        "escape", shows="loading was stopped: /model chooses one, /restart loads this one"
    )
    chat.composer.fill("and this?")
    await chat.press("enter", shows="1 question waiting")
    await chat.run("/restart")
    await chat.until(lambda: chat.contents == ["and this?", "Fine."])


@driven({"otherwise": ["some answer that is drafted"], "drafts": 2})
async def test_the_lens_shows_where_each_token_comes_from(chat: Chat) -> None:
    await chat.run("/lens", shows="nothing to show yet")
    chat.session.talk.say(Message.user("zero?"))
    chat.session.talk.say(Message.assistant("none."))
    await chat.run("/lens", shows="of earlier answers no tokens are kept")
    await chat.ask("one?")
    await chat.run("/lens", TextSheet, shows="looked up in the text so far")
    origins = {origin for each in chat.exchange.happened for origin in each.round.origins}
    assert {"lookup", "correction"} <= origins


@driven()
async def test_the_palette_has_every_command_by_what_it_does(chat: Chat) -> None:
    await chat.until_sheet(ListSheet, "ctrl+p")
    assert isinstance(chat.app.screen, ListSheet)
    assert [each.key for each in chat.app.screen.rows] == [each.name for each in COMMANDS]
    await chat.press(*"the time", shows="where the time goes")
    await chat.press(*" stats", shows="where the time goes", lacks="/context")
    await chat.press("enter", shows="Nothing measured yet")
    await chat.press("escape")
    await chat.until(lambda: not chat.app.view.stats.display)


def test_a_conversation_goes_on_with_its_model_or_else_with_what_is_loaded(tmp_path: Path) -> None:
    async def hold(chat: Chat) -> None:
        await chat.ask("about rivers?")
        await chat.run("/new")
        await chat.run(f"/model {OTHER}")
        await chat.until(lambda: chat.session.models.line == OTHER)
        await chat.ask("about trees?")
        await chat.run("/model smollm2-135m")
        await chat.until(lambda: chat.session.models.line == "smollm2-135m")
        assert chat.session.talk.history.conversation(2).pair == OTHER, "it answered nothing here"
        await chat.run("/history", HistorySheet)
        await chat.press("down", "enter")
        await chat.until(lambda: chat.contents[:1] == ["about rivers?"])
        await chat.ask("and?")
        assert [each.model for each in chat.session.talk.messages] == ["", "toy", "", "toy"]
        assert chat.session.models.line == "toy"
        await chat.run("/history #2")
        await chat.run("/save trees")

    async def look(chat: Chat) -> None:
        await chat.run("/history #1", shows=f"toy is not here; {OTHER} answers instead")
        history = chat.session.talk.history
        assert {each.id: each.pair for each in history.conversations()} == {1: "toy", 2: OTHER}
        await chat.ask("and?")
        assert chat.session.talk.messages[-1].model == OTHER
        assert history.conversation(1).pair == OTHER

    drive(hold, tmp_path)
    script = {"refuses": {"toy": ["ModelUnavailable", "toy is not here"]}}
    drive(look, tmp_path, script, pair=OTHER, resume=2, ready=True)


@driven()
async def test_the_picker_marks_and_finds(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    known = [ModelRow(name, 1, True, True, "") for name in ("tiny", "toy", OTHER)]
    # What is measured comes in another order, and more of it.
    measured = [replace(each, tokens_per_s=20.0, recommended=True) for each in reversed(known)]
    measured.insert(0, ModelRow("new", 1, True, True, "for code"))
    monkeypatch.setattr("localspec.tui.picker.choices", lambda: known)
    monkeypatch.setattr("localspec.tui.picker.measured_choices", lambda: measured)

    async def choose(*keys: str) -> None:
        await chat.run("/model", Picker)
        await chat.press(*keys, "enter")
        await chat.until(lambda: type(chat.app.screen) is ListSheet)
        await chat.press("enter")

    await chat.run("/model", Picker, shows=["20/s", f"{'toy':<{len(OTHER)}}●"])
    picker = chat.app.screen
    assert isinstance(picker, Picker)
    assert [row.key for row in picker.rows] == ["tiny", "toy", OTHER, "new"]
    await chat.until(lambda: picker.marked is not None and picker.marked.key == "toy")
    await chat.press(*"qw")
    await chat.until(lambda: [row.key for row in picker.rows] == [OTHER])
    assert picker.marked is picker.rows[0]
    await chat.press("backspace", "backspace", *"code")
    await chat.until(lambda: [row.key for row in picker.rows] == ["new"])
    await chat.press("f8")
    await chat.until(lambda: len(chat.app.screen_stack) == 1)
    ready = chat.session.models.ready
    await choose()
    await chat.until_text("toy is already loaded")
    assert chat.session.models.ready is ready
    await choose("down")
    await chat.until(lambda: chat.session.models.line == OTHER)


@pytest.mark.parametrize("always", [False, True])
@driven()
async def test_the_picker_asks_whether_a_model_is_meant_from_now_on(
    chat: Chat, always: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "settings/config.toml"
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(settings.parent))
    pairs = [ModelRow("smollm2-135m", 1, True, True, "")]
    monkeypatch.setattr("localspec.tui.picker.measured_choices", lambda: pairs)
    await chat.until_sheet(Picker, "f8")
    await chat.until(lambda: len(chat.app.screen.rows) == 1)  # type: ignore[attr-defined]
    await chat.press("enter", shows="now and by default")
    await chat.press(*["down"] * always, "enter")
    await chat.until(lambda: chat.session.models.name == "smollm2-135m")
    await chat.until(lambda: settings.exists() == always)
    assert not always or tomllib.loads(settings.read_text()) == {"pair": "smollm2-135m"}
