import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.tui.typeset import Block, BlockCutter

CODE = "\n".join(f"line {each}" for each in range(40))
LINES = ["", "text", "- item", "1. one", "    indented", "```py", "```", "~~~", "| a | b |", "# head"]  # fmt: skip


def cut(text: str, step: int = 1) -> BlockCutter:
    cutter = BlockCutter()
    for at in range(0, len(text), step):
        cutter.feed(text[at : at + step])
    return cutter


@pytest.mark.parametrize(
    ("text", "done"),
    [
        ("one\ntwo\n\nthree\n\nfou", [Block("one\ntwo\n")]),
        ("one\ntwo\n\nthree\n\nfour\n", [Block("one\ntwo\n"), Block("three\n")]),
        ("- one\n\n- two\n\n  more of two\n\n- three\n", []),
        ("text\n\n```python\nx = 1\n```\nafter\n", [Block("text\n"), Block("x = 1", "python")]),
        ("````md\n```\nx\n```\n````\n", [Block("```\nx\n```", "md")]),
    ],
)
def test_a_block_is_done_when_nothing_of_it_can_follow(text: str, done: list[Block]) -> None:
    assert cut(text).done == done


def test_long_code_is_cut_into_pieces_that_go_on() -> None:
    cutter = cut(f"```c\n{CODE}\n```\n")
    assert all(block.language == "c" for block in cutter.done)
    assert [block.goes_on for block in cutter.done] == [False, True, True, True, True]
    assert "\n".join(block.text for block in cutter.done) == CODE


@given(st.lists(st.sampled_from(LINES)), st.integers(1, 7))
def test_no_line_is_lost_wherever_chunks_end(lines: list[str], step: int) -> None:
    text = "\n".join(lines)
    cutter = cut(text, step)
    cuttings = "\n".join([block.text for block in cutter.done] + [cutter.open.text])
    words = [line for line in lines if line and not line.startswith(("```", "~~~"))]
    assert all(cuttings.count(word) >= words.count(word) for word in set(words))
    assert cutter.done == cut(text, len(text) or 1).done
