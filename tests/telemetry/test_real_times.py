"""Stage times of real answers, against a clock that the recorder knows nothing of."""

import time
from pathlib import Path

import pytest

from localspec.launch.load import load
from localspec.launch.observe import Telemetry
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions
from localspec.plan.make import make_plan
from localspec.telemetry.log import read_records
from localspec.telemetry.reply import ReplyRecord
from tests.support.machines import with_what_is_known
from tests.waiting import until

pytestmark = [pytest.mark.weights, pytest.mark.slow]

TEXT = "The ferry leaves at nine, and at noon, and at three, and in summer once more at six. " * 4


def recorded(folder: Path) -> list[ReplyRecord]:
    directory = folder / "telemetry"
    return list(read_records(directory).replies.values()) if directory.exists() else []


def test_stage_times_add_up_to_the_wall_time_around_the_whole_answer(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With passes of both models; `test_generation` has the stages of a round, whatever drafts."""
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(with_what_is_known(tmp_path)))
    monkeypatch.setenv("LOCALSPEC_TELEMETRY", "on")
    path, options = str(smollm2_path), LoadOptions(n_ctx=1024, threads=1)
    launch = LaunchOptions(target=path, draft_model=path, draft="model", load=options)
    assistant = load(make_plan(launch), observe=Telemetry().observe).assistant
    off: list[float] = []
    # What is left out shows in every answer; what a busy machine adds between two lines, not in all of them.
    # The first one compiles the template, too.
    while len(off) < 4 or (min(off) > 0.02 and len(off) < 20):
        start = time.monotonic()
        for _ in assistant.stream(f"Repeat this:\n\n{TEXT}", ReplyOptions(max_tokens=32, seed=1)):
            pass
        wall_s, count = time.monotonic() - start, len(off) + 1
        assert until(lambda count=count: len(recorded(tmp_path)) == count)  # type: ignore[misc]
        reply = recorded(tmp_path)[-1]
        spent_s = reply.prefill_s + sum(reply.sums[4:]) / 1e6
        off.append(max(abs(spent_s / wall_s - 1), abs(reply.wall_s / wall_s - 1)))
        assert reply.tokens > 8
    assistant.close()
    assert min(off) <= 0.02, off
