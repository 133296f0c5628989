"""The screens that open over the chat, driven by keys."""

from dataclasses import replace
from pathlib import Path

import pytest
from textual.command import CommandPalette
from textual.widgets import Input

from localspec.history.records import StoredConversation
from localspec.launch.rows import ModelRow
from localspec.session.preferences import Preferences
from localspec.tui.history_sheet import HistorySheet, row_of
from localspec.tui.picker import Picker
from localspec.tui.sheets import LineSheet, ListSheet, RaceSheet, TextSheet
from tests.tui.driving import Chat, drive, driven

DRAFTING = {"otherwise": ["some answer that is drafted"], "drafts": 3}
OTHER = "qwen3-4b"
"""A model that there is, beside the engine double's own; it is never fetched."""


async def open_sheet(chat: Chat, what: str, kind: type[object]) -> None:
    await chat.run(what)
    await chat.until(lambda: isinstance(chat.app.screen, kind))


async def back(chat: Chat) -> None:
    await chat.press("escape")
    await chat.until(lambda: len(chat.app.screen_stack) == 1)


async def two_conversations(chat: Chat) -> None:
    for question in ("about rivers?", "about trees?"):
        await chat.ask(question)
        await chat.run("/new")
        await chat.until(lambda: chat.contents == [])


@driven({"answers": {"rivers": "The Rhine.", "trees": "The oak."}})
async def test_a_conversation_is_found_by_its_words_and_taken_up(chat: Chat) -> None:
    await two_conversations(chat)
    await open_sheet(chat, "/history", HistorySheet)
    assert "about trees?" in chat.text()
    await chat.press(*"rhine")
    await chat.until(lambda: "about trees?" not in chat.text())
    await chat.press("enter")
    await chat.until(lambda: chat.contents == ["about rivers?", "The Rhine."])
    assert "The Rhine." in chat.text()


@driven()
async def test_a_conversation_is_renamed(chat: Chat) -> None:
    await two_conversations(chat)
    await open_sheet(chat, "/history", HistorySheet)
    await chat.press("ctrl+r")
    await chat.until(lambda: isinstance(chat.app.screen, LineSheet))
    chat.app.screen.query_one(Input).value = "Forests"
    await chat.press("enter")
    await chat.until(lambda: "Forests" in chat.text())
    titles = [each.title for each in chat.session.talk.history.conversations()]
    assert titles == ["Forests", "about rivers?"]


@driven()
async def test_a_conversation_is_deleted_only_when_that_is_meant(chat: Chat) -> None:
    history = chat.session.talk.history
    await two_conversations(chat)
    await open_sheet(chat, "/history", HistorySheet)
    for answer, left in ((["enter"], 2), (["down", "enter"], 1)):
        await chat.press("ctrl+x")
        await chat.until(lambda: not isinstance(chat.app.screen, HistorySheet))
        assert "Delete" in chat.text()
        await chat.press(*answer)
        await chat.until(lambda: isinstance(chat.app.screen, HistorySheet))
        assert len(history.conversations()) == left
    await chat.until(lambda: "about trees?" not in chat.text())


@driven()
async def test_the_conversation_that_is_shown_can_be_deleted(chat: Chat) -> None:
    await chat.ask("about rivers?")
    await open_sheet(chat, "/history", HistorySheet)
    await chat.press("ctrl+x")
    await chat.until(lambda: "Delete" in chat.text())
    await chat.press("down", "enter")
    await chat.until(lambda: "nothing here" in chat.text())
    await back(chat)
    await chat.until(lambda: "attaches a file" in chat.text())
    await chat.ask("again?")
    assert chat.contents[0] == "again?"


@driven()
async def test_a_conversation_is_exported_and_no_file_is_written_over(chat: Chat) -> None:
    folder = chat.session.folder
    await chat.ask("about rivers?")
    await chat.run("/export")
    await chat.run("/export")
    await chat.run("/export json all.json")
    names = sorted(each.name for each in folder.iterdir())
    assert names == ["about-rivers-2.md", "about-rivers.md", "all.json"]
    assert "about rivers?" in (folder / "about-rivers.md").read_text()
    assert (folder / "all.json").read_text().startswith("{")
    await chat.run("/export md no/such/folder.md")
    assert "cannot be written" in chat.text()


@driven()
async def test_a_setting_is_changed_and_a_wrong_one_refused(chat: Chat) -> None:
    await open_sheet(chat, "/set", ListSheet)
    await chat.press("enter")
    await chat.until(lambda: isinstance(chat.app.screen, LineSheet))
    chat.app.screen.query_one(Input).value = "0.25"
    await chat.press("enter")
    await chat.until(lambda: "temperature        0.25" in chat.text())
    assert chat.session.settings.options.sampling.temperature == 0.25
    await back(chat)
    await chat.run("/set top_p 7")
    assert "top_p is 7" in chat.text()
    await chat.run("/set draft off")
    assert chat.session.settings.draft == "off"


