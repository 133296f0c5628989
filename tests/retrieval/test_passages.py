"""Where a text is cut, and what its parts stand under."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from localspec.retrieval.passages import NumberedLine, Passage, passages

LONG = "some words that fill a passage so that it is not joined with the next one. " * 5


def cut(text: str, code: bool = False) -> list[Passage]:
    return passages([NumberedLine(*each) for each in enumerate(text.split("\n"), 1)], code=code)


def headings(text: str, code: bool = False) -> list[tuple[int, int, str]]:
    return [(each.first, each.last, each.heading) for each in cut(text, code)]


def test_markdown_is_cut_at_headings_and_not_in_code() -> None:
    text = f"# Guide\n{LONG}\n## Install\n```\n# a comment\n```\n{LONG}\n\nUse\n---\n{LONG}\n"
    assert headings(text) == [
        (1, 2, "Guide"), (3, 7, "Guide > Install"), (9, 11, "Guide > Use"),
    ]  # fmt: skip


def test_code_is_cut_at_definitions_with_what_stands_over_them() -> None:
    text = (
        f"import os\n# {LONG}\n\n@decorated\n# why\ndef first(a):\n    '''{LONG}'''\n\n"
        f"@one\nclass Second:\n    '''{LONG}'''\n\n    async def third(self):\n        '''{LONG}'''\n"
    )
    assert headings(text, code=True) == [
        (1, 2, ""), (4, 7, "first"), (9, 11, "Second"), (13, 14, "Second > third"),
    ]  # fmt: skip


def test_definitions_of_other_languages_are_found() -> None:
    for line, name in {
        "pub fn parse(text: &str) -> Tree {": "parse", "export default function parse(text) {": "parse",
        "func parse(text string) error {": "parse", "static int parse(const char *text) {": "parse",
        "public final class Parser extends Reader {": "Parser", "with opened(text) as it:": "",
    }.items():  # fmt: skip
        assert headings(f"{line}\n{LONG}", code=True) == [(1, 2, name)]


def test_manuals_are_cut_at_capitals_and_underlines() -> None:
    text = f"NAME\n       tar\n\nOPTIONS\n   Reading\n       {LONG}\n\n   Writing\n       {LONG}\n\nTitle\n=====\n{LONG}"
    assert headings(text) == [
        (1, 6, "NAME · OPTIONS"), (8, 9, "OPTIONS > Writing"), (11, 13, "Title"),
    ]  # fmt: skip


def test_what_is_long_is_cut_at_blank_lines_and_what_is_short_is_joined() -> None:
    blocks = cut("\n\n".join(f"block {number} {LONG}" for number in range(6)))
    assert [each.first % 2 for each in blocks] == [1, 1]
    lines = cut("\n".join(f"line {number} {LONG}" for number in range(9)))
    assert [(each.first, each.last) for each in lines] == [(1, 3), (4, 6), (7, 9)]
    (first, *_) = cut(f"# Guide\n## One\nshort\n## Two\nshort\n## Three\n{LONG * 4}")
    assert (first.first, first.last, first.heading) == (1, 5, "Guide > One · Two")


words = st.text(alphabet="ab #=-\n\t(:", max_size=400)


@given(words, st.booleans(), st.integers(0, 3))
def test_nothing_is_lost_and_nothing_is_said_twice(text: str, code: bool, long: int) -> None:
    text += f"\n{LONG * 9}" * long
    found = cut(text, code)
    assert "".join("".join(each.text for each in found).split()) == "".join(text.split())
    for each, following in pairwise(found):
        assert each.first <= each.last <= following.first
    assert all(len(each.text) <= 1700 and each.text.strip() for each in found)
