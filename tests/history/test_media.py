"""Pictures and sounds in conversations: kept by hash, exported, removed with the last message that names them."""

import base64
import hashlib
import json
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.chat.gated import gate_of
from localspec.errors import HistoryError, UsageError
from localspec.history.archive import History
from localspec.history.records import acts_of, message_of, storable
from localspec.messages import DocumentPart, MediaPart, Message, Part, TextPart
from localspec.session.conversation import SavedConversation
from localspec.session.export import FileTaken, exported, write_export
from tests.history.test_archive import talk
from tests.history.test_trouble import check_one_line, run
from tests.support.checks import on_disk
from tests.test_media import png
from tests.tui.answers import finished, save_reply

PHOTO, OTHER = png(), png(5, 5)
SOUND = b"RIFF\x24\0\0\0WAVEfmt " + bytes(24)
LOOK = Message.user(
    "What is @photo.png?", [DocumentPart("a.txt", "pears")], [MediaPart.of(PHOTO, "photo.png")]
)
MIXED = Message(
    "user",
    (
        TextPart("first "),
        MediaPart.of(PHOTO, "a.png"),
        DocumentPart("b.txt", "1 </file>"),
        MediaPart.of(SOUND, "c.wav"),
        MediaPart.of(OTHER, 'd "e".png'),
        TextPart("last"),
    ),
)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[History]:
    history = History(tmp_path / "history")
    yield history
    history.close()


def files(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.rglob("media/*"))


def hashes(*contents: bytes) -> list[str]:
    return sorted(hashlib.sha256(each).hexdigest() for each in contents)


def add(history: History, message: Message = LOOK) -> int:
    number = history.create()
    history.add_user(number, None, message)
    return number


@pytest.mark.parametrize("message", [LOOK, MIXED, Message("user", LOOK.media)])
def test_a_message_is_there_again_with_its_parts_in_order(tmp_path: Path, message: Message) -> None:
    first = History(tmp_path)
    number = add(first, message)
    assert first.branch(number)[0].message == message
    first.close()
    second = History(tmp_path)
    assert second.branch(number)[0].message == second.messages(number)[0].message == message
    assert second.conversation(number).title
    second.close()
    kept = tmp_path / "media"
    modes = [stat.S_IMODE(each.stat().st_mode) for each in (kept, *kept.iterdir())]
    assert modes == [0o700, *[0o600] * len(message.media)]


def test_neither_rows_nor_index_have_a_picture(history: History, tmp_path: Path) -> None:
    number = add(history)
    assert history.questions(9) == [LOOK.typed]
    assert [each.id for each in history.conversations("photo")] == [number]
    history.close()
    for file in (tmp_path / "history").glob("history.db*"):
        content = file.read_bytes()
        for form in (PHOTO, base64.b64encode(PHOTO), PHOTO.hex().encode()):
            assert form[20:60] not in content
    with closing(sqlite3.connect(tmp_path / "history" / "history.db")) as rows:
        assert rows.execute("SELECT content FROM message").fetchone() == (LOOK.text,)


def test_a_picture_goes_with_its_last_message(history: History, tmp_path: Path) -> None:
    first, second, third = add(history), add(history, MIXED), add(history)
    (tmp_path / "history/media/.abc.part").write_bytes(OTHER)  # of a writer that was killed
    held = (tmp_path / "history/media" / hashes(PHOTO)[0]).open("rb")
    assert len(files(tmp_path)) == 4
    history.delete(second)
    assert files(tmp_path) == hashes(PHOTO)
    history.delete(first)
    assert files(tmp_path) == hashes(PHOTO)
    assert history.branch(third)[0].message == LOOK
    history.delete(third)
    assert files(tmp_path) == []
    with held:
        assert held.read() == bytes(len(PHOTO)), "it was overwritten before it was removed"
    assert b"photo.png" not in on_disk(tmp_path)


def test_another_window_s_picture_is_not_taken_for_one_without_a_message(tmp_path: Path) -> None:
    one, other = History(tmp_path), History(tmp_path)
    number = add(one)
    talk(other, "a", "b")
    other.delete(add(other))
    assert one.branch(number)[0].message == LOOK
    one.delete(number)
    assert other.branch(add(other))[0].message == LOOK, "it is written again"
    one.close()
    other.close()