@driven({"download": {"bytes": 2_000_000_000, "seconds": 5.0}})
async def test_a_download_shows_its_progress_and_esc_stops_it(chat: Chat) -> None:
    await chat.until(lambda: "fetching toy: " in chat.text())
    assert "of 2.0 GB" in chat.text()
    await chat.press("escape")
    await chat.until(lambda: "no model loaded" in chat.text())


@driven(DRAFTING)
async def test_a_race_shows_both_texts_and_whether_they_are_equal(chat: Chat) -> None:
    await chat.ask("one?")
    await open_sheet(chat, "/race", RaceSheet)
    await chat.until(lambda: "the texts are equal" in chat.text())
    assert chat.text().count("some answer that is drafted") >= 2
    await back(chat)
    assert len(chat.contents) == 2


@driven({"otherwise": ["word " * 500], "pass_s": 0.01})
async def test_esc_stops_a_race_before_it_closes_it(chat: Chat) -> None:
    await chat.ready()
    await open_sheet(chat, "/race say something", RaceSheet)
    await chat.press("escape")
    await chat.until(lambda: "nothing to compare" in chat.text())
    await back(chat)
    assert chat.contents == []


@driven({**DRAFTING, "drafts": 2})
async def test_the_lens_tells_drafted_tokens_from_the_targets_own(chat: Chat) -> None:
    await chat.run("/lens")
    assert "nothing to show yet" in chat.text()
    await chat.ask("one?")
    await open_sheet(chat, "/lens", TextSheet)
    assert "looked up in the text so far" in chat.text()
    exchange = chat.session.exchange
    assert exchange is not None
    assert {"lookup", "correction"} <= {
        origin for each in exchange.happened for origin in each.round.origins
    }
    await back(chat)


@driven(preferences=Preferences(personas={"pirate": "Talk like a pirate."}))
async def test_a_persona_is_a_system_prompt_with_a_name(chat: Chat) -> None:
    await chat.run("/system")
    assert "no system prompt; personas: pirate" in chat.text()
    await chat.run("/system pirate")
    assert chat.session.talk.system == "Talk like a pirate."
    await chat.run("/system Be brief.")
    await chat.ask("one?")
    assert chat.session.exchange is not None
    assert chat.session.exchange.messages[0].text == "Be brief."
    await chat.run("/system -")
    assert chat.session.talk.system is None


@driven()
async def test_the_palette_has_every_command(chat: Chat) -> None:
    await chat.press("ctrl+p")
    await chat.until(lambda: isinstance(chat.app.screen, CommandPalette))
    await chat.press(*"stats")
    await chat.until(lambda: "where the time goes" in chat.text())
    await chat.press("enter")
    await chat.until(lambda: "Nothing measured yet" in chat.text())


@driven()
async def test_a_branch_goes_on_in_a_conversation_of_its_own(chat: Chat) -> None:
    await chat.ask("one?")
    await chat.ask("two?")
    first = chat.session.talk.conversation
    await chat.run("/branch 1")  # the question's number, as it stands above it
    assert chat.contents[::2] == ["one?"]
    assert len(chat.contents) == 2
    assert chat.session.talk.conversation != first
    await chat.run("/save Other")
    assert chat.session.talk.history.conversations()[0].title == "Other"


@driven({"otherwise": ["Look:\n\n```\nx = 1\n```"]})
async def test_keys_on_a_message_copy_it_and_its_code(chat: Chat) -> None:
    await chat.ask("one?")
    await chat.press("shift+tab", "c")
    assert chat.app.clipboard == "Look:\n\n```\nx = 1\n```"
    await chat.press("k")
    assert chat.app.clipboard == "x = 1"
    await chat.press("escape")
    assert chat.app.focused is chat.app.view.entry.composer


async def take_up_the_first(chat: Chat) -> None:
    await open_sheet(chat, "/history", HistorySheet)
    await chat.press("down", "enter")
    await chat.until(lambda: chat.contents[:1] == ["about rivers?"])


async def hold_two(chat: Chat) -> None:
    """Hold one conversation with `toy`, and one with `OTHER`."""
    await chat.ask("about rivers?")
    await chat.run("/new")
    await chat.run(f"/model {OTHER}")
    await chat.until(lambda: chat.session.models.line == OTHER)
    await chat.ask("about trees?")


@driven()
async def test_a_conversation_that_is_taken_up_goes_on_with_its_model(chat: Chat) -> None:
    await hold_two(chat)
    await take_up_the_first(chat)
    await chat.ask("and?")
    assert [each.model for each in chat.session.talk.messages] == ["", "toy", "", "toy"]
    assert chat.session.models.line == "toy"


