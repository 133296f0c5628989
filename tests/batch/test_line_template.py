"""LineTemplate: fields become a prompt in a sandbox."""

from pathlib import Path

import pytest

from localspec.batch.line_template import LineTemplate, read_template
from localspec.errors import LocalspecError, TemplateError, UsageError


@pytest.mark.parametrize(
    "source",
    [
        "{{ x.__class__.__mro__ }}", "{{ x.append(1) }}", "{{ 'x' * 10 ** 9 }}", "{{ 1 // 0 }}", "{{ x.y }}",
    ],
)  # fmt: skip
def test_what_a_template_must_not_do_is_an_error_of_the_line(source: str) -> None:
    with pytest.raises(TemplateError, match="t fails on this line"):
        LineTemplate(source, "t").render({"x": [1]})


def test_an_error_is_one_line_that_no_terminal_obeys() -> None:
    for source in ("{{ fields['\x1b[2J\\n'] }}", "{{ raise_exception(word) }}"):
        with pytest.raises(TemplateError) as caught:
            LineTemplate(source, "t").render({"fields": {}, "word": "\x1b[2J\n\ud800"})
        assert str(caught.value).isprintable()
    with pytest.raises(TemplateError) as caught:
        LineTemplate("{% \x1b[2J %}", "t")
    assert str(caught.value).isprintable()


def test_json_in_a_prompt_is_plain() -> None:
    assert LineTemplate("{{ x | tojson }}", "t").render({"x": ["<ü>"]}) == '["<ü>"]'


def test_a_broken_template_names_its_line(tmp_path: Path) -> None:
    (tmp_path / "t.txt").write_text("a\n{{ b")
    with pytest.raises(TemplateError, match=r"t\.txt:2: is not a Jinja"):
        read_template(tmp_path / "t.txt")


@pytest.mark.parametrize(
    ("content", "error"),
    [(None, UsageError), (b"caf\xe9", UsageError), (b"x" * (1 << 21), UsageError)],
)
def test_what_is_no_template_is_refused(
    tmp_path: Path, content: bytes | None, error: type[LocalspecError]
) -> None:
    if content is not None:
        (tmp_path / "t").write_bytes(content)
    with pytest.raises(error, match="t"):
        read_template(tmp_path / "t")
