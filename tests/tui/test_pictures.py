"""Pictures and sounds in the chat: attached, drawn, kept with their questions, and refused where the model takes none."""

import io
from pathlib import Path

import msgspec
import pytest
from PIL import Image
from rich.console import Console
from textual import events

from localspec.messages import MediaPart
from localspec.session.attachments import question_with
from localspec.tui import clipboard
from localspec.tui.clipboard import clipboard_picture, fill_clipboard
from localspec.tui.message import MessageLayout, _text
from localspec.tui.message_text import MessageText
from localspec.tui.pictures import picture_strips
from localspec.tui.sheets import ListenSheet
from localspec.tui.typeset import Typesetter
from tests.support.checks import refuses
from tests.support.media import picture_file, sound_file
from tests.support.microphone import QUIET, microphone_double
from tests.tui.answers import finished
from tests.tui.driving import PATIENCE_S, Chat, drive, driven
from tests.tui.lines import said
from tests.tui.scripted import READY, window

SEES = {"sees": True, "otherwise": ["A picture.", "Yes."]}
SEER = msgspec.structs.replace(READY, sees=True)
HALVES = "▀▀▀▀"


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
    return sum(HALVES in line for line in chat.text().splitlines())


@driven(SEES)
async def test_a_picture_is_drawn_where_it_is_attached_and_where_it_was_sent(chat: Chat) -> None:
    placed(chat.session.folder)
    await chat.ready()
    await chat.type("What is on @photo.png?")
    await chat.until_text("640 x 480 · 5 tokens")
    assert drawn(chat) == 4
    await chat.press("enter")
    await chat.until_rest()
    chat.see(["You · 1", "What is on @photo.png?", "640 x 480 · 5 tokens", "A picture."], typed="")
    assert drawn(chat) == 8
    (part,) = chat.session.talk.messages[0].message.media
    assert (part.name, part.data) == ("photo.png", picture_file(4))
    await chat.run("/copy all")
    assert "user: What is on @photo.png?\n\nassistant: A picture." in chat.app.clipboard


