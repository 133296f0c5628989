"""Every form of a line, from its bytes to a request: what is wrong with one is said of that one."""

import hashlib
import io
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.batch.line_template import LineTemplate, read_template
from localspec.batch.record import line_seed
from localspec.batch.request import Form, line_id, line_request, requested_model
from localspec.batch.source import (
    MOST_HELD,
    MOST_LINE_BYTES,
    Format,
    Line,
    ReadAhead,
    Source,
    parsed,
    split_lines,
)
from localspec.chat.request import Request
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.errors import LocalspecError, TemplateError, UsageError
from localspec.options import ReplyOptions
from tests.support.checks import refuses
from tests.test_media import png
from tests.test_media import url as url_of


@given(st.binary(max_size=30), st.integers(0, 4))
def test_lines_keep_their_bytes_and_their_digest(content: bytes, most: int) -> None:
    content = content.replace(b"\r", b"\n")
    wanted = content.removesuffix(b"\n").split(b"\n") if content else []
    lines = list(split_lines(io.BytesIO(content), most))
    assert [number for number, _, _ in lines] == [*range(1, len(wanted) + 1)]
    kept = [each if len(each) <= most else None for each in wanted]
    kept[:1] = [each and each.removeprefix(b"\xef\xbb\xbf") for each in kept[:1]]
    assert [raw for _, raw, _ in lines] == kept
    digests = [hashlib.sha256(each).digest()[:8] for each in wanted]
    assert [digest for _, _, digest in lines] == digests


def test_a_long_line_is_passed_over_and_a_byte_order_mark_is_no_part_of_the_first() -> None:
    long = b"x" * (MOST_LINE_BYTES + 1)
    first, second = split_lines(io.BytesIO(long + b"\nshort"))
    (other,) = split_lines(io.BytesIO(long[:-1] + b"y"))
    assert (first[1], second[1], second[0]) == (None, b"short", 2)
    assert first[2] == hashlib.sha256(long).digest()[:8] != other[2]
    lines = split_lines(io.BytesIO(b"\xef\xbb\xbfa\n\xef\xbb\xbfb"))
    assert [raw for _, raw, _ in lines] == [b"a", b"\xef\xbb\xbfb"]
    (row,) = parsed(split_lines(io.BytesIO(b"[" * 200_000)), "jsonl", "in", None)
    assert "not valid JSON" in row.problem
    (row,) = rows(b'id,prompt\na,"b\nc,d\n', "csv")
    assert "not valid CSV (unexpected end of data)" in row.problem


@contextmanager
def pipe(folder: Path) -> Iterator[tuple[BinaryIO, Source]]:
    os.mkfifo(folder / "pipe")
    with (folder / "pipe").open("r+b", buffering=0) as writer, Source(str(folder / "pipe")) as it:
        yield writer, it


def test_the_share_that_was_read_is_known_of_a_file(tmp_path: Path) -> None:
    (tmp_path / "in").write_bytes(b"[]\n[1]\n")
    with Source(str(tmp_path / "in")) as source:
        assert [source.share() for _ in source.lines("jsonl", None)] == [3 / 7, 1.0]
    for name in ["none", ".", "nul\0"]:
        refuses(r"check the path|is a directory", Source, f"{tmp_path}/{name}")


def rows(content: bytes, form: Format = "jsonl", needed: str | None = "prompt") -> list[Line]:
    return list(parsed(split_lines(io.BytesIO(content), 200), form, "in", needed))