def test_a_conversation_whose_model_is_gone_goes_on_with_what_is_loaded_and_says_so(
    tmp_path: Path,
) -> None:
    async def hold(chat: Chat) -> None:
        await hold_two(chat)

    async def look(chat: Chat) -> None:
        await chat.ready()
        await take_up_the_first(chat)
        await chat.until(lambda: f"toy is not here; {OTHER} answers instead" in chat.text())
        pairs = {each.id: each.pair for each in chat.session.talk.history.conversations()}
        assert pairs == {1: "toy", 2: OTHER}
        await chat.ask("and?")
        assert chat.session.talk.messages[-1].model == OTHER
        assert chat.session.talk.history.conversation(1).pair == OTHER

    drive(hold, tmp_path)
    script = {"refuses": {"toy": ["ModelUnavailable", "toy is not here"]}}
    drive(look, tmp_path, script, pair=OTHER, resume=2)


def test_the_picker_marks_what_is_loaded_and_begins_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [ModelRow(name, 1, True, True, "") for name in ("tiny", "toy", OTHER)]
    monkeypatch.setattr("localspec.tui.picker.choices", lambda: pairs)
    monkeypatch.setattr("localspec.tui.picker.measured_choices", lambda: pairs)

    async def look(chat: Chat) -> None:
        await chat.ready()
        await open_sheet(chat, "/model", Picker)
        await chat.until(lambda: f"{'toy':<{len(OTHER)}}●" in chat.text())
        picker = chat.app.screen
        assert isinstance(picker, Picker)
        await chat.until(lambda: picker.marked is not None and picker.marked.key == "toy")
        loads = chat.session.models.ready
        await chat.press("enter")
        await chat.until(lambda: type(chat.app.screen) is ListSheet)
        await chat.press("enter")
        await chat.until(lambda: "toy is already loaded" in chat.text())
        assert chat.session.models.ready is loads
        await open_sheet(chat, "/model", Picker)
        await chat.press("down", "enter")
        await chat.until(lambda: type(chat.app.screen) is ListSheet)
        await chat.press("enter")
        await chat.until(lambda: chat.session.models.line == OTHER)

    drive(look, tmp_path)


@driven()
async def test_titles_and_exports_leave_out_what_is_in_attached_files(chat: Chat) -> None:
    folder = chat.session.folder
    (folder / "big.txt").write_text("one two three four")
    await chat.ask("sum @big.txt")
    await open_sheet(chat, "/history", HistorySheet)
    assert isinstance(chat.app.screen, HistorySheet)
    assert chat.app.screen.rows[0].text == "sum @big.txt"
    await back(chat)
    await chat.run("/export")
    await chat.run("/export json")
    exported = (folder / "sum-big-txt.md").read_text()
    assert "one two" not in exported
    assert "sum @big.txt\n\n+ big.txt · 18 B · ≈ 4 tokens\n" in exported
    assert "one two three four" in (folder / "sum-big-txt.json").read_text()
    await chat.run("/copy all")
    assert "one two" not in chat.app.clipboard


def test_one_message_is_one() -> None:
    stored = StoredConversation(1, "t", None, "", "", 0.0, 0.0, 1, 1)
    assert row_of(stored, 0.0).hint == "just now · 1 message"
    assert row_of(replace(stored, n_messages=2), 0.0).hint == "just now · 2 messages"


@driven()
async def test_what_lines_can_screens_can_too(chat: Chat) -> None:
    await two_conversations(chat)
    await chat.run("/history #1")
    await chat.until(lambda: chat.contents[:1] == ["about rivers?"])
    await chat.run("/edit 1 about lakes?")
    await chat.until(lambda: chat.contents[:1] == ["about lakes?"] and not chat.session.busy)
    assert "version 2 of 2" in chat.text()
    await chat.run("/history delete #1")
    assert chat.contents == []
    assert "deleted conversation 1" in chat.text()
    await chat.run("/history #1")
    assert "there is no conversation 1" in chat.text()
    await chat.run("/bye")
    await chat.until(lambda: not chat.app.is_running)


def test_a_question_that_is_being_changed_belongs_to_its_conversation(tmp_path: Path) -> None:
    async def look(chat: Chat) -> None:
        await two_conversations(chat)
        await chat.run("/history #1")
        await chat.until(lambda: chat.contents[:1] == ["about rivers?"])
        await chat.press("f6")
        await take_up(chat, "down", "about trees?")
        await chat.ask("another?")
        assert [each for each in chat.contents if each.endswith("?")] == [
            "about trees?",
            "another?",
        ]

    async def take_up(chat: Chat, key: str, question: str) -> None:
        await chat.press("f7")
        await chat.until(lambda: isinstance(chat.app.screen, HistorySheet))
        sheet = chat.app.screen
        assert isinstance(sheet, HistorySheet)
        assert sheet.marked is not None
        if sheet.marked.text != question:
            await chat.press(key)
        await chat.press("enter")
        await chat.until(lambda: chat.contents[:1] == [question])

    drive(look, tmp_path)


