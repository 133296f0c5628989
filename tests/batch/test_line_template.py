"""LineTemplate: fields become a prompt in a sandbox."""

from pathlib import Path

import pytest

from localspec.batch.line_template import LineTemplate, read_template
from localspec.errors import TemplateError, UsageError


@pytest.mark.parametrize(
    "source",
    ["{{ x.__class__.__mro__ }}", "{{ x.append(1) }}", "{{ 'x' * 10 ** 9 }}", "{{ 1 // 0 }}", "{{ x.y }}"],
)  # fmt: skip
def test_what_a_template_must_not_do_is_an_error_of_the_line(source: str) -> None:
    with pytest.raises(TemplateError, match="t fails on this line"):
        LineTemplate(source, "t").render({"x": [1]})


@pytest.mark.parametrize(
    "source", ["{{ fields['\x1b[2J\\n'] }}", "{{ raise_exception(word) }}", "{% \x1b[2J %}"]
)
def test_an_error_is_one_line_that_no_terminal_obeys(source: str) -> None:
    with pytest.raises(TemplateError) as caught:
        LineTemplate(source, "t").render({"fields": {}, "word": "\x1b[2J\n\ud800"})
    assert str(caught.value).isprintable()


def test_json_in_a_prompt_is_plain() -> None:
    assert LineTemplate("{{ x | tojson }}", "t").render({"x": ["<ü>"]}) == '["<ü>"]'


@pytest.mark.parametrize("content", [None, b"caf\xe9", b"x" * (1 << 21), b"a\n{{ b"])
def test_what_is_no_template_is_refused(tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "t.txt").write_bytes(content)
    with pytest.raises((UsageError, TemplateError), match="t") as caught:
        read_template(tmp_path / "t.txt")
    assert ("t.txt:2: is not a Jinja" in str(caught.value)) is (content == b"a\n{{ b")
