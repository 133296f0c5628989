"""Batch: every line once, whatever stops it, and in the order of the lines."""

import json
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.batch.record import Receipt, line_seed
from localspec.errors import UsageError
from tests.batch.toy import RECEIPT, Brief, Echo, run
from tests.chat.answers import Answering
from tests.chat.test_assistant import assistant, teller_of
from tests.examples import examples


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "in.jsonl"


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


def prompts(source: Path, *lines: object) -> None:
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    source.write_text("".join(f"{text}\n" for text in texts))


def records(output: Path) -> list[dict[str, Any]]:
    text = output.read_text()
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.split("\n")[:-1]]


def test_every_line_gets_a_record_with_its_id_and_its_number(source: Path, output: Path) -> None:
    prompts(source, {"id": "a", "prompt": "One"}, "", {"custom_id": 7, "prompt": "Two"})
    tally, stopped = run(source, output)
    assert [(each["line"], each["id"]) for each in records(output)] == [(1, "a"), (3, 7)]
    assert (tally.answered, tally.failed, tally.n_tokens, stopped) == (2, 0, 4, False)


def test_a_bad_line_says_why_and_the_others_go_on(source: Path, output: Path) -> None:
    prompts(source, "{", {"id": "b", "prompt": 3}, {"prompt": "too long"}, {"prompt": "Four"})
    tally, _ = run(source, output)
    errors = [each.get("error", {}).get("type") for each in records(output)]
    assert errors == ["UsageError", "UsageError", "ContextOverflow", None]
    assert [each["id"] for each in records(output)] == [None, "b", None, None]
    assert (tally.answered, tally.failed) == (1, 3)


def test_a_line_redone_alone_has_the_same_seed(source: Path, output: Path) -> None:
    prompts(source, {"id": "a", "prompt": "One"}, {"id": "b", "prompt": "Two"}, {"prompt": "Three"})
    run(source, output)
    prompts(source, {"id": "b", "prompt": "Two"})
    run(source, alone := output.with_name("alone.jsonl"))
    assert records(alone)[0]["text"] == records(output)[1]["text"]
    assert len({each["seed"] for each in records(output)}) == 3
    assert records(output)[2]["seed"] == line_seed(RECEIPT.seed, None, 3)


def test_a_seed_of_its_own_wins_and_lines_of_one_id_share_one(source: Path, output: Path) -> None:
    same = {"id": "a", "prompt": "One"}
    prompts(source, {"prompt": "One", "seed": 5}, same, same)
    run(source, output)
    first, second, third = records(output)
    assert (first["seed"], first["receipt"]["seed"]) == (5, RECEIPT.seed)
    assert second["text"] == third["text"]


def test_several_at_a_time_leave_in_the_order_of_their_lines(source: Path, output: Path) -> None:
    prompts(source, *({"prompt": f"{number}"} for number in range(100)))
    run(source, output, echo := Echo(slots=8))
    assert [each["line"] for each in records(output)] == [*range(1, 101)]
    assert echo.most_under_way == 8


def test_unordered_records_are_written_as_they_come(source: Path, output: Path) -> None:
    prompts(source, *({"prompt": f"{number}"} for number in range(100)))
    run(source, output, Echo(slots=8), ordered=False)
    numbers = [each["line"] for each in records(output)]
    assert numbers != sorted(numbers)
    assert sorted(numbers) == [*range(1, 101)]


class Stubborn(Echo):
    """Answers the first request last of all that it was given."""

    def answer(self, requests: Any, _ready: Any = None) -> Any:
        taken = list(requests)
        for request in [*taken[1:], *taken[:1]]:
            self.asked.append(request)
            yield from Echo().answer(iter([request]))
        self.most_under_way = max(self.most_under_way, len(taken))


def test_a_line_that_others_wait_for_keeps_no_more_than_a_window_waiting(
    source: Path, output: Path
) -> None:
    prompts(source, *({"prompt": f"{number}"} for number in range(100)))
    run(source, output, stubborn := Stubborn(), most=16)
    assert stubborn.most_under_way == 16
    assert [each["line"] for each in records(output)] == [*range(1, 101)]


def test_lines_that_cannot_be_answered_wait_no_more_than_a_window_either(
    source: Path, output: Path
) -> None:
    """Behind a line that takes long they are records already, which memory has to hold."""
    prompts(source, {"prompt": "long"}, *({"prompt": 5} for _ in range(100)), {"prompt": "end"})
    failed_before = []

    class Slow(Echo):
        def answer(self, requests: Any, ready: Any = None) -> Any:
            taken = list(requests)
            failed_before.append(len(failures))
            return super().answer(iter(taken), ready)

    failures: list[int] = []
    run(source, output, Slow(), most=16, notify=lambda tally: failures.append(tally.failed))
    assert failed_before[0] == 15
    assert [each["line"] for each in records(output)] == [*range(1, 103)]


def test_ctrl_c_leaves_whole_records_and_the_rest_follows(source: Path, output: Path) -> None:
    prompts(source, *({"prompt": f"{number}"} for number in range(20)))
    _, stopped = run(source, output, Echo(slots=4, cancel_after=7))
    assert stopped
    begun = len(records(output))
    assert begun == 7  # what had waited for a line before it is not lost
    run(source, output, echo := Echo(slots=4), resume=True)
    assert [each["line"] for each in records(output)] == [*range(1, 21)]
    assert len(echo.asked) == 20 - begun


def test_what_is_finished_is_not_asked_again(source: Path, output: Path) -> None:
    prompts(source, {"prompt": "One"}, "{", {"prompt": "Three"})
    run(source, output)
    before = output.read_bytes()
    tally, _ = run(source, output, echo := Echo(), resume=True)
    assert (echo.asked, output.read_bytes()) == ([], before)
    assert (tally.answered, tally.failed) == (2, 1)


