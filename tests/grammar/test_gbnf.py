"""A grammar is read, or refused with the place and the reason, on one line."""

import pytest

from localspec.errors import UsageError
from localspec.structured.gbnf import MAX_CHARS, read_gbnf
from localspec.structured.soundness import require_sound
from tests.structured.grammars import GRAMMARS


@pytest.mark.parametrize("gbnf", GRAMMARS)
def test_sound_grammars_are_taken_as_they_are(gbnf: str) -> None:
    assert require_sound(gbnf) == gbnf


@pytest.mark.parametrize(
    ("gbnf", "reason"),
    [
        ("", "no rule root"),
        ('answer ::= "a"', "no rule root"),
        ('root ::= "a', "line 1, column 10: a quote that is never closed"),
        ('root ::= "a"\nroot ::= "b"', "line 2, column 1: the rule root is defined a second time"),
        ('root ::= "a" b\nc ::= "x"', "line 1, column 14: there is no rule b"),
        ('root ::= [a-', "a [ that is never closed"),
        ("root ::= []", "line 1, column 10: a class without characters"),
        ("root ::= [z-a]", "a range whose end comes before its beginning"),
        ('root ::= "a"{3,2}', "line 1, column 13: at least 3 and at most 2 times"),
        ('root ::= "a"{0,5000}', "more than 2000 times"),
        ('root ::= "a"{99999999999999999999}', "expected a count"),
        ('root ::= (b b){2000}\nb ::= "x"', "repetitions within each other"),
        ('root ::= * "a"', "nothing stands before * to be repeated"),
        ('root ::= ""* "a"', "nothing stands before * to be repeated"),
        ('root ::= ("a"', "expected )"),
        ("root ::= " + "(" * 101, "more than 100 parentheses"),
        ("root ::= <think>", "references to tokens are not taken"),
        ('root ::= "\\q"', "an escape that is none"),
        ('root ::= "\\u12"', "an escape that is none"),
        ('root "a"', "line 1, column 6: expected ::="),
        ('root ::= "a"\n | "b"', "line 2, column 2: expected the name of a rule"),
        ('root ::= "a" )', "expected the end of the line"),
        ('root ::= "a\0"', "a NUL or half a character"),
        ('root ::= "a\ud800"', "a NUL or half a character"),
        ('root ::= "a"' + "{1}" * 50_000, "a repetition of a repetition"),
        ('root ::= root "a" | "b"', "the rule root begins with itself"),
        ('root ::= a\na ::= b\nb ::= a "x" | "y"', "begins with itself"),
        # Empty by way of another rule: llama.cpp does not see it, and never returns.
        ('root ::= e root "z" | "x"\ne ::= f\nf ::= "y"?', "the rule root begins with itself"),
        ('root ::= "a" root', "the rule root can never end"),
        ('root ::= ("a"?)*', "column 16: what is repeated may be empty"),
        ("root ::= ws{3}\nws ::= [ ]*", "what is repeated may be empty"),
        ("root ::= " + " ".join(['"a"?'] * 2500), "may begin in too many ways"),
        ('root ::= "' + "a" * 300 + '"{1900}', "longer than 200000 elements"),
        ("#" * (MAX_CHARS + 1), "more than 1048576"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_with_its_place(gbnf: str, reason: str) -> None:
    with pytest.raises(UsageError) as caught:
        require_sound(gbnf)
    assert reason in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_what_would_take_llama_cpp_for_ever_is_refused_at_once() -> None:
    """Each rule begins with the next one twice: two to the power of forty ways to the last."""
    lines = [f"r{i} ::= r{i + 1} | r{i + 1}" for i in range(40)]
    with pytest.raises(UsageError, match="too many ways"):
        require_sound("\n".join(["root ::= r0", *lines, 'r40 ::= "a"']))


def test_a_chain_of_many_rules_needs_no_deep_recursion() -> None:
    lines = [f"r{i} ::= r{i + 1}" for i in range(30_000)]
    with pytest.raises(UsageError, match="too many ways"):
        require_sound("\n".join(["root ::= r0", *lines, 'r30000 ::= "a"']))


def test_comments_and_lines_stand_where_llama_cpp_lets_them() -> None:
    rules = read_gbnf(
        '# one\nroot ::= # two\n  "a" (\n "b" # three\n | c) |\n "d"\n\nc ::= [\\]x]\r\n'
    )
    assert list(rules) == ["root", "c"]
    assert len(rules["root"].alternatives) == 2
