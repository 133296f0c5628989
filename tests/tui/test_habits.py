"""What fingers know from other programs, on screens and in lines."""

import tomllib
from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.history.archive import History
from localspec.launch.rows import ModelRow
from localspec.messages import Message
from localspec.models.names import import_file
from localspec.models.registry import load_registry
from localspec.models.store import Store
from localspec.session.conversation import SavedConversation
from localspec.tui.actions import edited
from localspec.tui.commands import goes_on, unquoted
from localspec.tui.picker import Picker
from localspec.tui.screens import fill_clipboard
from localspec.tui.sheets import ListSheet
from tests.llama import tiny_models
from tests.tui.driving import Chat, drive, driven
from tests.tui.lines import said
from tests.waiting import PATIENCE_S

SLOW = {"otherwise": ["word " * 400], "pass_s": 0.01}


@pytest.mark.parametrize(
    ("text", "inner", "more"),
    [
        ('"""\na\nb\n"""', "a\nb", False),
        ('""" a """', " a ", False),
        ('"""a""" b', '"""a""" b', False),
        ("a", "a", False),
        ('""""', '""""', True),
        ('"""', '"""', True),
        ('""" a\nb', '""" a\nb', True),
        ('a """', 'a """', False),
    ],
)
def test_three_double_quotes_enclose_a_text(text: str, inner: str, more: bool) -> None:
    assert unquoted(text) == inner
    assert goes_on(text) == more


@pytest.mark.parametrize("keys", [["ctrl+d"], ["ctrl+c", "ctrl+c"]])
@driven()
async def test_keys_that_leave(chat: Chat, keys: list[str]) -> None:
    await chat.ready()  # what loads, Ctrl+C stops first
    chat.composer.fill("ab")
    await chat.press("home", "ctrl+d")
    assert chat.composer.text == "b"
    chat.composer.fill("")
    await chat.pilot.press(*keys)
    await chat.settle()
    assert chat.app._exit


def test_in_lines_a_bare_word_leaves_where_a_person_types(tmp_path: Path) -> None:
    assert said(tmp_path, "one?", "exit", "two?", answers=iter(()))[1].count("Hello") == 1
    assert said(tmp_path, "exit")[1].count("Hello") == 1


