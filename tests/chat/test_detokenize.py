from hypothesis import given
from hypothesis import strategies as st

from localspec.chat.reply_text import Detokenizer
from tests.chat.cutting import cut


@given(st.text(), st.data())
def test_any_cutting_gives_the_text(text: str, data: st.DataObject) -> None:
    detokenizer = Detokenizer()
    pieces = [detokenizer.feed(piece) for piece in cut(data, text.encode())]
    assert "".join(pieces) + detokenizer.flush() == text
    assert "\ufffd" in text or all("\ufffd" not in piece for piece in pieces)


@given(st.binary(), st.data())
def test_any_cutting_of_broken_bytes_gives_what_the_whole_gives(
    raw: bytes, data: st.DataObject
) -> None:
    detokenizer = Detokenizer()
    pieces = [detokenizer.feed(piece) for piece in cut(data, raw)]
    assert "".join(pieces) + detokenizer.flush() == raw.decode("utf-8", errors="replace")


def test_a_character_appears_with_its_last_byte() -> None:
    detokenizer = Detokenizer()
    raw = "🦙".encode()
    assert [detokenizer.feed(raw[i : i + 1]) for i in range(4)] == ["", "", "", "🦙"]


def test_an_unfinished_character_is_flushed_as_one_replacement_and_forgotten() -> None:
    detokenizer = Detokenizer()
    assert detokenizer.feed("é".encode()[:1]) == ""
    assert detokenizer.flush() == "\ufffd"
    assert detokenizer.flush() == ""
    assert detokenizer.feed(b"e") == "e"
