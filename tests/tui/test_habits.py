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
from localspec.tui.screens import fill_clipboard as filled
from localspec.tui.sheets import ListSheet
from tests.llama import tiny_models
from tests.tui.driving import Chat, drive, driven
from tests.tui.lines import said
from tests.waiting import PATIENCE_S

SLOW = {"otherwise": ["word " * 400], "pass_s": 0.01}


@pytest.mark.parametrize(
    ("text", "inner"),
    [
        ('"""\na\nb\n"""', "a\nb"),
        ('""" a """', " a "),
        ('"""a""" b', '"""a""" b'),
        ("a", "a"),
        ('""""', '""""'),
    ],
)
def test_three_double_quotes_enclose_a_text(text: str, inner: str) -> None:
    assert unquoted(text) == inner


def test_what_is_not_closed_goes_on() -> None:
    assert goes_on('"""')
    assert goes_on('""" a\nb')
    assert not goes_on('"""a"""')
    assert not goes_on('a """')


def test_a_block_in_lines_is_one_question(tmp_path: Path) -> None:
    script = {"answers": {"/one\ntwo": "Both."}}
    _, out, _ = said(tmp_path, '"""', "/one", "two", '"""', script=script)
    assert out == "Both.\n"


def test_what_was_begun_in_lines_is_taken_back(tmp_path: Path) -> None:
    script = {"answers": {"one": "One.", "two": "Two."}}
    lines = ["one\\", None, "two"]
    _, out, _ = said(tmp_path, *lines, script=script)
    assert out == "Two.\n"


@driven()
async def test_a_block_on_the_screen_is_closed_before_it_is_sent(chat: Chat) -> None:
    await chat.ready()
    await chat.type('"""/one')
    await chat.press("enter")
    assert chat.app.view.entry.composer.text == '"""/one\n'
    await chat.type('two"""')
    await chat.press("enter")
    await chat.until(lambda: chat.contents[1:])
    assert chat.contents[0] == "/one\ntwo"


@pytest.mark.parametrize("keys", [["ctrl+d"], ["ctrl+c", "ctrl+c"]])
@driven()
async def test_keys_that_leave(chat: Chat, keys: list[str]) -> None:
    await chat.ready()  # what loads, Ctrl+C stops first
    chat.app.view.entry.composer.fill("ab")
    await chat.press("home", "ctrl+d")
    assert chat.app.view.entry.composer.text == "b"
    chat.app.view.entry.composer.fill("")
    await chat.pilot.press(*keys)
    await chat.settle()
    assert chat.app._exit


@driven()
async def test_a_bare_word_leaves_and_in_quotes_it_is_a_question(chat: Chat) -> None:
    await chat.ask('"""exit"""')
    assert chat.contents[0] == "exit"
    await chat.run("quit")
    assert chat.app._exit
    assert len(chat.contents) == 2


def test_in_lines_a_bare_word_leaves_where_a_person_types(tmp_path: Path) -> None:
    assert said(tmp_path, "one?", "exit", "two?", answers=iter(()))[1].count("Hello") == 1
    assert said(tmp_path, "one?", "exit", "two?")[1].count("Hello") == 3


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        ("/exprot md", "did you mean /export"),
        ("/set temprature 1", "temprature"),
        ("/rename x", "/rename is /save now"),
        ("/stop", "/stop is Esc, and Ctrl-C in lines now"),
    ],
)
@driven()
async def test_a_command_that_is_refused_stays_to_be_mended(
    chat: Chat, sent: str, told: str
) -> None:
    await chat.ready()
    await chat.run(sent)
    assert told in " ".join(chat.text().split())
    assert chat.app.view.entry.composer.text == sent
    await chat.run("/stats")
    assert chat.app.view.entry.composer.text == ""


@driven()
async def test_who_leaves_is_told_what_is_kept_and_how_to_go_on(chat: Chat) -> None:
    assert chat.session.farewell == ""
    await chat.ask("one")
    assert chat.session.farewell == "continue with: localspec chat --continue 1"
    await chat.press("ctrl+n")
    assert chat.session.farewell == ""
    await chat.ask("two")
    await chat.run("/history #1")
    assert chat.session.farewell == "continue with: localspec chat --continue 1"
    chat.session.talk.history.trouble = "the disk is full"
    assert chat.session.farewell == "not saved: the disk is full"


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
    await chat.until(lambda: "in another window" in chat.text())
    await chat.until(lambda: not chat.session.busy)
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
async def test_ctrl_z_suspends(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(chat.app, "action_suspend_process", lambda: asked.append("suspend"))
    chat.app.view.entry.composer.fill("text")
    await chat.press("ctrl+z")
    assert asked == ["suspend"]
    assert chat.app.view.entry.composer.text == "text"


def test_questions_are_recalled_after_a_restart(tmp_path: Path) -> None:
    async def ask(chat: Chat) -> None:
        (chat.session.folder / "a.txt").write_text("content")
        await chat.ask("one")
        await chat.ask("two @a.txt")

    async def recall(chat: Chat) -> None:
        await chat.until(lambda: chat.app.view.entry.composer.recall)
        await chat.press("up")
        assert chat.app.view.entry.composer.text == "two @a.txt"
        await chat.press("up")
        assert chat.app.view.entry.composer.text == "one"

    drive(ask, tmp_path)
    drive(recall, tmp_path)


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
    await chat.run("/undo")
    await chat.run("/undo")
    assert chat.contents == []
    await chat.run("/undo")
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


def test_a_model_is_loaded_by_the_name_that_others_give_it(tmp_path: Path) -> None:
    _, _, err = said(tmp_path, "/load qwen3:4b")
    assert "loaded: qwen3-4b" in err


def test_a_name_that_is_none_means_no_model_that_writes_nothing(tmp_path: Path) -> None:
    _, _, err = said(tmp_path, "/model qwen3-embed", "/model bge-smal")
    like_first, like_none = err.splitlines()[-2:]
    assert "no model 'qwen3-embed': did you mean qwen3" in like_first
    assert "no model 'bge-smal': `localspec search`" in like_none
    assert "embedding" not in err


def test_an_imported_model_is_loaded_and_made_the_usual_one_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "settings"))
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    tiny_models.write_llama(tmp_path / "tiny.gguf")
    import_file(
        tmp_path / "tiny.gguf", "own-one", load_registry(), Store(tmp_path / "data"), copy=True
    )
    _, _, err = said(tmp_path, "/set model own-one", "/load own-one", pair="smollm2-135m")
    assert "own-one is now your default model" in err
    assert "no conversation contains" not in err
    file = tmp_path / "settings/config.toml"
    assert tomllib.loads(file.read_text()) == {"target": "own-one"}