@pytest.mark.parametrize("damage", [PHOTO[:-1], b"x" * len(PHOTO), None])
def test_a_damaged_file_costs_no_text(tmp_path: Path, damage: bytes | None) -> None:
    saved = SavedConversation(History(tmp_path))
    saved.say(LOOK)
    save_reply(saved, finished(text="A cat.").reply, "toy")
    saved.history.close()
    file = tmp_path / "media" / hashes(PHOTO)[0]
    file.unlink() if damage is None else file.write_bytes(damage)
    saved = SavedConversation(History(tmp_path))
    saved.open(1)
    assert [each.message.text for each in saved.messages] == [LOOK.text, "A cat."]
    with pytest.raises(UsageError, match="is missing or damaged") as error:
        saved.turns_with(Message.user("And now?"))
    assert "\n" not in str(error.value)
    assert "photo.png" in str(error.value)
    for style in ("md", "json"):
        assert "pears" in exported(saved.history, 1, "json")
        assert "A cat." in write_export(saved.history, 1, style, tmp_path, None)[0].read_text()
    assert "+ photo.png · its file is missing" in exported(saved.history, 1, "md")
    # A copy of the conversation names the same file, and the same picture again mends both.
    saved.branch_off(2)
    assert saved.messages[0].message.media[0].sha256 == hashes(PHOTO)[0]
    saved.say(LOOK)
    assert saved.turns_with(Message.user("And now?"))[0] == LOOK
    saved.history.close()


@pytest.mark.parametrize(
    "acts",
    [
        *("{", "3", '{"calls": 3}', '{"calls": [{}]}', "[" * 5000),
        '{"media":[{"kind":"image","name":"a","sha256":"../../../../etc/passwd","at":0}]}',
        '{"media":[{"kind":"film","name":"a","sha256":"HASH","at":0}]}',
        '{"media":[{"kind":"image","name":"a","sha256":"HASH\\n","at":0}]}',
        '{"media":[{"kind":"image"}]}',
        '{"media":3}',
    ],
)
def test_what_another_program_wrote_of_a_message_is_one_line(tmp_path: Path, acts: str) -> None:
    history = History(tmp_path)
    number = add(history)
    history.close()
    with closing(sqlite3.connect(tmp_path / "history.db")) as file:
        file.execute("UPDATE message SET acts = ?", (acts.replace("HASH", hashes(PHOTO)[0]),))
        file.commit()
    history = History(tmp_path)
    with pytest.raises(HistoryError, match="delete its conversation"):
        history.branch(number)
    history.delete(number)
    assert files(tmp_path) == [] or "media" not in acts
    history.close()


def test_places_that_another_program_wrote_lose_no_text(tmp_path: Path) -> None:
    history = History(tmp_path)
    number = add(history, MIXED)
    history.close()
    for places in ((10**9, 0, 3), (-5, -9, -1), (2, 1, 0)):
        with closing(sqlite3.connect(tmp_path / "history.db")) as file:
            acts = json.loads(acts_of(MIXED))
            for each, at in zip(acts["media"], places, strict=True):
                each["at"] = at
            file.execute("UPDATE message SET acts = ?", (json.dumps(acts, separators=(",", ":")),))
            file.commit()
        history = History(tmp_path)
        message = history.branch(number)[0].message
        assert (message.text, len(message.media)) == (MIXED.text, 3)
        history.close()


LARGE = Message.user("Hi", media=[MediaPart("image", "large.bmp", b"BM" + bytes(400_000))])
# There is room for rows, and none for the picture; and then for nothing at all.
FULL = """
from tests.history.test_media import LARGE, LOOK, add, files
history = History(place)
room(300_000)
number = add(history, LARGE)
check_one_line(history.trouble, "File too large", "kept in memory")
room(64)
history.delete(add(history))
talk(history, "still there?", "yes", number)
assert [each.message.text for each in history.branch(number)] == ["Hi", "still there?", "yes"]
assert history.branch(number)[0].message == LARGE
assert files(place) == []
if sys.argv[2] == "saved":
    room()
history.close()
assert (history.trouble is None) is (sys.argv[2] == "saved")
"""


@pytest.mark.parametrize("how", ["saved", "lost"])
def test_a_picture_waits_for_room_on_the_disk(tmp_path: Path, how: str) -> None:
    run(FULL, tmp_path, how)
    history = History(tmp_path)
    assert files(tmp_path) == (hashes(LARGE.media[0].data) if how == "saved" else [])
    if how == "saved":
        assert [each.id for each in history.conversations()] == [history.latest()]
        assert history.branch(history.latest() or 0)[0].message == LARGE
    history.close()


