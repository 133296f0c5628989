"""Stage times of real answers, against a clock that the recorder knows nothing of."""

import time
from pathlib import Path

import pytest

from localspec.launch.load import load
from localspec.launch.observe import Telemetry
from localspec.launch.plan import make_plan
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions
from localspec.telemetry.log import read_records

pytestmark = [pytest.mark.weights, pytest.mark.slow]

TEXT = "The ferry leaves at nine, and at noon, and at three, and in summer once more at six. " * 4


@pytest.mark.parametrize("draft", ["off", "lookup", "model"])
def test_stage_times_add_up_to_the_wall_time_around_the_whole_answer(
    draft: str, smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("LOCALSPEC_TELEMETRY", "on")
    path = str(smollm2_path)
    draft_model = path if draft == "model" else None
    options = LoadOptions(n_ctx=1024, threads=1)
    launch = LaunchOptions(target=path, draft_model=draft_model, draft=draft, load=options)
    assistant = load(make_plan(launch), observe=Telemetry().observe).assistant
    walls_s = []
    for _ in range(4):  # the first one compiles the template, too
        start = time.monotonic()
        for _ in assistant.stream(f"Repeat this:\n\n{TEXT}", ReplyOptions(max_tokens=32, seed=1)):
            pass
        walls_s.append(time.monotonic() - start)
    assistant.close()
    replies = list(read_records(tmp_path / "telemetry").replies.values())
    # What is left out shows in every answer; what a busy machine adds between two lines, not in all of them.
    off = [
        max(
            abs((reply.prefill_s + sum(reply.sums[4:]) / 1e6) / wall_s - 1),
            abs(reply.wall_s / wall_s - 1),
        )
        for reply, wall_s in zip(replies, walls_s, strict=True)
    ]
    assert min(reply.tokens for reply in replies) > 8
    assert min(off) <= 0.02, off