def test_a_model_is_the_usual_one_from_now_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "settings"))
    _, _, err = said(tmp_path, "/set model qwen3:4b", "/set model qwen3", pair="smollm2-135m")
    assert "qwen3:4b is now your default model" in err
    assert "did you mean qwen3-0.6b" in err
    file = tmp_path / "settings/config.toml"
    assert tomllib.loads(file.read_text()) == {"pair": "qwen3-4b"}
    said(tmp_path, "/set model", pair="smollm2-135m")
    assert tomllib.loads(file.read_text()) == {"pair": "smollm2-135m"}


@pytest.mark.first(1)
@pytest.mark.parametrize("always", [False, True])
def test_the_picker_asks_whether_a_model_is_meant_from_now_on(
    always: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "settings"))
    pairs = [ModelRow("smollm2-135m", 1, True, True, "")]
    monkeypatch.setattr("localspec.tui.picker.measured_choices", lambda: pairs)

    async def choose(chat: Chat) -> None:
        await chat.ready()
        await chat.press("f8")
        await chat.until(
            lambda: isinstance(chat.app.screen, Picker) and len(chat.app.screen.rows) == 1
        )
        await chat.press("enter")
        await chat.until(lambda: type(chat.app.screen) is ListSheet)
        assert "now and by default" in chat.text()
        await chat.press(*["down"] * always, "enter")
        await chat.until(lambda: chat.session.models.name == "smollm2-135m")
        await chat.until(lambda: (tmp_path / "settings/config.toml").exists() == always)

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


@driven(SLOW)
async def test_a_question_that_waits_is_given_back_when_the_answer_is_stopped(chat: Chat) -> None:
    await chat.begin("one")
    await chat.run("two")
    await chat.press("escape")
    await chat.until(lambda: not chat.session.busy)
    await chat.until(lambda: chat.app.view.entry.composer.text == "two")
    assert chat.contents[::2] == ["one"]


@driven()
async def test_a_new_conversation_has_neither_the_settings_nor_the_system_prompt_of_the_last(
    chat: Chat,
) -> None:
    await chat.run("/set temperature 0.1")
    await chat.run("/system Speak like a pirate.")
    assert "system prompt" in chat.text()
    await chat.ask("one")
    await chat.press("ctrl+n")
    assert chat.session.settings.text_of("temperature") == "0.8"
    assert chat.session.talk.system is None
    await chat.run("/history #1")
    assert chat.session.settings.text_of("temperature") == "0.1"
    assert chat.session.talk.system == "Speak like a pirate."


@pytest.mark.parametrize("words", ["colours", "clipboard", "quit"])
@driven()
async def test_the_palette_finds_a_command_by_what_it_does(chat: Chat, words: str) -> None:
    found = [each.title for each in chat.app.get_system_commands(chat.app.screen)]
    assert any(words in each for each in found)


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


def test_what_mentions_no_file_is_said(tmp_path: Path) -> None:
    _, _, err = said(tmp_path, "what is @nothing?")
    assert "no file matches @nothing: sent as text" in err


def test_a_program_of_the_machine_fills_its_clipboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.tui.screens._MOST_S", PATIENCE_S)
    program = tmp_path / "wl-copy"
    program.write_text(f'#!/bin/sh\n/bin/cat > "{tmp_path / "clipboard"}"\n')
    program.chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("WAYLAND_DISPLAY", "wayland-0")
    monkeypatch.delenv("DISPLAY", raising=False)
    monkeypatch.delenv("SSH_CONNECTION", raising=False)
    assert filled("größer")
    assert (tmp_path / "clipboard").read_text() == "größer"
    monkeypatch.setenv("SSH_CONNECTION", "somewhere")
    assert not filled("x")
    monkeypatch.delenv("SSH_CONNECTION")
    program.write_text("#!/bin/sh\nexit 1\n")
    assert not filled("x")


def test_the_system_prompt_is_a_setting(tmp_path: Path) -> None:
    _, _, err = said(tmp_path, "/set system Be brief.", "/set", "/set system -", "/set system")
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
        await chat.until(lambda: chat.app.view.transcript.max_scroll_y > 0)
        await chat.until(lambda: chat.app.view.transcript.follows)
        await chat.press("pageup")
        assert "↓" in chat.text()

    passes = tmp_path / "passes"
    drive(look, tmp_path, {"otherwise": ["line\n\n" * 40], "pass_s": str(passes)})
