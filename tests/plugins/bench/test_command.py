"""`localspec bench`: real, short measurements."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.cli.command import PLAIN, Done, started, succeed
from tests.cli.test_start import interrupt

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("smollm2_path")]


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    lines = [
        {"workload": "chat", "prompt": "Say hello."},
        {"workload": "edit", "prompt": "Repeat: one two three one two three one two three"},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    return path


def bench(prompts: Path, *words: str, shell: tuple[str, ...] = ()) -> Done:
    return succeed("bench", *PLAIN, "--prompts", str(prompts), *words, shell=shell)


def test_a_short_measurement_has_a_ratio_for_every_kind_mode_and_temperature(prompts: Path) -> None:
    flags = ("--max-tokens", "8", "--repeat", "2", "--temperature", "0,0.8", "--modes", "lookup:3")
    result: dict[str, Any] = json.loads(bench(prompts, *flags, "--json").out)
    places = {(row["workload"], row["mode"], row["temperature"]) for row in result["ratios"]}
    assert places == {(w, "lookup:3", t) for w in ("chat", "edit", "all") for t in (0.0, 0.8)}
    assert all(0 < row["low"] <= row["ratio"] <= row["high"] for row in result["ratios"])
    assert result["runs"] == result["runs_planned"] == 16
    assert result["target"]["name"] == "smollm2-135m"
    for row in result["figures"]:
        assert row["runs"] == (8 if row["workload"] == "all" else 4) / 2
        assert sum(row["time"].values()) == pytest.approx(1, abs=1e-4)
        assert row["time"]["other"] >= 0


def test_the_table_is_on_stdout_and_a_reader_may_leave(prompts: Path) -> None:
    done = bench(prompts, "--max-tokens", "4", "--modes", "off,lookup")
    parts = ("machine: ", "smollm2-135m", "speed, greedy", "where the time went, temperature")
    assert all(part in done.out for part in parts)
    assert " = 1" not in done.out, "features in llama.cpp's own form"
    assert "machine: " not in done.err
    shell = ("sh", "-c", '"$@" | head -1; echo done >&2', "sh")
    done = bench(prompts, "--max-tokens", "2", "--modes", "off", "--quiet", shell=shell)
    assert done.out.startswith("machine: ")
    assert done.err == "done\n"


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_who_stops_it_gets_what_was_measured_until_then(
    prompts: Path, number: int, code: int
) -> None:
    flags = ("--prompts", str(prompts), "--max-tokens", "8", "--repeat", "1000")
    with started("bench", *PLAIN, *flags, "--modes", "lookup") as process:
        assert b"run 1 of " in process.stderr.readline()
        out, _ = interrupt(process, number, code)
    assert "interrupted: " in out
    assert "speed, greedy" in out
