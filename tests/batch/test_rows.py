"""Rows: what lines say, of either format; what is wrong with one is said of that one."""

import pytest

from localspec.batch.rows import Format, Row, read_rows
from localspec.batch.source import split_lines
from localspec.errors import UsageError


def rows(content: bytes, form: Format = "jsonl", needed: str | None = "prompt") -> list[Row]:
    return list(read_rows(split_lines([content], 200), form, "in", needed))


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        (b"{", "not valid JSON (Expecting property name"),
        (b"[1]", "not an object"),
        (b"null", "not an object"),
        (b'{"prompt": "caf\xe9"}', "not UTF-8 (byte 0xe9 at offset 15)"),
        (b"[" * 190, "not valid JSON"),
        (b'{"prompt": "' + b"x" * 200 + b'"}', "more than 4 MB"),
        (b"\x00", "not valid JSON"),
    ],
)
def test_a_line_that_cannot_be_read_says_why_and_the_next_goes_on(
    line: bytes, problem: str
) -> None:
    first, second = rows(line + b'\r\n{"prompt": "Hi"}\r\n')
    assert problem in first.problem
    assert (second.number, second.fields, second.problem) == (2, {"prompt": "Hi"}, "")


def test_nesting_beyond_what_python_follows_is_one_bad_line() -> None:
    (row,) = read_rows(split_lines([b"[" * 200_000]), "jsonl", "in", None)
    assert "not valid JSON" in row.problem


def test_empty_lines_count_and_say_nothing() -> None:
    assert [row.number for row in rows(b'\n \n{"a": 1}\n\n{"a": 2}')] == [3, 5]
    assert rows(b"") == []


def test_cells_for_a_template_stay_as_they_are() -> None:
    lines = split_lines([b"seed,stop,top_k\n007,,many\n"])
    (row,) = read_rows(lines, "csv", "in.csv", None, plain=True)
    assert row.fields == {"seed": "007", "stop": "", "top_k": "many"}


def test_a_csv_has_fields_and_numbers_where_options_are_named() -> None:
    content = b'id,prompt,temperature,top_k,note\na,"Say ""hi"",\nplease",0.5,3,\nb,Two,,,x\n'
    first, second = rows(content, "csv")
    assert first.fields == {
        "id": "a",
        "prompt": 'Say "hi",\nplease',
        "temperature": 0.5,
        "top_k": 3,
        "note": "",
    }
    assert second.fields == {"id": "b", "prompt": "Two", "note": "x"}
    assert (first.number, second.number) == (2, 4)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (b"only one", "1 cells and the header 2"),
        (b'a,"b"c', "not valid CSV"),
        (b"a,caf\xe9", "not UTF-8"),
        (b"a," + b"x" * 200, "more than 4 MB"),
    ],
)
def test_a_bad_row_says_why_and_the_next_goes_on(row: bytes, problem: str) -> None:
    first, second = rows(b"id,prompt\n" + row + b"\nb,Two\n", "csv")
    assert problem in first.problem
    assert (second.number, second.fields) == (3, {"id": "b", "prompt": "Two"})


def test_a_quote_that_is_never_closed_is_one_bad_row() -> None:
    (row,) = rows(b'id,prompt\na,"b\nc,d\n', "csv")
    assert "not valid CSV (unexpected end of data)" in row.problem


def test_rows_over_several_lines_differ_when_any_of_them_does() -> None:
    one, other = (rows(b'prompt\n"a\n' + last + b'"\n', "csv")[0] for last in (b"b", b"c"))
    assert one.digest != other.digest


@pytest.mark.parametrize(
    ("header", "complaint"),
    [(b"id,text", "no column 'prompt' among 'id, text'"), (b"a,a", "columns of the same name")],
)
def test_a_header_that_is_of_no_use_stops_the_run(header: bytes, complaint: str) -> None:
    with pytest.raises(UsageError, match=complaint):
        rows(header + b"\n1,2\n", "csv")


def test_a_template_needs_no_column_of_a_certain_name() -> None:
    assert rows(b"name\nAda\n", "csv", needed=None)[0].fields == {"name": "Ada"}


def test_an_empty_csv_has_no_rows() -> None:
    assert rows(b"", "csv") == []
    assert rows(b"prompt\n", "csv") == []
