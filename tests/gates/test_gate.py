"""Gates from files; and the rules that there are, on what is no secret."""

import json
from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.gates.gate import Gate, gate_of_toml, usual_gate
from localspec.gates.rules import RULES

OWN = """
use = ["secrets", "telephone number"]
action = "note"
[actions]
secrets = "mask"
"AWS access key" = "stop"
[[pattern]]
name = "customer"
pattern = "KD-[0-9]{4}"
action = "ask"
"""


def gate(text: str) -> Gate:
    return gate_of_toml(text, "gate.toml")


def test_file_says_what_is_done_by_group_rule_and_own_pattern() -> None:
    found = gate(OWN)
    assert found.actions["GitHub token"] == "mask"
    assert found.actions["AWS access key"] == "stop"
    assert found.actions["telephone number"] == "note"
    assert found.actions["customer"] == "ask"
    assert "e-mail address" not in found.actions
    assert found.cleaned("KD-1234, ann@example.org") == "[masked: customer], ann@example.org"
    assert found.cleaned("KD-12345 aKD-1234") == "KD-12345 aKD-1234", "it stands alone"


def test_empty_file_is_the_usual_gate() -> None:
    assert gate("").actions == usual_gate().actions


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("use = 1", "use must be a list, not '1'"),
        ("use = ['cats']", "'cats' is no rule"),
        ("uses = []", "uses is not a known key"),
        ("action = 'eat'", "choose one of ask, mask, note, stop$"),
        ("[actions]\ncats = 'mask'", "'cats' is no rule"),
        (
            "[actions]\npassword = 'stop'\nsecrets = 'eat'",
            "actions.secrets is 'eat': choose one of ask, mask, note, stop$",
        ),
        ("[actions]\npassword = ['stop']", "actions.password is .*: choose one of"),
        ("[[pattern]]\nname = 'password '\npattern = 'a'", "'password' is a rule of localspec's"),
        ("actions = 1", "actions must be a table"),
        ("pattern = 1", "pattern must be a list"),
        ("[[pattern]]\nname = 'x'", r"pattern\[1\].pattern is missing"),
        ("[[pattern]]\nname = 'x'\npattern = 'a*'", "no longest match"),
        ("[[pattern]]\nname = 'x'\npattern = 'a?'", "matches nothing at all"),
        ("[[pattern]]\nname = 'x'\npattern = 'a'\nwhole = 2", "true or false"),
        (
            "[[pattern]]\nname = 'x'\npattern = 'a'\nwhole = true\nfoo = 1",
            r"pattern\[1\].foo is not a known key",
        ),
        ("no toml", "is not TOML"),
    ],
)
def test_what_is_wrong_with_a_file_is_said_in_one_line(text: str, word: str) -> None:
    with pytest.raises(UsageError, match=word) as raised:
        gate(text)
    assert str(raised.value).startswith("gate.toml")
    assert "\n" not in str(raised.value)


NO_SECRETS = [
    "password = getpass.getpass()",
    "token = tokenize.generate_tokens(readline)",
    "the password is: correct",
    'password = "changeme-example1"',
    "https://docs.python.org:443/3/library/re.html#re.compile",
    "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "commit 3e68e70aa0459c2d1b64989511787d70f1e2d3c4",
    "550e8400-e29b-41d4-a716-446655440000",
    "test_the_seed_that_is_reported_gives_the_same_text_in_2_rounds",
    "AbstractSingletonProxyFactoryBeanConfiguration2Impl",
    "/usr/lib/python3.11/site-packages/numpy/core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so",
    "2026-11-23 07:29:59, 10.0.0.138, 1.2.3.4:8080",
    "pi is 3.14159265358979, and 1024 * 1024 is 1048576",
    "the years 1990-1999, pages 100-120",
    "ISBN 978-3-16-148410-0",
    "@property, a@b, user@, setup.py@v2.py",
    "4111 1111 1111 1112",
]


@pytest.mark.parametrize("text", NO_SECRETS)
def test_what_is_no_secret_is_let_through(text: str) -> None:
    assert usual_gate().cleaned(text) == text
    for quoted in (json.dumps(f"so\n{text}\t{text}"), json.dumps([json.dumps({text: text})])):
        assert usual_gate().cleaned(quoted) == quoted


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("+41 79 123 45 67", "telephone number"),
        ("+1 (212) 555-0187", "telephone number"),
        ("+49 30 1234567", "telephone number"),
        ("0041 44 123 45 67", "telephone number"),
        ("044 123 45 67", "telephone number"),
        ("(0221) 123 4567", "telephone number"),
        ("212-555-0187", "telephone number"),
        ("(212) 555-0187", "telephone number"),
        ("john.doe+news@mail.example.co.uk", "e-mail address"),
        ("4111 1111 1111 1111", "payment card"),
        ("CH93 0076 2011 6238 5295 7", "account number"),
        ("DE89370400440532013000", "account number"),
        ("Q7rT2mXz9LpWv4KcY8nB3sGd6HfJ1aEu", "random text"),
    ],
)
def test_what_is_one_is_masked(text: str, rule: str) -> None:
    assert usual_gate().cleaned(f"It is {text}, you know.") == f"It is [masked: {rule}], you know."


def test_stretches_that_are_hidden_are_told() -> None:
    text = "My key: AKIAABCDEFGH234567AB, and ann@example.org"
    stretches = usual_gate().hidden(text)
    assert [text[start:end] for start, end in stretches] == [
        "AKIAABCDEFGH234567AB",
        "ann@example.org",
    ]


def test_rules_are_documented() -> None:
    guide = (Path(__file__).parents[2] / "docs/gates.md").read_text()
    assert [each.name for each in RULES if each.name not in guide] == []


@pytest.mark.parametrize("line", ["guard = 'x'", "guard_wait_s = 3"])
def test_key_of_the_guard_model_says_that_it_is_gone(line: str) -> None:
    with pytest.raises(UsageError, match="is gone: gates have rules and no guard model") as raised:
        gate(line)
    assert "\n" not in str(raised.value)