def test_lines_that_are_added_later_are_answered(source: Path, output: Path) -> None:
    prompts(source, {"prompt": "One"})
    run(source, output)
    prompts(source, {"prompt": "One"}, {"prompt": "Two"})
    run(source, output, echo := Echo(), resume=True)
    assert len(echo.asked) == 1
    assert len(records(output)) == 2


def test_failed_lines_are_answered_again_where_they_stood(source: Path, output: Path) -> None:
    prompts(source, {"prompt": "One"}, "{", {"prompt": "Three"})
    run(source, output)
    output.chmod(0o640)
    prompts(source, {"prompt": "One"}, {"prompt": "mended"}, {"prompt": "Three"})
    run(source, output, echo := Echo(), resume=True, retry_failed=True)
    assert len(echo.asked) == 1
    assert [each["line"] for each in records(output)] == [1, 2, 3]
    assert "mended" in records(output)[1]["text"]
    assert output.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in sorted(output.parent.iterdir())] == ["in.jsonl", "out.jsonl"]


def test_a_line_that_changed_since_stops_the_run(source: Path, output: Path) -> None:
    prompts(source, {"prompt": "One"}, {"prompt": "Two"})
    run(source, output)
    prompts(source, {"prompt": "New"}, {"prompt": "One"}, {"prompt": "Two"})
    before = output.read_bytes()
    with pytest.raises(UsageError, match=r"line 1 of .*in\.jsonl is not the one"):
        run(source, output, resume=True)
    assert output.read_bytes() == before


def test_receipts_are_not_mixed_unless_that_is_asked_for(source: Path, output: Path) -> None:
    prompts(source, {"prompt": "One"}, {"prompt": "Two"})
    run(source, output, Echo(cancel_after=1))
    other = Receipt(RECEIPT.seed, "cd" * 32, RECEIPT.build, "1" * 16)
    with pytest.raises(UsageError, match="another target and other options"):
        run(source, output, receipt=other, resume=True)
    run(source, output, receipt=other, resume=True, mix_receipts=True)
    assert [each["receipt"]["target"][:2] for each in records(output)] == ["ab", "cd"]


def test_another_draft_model_is_no_other_receipt(source: Path, output: Path) -> None:
    prompts(source, {"prompt": "One"}, {"prompt": "Two"})
    run(source, output, Echo(cancel_after=1))
    drafted = replace(RECEIPT, draft_model="ef")
    run(source, output, receipt=drafted, resume=True)
    assert [each["receipt"]["draft_model"] for each in records(output)] == [None, "ef"]


def test_a_real_assistant_answers_a_conversation(source: Path, output: Path) -> None:
    prompts(source, {"prompt": "hello"}, {"prompt": "x" * 5000}, {"prompt": "hello"})
    run(source, output, Answering(assistant("Yes.")))
    assert [each.get("text") for each in records(output)] == ["Yes.", None, "Yes."]
    assert records(output)[1]["error"]["type"] == "ContextOverflow"


def test_answered_afresh_a_line_evaluates_all_of_its_prompt(source: Path, output: Path) -> None:
    prompts(source, {"prompt": "hello"}, {"prompt": "hello"})
    speaker = assistant("Yes.")
    run(source, output, Answering(speaker), deterministic=True)
    one = records(output)[0]["usage"]["prompt_tokens"]
    said = records(output)[0]["usage"]["completion_tokens"]
    assert teller_of(speaker).evaluated >= 2 * one + said


LINES = st.lists(
    st.sampled_from(
        [
            "",
            "{",
            '{"prompt": "too long"}',
            '{"prompt": "Hi"}',
            '{"id": "a", "prompt": "Hi"}',
            "[1]",
        ]
    ),
    max_size=12,
)


@examples(150)
@given(
    lines=LINES,
    cuts=st.lists(st.tuples(st.floats(0, 1), st.integers(1, 5), st.booleans()), max_size=4),
    most=st.integers(1, 6),
)
def test_a_run_that_is_cut_anywhere_and_taken_up_ends_as_if_nothing_had_happened(
    tmp_path_factory: pytest.TempPathFactory,
    lines: list[str],
    cuts: list[tuple[float, int, bool]],
    most: int,
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    source, whole, output = folder / "in.jsonl", folder / "whole.jsonl", folder / "out.jsonl"
    prompts(source, *lines)
    run(source, whole)
    for number, (share, slots, ordered) in enumerate(cuts):
        answerer = Echo(slots, cancel_after=3, seed=number)
        run(
            source,
            output,
            answerer,
            resume=True,
            ordered=ordered,
            most=most,
        )
        if output.exists():  # a kill leaves any number of the bytes that were appended
            output.write_bytes(output.read_bytes()[: round(share * output.stat().st_size)])
    run(source, output, Echo(2), resume=True, most=most)
    assert (output.read_bytes() if output.exists() else b"") == (
        whole.read_bytes() if whole.exists() else b""
    )


@pytest.mark.slow
@pytest.mark.parametrize("resume", [False, True])
def test_memory_does_not_grow_with_the_lines(source: Path, output: Path, resume: bool) -> None:
    with source.open("w") as file:
        for number in range(2000):
            file.write(f'{{"prompt": "{number} {"x" * 1000}"}}\n')
    # What is imported late is no growth.
    run(source, output if resume else output.with_name("before.jsonl"), Brief())
    tracemalloc.start()
    try:
        run(source, output, Brief(), resume=resume)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(records(output)) == 2000
    assert peak_bytes < 500_000  # of 2 MB in and 1.5 MB out
