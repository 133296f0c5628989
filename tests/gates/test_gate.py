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


ROWS = [
    json.loads(line) for line in Path(__file__).with_name("corpus.jsonl").read_text().splitlines()
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["text"])
def test_secrets_are_masked_and_what_is_none_passes(row: dict[str, str]) -> None:
    text = row["text"]
    assert usual_gate().cleaned(text) == row.get("shown", text)
    if "shown" not in row:
        for quoted in (json.dumps(f"so\n{text}\t{text}"), json.dumps([json.dumps({text: text})])):
            assert usual_gate().cleaned(quoted) == quoted


def test_hidden_stretches_have_their_places() -> None:
    text = "My key: AKIAABCDEFGH234567AB, and ann@example.org"
    hidden = [text[start:end] for start, end in usual_gate().hidden(text)]
    assert hidden == ["AKIAABCDEFGH234567AB", "ann@example.org"]


def test_rules_are_documented() -> None:
    guide = (Path(__file__).parents[2] / "docs/gates.md").read_text()
    assert [each.name for each in RULES if each.name not in guide] == []