def test_a_line_that_cannot_be_read_says_why_and_the_next_goes_on() -> None:
    lines: list[tuple[Any, ...]] = [
        ("jsonl", b"{", "not valid JSON (Expecting property name"),
        ("jsonl", b"[1]", "not an object"),
        ("jsonl", b'{"prompt": "caf\xe9"}', "not UTF-8 (byte 0xe9 at offset 15)"),
        ("jsonl", b"[" * 190, "not valid JSON"),
        ("jsonl", b'{"prompt": "' + b"x" * 200 + b'"}', "more than 4 MB"),
        ("csv", b"only one", "1 cells and the header 2"),
        ("csv", b'a,"b"c', "not valid CSV"),
        ("csv", b"a," + b"x" * 200, "more than 4 MB"),
    ]
    for form, line, problem in lines:
        head, good = (b"id,prompt\n", b"b,Hi") if form == "csv" else (b"", b'{"id": "b", "prompt": "Hi"}')  # fmt: skip
        first, second = rows(head + line + b"\r\n" + good + b"\r\n", form)
        assert problem in first.problem
        assert (second.number - first.number, second.fields) == (1, {"id": "b", "prompt": "Hi"})
        assert second.problem == ""
    for header, complaint in [
        (b"id,text", "no column 'prompt' among 'id, text'"),
        (b"a,a", "columns of the same name"),
        (b"", "has no header: name each column"),
    ]:
        refuses(complaint, rows, header + b"\n1,2\n", "csv")
    assert [row.number for row in rows(b'\n \n{"a": 1}\n\n{"a": 2}')] == [3, 5]
    assert rows(b"") == rows(b"", "csv") == rows(b"prompt\n", "csv") == []


def test_a_csv_has_fields_and_numbers_where_options_are_named() -> None:
    content = b'id,prompt,temperature,top_k,note\na,"Say ""hi"",\nplease",0.5,3,\nb,Two,,,x\n'
    first, second = rows(content, "csv")
    say = {"id": "a", "prompt": 'Say "hi",\nplease'}
    assert first.fields == {**say, "temperature": 0.5, "top_k": 3, "note": ""}
    assert second.fields == {"id": "b", "prompt": "Two", "note": "x"}
    assert (first.number, second.number) == (2, 4)
    lines = split_lines(io.BytesIO(b"seed,stop,top_k\n007,,many\n"))
    (row,) = parsed(lines, "csv", "in.csv", None, plain=True)
    assert row.fields == {"seed": "007", "stop": "", "top_k": "many"}
    one, other = (rows(b'prompt\n"a\n' + last + b'"\n', "csv")[0] for last in (b"b", b"c"))
    assert one.digest != other.digest


def lines(end: int) -> Iterator[Line]:
    return (Line(number, "0" * 16, {}) for number in range(1, end))


def test_rows_come_in_order_and_no_more_are_held_than_a_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ahead = ReadAhead(lines(101), CancelFlag())
    assert [each.number for each in ahead] == [*range(1, 101)]
    assert ahead.ready()
    assert next(ahead, None) is None
    taken: list[int] = []

    def rows() -> Iterator[Line]:
        for line in lines(51):
            taken.append(line.number)
            yield line
            time.sleep(0.02 * (line.number > 45))  # they are waited for
        raise OSError("gone")

    monkeypatch.setattr("localspec.batch.source._LOOK_EVERY_S", 0.001)
    ahead = ReadAhead(rows(), CancelFlag())
    for number in range(50):
        assert next(ahead).number == number + 1
        assert len(taken) <= number + 1 + MOST_HELD
    for _ in range(2):
        with pytest.raises(OSError, match="gone"):
            next(ahead)


def test_half_a_row_of_a_pipe_is_not_ready_and_none_waits_for_it(tmp_path: Path) -> None:
    with pipe(tmp_path) as (writer, source):
        assert (source.waits, source.share()) == (True, None)
        ahead = ReadAhead(source.lines("csv", None), CancelFlag())
        writer.write(b'prompt\n"one\n')
        assert not ahead.ready()
        writer.write(b'and more"\n')
        assert next(ahead).fields == {"prompt": "one\nand more"}
        assert not ahead.ready()


def test_ctrl_c_ends_the_wait_for_a_row(tmp_path: Path) -> None:
    cancel = CancelFlag()
    with pipe(tmp_path) as (writer, source):
        ahead = ReadAhead(source.lines("jsonl", None), cancel)
        writer.write(b'{"prompt": "one"}\n')
        assert next(ahead).number == 1
        threading.Timer(0.1, cancel.set).start()
        with pytest.raises(Cancelled):
            next(ahead)


