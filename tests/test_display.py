"""Lines for a terminal end between words, and what is out is never written again."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from localspec.display import Wrapping, shortened, table
from localspec.display import wrapped as for_terminal


def wrapped(text: str, columns: int, *, chunk: int = 1) -> str:
    wrapping = Wrapping(lambda: columns)
    pieces = [text[at : at + chunk] for at in range(0, len(text), chunk)]
    return "".join(map(wrapping.feed, pieces)) + wrapping.flush()


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("short enough", ["short enough"]),
        ("exactly twenty cells", ["exactly twenty cells"]),
        ("it gives helpful information", ["it gives helpful", "information"]),
        ("  * an item that is too long", ["  * an item that is", "too long"]),
        ("one\n\ntwo", ["one", "", "two"]),
        ("an https://host.example/a/long/path", ["an", "https://host.example/a/long/path"]),
        ("a\tb\tc\tdddddd", ["a\tb\tc", "dddddd"]),
        # Scripts without blanks: beside any ideograph, but for the marks that close and open.
        ("今日は天気がいいから散歩しましょう。", ["今日は天気がいいから", "散歩しましょう。"]),
        ("今日は天気がいいか。散歩", ["今日は天気がいいか。", "散歩"]),
        ("今日は天気がいいから「散歩」", ["今日は天気がいいから", "「散歩」"]),
        ("과학 기술이 발전하였습니다", ["과학 기술이", "발전하였습니다"]),
        ("nineteen cells here 👩‍👩‍👧 ok", ["nineteen cells here", "👩‍👩‍👧 ok"]),
        ("e\u0301e\u0301e\u0301 e\u0301 is four and so on", ["e\u0301e\u0301e\u0301 e\u0301 is four and so", "on"]),
        ("```\nx = a_long_line(of, code, kept)\n```", ["```", "x = a_long_line(of, code, kept)", "```"]),
        # No prose: code in lists and quotations, indented code, rows of tables, Markdown with code in it.
        ("1. go\n\n   ```sh\n   curl -X POST http://a.b/c\n   ```\n   and then goes on so", ["1. go", "", "   ```sh", "   curl -X POST http://a.b/c", "   ```", "   and then goes on", "so"]),
        ("- ~~~\n  aaa bbb ccc ddd eee fff\n  ~~~\n- words that are too many", ["- ~~~", "  aaa bbb ccc ddd eee fff", "  ~~~", "- words that are too", "many"]),
        ("> ```\n> aaa bbb ccc ddd eee fff\n> ```\nwords that are too many", ["> ```", "> aaa bbb ccc ddd eee fff", "> ```", "words that are too", "many"]),
        ("see:\n\n    aaa bbb ccc ddd eee fff", ["see:", "", "    aaa bbb ccc ddd eee fff"]),
        ("- a\n\n    words that are too many", ["- a", "", "    words that are", "too many"]),
        ("| one cell | another | third |", ["| one cell | another | third |"]),
        ("```md\n```c\nx\n```\naaa bbb ccc ddd eee fff\n```\nwords that are too many", ["```md", "```c", "x", "```", "aaa bbb ccc ddd eee fff", "```", "words that are too", "many"]),
        ("~~~\n    def f(a, b, c, d, e, g): pass\n~~~\nand then words that go on", ["~~~", "    def f(a, b, c, d, e, g): pass", "~~~", "and then words that", "go on"]),
        ("```x``` is code in a line of words", ["```x``` is code in a", "line of words"]),
    ],
)  # fmt: skip
@pytest.mark.parametrize("chunk", [1, 3, 100])
def test_lines_end_between_words(text: str, lines: list[str], chunk: int) -> None:
    assert wrapped(text, 20, chunk=chunk).split("\n") == lines


def test_a_word_is_written_when_it_ends_and_never_again() -> None:
    wrapping = Wrapping(lambda: 20)
    assert [wrapping.feed(each) for each in ("one two", " thr", "ee", " ")] == ["one", " two", "", " three"]  # fmt: skip


def test_the_width_is_asked_before_every_line() -> None:
    widths = iter([30, 30, 20])
    wrapping = Wrapping(lambda: next(widths, 20))
    assert wrapping.feed("a line of words that fits\na line of words that fits ") == (
        "a line of words that fits\na line of words that fits"
    )
    assert wrapping.feed("\na line of words that fits ") == "\na line of words that\nfits"


@given(st.text(st.sampled_from("ab 漢。(\u0301\t\n`~👩"), max_size=120), st.integers(1, 40))
def test_nothing_but_blanks_is_lost_and_no_line_is_too_long(text: str, columns: int) -> None:
    out = wrapped(text, columns)
    assert "".join(out.split()) == "".join(text.split())
    if columns >= 20 and "``" not in text and "~~" not in text:
        for line in out.split("\n"):
            if not line.startswith("    "):  # which is code
                fits = cell_len(line.replace("\t", " ")) <= columns
                assert fits or len(line.split()) <= 1 or "\t" in line


def test_what_does_not_fit_is_left_out_in_whole_parts_then_in_words() -> None:
    line = "Enter chooses · a lists all · n quits"
    for room in range(len(line) + 1):
        assert cell_len(shortened(line, room)) <= room
    for form in (line, "Enter chooses · a lists all", "Enter chooses", ""):
        assert shortened(line, len(form)) == form
    assert [shortened(line, room) for room in (36, 12, 5)] == [
        "Enter chooses · a lists all",
        "Enter…",
        "Ente…",
    ]
    assert cell_len(shortened("日本語日本語", 5)) <= 5


def test_columns_stand_below_each_other() -> None:
    rows = [("PID", "MODEL", "AT"), ("7", "日本", "here"), ("1234", "toy", "")]
    assert list(table(rows)) == ["PID   MODEL  AT", "7     日本   here", "1234  toy"]


def test_a_line_is_wrapped_for_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    line = "localspec: kept as conversation 3"
    stream = io.StringIO()
    assert for_terminal(line, stream) == line
    monkeypatch.setattr(stream, "isatty", lambda: True)
    monkeypatch.setattr("localspec.display.columns_of", lambda _: 24)
    assert for_terminal(line, stream) == "localspec: kept as\nconversation 3"