@pytest.mark.parametrize("width", [30, 80, 120])
@pytest.mark.parametrize("no_color", [False, True])
def test_a_conversation_with_a_picture_is_taken_up(
    width: int, no_color: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = placed(tmp_path / "work")

    async def ask(chat: Chat) -> None:
        await chat.ready()
        await chat.ask("Look: @photo.png", shows="A picture.")

    async def take_up(chat: Chat) -> None:
        await chat.ready()
        await chat.until_text("5 tokens", "You · 1")
        assert drawn(chat) == (0 if no_color else 8)
        if no_color:
            assert "\x1b" not in chat.text()
        await chat.ask("Sure?", shows="Yes.")
        await chat.press("f5")
        await chat.until_rest()
        await chat.run("/branch 1")
        for each in ("You · 1", "Look: @photo.png"):
            assert each in chat.line
        (sent,) = chat.session.talk.messages[0].message.media
        assert sent.data == picture_file(4), "from the history, not from the file"

    drive(ask, tmp_path, SEES)
    file.unlink()
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")
    drive(take_up, tmp_path, SEES, resume=1, size=(width, 40))


@driven(SEES)
async def test_an_edited_question_keeps_its_picture(chat: Chat) -> None:
    file = placed(chat.session.folder)
    await chat.ready()
    await chat.ask("What is @photo.png?")
    file.write_bytes(picture_file(9))
    first = chat.session.talk.messages[0].message.media
    await chat.press("f6")
    await chat.until_text("editing question 1")
    assert drawn(chat) >= 8 + 4, "it goes with the edited question, too"
    await chat.press("!", "enter")
    await chat.until_rest()
    assert chat.session.talk.messages[0].message.media == first
    await chat.run("/edit 1 And in one word?")
    await chat.until_rest()
    assert chat.session.talk.messages[0].message.media == first
    await chat.press("f6")
    chat.composer.fill("Without it?")
    await chat.settle()
    await chat.press("enter")
    await chat.until_rest()
    assert chat.questions == ["Without it?"]
    assert chat.session.talk.messages[0].message.media == first, "the text never named it"
    await chat.ask("@photo.png is another one now")
    assert chat.session.talk.messages[-2].message.media[0].data == picture_file(9)


@driven(SEES)
async def test_a_mention_that_is_taken_out_takes_its_picture_with_it(chat: Chat) -> None:
    placed(chat.session.folder)
    await chat.ready()
    await chat.ask("What is @photo.png?")
    await chat.press("f6")
    chat.composer.fill("What is it?")
    await chat.settle()
    await chat.press("enter")
    await chat.until_rest()
    assert chat.session.talk.messages[0].message.media == ()


@driven()
async def test_a_model_that_cannot_see_says_so_before_anything_is_lost(chat: Chat) -> None:
    placed(chat.session.folder)
    await chat.ready()
    await chat.run("What is @photo.png?")
    line = "toy reads text only: attach pictures with one that sees, such as image-taker"
    chat.see(line, typed="What is @photo.png?")
    assert drawn(chat) == 4
    assert chat.contents == []


def test_a_model_without_its_encoders_names_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.models.mmproj.model_that_takes", lambda kind: "toy")
    with window(tmp_path) as opened:
        refuses("such as toy after `localspec pull toy`", opened.session.require_senses, {"image"})


@driven({"load_s": Path("go")})
async def test_a_question_that_was_asked_before_the_model_was_there_comes_back(chat: Chat) -> None:
    placed(chat.session.folder)
    await chat.run("What is @photo.png?")
    chat.let("go")
    line = "toy reads text only: attach pictures with one that sees, such as seer"
    await chat.until_text(line)
    chat.see(typed="What is @photo.png?", lacks="You · 1")
    assert drawn(chat) == 4


def test_a_picture_is_refused_for_every_way_to_ask(tmp_path: Path) -> None:
    placed(tmp_path)
    why = "toy reads text only: .* such as image-taker"
    with window(tmp_path) as first:
        first.session.load("seer")
        first.hear(SEER)
        first.ask("Look: @photo.png", "A picture.")
        first.session.load("other")
        first.hear(READY)
        for refused in (
            lambda: first.session.ask("and now?"),
            lambda: first.session.ask_instead(1, "and now?", keeps=True),
            first.session.regenerate,
        ):
            refuses(why, refused)
        assert first.contents == ["Look: @photo.png", "A picture."]
        refuses(
            "reads text only: attach sounds.* audio-taker", first.session.require_senses, {"audio"}
        )
        assert first.session.ask_instead(1, "no picture, then") == []


def test_a_question_of_which_the_picture_is_missing_is_edited(tmp_path: Path) -> None:
    file = placed(tmp_path)
    with window(tmp_path) as first:
        first.session.load("seer")
        first.hear(SEER)
        first.ask("Look: @photo.png", "A picture.")
        (part,) = first.session.talk.messages[0].message.media
        number = first.conversation
    (stored,) = [each for each in tmp_path.rglob("media/*") if each.name == part.sha256]
    stored.unlink()
    file.unlink()
    with window(tmp_path, number) as second:
        second.session.load("seer")
        second.hear(SEER)
        refuses("photo.png is missing", second.session.ask, "Sure?")
        assert second.contents == ["Look: @photo.png", "A picture."]
        assert second.session.ask_instead(1, "Are you there?", keeps=True) == []
        second.answer("Yes.")
        assert second.session.talk.messages[0].message.media == ()
        second.session.ask("Sure?")
        assert second.turns == ["Are you there?", "Yes.", "Sure?"]
        second.answer("Yes.")


def test_a_question_that_is_taken_back_keeps_its_picture(tmp_path: Path) -> None:
    picture, other = (MediaPart.of(picture_file(each), "clipboard-1.png") for each in (4, 6))
    spaced = MediaPart.of(picture_file(7), 'a "b".png')
    with window(tmp_path) as first:
        first.session.load("seer")
        first.hear(SEER)
        first.session.talk.say(question_with("What is @clipboard-1.png?", [picture]))
        first.session.talk.add_reply(finished(text="A picture.").reply, "toy")
        first.session.talk.say(question_with("And these?", [other, spaced]))
        number = first.conversation
    with window(tmp_path, number) as second:
        second.session.load("seer")
        second.hear(SEER)
        assert second.session.attached_media("@clipboard-1.png") == []
        text = second.session.undo()
        assert second.session.attached_media("@clipboard-1.png") == [other]
        assert text == "And these? @clipboard-1.png @\"a 'b'.png\""
        second.ask(text, "Two.")
        assert [each.data for each in second.request.messages[-1].media] == [
            other.data,
            spaced.data,
        ]
    with window(tmp_path, number) as editing:
        editing.session.load("seer")
        editing.hear(SEER)
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


@pytest.mark.parametrize(
    ("pasted", "written"),
    [
        ("{}/photo.png", "@photo.png "),
        ("'{}/my photo.png' ", '@"my photo.png" '),
        ("{}/my\\ photo.png", '@"my photo.png" '),
        ("{}/my photo.png", '@"my photo.png" '),
        ("file://{}/my%20photo.png", '@"my photo.png" '),
        ("'{0}/photo.png' '{0}/it'\\''s.png'", "@photo.png @it's.png "),
        ("{}/notes.txt", "{}/notes.txt"),
        ("{}/none.png", "{}/none.png"),
        ("'{}/photo.png", "'{}/photo.png"),
        ("see {}/photo.png.bak", "see {}/photo.png.bak"),
        ("don't", "don't"),
        ("{0}/photo.png is not @{0}/photo.png", "{0}/photo.png is not @{0}/photo.png"),
        ("read\n{0}/photo.png", "read\n{0}/photo.png"),
        ("@photo.png", "@photo.png"),
    ],
)
def test_a_dragged_file_is_attached(pasted: str, written: str, tmp_path: Path) -> None:
    async def paste(chat: Chat) -> None:
        folder = chat.session.folder
        for name in ("photo.png", "my photo.png", "it's.png"):
            placed(folder, name)
        (folder / "notes.txt").write_text("x")
        chat.composer.post_message(events.Paste(pasted.format(folder)))
        await chat.settle()
        assert chat.composer.text == written.format(folder)

    drive(paste, tmp_path)


def test_a_typed_path_is_attached_where_the_model_sees(tmp_path: Path) -> None:
    file = placed(tmp_path)
    with window(tmp_path) as opened:
        opened.ask(f"read {file} aloud", "no")
        assert opened.request.messages[1].media == ()
        opened.session.load("other")
        opened.hear(SEER)
        opened.ask(f"read {file} aloud")
        assert [each.name for each in opened.request.messages[-1].media] == ["photo.png"]
        assert opened.turns[-1] == "read @photo.png aloud"


# The clipboard.


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


def test_a_program_of_the_machine_fills_its_clipboard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    programs(tmp_path, monkeypatch, "WAYLAND_DISPLAY", wl_copy=f'/bin/cat > "{tmp_path}/taken"')
    assert fill_clipboard("größer")
    assert (tmp_path / "taken").read_text() == "größer"
    monkeypatch.setenv("SSH_CONNECTION", "somewhere")
    assert not fill_clipboard("x")
    programs(tmp_path, monkeypatch, "WAYLAND_DISPLAY", wl_copy="exit 1")
    assert not fill_clipboard("x")


@pytest.mark.parametrize(
    ("system", "desktop", "program", "prints"),
    [
        ("linux", "WAYLAND_DISPLAY", "wl_paste", "/bin/cat {0}"),
        ("linux", "DISPLAY", "xclip", "/bin/cat {0}"),
        ("darwin", "HOME", "pngpaste", "/bin/cat {0}"),
        ("darwin", "HOME", "osascript", "echo «data PNGf{1}»"),
    ],
)
def test_the_picture_in_the_clipboard(
    system: str,
    desktop: str,
    program: str,
    prints: str,
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
    package = {"wl_paste": "wl-clipboard", "osascript": "pngpaste"}.get(program, program)
    refuses(f"install {package}, or attach a picture as @FILE", clipboard_picture)
    monkeypatch.setenv("SSH_CONNECTION", "somewhere")
    refuses("of another machine", clipboard_picture)


@driven(SEES)
async def test_the_picture_in_the_clipboard_is_attached(
    chat: Chat, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await chat.ready()
    await chat.press("ctrl+v")
    chat.see("the clipboard", typed="")
    chat.app.copy_to_clipboard("a text")
    await chat.press("ctrl+v")
    chat.see(typed="a text")
    data = placed(tmp_path).read_bytes()
    monkeypatch.setattr("localspec.tui.tray.clipboard_picture", lambda: data)
    chat.composer.fill("")
    await chat.press("ctrl+v")
    await chat.until_text("clipboard-1.png", "640 x 480")
    chat.see(typed="@clipboard-1.png ")
    await chat.run("/paste")
    chat.see(typed="@clipboard-2.png ")
    await chat.ask("Like @clipboard-1.png?", lacks="no file matches")
    (part,) = chat.session.talk.messages[0].message.media
    assert (part.name, part.data) == ("clipboard-1.png", data)


# Speech.


@driven({"hears": True, "otherwise": ["I heard it."]})
async def test_speech_is_attached(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = microphone_double(monkeypatch)
    await chat.ready()
    await chat.run("/listen")
    await chat.until_text("recording 0.5 s of 60", "Enter ends")
    assert not streams.opened[0].closed
    await chat.press("enter", typed="@recording-1.wav ")
    assert streams.opened[0].closed
    await chat.until_text("recording-1.wav · 8.0 KB · 0.5 s · 5 tokens")
    await chat.press("enter")
    await chat.until_rest()
    chat.see("I heard it.")
    await chat.run("/listen And this?")
    await chat.until_sheet(ListenSheet)
    await chat.press("enter")
    await chat.until_rest()
    assert chat.questions[1] == "And this? @recording-2.wav"
    await chat.run("/listen")
    await chat.until_sheet(ListenSheet)
    await chat.press("escape", typed="")
    assert all(each.closed for each in streams.opened)
    assert len(chat.questions) == 2
    monkeypatch.setattr(streams, "level", QUIET)
    await chat.run("/listen")
    await chat.until_sheet(ListenSheet)
    await chat.press("enter", shows="only silence was recorded: check the microphone")


@driven({"sees": True})
async def test_only_a_model_that_hears_listens(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    streams = microphone_double(monkeypatch)
    await chat.ready()
    await chat.run("/listen")
    chat.see("toy takes no sounds: attach sounds with one that hears, such as audio-taker")
    assert streams.opened == []


# Lines.


def test_pictures_and_speech_in_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    microphone_double(monkeypatch)
    monkeypatch.setattr("localspec.tui.plain.enter_pressed", lambda: True)
    file = placed(tmp_path)
    lines = (f"'{file}' Which?", "/listen", "Say @recording-1.wav again", "/listen And this?")
    script = {"sees": True, "hears": True, "otherwise": ["One.", "Two.", "Three."]}
    code, out, err = said(tmp_path, *lines, script=script, answers=iter(()))
    assert (code, out) == (0, "One.\nTwo.\nThree.\n")
    for line in (
        "recording: Enter ends it",
        "recorded 0.5 s",
        "@recording-1.wav in a question attaches it",
    ):
        assert line in err
    assert "▀" not in out + err
    code, out, err = said(tmp_path, "/copy all", "/listen", script=script, resume=1)
    assert "user: @photo.png Which?" in out
    assert "recording needs a terminal" in err
    code, out, err = said(tmp_path, "/history 1", script=script)
    assert "You: @photo.png Which?\n+ photo.png · 757.5 KB · 640 x 480\n" in out
    code, out, err = said(tmp_path, "Look: @photo.png", "/paste")
    assert "toy reads text only: attach pictures with one that sees, such as seer" in err


# Drawing.


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


def test_a_line_stands_beside_a_picture_or_below_it() -> None:
    wide, high = (MediaPart.of(picture_file(each), "x.png") for each in (6, 7))
    assert typeset(wide, 80)[0].endswith("▀  about it")
    assert typeset(wide, 30)[-1] == "about it"
    assert len(typeset(high, 80)) == 8
    assert typeset(wide, 80, pictures=False) == ["about it"]
    assert typeset(MediaPart.of(sound_file(2), "x.wav"), 80) == ["about it"]


def test_cells_of_a_picture_are_not_copied() -> None:
    part = MediaPart.of(picture_file(4), "x.png")
    text = MessageText("You", "Look.", media=((part, "x.png · 3 KB"),))
    layout = MessageLayout(text, lambda: Typesetter(Console(), "monokai"), growing=False)
    layout.fit(60)
    copied = [_text(each) for each in layout.strips]
    assert not any("▀" in each for each in copied)
    assert any("x.png · 3 KB" in each for each in copied)