def test_a_folder_that_cannot_be_made_costs_no_word(tmp_path: Path) -> None:
    history = History(tmp_path)
    (tmp_path / "media").write_text("in the way")
    number = add(history)
    check_one_line(history.trouble, "cannot be saved")
    assert history.branch(number)[0].message == LOOK
    (tmp_path / "media").unlink()
    history.close()
    assert history.trouble is None
    again = History(tmp_path)
    assert again.branch(number)[0].message == LOOK
    again.close()


def test_exports_have_the_pictures(tmp_path: Path) -> None:
    history = History(tmp_path / "history")
    number = add(history, MIXED)
    document = json.loads(exported(history, number, "json"))
    first, second, third = document["messages"][0]["media"]
    assert (first["name"], first["at"], second["kind"]) == ("a.png", len("first "), "audio")
    assert base64.b64decode(third["url"].removeprefix("data:image/png;base64,")) == OTHER
    assert "+ a.png · 7" in exported(history, number, "md")
    for _ in range(2):  # again into the same files
        path, _ = write_export(history, number, "my trip.md", tmp_path, None)
    text, beside = path.read_text(), tmp_path / "my trip-files"
    assert sorted(each.read_bytes() for each in beside.iterdir()) == sorted([PHOTO, SOUND, OTHER])
    for name, link in (("a.png", "!["), ("c.wav", "\n["), ('d "e".png', "![")):
        part = next(each for each in MIXED.media if each.name == name)
        target = f"my%20trip-files/{part.sha256[:12]}.{name.rpartition('.')[2]}"
        assert f"{link}{name}]({target})" in text
    assert "+ b.txt" in text
    odd = add(history, Message.user("Hi", media=[MediaPart("image", "odd.png", b"no picture")]))
    assert "+ odd.png · 10 B\n" in exported(history, odd, "md")
    history.close()


@pytest.mark.parametrize("style", ["md", "json"])
def test_an_export_is_written_over_an_earlier_one_of_its_conversation_alone(
    style: str, tmp_path: Path
) -> None:
    with closing(History(tmp_path / "history")) as history:
        trip, other = add(history, MIXED), add(history, Message.user("A thesis."))
        file = tmp_path / f"a.{style}"
        for text in ("# My own\n", "{}", "x"):
            file.write_text(text)
            with pytest.raises(FileTaken, match=f"a.{style} is not of this conversation"):
                write_export(history, trip, file.name, tmp_path, None)
            assert file.read_text() == text
        write_export(history, trip, file.name, tmp_path, None, force=True)
        for wrong in ("pdf", "pdf my trip.pdf", "my trip.html", "md my trip.docx"):
            with pytest.raises(UsageError, match=r"exports are md or json, not (pdf|html|docx)"):
                write_export(history, trip, wrong, tmp_path, None)
        question = history.branch(trip)[-1].id
        history.add_user(trip, question, Message.user("And then?"))
        write_export(history, trip, file.name, tmp_path, None)
        text = file.read_text()
        assert "And then?" in text
        with pytest.raises(FileTaken):
            write_export(history, other, file.name, tmp_path, None)
        assert file.read_text() == text
        file.write_text("")  # nothing is lost
        write_export(history, other, file.name, tmp_path, None)
        assert "A thesis." in file.read_text()


def test_the_names_of_files_are_masked_in_exports(tmp_path: Path) -> None:
    history = History(tmp_path / "history")
    number = add(history, Message.user("Hi", media=[MediaPart.of(PHOTO, "to ann@example.org")]))
    for style in ("md", "json"):
        mask = gate_of("usual").cleaned
        path, _ = write_export(history, number, style, tmp_path, mask, own=True)
        assert "ann@" not in path.read_text()
    history.close()


PARTS = st.one_of(
    st.builds(TextPart, st.text(max_size=9) | st.sampled_from(['\n\n<file name="a">\n', "\ud800"])),
    st.builds(DocumentPart, st.sampled_from(["a", "b.txt"]), st.text(max_size=9)),
    st.builds(
        MediaPart, st.sampled_from(["image", "audio"]), st.text(max_size=5), st.binary(min_size=1)
    ),
)


@given(st.lists(PARTS, max_size=6))
def test_whatever_a_message_has_comes_back_at_its_place(parts: list[Part]) -> None:
    message = Message("user", tuple(parts))
    data = {each.sha256: each.data for each in message.media}
    row = {"role": "user", "content": storable(message.text), "thinking": ""}
    back = message_of(row | {"acts": acts_of(message)}, data.__getitem__)
    assert (back.text, acts_of(back)) == (storable(message.text), acts_of(message))
    assert [each.data for each in back.media] == [each.data for each in message.media]
