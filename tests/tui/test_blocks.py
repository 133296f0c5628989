from hypothesis import given
from hypothesis import strategies as st

from localspec.tui.typeset import Block, BlockCutter

CODE = "\n".join(f"line {each}" for each in range(40))
LINES = [
    "",
    "text",
    "- item",
    "1. one",
    "    indented",
    "```py",
    "```",
    "~~~",
    "| a | b |",
    "# head",
]


def cut(text: str, step: int = 1) -> BlockCutter:
    cutter = BlockCutter()
    for at in range(0, len(text), step):
        cutter.feed(text[at : at + step])
    return cutter


def test_a_paragraph_is_done_when_the_next_begins() -> None:
    cutter = cut("one\ntwo\n\nthree\n\nfou")
    assert [block.text.strip() for block in cutter.done] == ["one\ntwo"]
    assert cutter.open.text == "three\n\nfou"
    cutter.feed("r\n")
    assert [block.text.strip() for block in cutter.done] == ["one\ntwo", "three"]


def test_a_list_with_empty_lines_stays_one_block() -> None:
    assert cut("- one\n\n- two\n\n  more of two\n\n- three\n").done == []


def test_code_is_a_block_of_its_language() -> None:
    cutter = cut("text\n\n```python\nx = 1\n```\nafter\n")
    assert cutter.done[1] == Block("x = 1", "python")
    assert cutter.open.language is None


def test_long_code_is_cut_into_pieces_that_go_on() -> None:
    cutter = cut(f"```c\n{CODE}\n```\n")
    assert all(block.language == "c" for block in cutter.done)
    assert [block.goes_on for block in cutter.done] == [False, True, True, True, True]
    assert "\n".join(block.text for block in cutter.done) == CODE


def test_a_fence_inside_a_longer_fence_is_code() -> None:
    cutter = cut("````md\n```\nx\n```\n````\n")
    assert cutter.done == [Block("```\nx\n```", "md")]


@given(st.lists(st.sampled_from(LINES)), st.integers(1, 7))
def test_no_line_is_lost_wherever_chunks_end(lines: list[str], step: int) -> None:
    text = "\n".join(lines)
    cutter = cut(text, step)
    kept = "\n".join([block.text for block in cutter.done] + [cutter.open.text])
    words = [line for line in lines if line and not line.startswith(("```", "~~~"))]
    assert all(kept.count(word) >= words.count(word) for word in set(words))
    assert cutter.done == cut(text, len(text) or 1).done
