"""Batch: every line once, whatever stops it, and in the order of the lines."""

import json
import os
import tracemalloc
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.batch.line_template import LineTemplate
from localspec.batch.record import Receipt, line_seed
from localspec.batch.request import Form
from localspec.options import ReplyOptions
from tests.batch.toy import RECEIPT, Brief, Echo, run
from tests.chat.answers import Answering
from tests.chat.test_assistant import assistant, teller_of
from tests.examples import examples
from tests.support.checks import refuses
from tests.support.processes import running
from tests.support.told import KINDS, told, told_compiler

HUNDRED = [{"prompt": f"{number}"} for number in range(100)]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return tmp_path / "in.jsonl"


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "out.jsonl"


def write(source: Path, *lines: object) -> None:
    """Write lines: of a word the prompt that it is, of an object its JSON, and what looks like JSON as it is."""
    texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
    texts = [json.dumps({"prompt": each}) if each.isalpha() else each for each in texts]
    source.write_text("".join(f"{text}\n" for text in texts))


def records(output: Path) -> list[dict[str, Any]]:
    text = output.read_text()
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.split("\n")[:-1]]


def test_every_line_gets_a_record_or_says_why_not(source: Path, output: Path) -> None:
    bad = ("{", {"id": "b", "prompt": 3}, '{"prompt": "too long"}')
    write(source, {"id": "a", "prompt": "One"}, "", {"custom_id": 7, "prompt": "Two"}, *bad, "Six")
    tally, stopped = run(source, output)
    assert [(each["line"], each["id"], each.get("error", {}).get("type")) for each in records(output)] == [
        (1, "a", None),
        (3, 7, None),
        (4, None, "UsageError"),
        (5, "b", "UsageError"),
        (6, None, "ContextOverflow"),
        (7, None, None),
    ]  # fmt: skip
    assert (tally.answered, tally.failed, tally.n_tokens, stopped) == (3, 3, 6, False)


def test_a_line_redone_alone_has_the_same_seed(source: Path, output: Path) -> None:
    two = {"id": "b", "prompt": "Two"}
    write(source, {"id": "a", "prompt": "One"}, two, "Three", {"prompt": "Four", "seed": 5}, two)
    run(source, output)
    write(source, two)
    run(source, alone := output.with_name("alone.jsonl"))
    texts = [each["text"] for each in records(output)]
    assert records(alone)[0]["text"] == texts[1] == texts[4]
    seeds = [each["seed"] for each in records(output)]
    assert len({*seeds}) == 4
    assert seeds[2:4] == [line_seed(RECEIPT.seed, None, 3), 5]
    assert records(output)[3]["receipt"]["seed"] == RECEIPT.seed


def test_several_at_a_time_leave_in_the_order_of_their_lines(source: Path, output: Path) -> None:
    for ordered in [True, False]:
        write(source, *HUNDRED)
        output.unlink(missing_ok=True)
        run(source, output, echo := Echo(slots=8), ordered=ordered)
        numbers = [each["line"] for each in records(output)]
        assert sorted(numbers) == [*range(1, 101)]
        assert (numbers == sorted(numbers)) is ordered
        assert echo.most_under_way == 8


class Stubborn(Echo):
    """Takes all requests that it can have, and answers the first of them last."""

    failed: list[int]
    first_failed = 0

    def outcomes(self, requests: Any, _ready: Any = None) -> Any:
        taken = list(requests)
        self.first_failed = self.first_failed if self.most_under_way else self.failed[-1]
        self.most_under_way = max(self.most_under_way, len(taken))
        yield from super().outcomes(iter([*taken[1:], *taken[:1]]))


@pytest.mark.parametrize(("prompt", "under_way"), [("x", 16), (5, 1)])
def test_a_slow_line(source: Path, output: Path, prompt: object, under_way: int) -> None:
    write(source, "long", *({"prompt": prompt} for _ in range(100)), "end")
    failed = [0]
    stubborn = Stubborn()
    stubborn.failed = failed
    run(source, output, stubborn, most=16, notify=lambda tally: failed.append(tally.failed))
    assert (stubborn.most_under_way, stubborn.first_failed) == (under_way, 16 - under_way)
    assert [each["line"] for each in records(output)] == [*range(1, 103)]


def test_ctrl_c_leaves_whole_records_and_the_rest_follows(source: Path, output: Path) -> None:
    write(source, *HUNDRED[:20])
    _, stopped = run(source, output, Echo(slots=4, cancel_after=7))
    assert stopped
    assert len(records(output)) == 7  # what had waited for a line before it is not lost
    run(source, output, echo := Echo(slots=4), resume=True)
    assert [each["line"] for each in records(output)] == [*range(1, 21)]
    assert len(echo.asked) == 13


def test_only_lines_without_a_good_record_are_answered(source: Path, output: Path) -> None:
    write(source, "One", "{", "Three")
    run(source, output)
    before = output.read_bytes()
    tally, _ = run(source, output, echo := Echo(), resume=True)
    assert (echo.asked, output.read_bytes()) == ([], before)
    assert (tally.answered, tally.failed) == (2, 1)
    write(source, "One", "{", "Three", "Four")
    run(source, output, echo := Echo(), resume=True)
    assert (len(echo.asked), len(records(output))) == (1, 4)
    output.chmod(0o640)
    write(source, "One", "mended", "Three", "Four")
    refuses("line 2 .*--retry-failed answers it", run, source, output, resume=True)
    run(source, output, echo := Echo(), resume=True, retry_failed=True)
    assert len(echo.asked) == 1
    assert [each["line"] for each in records(output)] == [1, 2, 3, 4]
    assert "mended" in records(output)[1]["text"]
    assert output.stat().st_mode & 0o777 == 0o640
    assert [path.name for path in sorted(output.parent.iterdir())] == ["in.jsonl", "out.jsonl"]


