import pytest
from rich.console import Console

from localspec.ui.blocks import Block, BlockCutter
from localspec.ui.typeset import Typesetter
from tests.ui.test_clean import EVIL, obeyed

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


def test_code_stands_on_the_ground_of_the_screen(typesetter: Typesetter) -> None:
    strips = typesetter.block(Block("x = 1  # one", "python"), 60)
    assert [strip.text.strip() for strip in strips] == ["x = 1  # one"]
    styles = [segment.style for strip in strips for segment in strip if segment.style]
    assert any(style.color for style in styles)
    assert not any(style.bgcolor for style in styles)


def test_a_growing_message_reads_like_the_finished_one(typesetter: Typesetter) -> None:
    def words(strips: object) -> list[str]:
        return " ".join(strip.text for strip in strips).split()  # type: ignore[attr-defined]

    cutter = BlockCutter()
    cutter.feed(MESSAGE)
    blocks = [*cutter.done, cutter.open]
    pieces = [strip for block in blocks for strip in typesetter.block(block, 60)]
    assert words(pieces) == words(typesetter.markdown(MESSAGE, 60))


def test_a_link_is_text(typesetter: Typesetter) -> None:
    strips = typesetter.markdown("[end](https://example.org)", 60)
    assert not any(segment.style and segment.style.link for strip in strips for segment in strip)


def test_nothing_that_a_terminal_obeys_is_laid_out(typesetter: Typesetter) -> None:
    for strips in (
        typesetter.markdown(EVIL, 40),
        typesetter.plain(EVIL, 40),
        typesetter.block(Block(EVIL, "python"), 40),
        typesetter.markdown(f"```\n{EVIL}\n```", 40),
    ):
        assert obeyed("".join(strip.text for strip in strips)) == []
