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


def test_file_names_actions_by_group_rule_and_own_pattern() -> None:
    own, actions = gate(OWN), gate(OWN).actions
    names = ("GitHub token", "AWS access key", "telephone number", "customer", "e-mail address")
    assert [actions.get(each) for each in names] == ["mask", "stop", "note", "ask", None]
    assert own.cleaned("KD-1234, ann@example.org") == "[masked: customer], ann@example.org"
    assert own.cleaned("KD-12345 aKD-1234") == "KD-12345 aKD-1234", "it stands alone"
    assert gate("").actions == usual_gate().actions


X = "[[pattern]]\nname = 'x'\n"


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("use = 1", "use must be a list, not '1'"), ("use = ['cats']", "'cats' is not a rule"), ("uses = []", "uses is not a known key"),
        ("action = 'eat'", "choose one of ask, mask, note, stop$"), ("[actions]\ncats = 'mask'", "'cats' is not a rule"),
        ("[actions]\npassword = 'stop'\nsecrets = 'eat'", "actions.secrets is 'eat': choose one of ask, mask, note, stop$"),
        ("[actions]\npassword = ['stop']", "actions.password is .*: choose one of"), ("actions = 1", "actions must be a table"),
        ("[[pattern]]\nname = 'password '\npattern = 'a'", "'password' is a rule of localspec's"), ("pattern = 1", "pattern must be a list"),
        (X, r"pattern\[1\].pattern is missing"), (f"{X}pattern = 'a*'", "no longest match"), (f"{X}pattern = 'a?'", "matches nothing at all"),
        (f"{X}pattern = 'a'\nwhole = 2", "true or false"), (f"{X}pattern = 'a'\nfoo = 1", r"pattern\[1\].foo is not a known key"),
        ("no toml", "is not TOML"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_file_is_one_line(text: str, word: str) -> None:
    with pytest.raises(UsageError, match=word) as raised:
        gate(text)
    assert str(raised.value).startswith("gate.toml")
    assert "\n" not in str(raised.value)


NO_SECRETS = [
    "+11 11 111 11 11", "+41 11 141 14 14", "password = getpass.getpass()", "token = tokenize.generate_tokens(readline)", "the password is: correct",
    'password = "changeme-example1"', "token = tokens[12]", "password = read_2(line)", "secret: 123456", "token = text.split2()", "https://docs.python.org:443/3/library/re.html#re.compile",
    "sha256 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08",
    "commit 3e68e70aa0459c2d1b64989511787d70f1e2d3c4", "550e8400-e29b-41d4-a716-446655440000",
    "test_the_seed_that_is_reported_gives_the_same_text_in_2_rounds", "AbstractSingletonProxyFactoryBeanConfiguration2Impl",
    "/usr/lib/python3.11/site-packages/numpy/core/_multiarray_umath.cpython-311-x86_64-linux-gnu.so",
    "2026-11-23 07:29:59, 10.0.0.138, 1.2.3.4:8080", "pi is 3.14159265358979, and 1024 * 1024 is 1048576",
    "the years 1990-1999, pages 100-120", "ISBN 978-3-16-148410-0", "@property, a@b, user@, setup.py@v2.py",
    "4111 1111 1111 1112",
]  # fmt: skip


@pytest.mark.parametrize("text", NO_SECRETS)
def test_what_is_no_secret_passes(text: str) -> None:
    assert usual_gate().cleaned(text) == text
    for quoted in (json.dumps(f"so\n{text}\t{text}"), json.dumps([json.dumps({text: text})])):
        assert usual_gate().cleaned(quoted) == quoted


@pytest.mark.parametrize(
    ("rule", "texts"),
    [
        ("telephone number", ["+41 79 123 45 67", "+1 (212) 555-0187", "+49 30 1234567", "0041 44 123 45 67"]),
        ("telephone number", ["044 123 45 67", "(0221) 123 4567", "212-555-0187", "(212) 555-0187"]),
        ("e-mail address", ["john.doe+news@mail.example.co.uk"]), ("payment card", ["4111 1111 1111 1111"]),
        ("account number", ["CH93 0076 2011 6238 5295 7", "DE89370400440532013000"]),
        ("random text", ["Q7rT2mXz9LpWv4KcY8nB3sGd6HfJ1aEu"]),
    ],
)  # fmt: skip
def test_what_is_one_is_masked(rule: str, texts: list[str]) -> None:
    for text in texts:
        masked = f"It is [masked: {rule}], you know."
        assert usual_gate().cleaned(f"It is {text}, you know.") == masked


@pytest.mark.parametrize(
    "text",
    [
        "password = hunter2secret", "DB_PASSWORD=s3cr3t", '"password": "hunter2"', "api_key: 0a1b2c3d4e5f60718293",
        "token: 9f86d081884c7d659a2feaa0c55ad015", "  PGPASSWORD=pa55word psql",
    ],
)  # fmt: skip
def test_a_weak_password_is_one_behind_its_name(text: str) -> None:
    assert "[masked: password]" in usual_gate().cleaned(text)


def test_hidden_stretches_have_their_places() -> None:
    text = "My key: AKIAABCDEFGH234567AB, and ann@example.org"
    hidden = [text[start:end] for start, end in usual_gate().hidden(text)]
    assert hidden == ["AKIAABCDEFGH234567AB", "ann@example.org"]


def test_rules_are_documented() -> None:
    guide = (Path(__file__).parents[2] / "docs/gates.md").read_text()
    assert [each.name for each in RULES if each.name not in guide] == []
