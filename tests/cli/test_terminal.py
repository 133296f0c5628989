import io
import sys

import pytest

from localspec.chat.events import Text
from localspec.cli.output import AnswerStream

NASTY = "a\x1b[31mred\x1b]0;title\x07\r\x9b2J\x7f\tb\nc é 漢 txt\u202egnp\u200f.exe"


class Stdout(io.StringIO):
    """Counts what reached the reader, and may be a terminal."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal
        self.flushed = ""

    def isatty(self) -> bool:
        return self._terminal

    def flush(self) -> None:
        self.flushed = self.getvalue()


def stdout(monkeypatch: pytest.MonkeyPatch, *, terminal: bool = False) -> Stdout:
    stream = Stdout(terminal=terminal)
    monkeypatch.setattr(sys, "stdout", stream)
    return stream


def test_a_terminal_is_shown_what_it_would_obey(monkeypatch: pytest.MonkeyPatch) -> None:
    out = stdout(monkeypatch, terminal=True)
    stream = AnswerStream(silent=False, show_thinking=False)
    stream.write(Text(NASTY))
    stream.end()
    assert out.flushed == "a␛[31mred␛]0;title␇\ufffd2J␡\tb\nc é 漢 txt\\u202egnp\\u200f.exe\n"


def test_a_pipe_gets_every_character_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    out = stdout(monkeypatch)
    AnswerStream(silent=False, show_thinking=False).write(Text(NASTY))
    assert out.flushed == NASTY


@pytest.mark.parametrize(("text", "printed"), [("a", "a\n"), ("a\n", "a\n"), ("", "")])
def test_the_last_line_is_ended_once(
    monkeypatch: pytest.MonkeyPatch, text: str, printed: str
) -> None:
    out = stdout(monkeypatch)
    stream = AnswerStream(silent=False, show_thinking=False)
    stream.write(Text(text))
    stream.end()
    assert out.flushed == printed


def test_a_line_break_that_a_terminal_does_not_get_is_no_end_of_a_line(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    out = stdout(monkeypatch, terminal=True)
    stream = AnswerStream(silent=False, show_thinking=False)
    stream.write(Text("a\r"))
    stream.end()
    assert out.flushed == "a\n"


CHUNKS = (Text("hm", thinking=True), Text("m", thinking=True), Text("yes"))


@pytest.mark.parametrize(
    ("silent", "show_thinking", "printed"),
    [
        (False, False, "yes\n"),
        (False, True, "<think>\nhmm\n</think>\n\nyes\n"),
        (True, True, ""),
    ],
)
def test_thoughts_are_shown_only_on_request_and_set_off(
    monkeypatch: pytest.MonkeyPatch, silent: bool, show_thinking: bool, printed: str
) -> None:
    out = stdout(monkeypatch)
    stream = AnswerStream(silent=silent, show_thinking=show_thinking)
    for chunk in CHUNKS:
        stream.write(chunk)
    stream.end()
    assert out.flushed == printed


def test_thoughts_without_an_answer_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    out = stdout(monkeypatch)
    stream = AnswerStream(silent=False, show_thinking=True)
    stream.write(CHUNKS[0])
    stream.end()
    assert out.flushed == "<think>\nhm\n</think>\n"


def test_a_terminal_gets_lines_that_end_between_words_and_a_pipe_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("localspec.cli.output.columns_of", lambda _: 24)
    chunks = ["Here is some help", "ful in", "formation about", " tea."]
    for terminal, printed in (
        (True, "Here is some helpful\ninformation about tea.\n"),
        (False, "Here is some helpful information about tea.\n"),
    ):
        out = stdout(monkeypatch, terminal=terminal)
        stream = AnswerStream(silent=False, show_thinking=False)
        for chunk in chunks:
            stream.write(Text(chunk))
        stream.end()
        assert out.flushed == printed
