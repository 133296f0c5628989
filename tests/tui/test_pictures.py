"""Pictures and sounds in the chat: attached, drawn, kept with their questions, and refused where the model takes none."""

import io
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest
from PIL import Image
from rich.console import Console

from localspec.messages import MediaPart
from localspec.session.attachments import question_with
from localspec.tui import clipboard
from localspec.tui.clipboard import clipboard_picture, fill_clipboard
from localspec.tui.message import MessageLayout, _text
from localspec.tui.message_text import MessageText
from localspec.tui.pictures import picture_strips
from localspec.tui.sheets import ListenSheet
from localspec.tui.typeset import Typesetter
from tests.support.checks import fits, refuses
from tests.support.media import picture_file, sound_file
from tests.support.microphone import QUIET, microphone_double
from tests.tui.answers import finished, save_reply
from tests.tui.driving import PATIENCE_S, Chat, drive, driven
from tests.tui.lines import said
from tests.tui.scripted import READY, Window, window

SEES = {"sees": True, "otherwise": ["A picture.", "Yes."]}
TEXT_ONLY = "toy reads text only: attach pictures with one that sees, such as "


@pytest.fixture(autouse=True)
def another_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("localspec.models.mmproj.model_that_takes", lambda kind: f"{kind}-taker")


def placed(folder: Path, name: str = "photo.png", number: int = 4) -> Path:
    file = folder / name
    file.parent.mkdir(exist_ok=True)
    file.write_bytes(picture_file(number) if name.endswith("png") else sound_file(number))
    return file


def drawn(chat: Chat) -> int:
    """Return how many rows of the screen have a picture."""
    return sum("▀▀▀▀" in line for line in chat.text().splitlines())


def seer(here: Window) -> None:
    """Load a model that sees."""
    here.session.load("seer")
    here.hear(msgspec.structs.replace(READY, sees=True))


@contextmanager
def seeing(folder: Path, conversation: int | None = None) -> Iterator[Window]:
    """Open a window with a model that sees."""
    with window(folder, conversation) as opened:
        seer(opened)
        yield opened


@driven(SEES)
async def test_a_picture_is_drawn_where_it_is_attached_and_where_it_was_sent(chat: Chat) -> None:
    placed(chat.session.folder)
    await chat.type("What is on @photo.png?")
    await chat.until_text("640 x 480 · 5 tokens")
    assert drawn(chat) == 4
    shown = ["You · 1", "What is on @photo.png?", "640 x 480 · 5 tokens", "A picture."]
    await chat.press("enter", rest=True, shows=shown, typed="")
    assert drawn(chat) == 8
    assert [(each.name, each.data) for each in chat.media()] == [("photo.png", picture_file(4))]
    await chat.run("/copy all")
    assert "user: What is on @photo.png?\n\nassistant: A picture." in chat.app.clipboard


