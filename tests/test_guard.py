"""A guard in a process of its own: verdicts, and what comes where it is late, says nonsense, or dies."""

import json
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from localspec.errors import ModelUnavailable
from localspec.gates.guard import Verdict
from localspec.launch.guard import GuardProcess, guard_process
from localspec.launch.guard_child import guarding_of
from localspec.llama.model import LlamaModel
from localspec.models.transfer import Progress
from localspec.options import LoadOptions

DOUBLE = Path(__file__).parent / "gates/guard_double.py"
SLOW_S = 60.0
"""Longer than anything takes here, however busy the machine is."""


def command(script: Mapping[str, Any]) -> tuple[str, ...]:
    return (sys.executable, "-S", str(DOUBLE), json.dumps(dict(script)))


@contextmanager
def guard(**script: Any) -> Iterator[GuardProcess]:
    process = GuardProcess(command(script))
    try:
        process.start()
        yield process
    finally:
        process.close()


def verdict(process: GuardProcess, text: str, wait_s: float = SLOW_S) -> Verdict:
    return process.ask("", "", text, wait_s).wait()


def test_verdicts_come_in_any_order_of_waiting() -> None:
    with guard(unsafe=["bomb"], silent=["hm"]) as process:
        asked = [process.ask("", "", each, SLOW_S) for each in ("a river", "a bomb", "hm")]
        assert [each.wait() for each in reversed(asked)] == ["none", "unsafe", "safe"]
        assert asked[0].verdict == "safe"


def test_late_verdict_is_none_and_stays_so() -> None:
    with guard(late={"slow": 2.0}, unsafe=["slow"]) as process:
        late = process.ask("", "", "slow", 0.01)
        assert late.wait() == "none"
        assert verdict(process, "a river") == "safe"
        assert late.verdict == "none"


def test_guard_that_hangs_holds_nothing_up_for_longer_than_it_may() -> None:
    with guard(deaf=["deaf"]) as process:
        assert verdict(process, "deaf", 0.05) == "none"
        assert verdict(process, "a river") == "safe"


def test_guard_that_died_is_started_again_a_few_times() -> None:
    with guard(deadly=["deadly"]) as process:
        for _ in range(3):
            assert verdict(process, "a river") == "safe"
            assert verdict(process, "deadly") == "none"
        assert verdict(process, "a river") == "none"


def test_guard_that_never_loads_again_holds_nothing_up_for_ever(tmp_path: Path) -> None:
    with guard(deadly=["deadly"], once=str(tmp_path / "loaded")) as process:
        assert verdict(process, "deadly") == "none"
        assert verdict(process, "a river", 0.01) == "none"


def test_guard_that_hangs_while_it_loads_again_is_ended_and_started_again(tmp_path: Path) -> None:
    with guard(deadly=["deadly"], second=str(tmp_path / "starts")) as process:
        assert verdict(process, "deadly") == "none"
        assert verdict(process, "a river", 0.01) == "none"
        hanging_s = process.started_s
        for _ in range(3000):
            if process.started_s > hanging_s:
                break
            threading.Event().wait(0.02)
            verdict(process, "a river", 0.01)
        else:
            pytest.fail("it was not started again")
        assert verdict(process, "a river") == "safe"


def test_guard_that_hangs_is_ended_and_started_again() -> None:
    with guard(hangs=["hang"]) as process:
        assert verdict(process, "hang", 0.01) == "none"
        threading.Event().wait(0.05)
        assert process.ask("", "", "a river", 0.001).wait() == "none"
        found = (verdict(process, "a river") for _ in range(9))
        assert "safe" in found


def test_guard_that_says_nonsense_has_no_verdict() -> None:
    with guard(mad=["mad"]) as process:
        assert verdict(process, "mad") == "none"
        assert verdict(process, "a river") == "safe"


@pytest.mark.parametrize("share", [float("nan"), float("inf"), -1.0, 1.5])
def test_share_that_is_none_is_no_verdict(share: float) -> None:
    with guard(shares={"odd": share}) as process:
        assert verdict(process, "odd") == "none"
        assert verdict(process, "a river") == "safe"


def test_guard_at_work_on_a_long_text_has_its_verdict_in_the_end() -> None:
    with guard(works={"long": 3}, unsafe=["long"]) as process:
        assert verdict(process, "long") == "unsafe"


def test_what_was_asked_before_it_died_has_no_verdict() -> None:
    with guard(deadly=["deadly"]) as process:
        asked = [process.ask("", "", each, SLOW_S) for each in ("deadly", "a river")]
        assert [each.wait() for each in asked] == ["none", "none"]


def test_closing_ends_whoever_waits() -> None:
    with guard(deaf=["deaf"]) as process:
        asked, told = process.ask("", "", "deaf", SLOW_S), list[Verdict]()
        waiting = threading.Thread(target=lambda: told.append(asked.wait()))
        waiting.start()
        process.close()
        waiting.join(SLOW_S)
        assert told == ["none"]
        assert verdict(process, "a river") == "none"


def test_guard_that_cannot_be_loaded_says_why() -> None:
    fetched = list[Progress]()
    script = {"downloads": 7, "fails": ["ModelUnavailable", "no such model"]}
    process = GuardProcess(command(script), fetched.append)
    with pytest.raises(ModelUnavailable, match="guard: no such model"):
        process.start()
    assert fetched == [Progress("a-guard", 1, 7, "a script")]
    process.close()


def test_time_that_a_download_takes_is_none_that_loading_takes() -> None:
    told_s = list[float]()
    process = GuardProcess(command({"downloads": 7}), lambda _: told_s.append(time.monotonic()))
    process.start()
    assert process.started_s >= told_s[-1]
    process.close()


@pytest.mark.slow
def test_guard_that_nobody_knows_says_so() -> None:
    process = guard_process("no-such-guard", offline=True, on_download=lambda _: None)
    with pytest.raises(ModelUnavailable, match="no-such-guard"):
        process.start()
    process.close()


@pytest.mark.weights
def test_real_model_gives_one_share_whatever_was_judged_before(smollm2_path: Path) -> None:
    model = LlamaModel(smollm2_path, LoadOptions(gpu_layers=0, threads=1, n_ctx=1024, max_rows=1))
    try:
        guarding = guarding_of(model)
        assert guarding.form == "in words"
        first = guarding.unsafe("How long is the Rhine?", "", "It is 1233 km long. ")
        guarding.unsafe("How are bombs made?", "", "Mix these two, and light it. ")
        again = guarding.unsafe("How long is the Rhine?", "", "It is 1233 km long. ")
        assert first is not None
        assert 0 < first < 1
        assert again == pytest.approx(first, abs=1e-3)
        assert guarding.unsafe("?", "word " * 9000, "The end. ") is not None, "it was cut to fit"
    finally:
        model.close()


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path")
def test_real_guard_in_its_process_judges() -> None:
    process = guard_process("smollm2-135m", offline=True, on_download=lambda _: None)
    try:
        process.start()
        assert verdict(process, "The Rhine is 1233 km long. ") in {"safe", "unsafe"}
    finally:
        process.close()