def test_models_are_filtered_by_what_is_typed_and_stay_in_their_places(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    known = [ModelRow(name, 1, True, True, "") for name in ("nano", "middle", "night")]
    # What is measured comes in another order, and more of it.
    measured = [replace(each, tokens_per_s=20.0, recommended=True) for each in reversed(known)]
    measured.insert(0, ModelRow("new", 1, True, True, "for code"))
    monkeypatch.setattr("localspec.tui.picker.choices", lambda: known)
    monkeypatch.setattr("localspec.tui.picker.measured_choices", lambda: measured)

    async def look(chat: Chat) -> None:
        await chat.ready()
        await open_sheet(chat, "/model", Picker)
        await chat.until(lambda: "20/s" in chat.text())
        picker = chat.app.screen
        assert isinstance(picker, Picker)
        assert [row.key for row in picker.rows] == ["nano", "middle", "night", "new"]
        await chat.press(*"ni")
        await chat.until(lambda: [row.key for row in picker.rows] == ["night"])
        assert picker.marked is picker.rows[0]
        await chat.press("backspace", "backspace", *"code")
        await chat.until(lambda: [row.key for row in picker.rows] == ["new"])
        await chat.press("f8")
        await chat.until(lambda: len(chat.app.screen_stack) == 1)

    drive(look, tmp_path)


@pytest.mark.parametrize(
    ("columns", "keys"),
    [
        (80, "Enter opens · Ctrl+R renames · Ctrl+X deletes · Ctrl+E exports ─╯"),
        (40, "Enter opens · Ctrl+R renames … ─╯"),
    ],
)
def test_what_can_be_pressed_is_told_in_whole_words(
    columns: int, keys: str, tmp_path: Path
) -> None:
    async def look(chat: Chat) -> None:
        await chat.ask("one?")
        await open_sheet(chat, "/history", HistorySheet)
        await chat.until(lambda: keys in chat.text())

    drive(look, tmp_path, size=(columns, 24))


@driven()
async def test_stats_and_lens_are_closed_by_their_key_or_by_esc(chat: Chat) -> None:
    await chat.ask("one?")
    panel = chat.app.view.stats
    for closing in ("f2", "escape"):
        await chat.press("f2")
        await chat.until(lambda: panel.display)
        await chat.press(closing)
        await chat.until(lambda: not panel.display)
    for closing in ("f3", "escape"):
        await chat.press("f3")
        await chat.until(lambda: len(chat.app.screen_stack) == 2)
        await chat.press(closing)
        await chat.until(lambda: len(chat.app.screen_stack) == 1)


@driven()
async def test_an_exact_title_opens_at_once_and_a_filter_in_force_is_seen(chat: Chat) -> None:
    await chat.ask("one?")
    await chat.run("/save rivers")
    await chat.run("/branch")
    await chat.run("/load Rivers")
    await chat.until(lambda: chat.session.talk.title == "rivers")
    assert len(chat.app.screen_stack) == 1
    await chat.run("/load river")
    await chat.until(lambda: isinstance(chat.app.screen, HistorySheet))
    assert "type to search" not in chat.text()
    assert chat.app.screen.query_one(Input).value == "river"


@driven()
async def test_the_status_line_says_that_a_dialog_is_open(chat: Chat) -> None:
    await chat.ready()
    await chat.press("f4")
    await chat.until(lambda: "a dialog is open" in chat.text().splitlines()[-1])
    await chat.press("escape")
    await chat.until(lambda: "a dialog is open" not in chat.text())


@driven()
async def test_a_second_escape_clears_a_command_that_was_begun(chat: Chat) -> None:
    await chat.ready()  # Esc stops loading
    composer = chat.app.view.entry.composer
    composer.focus()
    await chat.type("/re")
    await chat.until(lambda: chat.app.view.entry.list_open)
    await chat.press("escape")
    assert composer.text == "/re"
    await chat.press("escape")
    assert composer.text == ""
    await chat.type("text")
    await chat.press("escape")
    assert composer.text == "text"


@driven()
async def test_thoughts_are_said_to_be_missing(chat: Chat) -> None:
    await chat.ask("one?")
    await chat.run("/think")
    await chat.until(lambda: "no thoughts in this conversation" in chat.text())
