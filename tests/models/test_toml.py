import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.models.toml import KeyPath, key_lines

TEXT = '''# first
top = 1 # [not.a.table]
long = """
[nor.this]
x = 1"""

[ a . "b.c" ]   # 7
x = [ # 8
  1,
  { y = 1, z.w = "]" }, # 10
]
'q' = '#' # 12
[[a.list]]
v = 1
[[a.list]]
v = { k = [
  2] } # 17
[a.list.inner]
s = \'\'\'
\'\'\'
end = 1 # 21
'''


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("top",), 2),
        (("long",), 3),
        (("a", "b.c"), 7),
        (("a", "b.c", "x"), 8),
        (("a", "b.c", "x", 0), 8),
        (("a", "b.c", "x", 1, "z", "w"), 8),
        (("a", "b.c", "q"), 12),
        (("a", "list", 0, "v"), 14),
        (("a", "list", 1), 15),
        (("a", "list", 1, "v", "k"), 16),
        (("a", "list", 1, "v", "k", 0), 16),
        (("a", "list", 1, "inner"), 18),
        (("a", "list", 1, "inner", "end"), 21),
    ],
)
def test_a_key_is_found_on_its_line(path: KeyPath, line: int) -> None:
    assert key_lines(TEXT)[path] == line


def paths(value: Any, path: KeyPath = ()) -> list[KeyPath]:
    items: list[tuple[str | int, Any]] = []
    if isinstance(value, dict):
        items = list(value.items())
    elif isinstance(value, list):
        items = list(enumerate(value))
    if len(path) == 16:
        return [path]
    return [path, *(deeper for key, inner in items for deeper in paths(inner, (*path, key)))]


def test_every_key_that_the_parser_sees_has_a_line() -> None:
    lines = key_lines(TEXT)
    assert set(paths(tomllib.loads(TEXT))[1:]) <= set(lines)


@given(st.text(alphabet="ab[]{}=.,\"'#\n \\1", max_size=60))
def test_any_text_has_lines_or_none(text: str) -> None:
    lines = key_lines(text)
    assert all(1 <= line <= text.count("\n") + 1 for line in lines.values())
    try:
        parsed = tomllib.loads(text)
    except tomllib.TOMLDecodeError:
        return
    assert set(paths(parsed)[1:]) <= set(lines)


def test_absurd_nesting_is_survived() -> None:
    assert key_lines("b = 1\na = " + "[" * 100_000) == {("b",): 1}


def test_a_statement_of_thousands_of_lines_costs_little() -> None:
    text = "a = 1\nb = [\n" + "1,\n" * 100_000 + "]\n"
    assert key_lines(text) == {("a",): 1}