def test_a_line_that_changed_since_stops_the_run(source: Path, output: Path) -> None:
    write(source, "One", "Two")
    run(source, output)
    write(source, "New", "One", "Two")
    before = output.read_bytes()
    said = r"line 1 of .*in\.jsonl changed since the last run, .*: undo the change, or choose another output$"
    for how in ({}, {"retry_failed": True}):
        refuses(said, run, source, output, resume=True, **how)
    assert output.read_bytes() == before


def test_receipts_are_mixed_only_on_demand(source: Path, output: Path) -> None:
    write(source, "One", "Two", "Three")
    run(source, output, Echo(cancel_after=1))
    drafted = replace(RECEIPT, draft_model="ef")  # which changes no text
    run(source, output, Echo(cancel_after=1), receipt=drafted, resume=True)
    other = Receipt(RECEIPT.seed, "cd" * 32, RECEIPT.build, "1" * 16)
    refuses("another target and other options", run, source, output, receipt=other, resume=True)
    run(source, output, receipt=other, resume=True, mix_receipts=True)
    receipts = [each["receipt"] for each in records(output)]
    assert [each["target"][:2] for each in receipts] == ["ab", "ab", "cd"]
    assert [each["draft_model"] for each in receipts] == [None, "ef", None]


def test_a_real_assistant_evaluates_all_of_a_prompt(source: Path, output: Path) -> None:
    write(source, "hello", {"prompt": "x" * 5000}, "hello")
    run(source, output, Answering(speaker := assistant("Yes.")), deterministic=True)
    assert [each.get("text") for each in records(output)] == ["Yes.", None, "Yes."]
    assert records(output)[1]["error"]["type"] == "ContextOverflow"
    usage = records(output)[0]["usage"]
    assert teller_of(speaker).evaluated >= 2 * usage["prompt_tokens"] + usage["completion_tokens"]


LINES = st.lists(
    st.sampled_from(["", "{", '{"prompt": "too long"}', "Hi", '{"id": "a", "prompt": "Hi"}', "[1]"]),
    max_size=12,
)  # fmt: skip


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
    write(source, *lines)
    run(source, whole)
    for number, (share, slots, ordered) in enumerate(cuts):
        echo = Echo(slots, cancel_after=3, seed=number)
        run(source, output, echo, resume=True, ordered=ordered, most=most)
        if output.exists():  # a kill leaves any number of the bytes that were appended
            output.write_bytes(output.read_bytes()[: round(share * output.stat().st_size)])
    run(source, output, Echo(2), resume=True, most=most)
    ends = [path.read_bytes() if path.exists() else b"" for path in (output, whole)]
    assert ends[0] == ends[1]


def test_what_is_answered_though_it_may_be_meant_otherwise_is_noted_once(
    source: Path, output: Path
) -> None:
    hot = {"prompt": "One", "temperatur": 1, "id": "a", "colour": "red", "topp": 1, "exact": True}
    hot |= {"gate": "off", "tools": [], "repetition_penalty": 1.1}
    write(
        source, hot, {**hot, "id": "b"}, {"prompt": "Two", "id": "a"}, {"prompt": "Six", "id": "a"}
    )
    notes: list[str] = []
    assert run(source, output, notes=notes)[0].answered == 4
    assert notes == [
        "'temperatur' is no option and changes nothing: did you mean temperature?",
        "'topp' is no option and changes nothing: did you mean top_p?",
        "'exact' is an option of the whole run, and changes nothing in a line",
        "'gate' is an option of the whole run, and changes nothing in a line",
        "'tools' is read from no line, and changes nothing",
        "'repetition_penalty' is no option and changes nothing: did you mean repeat_penalty?",
        "lines 1 and 3 have the id 'a': lines of one id have one seed",
    ]
    again, form = list[str](), Form(ReplyOptions(), LineTemplate("{{ prompt }}", "t"))
    run(source, output.with_name("rows.jsonl"), form=form, notes=again)
    assert again == notes[6:], "beside a template fields are data"


@pytest.mark.slow
def test_memory_does_not_grow_with_the_lines(source: Path, output: Path) -> None:
    write(source, *({"prompt": f"{number} {'x' * 1000}"} for number in range(2000)))
    # What is imported late is no growth.
    run(source, output.with_name("before.jsonl"), Brief())
    tracemalloc.start()
    try:
        for resume in (False, True):
            run(source, output, Brief(), resume=resume)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(records(output)) == 2000
    assert peak_bytes < 500_000  # of 2 MB in and 1.5 MB out


def test_a_schema_that_ends_its_compiler_fails_its_line_alone(source: Path, output: Path) -> None:
    bad = [{"prompt": f"Do {each}.", "json_schema": told(each)} for each in KINDS]
    write(source, "One", *bad, {"prompt": "Five", "json_schema": {"type": "integer"}}, "Six")
    with told_compiler():
        tally, _ = run(source, output)
    assert (tally.answered, tally.failed) == (3, 3)
    errors = [each["error"]["message"] for each in records(output) if "error" in each]
    assert len(errors) == 3
    assert all("\n" not in each for each in errors)
    assert not running("compiler_process.py", TOLD_BY=str(os.getpid()))
