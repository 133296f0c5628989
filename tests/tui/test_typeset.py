"""Texts on the screen: blocks as they are done, lines and frames, and nothing in them that a terminal obeys."""

import unicodedata
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console
from rich.control import Control
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.events import Key, Paste
from textual.strip import Strip

from localspec.display import clean, clean_input, clean_line
from localspec.tui.app import LineGuard
from localspec.tui.keys import WholePastes
from localspec.tui.message import MessageLayout
from localspec.tui.message_text import MessageText
from localspec.tui.typeset import Block, BlockCutter, Typesetter

OBEYED = "".join(map(chr, (*range(32), *range(127, 160)))).replace("\n", "")
EVIL = "\x1b]0;title\x07\x1b[2J\x9b31m\x1b]52;c;aGk=\x07\r\x08\x00 \u202egnp.exe \ud800"
MARKS = "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
LONG_CODE = "\n".join(f"line {each}" for each in range(40))
LINES = ["", "text", "- item", "1. one", "    indented", "```py", "```", "~~~", "| a | b |", "# head"]  # fmt: skip
MESSAGE = """\
# A heading

Some *prose* with `code` in it,
over two lines.

- one
- two

```python
x = [1, 2]
```

| a | b |
|---|---|
| 1 | 2 |

The [end](https://example.org).
"""


def obeyed(text: str) -> list[str]:
    """Return the characters of a text that a terminal would act on, or cannot be given."""
    return [each for each in text if unicodedata.category(each) in {"Cc", "Cs"} and each != "\n"]


def test_no_control_character_is_left_and_what_turns_text_round_is_visible() -> None:
    assert obeyed(OBEYED) == list(OBEYED)
    assert obeyed(clean(OBEYED)) == obeyed(clean(EVIL)) == []
    assert clean("\x1b[31mred\x1b[0m") == "␛[31mred␛[0m"
    assert clean("a\u202egnp.exe") == "a\\u202egnp.exe"
    assert clean(MARKS) == "".join(f"\\u{ord(each):04x}" for each in MARKS)
    assert clean_line(MARKS).isascii()
    assert clean_input(f"a{MARKS}b") == "ab"
    text = "日本語 👩‍👩‍👧 e\u0301"
    assert clean(text) == text
    assert clean("a\tb\r\nc") == "a    b\nc"
    assert clean_line("a\nb\r\nc\n") == "a b c"
    assert clean_input("a\tb\r\nc\rd\x1b[200~\x00") == "a\tb\nc\nd[200~"


@given(st.text(), st.text())
def test_any_text_comes_out_clean_and_cutting_it_changes_nothing(one: str, other: str) -> None:
    assert obeyed(clean(one + other)) == []
    assert clean(one) + clean(other) == clean(one + other)


def guarded(segment: Segment) -> Segment:
    (only,) = LineGuard().apply([segment], Color(0, 0, 0))
    return only


def test_no_widget_gets_out_what_a_terminal_obeys() -> None:
    evil = guarded(Segment(EVIL, Style(bold=True)))
    assert obeyed(evil.text) == []
    assert "\n" not in evil.text
    assert evil.style == Style(bold=True)
    link = guarded(Segment("click", Style(link="https://example.org/\x1b]8;;")))
    assert link.style is not None
    assert link.style.link is None
    # What is clean, and what Textual itself controls.
    for segment in (Segment("日本語 plain", Style(color="red")), Control.move(1, 1).segment):
        assert guarded(segment) == segment


def cut(text: str, step: int = 1) -> BlockCutter:
    cutter = BlockCutter()
    for at in range(0, len(text), step):
        cutter.feed(text[at : at + step])
    return cutter


def test_a_block_is_done_when_nothing_of_it_can_follow() -> None:
    for text, done in (
        ("one\ntwo\n\nthree\n\nfou", [Block("one\ntwo\n")]),
        ("one\ntwo\n\nthree\n\nfour\n", [Block("one\ntwo\n"), Block("three\n")]),
        ("- one\n\n- two\n\n  more of two\n\n- three\n", []),
        ("text\n\n```python\nx = 1\n```\nafter\n", [Block("text\n"), Block("x = 1", "python")]),
        ("````md\n```\nx\n```\n````\n", [Block("```\nx\n```", "md")]),
    ):
        assert cut(text).done == done
    blocks = cut(f"```c\n{LONG_CODE}\n```\n").done  # long code is cut into pieces that go on
    assert all(block.info == "c" for block in blocks)
    assert [block.goes_on for block in blocks] == [False, True, True, True, True]
    assert "\n".join(block.text for block in blocks) == LONG_CODE


