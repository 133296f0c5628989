"""The tagger, on prompts that were written before it was, and not looked at while it was tuned."""

import json
from collections import Counter
from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.options.recording import WORKLOADS, checked_workload
from localspec.telemetry.workload import workload_of

HERE = Path(__file__).parent


def right(name: str) -> tuple[Counter[str], Counter[str]]:
    """Return how many prompts of each kind there are, and how many are tagged right."""
    asked: Counter[str] = Counter()
    right: Counter[str] = Counter()
    for line in (HERE / name).read_text(encoding="utf-8").splitlines():
        prompt = json.loads(line)
        asked[prompt["workload"]] += 1
        right[prompt["workload"]] += workload_of(prompt["prompt"]) == prompt["workload"]
    return asked, right


def test_of_120_prompts_it_had_not_been_tuned_on_85_percent_are_tagged_right() -> None:
    asked, found = right("workload_test.jsonl")
    assert asked == dict.fromkeys(WORKLOADS, 20)
    assert found.total() >= 0.85 * asked.total(), found
    assert min(found[workload] for workload in WORKLOADS) >= 15, found


def test_prompts_that_it_was_tuned_on_are_others() -> None:
    tuned, tested = (
        {json.loads(line)["prompt"] for line in (HERE / name).read_text("utf-8").splitlines()}
        for name in ("workload_tuning.jsonl", "workload_test.jsonl")
    )
    assert len(tuned) == 60
    assert not tuned & tested


@pytest.mark.parametrize(
    ("asked", "reply", "workload"),
    [
        ("And the rest?", "```python\nprint(1)\n```", "code"),
        ("And the rest?", '```json\n{"a": 1}\n```', "structured"),
        ("And the rest?", "| a | b |\n|---|---|\n| 1 | 2 |", "structured"),
        ("And the rest?", "It follows from what was said.", "chat"),
    ],
)
def test_reply_says_what_a_prompt_does_not(asked: str, reply: str, workload: str) -> None:
    assert workload_of(asked) == "chat"
    assert workload_of(asked, reply) == workload


def test_reply_that_repeats_the_given_text_is_an_edit() -> None:
    given = "The committee meets on Tuesday and decides about the new roof of the town hall. " * 3
    asked = f"Less stiff please.\n\n{given}"
    assert workload_of(asked, given.replace("committee", "group")) == "edit"


@pytest.mark.parametrize(
    "asked", ["", " ", "\n\n", "?", "a" * 300_000, "```", "{" * 5000, "\0", "é" * 9]
)
def test_anything_is_of_some_kind(asked: str) -> None:
    assert workload_of(asked) in WORKLOADS
    assert workload_of(asked, asked) in WORKLOADS


def test_unknown_kind_is_refused_with_the_known_ones() -> None:
    assert checked_workload("code") == "code"
    with pytest.raises(
        UsageError, match=r"poetry.*code, edit, chat, summarise, structured, creative"
    ):
        checked_workload("poetry")
