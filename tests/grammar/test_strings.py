"""Patterns mean in Rust what they mean in ECMAScript and in Python, or less."""

import json
import re

import pytest

from localspec.errors import UsageError
from localspec.grammar import require_sound
from localspec.options import ReplyOptions
from tests.grammar.answers import takes, texts


@pytest.mark.parametrize(
    ("pattern", "taken", "refused"),
    [
        ("^a.b$", ["axb", "aéb"], ["ab", "a\nb", "a\u2028b", "xaxb"]), ("b", ["abc"], ["ac"]), (r"^\d\D$", ["1a"], ["11", "1٣", "٣a"]),
        (r"^\w\W$", ["a-"], ["aa", "é-", "aé", "a²"]), (r"^\s\S$", ["\tx", "\u3000x"], ["\ufeffx", "\x85x", "\x1cx", "x\x1c", "x\x85", "x\ufeff"]),
        (r"^[\s\d]$", ["1", " "], ["a", "٣", "\ufeff"]), (r"^[^\s\d]$", ["a"], ["1", " ", "٣", "\ufeff", "\x1f"]), (r"^[^\S]$", [" "], ["a", "\x85"]),
        (r"^[\]\\^-]$", ["]", "\\", "^", "-"], ["a", "["]), (r"^[a-c-]$", ["b", "-"], ["d"]), (r"^[a&&b]$", ["&", "a"], ["c"]),
        (r"^[[:alpha:]]$", ["a]", ":]"], ["z", "a"]), (r"^[\x41-\u0043]\/\u{1F600}?$", ["A/", "C/😀"], ["D/"]),
        (r"^[\x00-\x1f]$", ["\t", "\n"], ['"', "\\", "x"]), (r"^[^\x20-\x7e]$", ["\t", "é"], ['"', "\\", "x"]),
        (r"^\s[\s]$", [" \t"], ['" ', ' "', "\\ "]), ("^a[\x01b]\x7f?$", ["ab"], ["a", 'a"']),
        (r"^(?:a|(b))(?<n>c)(?P<m>d)$", ["acd", "bcd"], ["abcd"]), (r"^a{2}b{1,}c{0,2}?d*?e+?$", ["aabe", "aabbccdde"], ["abe"]),
        (r"^(?i:ab)c$", ["ABc", "abc"], ["abC"]), (r"^#~ /\-$", ["#~ /-"], ["#"]), (r"^\p{Lu}$", ["É"], ["é"]), ("^$|^a$", ["", "a"], ["b"]),
        ('^[^"]$', ["a", "\n"], ['"', "\x01"]),
    ],
)  # fmt: skip
def test_a_pattern_matches_what_ecmascript_and_python_both_match(
    pattern: str, taken: list[str], refused: list[str]
) -> None:
    schema = {"type": "string", "pattern": pattern}
    for text in (*taken, *refused):
        is_taken = takes(json.dumps(text, ensure_ascii=False), json_schema=schema)
        assert is_taken is (text in taken), text


def test_texts_by_chance_match_the_pattern_in_python() -> None:
    for pattern in (r"^[\w.+-]{1,9}@[a-z]{2,4}$", r"^(\d{3}-)?\d{4}$", r"^[^\s\"']+\S$", r"^.{3,5}(x|yz)*$", r"^\W\D[^a-z]$"):  # fmt: skip
        found = texts(40, json_schema={"type": "string", "pattern": pattern})
        assert len(set(found)) > 10
        for text in found:
            assert re.search(pattern, json.loads(text)), text


def test_what_is_not_kept_is_refused() -> None:
    for pattern, reason in (
        ("(?=a)", "look-around"), ("(?<!a)b", "look-around"), (r"a\b", "lookarounds not supported"),
        (r"(a)\1", "backreferences"), (r"\k<a>", "wrong pattern"), (r"\uD800", "wrong pattern"),
        (r"a\x00b", "no value is valid"), ("[a", "wrong pattern: unclosed character class"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=reason):
            require_sound(ReplyOptions(json_schema={"type": "string", "pattern": pattern}))


def test_a_wrong_regex_is_named_without_a_place_in_another_grammar() -> None:
    with pytest.raises(UsageError, match=r"^the regex is wrong: unclosed group$"):
        require_sound(ReplyOptions(regex="ab(c"))