def test_what_a_template_must_not_do_is_an_error_of_the_line(tmp_path: Path) -> None:
    for source in ["{{ x.__len__() }}", "{{ x.clear() }}", "{{ 1 // 0 }}", "{{ x.y }}"]:
        with pytest.raises(TemplateError, match="t fails on this line"):
            LineTemplate(source, "t").render({"x": [1]})
    for source in ["{{ fields['\x1b[2J\\n'] }}", "{{ raise_exception(word) }}", "{% \x1b[2J %}"]:
        with pytest.raises(TemplateError) as caught:
            LineTemplate(source, "t").render({"fields": {}, "word": "\x1b[2J\n\ud800"})
        assert str(caught.value).isprintable()
    assert LineTemplate("{{ x | tojson }}", "t").render({"x": ["<ü>"]}) == '["<ü>"]'
    for content in [None, b"caf\xe9", b"x" * (1 << 21), b"a\n{{ b"]:
        if content is not None:
            (tmp_path / "t.txt").write_bytes(content)
        with pytest.raises((UsageError, TemplateError), match="t") as wrong:
            read_template(tmp_path / "t.txt")
        assert ("t.txt:2: is not a Jinja" in str(wrong.value)) is (content == b"a\n{{ b")


def line(**fields: Any) -> Line:
    return Line(3, "0" * 16, fields)


def asked(form: Form | None = None, **fields: Any) -> Request:
    return line_request(line(**fields), form or Form(ReplyOptions(seed=9)), 1)


def test_the_model_is_that_of_a_body_and_no_field_beside_a_field_that_is_named() -> None:
    named = line(body={"model": "gpt-4o", "messages": []})
    assert requested_model(named, Form(ReplyOptions())) == "gpt-4o"
    assert requested_model(named, Form(ReplyOptions(), field="prompt")) is None


def test_an_id_is_a_text_or_a_whole_number() -> None:
    rows: list[tuple[dict[str, Any], object]] = [
        ({"id": 0}, 0),
        ({"id": "", "custom_id": "c"}, "c"),
        ({"id": None}, None),
    ]
    for fields, known in rows:
        assert line_id(line(**fields)) == known
    assert line_seed(1, "a", 3) == line_seed(1, "a", 4)
    seeds = [line_seed(1, "5", 1), line_seed(1, 5, 1), line_seed(1, None, 5), line_seed(2, 5, 1)]
    assert len(set(seeds)) == 4
    # Fixed for good: answers of earlier versions are taken up.
    assert line_seed(1, "a", 1) == 2547111910


def shown(url: object) -> list[Any]:
    text = {"type": "text", "text": "What is it?"}
    return [{"role": "user", "content": [text, {"type": "image_url", "image_url": {"url": url}}]}]


def test_pictures_are_data_urls_or_files_below_the_folder_of_the_lines(tmp_path: Path) -> None:
    folder = tmp_path / "lines"
    (folder / "my photos").mkdir(parents=True)
    for name, content in (("lines/my photos/a.png", png()), ("secret.png", png())):
        (tmp_path / name).write_bytes(content)
    (folder / "link.png").symlink_to(tmp_path / "secret.png")
    form = Form(ReplyOptions(seed=9), folder=folder)
    for url in (
        url_of(png()),
        "my photos/a.png",
        "./my photos/../my photos/a.png",
        "file:my%20photos/a.png",
        f"file://{folder}/my%20photos/a.png",
        f"file://localhost{folder}/my%20photos/a.png",
        "file:my%20photos/a.png?size=2",
    ):
        for fields in ({"messages": shown(url)}, {"body": {"messages": shown(url)}}):
            (message,) = asked(form, **fields).messages
            assert (message.text, [each.data for each in message.media]) == ("What is it?", [png()])
    for url, word in (
        ("https://example.org/a.png", "is not fetched"),
        ("../secret.png", "outside the folder"),
        ("file:///etc/passwd", "outside the folder"),
        ("link.png", "outside the folder"),
        ("my photos/a.png?size=2", "is not in the folder"),
        ("file://localhost/etc/passwd", "outside the folder"),
        ("none\x1b[2J.png", "is not in the folder"),
        ("my photos", "is not a regular file|cannot"),
        ("a\0", "is not a file name"),
        (url_of(b"x")[:-1], "no base64"),
    ):
        with pytest.raises(LocalspecError, match=word) as error:
            asked(form, messages=shown(url))
        assert not {"\n", "\x1b"} & {*str(error.value)}
    with pytest.raises(UsageError, match="from stdin"):
        asked(messages=shown("a.png"))
    with pytest.raises(UsageError, match="only messages of the user"):
        asked(form, messages=[{**shown(url_of(png()))[0], "role": "assistant"}])
