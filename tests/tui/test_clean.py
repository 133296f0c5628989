import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from localspec.display import clean, clean_input, clean_line

OBEYED = "".join(map(chr, (*range(32), *range(127, 160)))).replace("\n", "")
EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m\x1b]52;c;aGk=\x07\r\x08\x00 \u202egnp.exe \ud800"
MARKS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"


def obeyed(text: str) -> list[str]:
    """Return the characters of a text that a terminal would act on, or cannot be given."""
    return [each for each in text if unicodedata.category(each) in {"Cc", "Cs"} and each != "\n"]


def test_no_control_character_is_left() -> None:
    assert obeyed(OBEYED) == list(OBEYED)
    assert obeyed(clean(OBEYED)) == obeyed(clean(EVIL)) == []
    assert clean("\x1b[31mred\x1b[0m") == "␛[31mred␛[0m"


@given(st.text(), st.text())
def test_any_text_comes_out_clean_and_cutting_it_changes_nothing(one: str, other: str) -> None:
    assert obeyed(clean(one + other)) == []
    assert clean(one) + clean(other) == clean(one + other)


def test_what_turns_the_direction_of_text_round_is_visible() -> None:
    assert clean("a\u202egnp.exe") == "a\\u202egnp.exe"
    assert clean(MARKS) == "".join(f"\\u{ord(each):04x}" for each in MARKS)
    assert clean_line(MARKS).isascii()
    assert clean_input(f"a{MARKS}b") == "ab"


def test_what_is_text_stays_and_blanks_become_what_they_mean() -> None:
    text = "日本語 👩‍👩‍👧 e\u0301"
    assert clean(text) == text
    assert clean("a\tb\r\nc") == "a    b\nc"
    assert clean_line("a\nb\r\nc\n") == "a b c"
    assert clean_input("a\tb\r\nc\rd\x1b[200~\x00") == "a\tb\nc\nd[200~"
