import pytest
from rich.console import Console

from localspec.tui.message import MessageLayout
from localspec.tui.message_text import MessageText
from localspec.tui.typeset import Block, Typesetter
from tests.tui.test_clean import EVIL, obeyed

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


@pytest.fixture
def typesetter() -> Typesetter:
    return Typesetter(Console(width=60, force_terminal=True), "monokai")


def test_no_line_is_wider_than_asked(typesetter: Typesetter) -> None:
    for width in (1, 10, 33, 60, 200):
        assert all(
            strip.cell_length <= max(width, 12) for strip in typesetter.markdown(MESSAGE, width)
        )


def test_code_stands_in_a_frame_on_the_ground_of_the_screen(typesetter: Typesetter) -> None:
    strips = typesetter.markdown("```python\nx = 1  # one\n```", 40)
    assert [strip.text for strip in strips] == [
        "╭─ python ─────────────────────────────╮",
        "│ x = 1  # one                         │",
        "╰───────────────────────────── k copy ─╯",
    ]
    styles = [segment.style for strip in strips for segment in strip if segment.style]
    assert any(style.color for style in styles)
    assert not any(style.bgcolor for style in styles)
    assert {style.meta["code"] for style in styles if "code" in style.meta} == {"x = 1  # one"}
    assert [strip.text for strip in typesetter.markdown("```\nx\n```", 12)] == ["x"]
    wrapped = typesetter.markdown("```python\n    return some_function(argument)\n```", 30)
    assert [strip.text for strip in wrapped[1:-1]] == [
        "│     return                 │",
        "│     some_function(argument │",
        "│     )                      │",
    ]


@pytest.mark.parametrize(
    "code", ["x = [1, 2]\n", "x = 1\n" * 16, "x = 1\n\n" * 20], ids=["short", "a piece", "long"]
)
def test_a_growing_message_reads_like_the_finished_one(code: str, typesetter: Typesetter) -> None:
    def words(layout: MessageLayout) -> list[str]:
        text = "\n".join(strip.text for strip in layout.strips).replace("k copy", "")
        return text.translate(dict.fromkeys(map(ord, "─│╭╮╰╯"))).split()

    text = MESSAGE.replace("x = [1, 2]\n", code)
    growing = MessageLayout(MessageText("toy", "", kind="reply"), lambda: typesetter, growing=True)
    growing.fit(60)
    for end in [*range(1, len(text), 3), len(text)]:
        growing.grow(MessageText("toy", text[:end], kind="reply"))
        lines = "".join(strip.text for strip in growing.strips)
        assert lines.count("╭") == lines.count("╰")
    whole = MessageLayout(MessageText("toy", text, kind="reply"), lambda: typesetter, growing=False)
    whole.fit(60)
    assert words(growing) == words(whole)


def test_a_long_question_is_folded_between_its_first_and_its_last_lines(
    typesetter: Typesetter,
) -> None:
    text = "\n".join(f"line {each}" for each in range(100))
    layout = MessageLayout(MessageText("You", text), lambda: typesetter, growing=False)
    layout.fit(60)
    lines = [strip.text for strip in layout.strips]
    assert lines[1:3] == ["line 0", "line 1"]
    assert lines[-5:-3] == ["▸ 88 more lines", "line 96"]
    assert lines[-1] == "line 99"


def test_a_link_is_text_and_nothing_that_a_terminal_obeys_is_laid_out(
    typesetter: Typesetter,
) -> None:
    strips = typesetter.markdown("[end](https://example.org)", 60)
    assert not any(segment.style and segment.style.link for strip in strips for segment in strip)
    for strips in (
        typesetter.markdown(EVIL, 40),
        typesetter.plain(EVIL, 40),
        typesetter.block(Block(EVIL, "python"), 40),
        typesetter.markdown(f"```\n{EVIL}\n```", 40),
    ):
        assert obeyed("".join(strip.text for strip in strips)) == []
