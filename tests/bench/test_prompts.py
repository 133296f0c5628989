"""Prompt files: the bundled one, and broken ones."""

from collections import Counter
from pathlib import Path

import pytest

from localspec.bench.prompts import BenchPrompt, bundled, per_workload, read
from localspec.errors import UsageError

GOOD = '{"workload": "code", "prompt": "Write a loop."}'


def test_ten_of_each_of_six_kinds_are_bundled_and_none_twice() -> None:
    kinds = ("code", "edit", "chat", "summarise", "extract", "creative")
    assert Counter(prompt.workload for prompt in bundled()) == dict.fromkeys(kinds, 10)
    assert len({prompt.prompt for prompt in bundled()}) == 60


def test_a_file_is_read_in_order_and_empty_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(f'\ufeff{GOOD}\n\n{{"prompt": "Zwölf\u2028Äpfel", "workload": "chat"}}\n')
    chat = BenchPrompt("chat", "Zwölf\u2028Äpfel")
    assert read(path) == [BenchPrompt("code", "Write a loop."), chat]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (f"{GOOD}\n\n{{", ":3: .*truncated"),
        (f"{GOOD}\n\n{'[' * 100_000}", ":3: .*got `array`"),
        ("[1]", ":1: .*Expected `object`"),
        ('{"workload": "code"}', "missing required field `prompt`"),
        ('{"workload": "", "prompt": "a"}', r"matching regex .* `\$\.workload`"),
        ('{"workload": "code", "prompt": 3}', "Expected `str`"),
        ('{"workload": "code", "prompt": "a", "seed": 1}', "unknown field `seed`"),
        (f"{GOOD}\n\udcff\udcfe", ":2: is not UTF-8"),
        ("", "has no prompts"),
        ("\n  \n", "has no prompts"),
        (None, "cannot be read"),
    ],
)
def test_a_file_that_is_of_no_use_is_refused(
    tmp_path: Path, content: str | None, complaint: str
) -> None:
    path = tmp_path / "mine.jsonl"
    if content is not None:
        path.write_bytes(content.encode(errors="surrogateescape"))
    with pytest.raises(UsageError, match=complaint):
        read(path)
    with pytest.raises(UsageError, match="directory"):
        read(tmp_path)


def test_the_first_of_each_kind_are_taken_with_kinds_together() -> None:
    mixed = [BenchPrompt(kind, text) for kind, text in ("aA", "bB", "aC", "bD", "aE")]
    assert [prompt.prompt for prompt in per_workload(mixed, 2)] == ["A", "C", "B", "D"]
    assert len(per_workload(mixed, None)) == 5