@given(st.lists(st.sampled_from(LINES)), st.integers(1, 7))
def test_no_line_is_lost_wherever_chunks_end(lines: list[str], step: int) -> None:
    text = "\n".join(lines)
    cutter = cut(text, step)
    cuttings = "\n".join([block.text for block in cutter.done] + [cutter.open.text])
    words = [line for line in lines if line and not line.startswith(("```", "~~~"))]
    assert all(cuttings.count(word) >= words.count(word) for word in set(words))
    assert cutter.done == cut(text, len(text) or 1).done


@pytest.fixture
def typesetter() -> Typesetter:
    return Typesetter(Console(width=60, force_terminal=True), "monokai")


def texts(strips: Iterable[Strip]) -> list[str]:
    return [strip.text for strip in strips]


def test_no_line_is_wider_than_asked_and_code_stands_in_a_frame(typesetter: Typesetter) -> None:
    for width in (1, 10, 33, 60, 200):
        strips = typesetter.markdown(MESSAGE, width)
        assert max(strip.cell_length for strip in strips) <= max(width, 12)
    strips = typesetter.markdown("```python\nx = 1  # one\n```", 40)
    styles = [segment.style for strip in strips for segment in strip if segment.style]
    assert any(style.color for style in styles)
    assert not any(style.bgcolor for style in styles)
    assert {style.meta["code"] for style in styles if "code" in style.meta} == {"x = 1  # one"}
    assert texts(typesetter.markdown("```\nx\n```", 12)) == ["x"]
    wrapped = typesetter.markdown("```python\n    return some_function(argument)\n```", 30)
    assert all(line.startswith("│     ") for line in texts(wrapped[1:-1])), "it keeps its indent"


@pytest.mark.parametrize("code", ["x = [1, 2]\n", "x = 1\n" * 16, "x = 1\n\n" * 20])
def test_a_growing_message_reads_like_the_finished_one(code: str, typesetter: Typesetter) -> None:
    def words(layout: MessageLayout) -> list[str]:
        text = "\n".join(texts(layout.strips)).replace("k copy", "")
        return text.translate(dict.fromkeys(map(ord, "─│╭╮╰╯"))).split()

    text = MESSAGE.replace("x = [1, 2]\n", code)
    growing = MessageLayout(MessageText("toy", "", kind="reply"), lambda: typesetter, growing=True)
    growing.fit(60)
    for end in [*range(1, len(text), 3), len(text)]:
        growing.grow(MessageText("toy", text[:end], kind="reply"))
        lines = "".join(texts(growing.strips))
        assert lines.count("╭") == lines.count("╰")
    whole = MessageLayout(MessageText("toy", text, kind="reply"), lambda: typesetter, growing=False)
    whole.fit(60)
    assert words(growing) == words(whole)


def test_a_long_question_is_folded_in_its_middle(typesetter: Typesetter) -> None:
    text = "\n".join(f"line {each}" for each in range(100))
    layout = MessageLayout(MessageText("You", text), lambda: typesetter, growing=False)
    layout.fit(60)
    lines = texts(layout.strips)
    assert lines[1:3] == ["line 0", "line 1"]
    assert lines[-5:-3] == ["▸ 88 more lines", "line 96"]
    assert lines[-1] == "line 99"


def test_nothing_that_a_terminal_obeys_is_laid_out(typesetter: Typesetter) -> None:
    strips = typesetter.markdown("[end](https://example.org)", 60)
    assert not any(segment.style and segment.style.link for strip in strips for segment in strip)
    for strips in (
        typesetter.markdown(EVIL, 40),
        typesetter.plain(EVIL, 40),
        typesetter.block(Block(EVIL, "python"), 40),
        typesetter.markdown(f"```\n{EVIL}\n```", 40),
    ):
        assert obeyed("".join(texts(strips))) == []


@pytest.mark.parametrize("size", [1, 2, 3, 5, 7, 100])
def test_a_paste_with_escapes_is_one_paste_whatever_parts_it_comes_in(size: int) -> None:
    sent = (
        "a\x1b[200~one \x1b[31mERROR\x1b[0m here\ntwo \x1b three\n\x1b[201~b\x1b[200~c\x1b[201~\r"
    )
    parser = WholePastes()
    events = [
        each for at in range(0, len(sent), size) for each in parser.feed(sent[at : at + size])
    ]
    pastes = [each.text for each in events if isinstance(each, Paste)]
    assert pastes == ["one ERROR here\ntwo  three\n", "c"]
    assert [each.key for each in events if isinstance(each, Key)] == ["a", "b", "enter"]
