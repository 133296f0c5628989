"""One key of a TOML text is changed, and nothing else; what is wrong is told with what may be there."""

import tomllib
from pathlib import Path
from typing import Literal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.errors import UsageError
from localspec.storage.toml import Value, convert, parse_once, with_key
from tests.examples import examples
from tests.support.checks import refuses

WRITTEN = """\
# mine
pair = "a"   # the usual one

mirrors = [
  "one",  # near
  "two",
]

[aliases]
fast = "x"

[other]
fast = "y"
"""


def test_what_was_parsed_is_kept_until_the_text_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, loads = tmp_path / "kept.json", tomllib.loads
    assert parse_once(WRITTEN, "f", tmp_path / "gone" / "kept.json") == loads(WRITTEN)
    assert parse_once(WRITTEN, "f", kept) == loads(WRITTEN)
    with monkeypatch.context() as patched:
        patched.delattr(tomllib, "loads")
        assert parse_once(WRITTEN, "f", kept) == loads(WRITTEN)
    changed = WRITTEN.replace('"x"', '"z"')
    assert parse_once(changed, "f", kept) == loads(changed)
    kept.write_bytes(kept.read_bytes()[:-9])
    assert parse_once(changed, "f", kept) == loads(changed)
    with pytest.raises(UsageError, match="f is not TOML"):
        parse_once("a = ", "f", kept)


@pytest.mark.parametrize("key", ["pair", "mirrors", "new"])
@pytest.mark.parametrize("value", ["b", 0.5, True, ("p", "q"), None, 'a "quoted" \x7f\n'])
def test_a_key_gets_its_value_and_the_rest_stays(key: str, value: Value | None) -> None:
    changed = with_key(WRITTEN, key, value)
    expected = {**tomllib.loads(WRITTEN), key: list(value) if isinstance(value, tuple) else value}
    if value is None:
        del expected[key]
    assert tomllib.loads(changed) == expected
    assert changed.startswith("# mine\n")
    assert changed.endswith('\n[aliases]\nfast = "x"\n\n[other]\nfast = "y"\n')


def test_a_key_of_a_table() -> None:
    changed = with_key(WRITTEN, "fast", "z", "aliases")
    assert changed == WRITTEN.replace('"x"', '"z"')
    assert with_key(WRITTEN, "qwen3:4b", "z", "aliases") == WRITTEN.replace(
        'fast = "x"\n', 'fast = "x"\n"qwen3:4b" = "z"\n'
    )
    assert with_key("", "fast", "z", "aliases") == '[aliases]\nfast = "z"\n'
    assert with_key("a = 1\n", "fast", None, "aliases") == "a = 1\n"
    for text in ("aliases.fast = 'x'\n", "aliases = {fast = 'x'}\n"):
        changed = with_key(text, "slow", "z", "aliases")
        assert tomllib.loads(changed) == {"aliases": {"fast": "x", "slow": "z"}}
    for text in ("aliases = 3\n", "aliases = [\n"):
        refuses("edit it by hand", with_key, text, "slow", "z", "aliases")


@examples(150)
@given(st.dictionaries(st.text(max_size=5), st.text(max_size=20), max_size=4), st.text(max_size=9))
def test_any_text_can_be_a_value(values: dict[str, str], key: str) -> None:
    text = ""
    for name, value in values.items():
        text = with_key(text, name, value)
    assert tomllib.loads(text) == values
    assert tomllib.loads(with_key(text, key, "new"))[key] == "new"


class Paint(msgspec.Struct):
    colour: Literal["red", "blue"] | None = None


def test_a_wrong_choice_is_told_with_all_that_there_are() -> None:
    with pytest.raises(UsageError, match=r"colour is 'green': choose one of blue, red$"):
        convert({"colour": "green"}, Paint, "a.toml")
