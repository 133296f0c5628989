"""Prompt files: the bundled one, and broken ones."""

from collections import Counter
from pathlib import Path

import pytest

from localspec.bench.prompts import BenchPrompt, bundled, per_workload, read
from localspec.errors import UsageError

GOOD = '{"workload": "code", "prompt": "Write a loop."}'


def test_ten_of_each_of_six_kinds_are_bundled() -> None:
    kinds = Counter(prompt.workload for prompt in bundled())
    expected = ("code", "edit", "chat", "summarise", "extract", "creative")
    assert kinds == dict.fromkeys(expected, 10)


def test_no_bundled_prompt_occurs_twice() -> None:
    texts = [prompt.prompt for prompt in bundled()]
    assert len(set(texts)) == len(texts)


def test_a_file_is_read_in_order_and_empty_lines_are_skipped(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(f'\ufeff{GOOD}\n\n{{"prompt": "Zwölf\u2028Äpfel", "workload": "chat"}}\n')
    assert read(path) == [
        BenchPrompt("code", "Write a loop."),
        BenchPrompt("chat", "Zwölf\u2028Äpfel"),
    ]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("{", "truncated"),
        ("[" * 100_000, "got `array`"),
        ("[1]", "Expected `object`"),
        ('{"workload": "code"}', "missing required field `prompt`"),
        ('{"workload": "", "prompt": "a"}', r"matching regex .* `\$\.workload`"),
        ('{"workload": "code", "prompt": 3}', "Expected `str`"),
        ('{"workload": "code", "prompt": "a", "seed": 1}', "unknown field `seed`"),
    ],
)
def test_a_broken_line_is_named(tmp_path: Path, line: str, complaint: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(f"{GOOD}\n\n{line}\n")
    with pytest.raises(UsageError, match=complaint) as caught:
        read(path)
    assert str(caught.value).startswith(f"{path}:3: ")


def test_bytes_that_are_no_text_are_found_on_their_line(tmp_path: Path) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_bytes(GOOD.encode() + b"\n\xff\xfe\n")
    with pytest.raises(UsageError, match=":2: is not UTF-8"):
        read(path)


@pytest.mark.parametrize("content", ["", "\n  \n"])
def test_a_file_without_prompts_is_refused(tmp_path: Path, content: str) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text(content)
    with pytest.raises(UsageError, match="has no prompts"):
        read(path)


def test_a_file_that_is_not_there_or_a_directory_is_one_complaint(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot be read"):
        read(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match="directory"):
        read(tmp_path)


def test_the_first_of_each_kind_are_taken_with_kinds_together() -> None:
    mixed = [BenchPrompt(kind, text) for kind, text in ("aA", "bB", "aC", "bD", "aE")]
    taken = per_workload(mixed, 2)
    assert [prompt.prompt for prompt in taken] == ["A", "C", "B", "D"]
    assert len(per_workload(mixed, None)) == 5