@pytest.mark.first(1)
@pytest.mark.parametrize(("width", "no_color"), [(30, False), (80, True), (120, False)])
def test_a_conversation_with_a_picture_is_taken_up(
    width: int, no_color: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = placed(tmp_path / "work")

    async def ask(chat: Chat) -> None:
        await chat.ask("Look: @photo.png", shows="A picture.")

    async def take_up(chat: Chat) -> None:
        await chat.until_text("5 tokens", "You · 1")
        assert drawn(chat) == (0 if no_color else 8)
        assert "\x1b" not in chat.text() or not no_color
        await chat.ask("Sure?", shows="Yes.")
        await chat.press("f5", rest=True)
        await chat.run("/branch 1", shows=["You · 1", "Look: @photo.png"])
        (sent,) = chat.media()
        assert sent.data == picture_file(4), "from the history, not from the file"

    drive(ask, tmp_path, SEES, ready=True)
    file.unlink()
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    drive(take_up, tmp_path, SEES, resume=1, size=(width, 40), ready=True)


@driven(SEES)
async def test_an_edited_question_keeps_its_picture_unless_its_mention_goes(chat: Chat) -> None:
    file = placed(chat.session.folder)
    await chat.ask("What is @photo.png?")
    file.write_bytes(picture_file(9))
    first = chat.media()
    await chat.press("f6", shows="editing question 1")
    assert drawn(chat) >= 8 + 4, "it goes with the edited question, too"
    await chat.press("!", "enter", rest=True)
    assert chat.media() == first
    await chat.ask("/edit 1 And in one word?")
    assert chat.media() == first
    await chat.press("f6")
    await chat.ask("Without it?")
    assert chat.questions == ["Without it?"]
    assert chat.media() == first, "the text never named it"
    await chat.ask("@photo.png is another one now")
    assert chat.media(-2)[0].data == picture_file(9)
    await chat.press("f6", shows="editing question 2")
    await chat.ask("What is it?")
    assert (chat.questions[1:], chat.media(-2)) == (["What is it?"], ())


@driven({"load_s": Path("go")}, ready=False)
async def test_a_model_that_cannot_see_gives_the_question_back(chat: Chat) -> None:
    placed(chat.session.folder)
    await chat.run("What is @photo.png?")
    chat.let("go")
    await chat.until_text(f"{TEXT_ONLY}seer")
    chat.see(typed="What is @photo.png?", lacks="You · 1")
    assert drawn(chat) == 4
    await chat.press("enter", shows=f"{TEXT_ONLY}image-taker", typed="What is @photo.png?")
    assert (drawn(chat), chat.contents) == (4, [])


def test_no_way_to_ask_takes_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    placed(tmp_path)
    with seeing(tmp_path) as first:
        first.ask("Look: @photo.png", "A picture.")
        first.session.load("other")
        first.hear(READY)
        session = first.session
        for refused in (
            lambda: session.ask("and now?"),
            lambda: session.ask_instead(1, "and now?", keeps=True),
            session.regenerate,
        ):
            refuses("toy reads text only: .* such as image-taker", refused)
        assert first.contents == ["Look: @photo.png", "A picture."]
        require = session.questions.require_senses
        refuses("reads text only: attach sounds.* audio-taker", require, {"audio"})
        assert session.ask_instead(1, "no picture, then") == []
        monkeypatch.setattr("localspec.models.mmproj.model_that_takes", lambda kind: "toy")
        refuses("such as toy after `localspec pull toy`", require, {"image"})


def test_a_question_of_which_the_picture_is_missing_is_edited(tmp_path: Path) -> None:
    file = placed(tmp_path)
    with seeing(tmp_path) as first:
        first.ask("Look: @photo.png", "A picture.")
        (part,) = first.session.talk.messages[0].message.media
        number = first.conversation
    (stored,) = [each for each in tmp_path.rglob("media/*") if each.name == part.sha256]
    stored.unlink()
    file.unlink()
    with seeing(tmp_path, number) as second:
        refuses("photo.png is missing", second.session.ask, "Sure?")
        assert second.contents == ["Look: @photo.png", "A picture."]
        assert second.session.ask_instead(1, "Are you there?", keeps=True) == []
        second.answer("Yes.")
        assert second.session.talk.messages[0].message.media == ()
        second.ask("Sure?")
        assert second.turns == ["Are you there?", "Yes.", "Sure?"]


def test_a_question_that_is_taken_back_keeps_its_picture(tmp_path: Path) -> None:
    picture, other = (MediaPart.of(picture_file(each), "clipboard-1.png") for each in (4, 6))
    spaced = MediaPart.of(picture_file(7), 'a "b".png')
    with seeing(tmp_path) as first:
        first.session.talk.say(question_with("What is @clipboard-1.png?", [picture]))
        save_reply(first.session.talk, finished(text="A picture.").reply, "toy")
        first.session.talk.say(question_with("And these?", [other, spaced]))
        number = first.conversation
    with seeing(tmp_path, number) as second:
        assert second.session.questions.attached_media("@clipboard-1.png") == []
        text = second.session.undo()
        assert second.session.questions.attached_media("@clipboard-1.png") == [other]
        assert text == "And these? @clipboard-1.png @\"a 'b'.png\""
        second.ask(text, "Two.")
        sent = second.request.messages[-1].media
        assert [each.data for each in sent] == [other.data, spaced.data]
    with seeing(tmp_path, number) as editing:
        assert editing.session.tray.hold(other.data, "clipboard", "png") == "clipboard-2.png"
        editing.session.ask_instead(1, "Is @clipboard-2.png like @clipboard-1.png?")
        media = editing.session.talk.messages[0].message.media
        assert [each.data for each in media] == [other.data, picture.data]
        editing.answer("No.")
    with window(tmp_path, number) as third:
        third.session.talk.say(question_with("And these?", [other, spaced]))  # never answered
        third.session.compact()
        assert third.session.waiting == [text]
        assert [*third.session.tray.held.values()] == [other, spaced]
        third.answer("Pictures.")


PASTED = {
    "{}/photo.png": "@photo.png ",
    "'{}/my photo.png' ": '@"my photo.png" ',
    "{}/my\\ photo.png": '@"my photo.png" ',
    "{}/my photo.png": '@"my photo.png" ',
    "file://{}/my%20photo.png": '@"my photo.png" ',
    "'{0}/photo.png' '{0}/it'\\''s.png'": "@photo.png @it's.png ",
}
STAYS = (
    *("{}/notes.txt", "{}/none.png", "'{}/photo.png", "see {}/photo.png.bak", "don't"),
    *("{0}/photo.png is not @{0}/photo.png", "read\n{0}/photo.png", "@photo.png"),
)


@driven()
async def test_a_dragged_file_is_attached(chat: Chat) -> None:
    folder = chat.session.folder
    for name in ("photo.png", "my photo.png", "it's.png"):
        placed(folder, name)
    (folder / "notes.txt").write_text("x")
    for pasted, written in {**PASTED, **dict(zip(STAYS, STAYS, strict=True))}.items():
        chat.composer.fill("")
        await chat.paste(pasted.format(folder))
        chat.see(typed=written.format(folder))


def test_a_typed_path_is_attached_where_the_model_sees(tmp_path: Path) -> None:
    file = placed(tmp_path)
    with window(tmp_path) as opened:
        opened.ask(f"read {file} aloud", "no")
        assert opened.request.messages[1].media == ()
        seer(opened)
        opened.ask(f"read {file} aloud")
        assert [each.name for each in opened.request.messages[-1].media] == ["photo.png"]
        assert opened.turns[-1] == "read @photo.png aloud"


def programs(folder: Path, monkeypatch: pytest.MonkeyPatch, desktop: str, **scripts: str) -> None:
    """Have a desktop with these programs, and no other."""
    for name, script in scripts.items():
        program = folder / name.replace("_", "-")
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o700)
    monkeypatch.setenv("PATH", str(folder))
    for variable in ("WAYLAND_DISPLAY", "DISPLAY", "SSH_CONNECTION"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(desktop, "0")
    monkeypatch.setattr(clipboard, "_MOST_S", PATIENCE_S)
    monkeypatch.setattr(clipboard, "_MOST_PICTURE_S", PATIENCE_S)


def test_a_program_fills_the_clipboard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs(tmp_path, monkeypatch, "WAYLAND_DISPLAY", wl_copy=f'/bin/cat > "{tmp_path}/taken"')
    assert fill_clipboard("größer")
    assert (tmp_path / "taken").read_text() == "größer"
    monkeypatch.setenv("SSH_CONNECTION", "somewhere")
    assert not fill_clipboard("x")
    programs(tmp_path, monkeypatch, "WAYLAND_DISPLAY", wl_copy="exit 1")
    assert not fill_clipboard("x")


@pytest.mark.parametrize(
    ("system", "desktop", "program", "prints", "package"),
    [
        ("linux", "WAYLAND_DISPLAY", "wl_paste", "/bin/cat {0}", "wl-clipboard"),
        ("linux", "DISPLAY", "xclip", "/bin/cat {0}", "xclip"),
        ("darwin", "HOME", "pngpaste", "/bin/cat {0}", "pngpaste"),
        ("darwin", "HOME", "osascript", "echo «data PNGf{1}»", "pngpaste"),
    ],
)
def test_the_picture_in_the_clipboard(
    system: str,
    desktop: str,
    program: str,
    prints: str,
    package: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    file = placed(tmp_path, number=0)
    monkeypatch.setattr("sys.platform", system)
    printed = prints.format(file, file.read_bytes().hex().upper())
    programs(tmp_path, monkeypatch, desktop, **{program: printed})
    assert clipboard_picture() == file.read_bytes()
    programs(tmp_path, monkeypatch, desktop, **{program: "exit 1"})
    refuses("the clipboard holds no picture", clipboard_picture)
    (tmp_path / program.replace("_", "-")).unlink()
    refuses(f"install {package}, or attach a picture as @FILE", clipboard_picture)
    monkeypatch.setenv("SSH_CONNECTION", "somewhere")
    refuses("of another machine", clipboard_picture)


@driven(SEES)
async def test_what_is_in_the_clipboard_is_attached(
    chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chat.press("ctrl+v", shows="the clipboard", typed="")
    chat.app.copy_to_clipboard("a text")
    await chat.press("ctrl+v", typed="a text")
    data = placed(tmp_path).read_bytes()
    monkeypatch.setattr("localspec.tui.clipboard.clipboard_picture", lambda: data)
    chat.composer.fill("")
    shown = ["clipboard-1.png", "640 x 480"]
    await chat.press("ctrl+v", shows=shown, typed="@clipboard-1.png ")
    await chat.run("/paste", typed="@clipboard-2.png ")
    await chat.ask("Like @clipboard-1.png?", lacks="no file matches")
    assert [(each.name, each.data) for each in chat.media()] == [("clipboard-1.png", data)]


@driven({"hears": True, "otherwise": ["I heard it."]})
async def test_speech_is_attached(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = microphone_double(monkeypatch)
    await chat.run("/listen", shows=["recording 0.5 s of 60", "Enter ends"])
    assert not streams.opened[0].closed
    await chat.press("enter", typed="@recording-1.wav ")
    assert streams.opened[0].closed
    await chat.until_text("recording-1.wav · 8.0 KB · 0.5 s · 5 tokens")
    await chat.press("enter", rest=True, shows="I heard it.")
    await chat.run("/listen And this?", ListenSheet)
    await chat.press("enter", rest=True)
    assert chat.questions[1] == "And this? @recording-2.wav"
    await chat.run("/listen", ListenSheet)
    await chat.press("escape", typed="")
    assert all(each.closed for each in streams.opened)
    assert len(chat.questions) == 2
    monkeypatch.setattr(streams, "level", QUIET)
    await chat.run("/listen", ListenSheet)
    await chat.press("enter", shows="only silence was recorded: check the microphone")


def test_pictures_and_speech_in_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = microphone_double(monkeypatch)
    monkeypatch.setattr("localspec.tui.plain.enter_pressed", lambda: True)
    file = placed(tmp_path)
    lines = (f"'{file}' Which?", "/listen", "Say @recording-1.wav again", "/listen And this?")
    script = {"sees": True, "hears": True, "otherwise": ["One.", "Two.", "Three."]}
    code, out, err = said(tmp_path, *lines, script=script, answers=iter(()))
    assert (code, out) == (0, "One.\nTwo.\nThree.\n")
    assert "recorded 0.5 s" in err
    assert "▀" not in out + err
    _, out, err = said(tmp_path, "/copy all", "/listen", script=script, resume=1)
    assert "user: @photo.png Which?" in out
    assert "recording needs a terminal" in err
    _, out, _ = said(tmp_path, "/history 1", script=script)
    assert "You: @photo.png Which?\n+ photo.png · 757.5 KB · 640 x 480\n" in out
    recorded = len(streams.opened)
    err = said(tmp_path, "Look: @photo.png", "/paste", "/listen")[2]
    fits(err, {f"{TEXT_ONLY}seer": 1, "reads text only: attach sounds with one that hears": 1})
    assert len(streams.opened) == recorded, "only a model that hears listens"


def typeset(part: MediaPart, width: int, *, pictures: bool = True) -> list[str]:
    typesetter = Typesetter(Console(), "monokai", pictures=pictures)
    return [each.text.rstrip() for each in typesetter.attachment(part, "about it", width)]


def test_a_picture_keeps_its_form_and_its_colours() -> None:
    file = io.BytesIO()
    image = Image.new("RGB", (40, 30), (200, 0, 0))
    image.paste((0, 0, 200), (0, 15, 40, 30))
    image.save(file, "PNG")
    strips = picture_strips(file.getvalue(), 20, 8)
    assert [each.cell_length for each in strips] == [20] * 8
    above, below = (next(iter(each)).style for each in (strips[0], strips[-1]))
    assert (str(above), str(below)) == ("#c80000 on #c80000", "#0000c8")
    assert picture_strips(b"\x89PNG\r\n\x1a\nno", 20, 8) == ()


def test_a_line_stands_beside_a_picture_or_below_it_and_is_copied_alone() -> None:
    wide, high = (MediaPart.of(picture_file(each), "x.png") for each in (6, 7))
    assert typeset(wide, 80)[0].endswith("▀  about it")
    assert typeset(wide, 30)[-1] == "about it"
    assert len(typeset(high, 80)) == 8
    assert typeset(wide, 80, pictures=False) == ["about it"]
    assert typeset(MediaPart.of(sound_file(2), "x.wav"), 80) == ["about it"]
    text = MessageText("You", "Look.", media=((wide, "x.png · 3 KB"),))
    layout = MessageLayout(text, lambda: Typesetter(Console(), "monokai"), growing=False)
    layout.fit(60)
    copied = "\n".join(_text(each) for each in layout.strips)
    assert "▀" not in copied
    assert "x.png · 3 KB" in copied
