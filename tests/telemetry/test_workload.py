"""The tagger, on prompts that were written before it was, and not looked at while it was tuned."""

import json
from collections import Counter
from pathlib import Path

import pytest

from localspec.errors import UsageError
from localspec.options.recording import WORKLOADS, checked_workload
from localspec.telemetry.workload import workload_of


def prompts(name: str) -> list[dict[str, str]]:
    lines = (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines()
    return list(map(json.loads, lines))


def test_of_120_prompts_it_had_not_been_tuned_on_85_percent_are_tagged_right() -> None:
    tested, tuned = prompts("workload_test.jsonl"), prompts("workload_tuning.jsonl")
    right = [each["workload"] for each in tested if workload_of(each["prompt"]) == each["workload"]]
    assert Counter(each["workload"] for each in tested) == dict.fromkeys(WORKLOADS, 20)
    assert len(right) >= 0.85 * len(tested)
    assert min(Counter(right)[workload] for workload in WORKLOADS) >= 15
    tuned_on = {each["prompt"] for each in tuned}
    assert len(tuned_on) == 60
    assert not tuned_on & {each["prompt"] for each in tested}


def test_reply_shows_what_a_prompt_does_not() -> None:
    for reply, workload in (
        ("```python\nprint(1)\n```", "code"),
        ('```json\n{"a": 1}\n```', "structured"),
        ("| a | b |\n|---|---|\n| 1 | 2 |", "structured"),
        ("It follows from what was said.", "chat"),
        ("", "chat"),
    ):
        assert workload_of("And the rest?", reply) == workload
    given = "The committee meets on Tuesday and decides about the new roof of the town hall. " * 3
    assert workload_of(f"Less stiff please.\n\n{given}", given.replace("mitt", "")) == "edit"


@pytest.mark.parametrize("text", ["", "\n\n", "?", "a" * 300_000, "```", "{" * 5000, "\0", "é" * 9])
def test_any_text_is_of_some_kind(text: str) -> None:
    assert workload_of(text) in WORKLOADS
    assert workload_of(text, text) in WORKLOADS


def test_unknown_kind_is_refused_with_the_known_ones() -> None:
    assert checked_workload("code") == "code"
    with pytest.raises(UsageError, match=r"poetry.*code, edit, chat, summarise"):
        checked_workload("poetry")