@driven()
async def test_a_bare_word_leaves_and_in_quotes_it_is_a_question(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    suspended: list[bool] = []
    monkeypatch.setattr(chat.app, "action_suspend_process", lambda: suspended.append(True))
    await chat.press("ctrl+z")
    assert suspended == [True]
    await chat.type('"""/exit')
    await chat.press("enter")
    assert chat.composer.text == '"""/exit\n', "it is closed before it is sent"
    await chat.type('two"""')
    await chat.press("enter")
    await chat.until(lambda: len(chat.contents) == 2 and not chat.session.busy)
    assert chat.contents[0] == "/exit\ntwo"
    await chat.run("quit")
    assert chat.app._exit
    assert len(chat.contents) == 2


@driven()
async def test_conversations_differ_in_settings_and_system_prompt_and_are_left_with_advice(
    chat: Chat,
) -> None:
    session = chat.session
    assert session.farewell == ""
    await chat.run("/set temperature 0.1")
    await chat.run("/system Speak like a pirate.")
    assert "system prompt" in chat.text()
    await chat.ask("one")
    assert session.farewell == "continue with: localspec chat --continue 1"
    await chat.press("ctrl+n")
    assert session.farewell == ""
    assert session.settings.text_of("temperature") == "0.8"
    assert session.talk.system is None
    await chat.ask("two")
    await chat.run("/history #1")
    assert session.settings.text_of("temperature") == "0.1"
    assert session.talk.system == "Speak like a pirate."
    assert session.farewell == "continue with: localspec chat --continue 1"
    session.talk.history.trouble = "the disk is full"
    assert session.farewell == "not saved: the disk is full"


@driven()
async def test_who_goes_on_in_two_windows_is_told_of_the_branch(chat: Chat, tmp_path: Path) -> None:
    await chat.ask("one")
    await chat.ask("two")
    assert "another window" not in chat.text()
    other = SavedConversation(History(tmp_path / "history"))
    other.open(1)
    other.say(Message.user("meanwhile"))
    other.history.close()
    await chat.begin("three")
    await chat.until_text("in another window")
    await chat.until_rest()
    assert chat.contents[::2] == ["one", "two", "three"]
    assert len(chat.session.talk.messages[4].siblings) == 2
    await chat.ask("four")
    assert "another window" not in chat.text()


def test_the_speed_of_another_model_is_not_told(tmp_path: Path) -> None:
    def figures(chat: Chat) -> str:
        return chat.text().splitlines()[-1]

    async def switch(chat: Chat) -> None:
        await chat.ask("one")
        await chat.until(lambda: "tokens/s" in figures(chat))
        await chat.run("/model qwen3-4b")
        await chat.until(lambda: chat.session.models.name == "qwen3-4b")
        await chat.until(lambda: "tokens/s" not in figures(chat))
        # Its own count of the conversation stands there, and not nothing.
        await chat.until(lambda: chat.session.context_tokens > 0)
        await chat.ask("two")
        await chat.until(lambda: "tokens/s" in figures(chat))

    drive(switch, tmp_path, {"pass_s": 0.001})


@driven()
async def test_undo_takes_the_last_question_back_and_loses_nothing(chat: Chat) -> None:
    await chat.ask("one")
    await chat.ask("two")
    await chat.run("/undo")
    assert chat.contents[::2] == ["one"]
    assert "taken back: two" in chat.text()
    await chat.ask("three")
    assert chat.contents[::2] == ["one", "three"]
    assert len(chat.session.talk.messages[2].siblings) == 2
    for _ in range(3):
        await chat.run("/undo")
    assert chat.contents == []
    assert "nothing was asked yet" in chat.text()
    await chat.ask("four")
    assert chat.contents[::2] == ["four"]


def test_a_conversation_is_saved_under_a_title_and_loaded_by_it(tmp_path: Path) -> None:
    _, out, err = said(tmp_path, "one?", "/save rivers", "/new", "two?", "/load river")
    assert "named 'rivers' (conversations are saved automatically)" in err
    assert "You: one?" in out
    _, _, err = said(tmp_path, "/load nothing such", "/load", "/save")
    assert "no conversation contains 'nothing such'" in err
    assert "1 rivers" in err
    assert "this conversation is empty" in err


@pytest.fixture
def own_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file of settings, which is not there yet."""
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "settings"))
    return tmp_path / "settings/config.toml"


def test_models_are_meant_by_names_that_others_give_them(tmp_path: Path) -> None:
    _, _, err = said(tmp_path, "/load qwen3:4b", "/model qwen3-embed", "/model bge-smal")
    loaded, like_first, like_none = err.splitlines()[-3:]
    assert "loaded: qwen3-4b" in loaded
    assert "no model 'qwen3-embed': did you mean qwen3" in like_first
    assert "no model 'bge-smal': `localspec search`" in like_none
    assert "embedding" not in err


def test_an_imported_model_is_loaded_and_made_the_usual_one_by_its_name(
    tmp_path: Path, own_settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    tiny = tmp_path / "tiny.gguf"
    tiny_models.write_llama(tiny)
    import_file(tiny, "own-one", load_registry(), Store(tmp_path / "data"), copy=True)
    _, _, err = said(tmp_path, "/set model own-one", "/load own-one", pair="smollm2-135m")
    assert "own-one is now your default model" in err
    assert "no conversation contains" not in err
    assert tomllib.loads(own_settings.read_text()) == {"target": "own-one"}


def test_a_model_is_the_usual_one_from_now_on(tmp_path: Path, own_settings: Path) -> None:
    _, _, err = said(tmp_path, "/set model qwen3:4b", "/set model qwen3", pair="smollm2-135m")
    assert "qwen3:4b is now your default model" in err
    assert "did you mean qwen3-0.6b" in err
    assert tomllib.loads(own_settings.read_text()) == {"pair": "qwen3-4b"}
    said(tmp_path, "/set model", pair="smollm2-135m")
    assert tomllib.loads(own_settings.read_text()) == {"pair": "smollm2-135m"}


@pytest.mark.parametrize("always", [False, True])
def test_the_picker_asks_whether_a_model_is_meant_from_now_on(
    always: bool, tmp_path: Path, own_settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pairs = [ModelRow("smollm2-135m", 1, True, True, "")]
    monkeypatch.setattr("localspec.tui.picker.measured_choices", lambda: pairs)

    async def choose(chat: Chat) -> None:
        await chat.ready()
        await chat.until_sheet(Picker, "f8")
        await chat.until(lambda: len(chat.app.screen.rows) == 1)  # type: ignore[attr-defined]
        await chat.press("enter")
        await chat.until(lambda: type(chat.app.screen) is ListSheet)
        assert "now and by default" in chat.text()
        await chat.press(*["down"] * always, "enter")
        await chat.until(lambda: chat.session.models.name == "smollm2-135m")
        await chat.until(lambda: own_settings.exists() == always)

    drive(choose, tmp_path)


def test_a_question_that_is_sent_while_another_is_answered_comes_next(tmp_path: Path) -> None:
    async def queue(chat: Chat) -> None:
        await chat.begin("one")
        await chat.run("two")
        assert "1 question waiting" in chat.text()
        passes.touch()
        await chat.until(lambda: len(chat.contents) == 4)
        assert "question waiting" not in chat.text()
        assert chat.contents[::2] == ["one", "two"]

    passes = tmp_path / "passes"
    drive(queue, tmp_path, {"otherwise": ["word " * 20], "pass_s": str(passes)})


def test_a_waiting_question_with_a_file_that_cannot_be_read_goes_back_to_the_composer(
    tmp_path: Path,
) -> None:
    async def queue(chat: Chat) -> None:
        await chat.begin("one")
        await chat.run(f"explain @{huge}")
        passes.touch()
        await chat.until(lambda: not chat.session.busy and not chat.session.waiting)
        await chat.until(lambda: "explain" in chat.composer.text)
        await chat.run("two")
        await chat.until(lambda: len(chat.contents) == 4)

    huge = tmp_path / "huge.txt"
    with huge.open("wb") as file:
        file.truncate(1 << 32)
    passes = tmp_path / "passes"
    drive(queue, tmp_path, {"otherwise": ["word " * 20], "pass_s": str(passes)})


@driven(SLOW)
async def test_a_question_that_waits_is_given_back_when_the_answer_is_stopped(chat: Chat) -> None:
    await chat.begin("one")
    await chat.run("two")
    await chat.press("escape")
    await chat.until_rest()
    await chat.until(lambda: chat.composer.text == "two")
    assert chat.contents[::2] == ["one"]


def test_a_question_is_written_in_an_editor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    editor = tmp_path / "editor"
    editor.write_text('#!/bin/sh\nprintf "%s, and\\nmore\\n" "$(cat "$1")" > "$1"\n')
    editor.chmod(0o700)
    monkeypatch.setenv("VISUAL", str(editor))
    assert edited("one") == "one, and\nmore"
    _, out, _ = said(tmp_path, "/editor", "/copy all", script={"otherwise": ["Both."]})
    assert "user: , and\nmore" in out
    monkeypatch.setenv("VISUAL", "no-such-editor")
    with pytest.raises(UsageError, match=r"the editor failed \(.*no-such-editor"):
        edited("one")


def test_a_program_of_the_machine_fills_its_clipboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.tui.screens._MOST_S", PATIENCE_S)
    program = tmp_path / "wl-copy"
    program.write_text(f'#!/bin/sh\n/bin/cat > "{tmp_path / "clipboard"}"\n')
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    for variable in ("DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(variable, raising=False)
    assert fill_clipboard("größer")
    assert (tmp_path / "clipboard").read_text() == "größer"
    monkeypatch.setenv("SSH_CONNECTION", "somewhere")
    assert not fill_clipboard("x")
    monkeypatch.delenv("SSH_CONNECTION")
    program.write_text("#!/bin/sh\nexit 1\n")
    assert not fill_clipboard("x")


def test_the_system_prompt_is_a_setting_and_what_mentions_no_file_is_said(tmp_path: Path) -> None:
    lines = ("what is @nothing?", "/set system Be brief.", "/set", "/set system -", "/set system")
    _, _, err = said(tmp_path, *lines)
    assert "no file matches @nothing: sent as text" in err
    assert "system is now Be brief." in err
    assert "system             Be brief." in err
    assert err.endswith("localspec: system is now -\n")


@pytest.mark.slow
def test_page_up_where_nothing_scrolls_goes_on_following(tmp_path: Path) -> None:
    async def look(chat: Chat) -> None:
        await chat.begin("one")
        await chat.press("pageup")
        passes.touch()
        await chat.until(lambda: len(chat.contents) == 2 and not chat.session.busy)
        await chat.until(lambda: chat.transcript.max_scroll_y > 0)
        await chat.until(lambda: chat.transcript.follows)
        await chat.press("pageup")
        assert "↓" in chat.text()

    passes = tmp_path / "passes"
    drive(look, tmp_path, {"otherwise": ["line\n\n" * 40], "pass_s": str(passes)})
