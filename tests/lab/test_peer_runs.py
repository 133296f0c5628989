"""Runs of a peer: the same tokens and sampling, timed here; servers that remember are fresh."""

import os
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from lab.peers.__main__ import against_best, beside_server
from lab.peers.runs import PeerRuns
from lab.peers.setting import PEER_FLAGS, PeerSetting, peer_program
from localspec.bench.arms import mode_arms
from localspec.bench.measure import Bench
from localspec.bench.prompts import BenchPrompt
from localspec.bench.report import figures
from localspec.bench.trial import Slot
from localspec.decoding.cancel import Cancelled
from localspec.errors import LocalspecError, UsageError
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from tests.lab.fake_server import fake_server

ON_A_WORKER = LaunchOptions(workers=("127.0.0.1:1",))
ASKED = ReplyOptions(SamplingParams(top_k=20), seed=7, max_tokens=5)
SLOT = Slot(0, 0.8, 2, "server:none", 0)


def setting(program: Path, options: LoadOptions | None = None) -> PeerSetting:
    target = program.parent / "target.gguf"
    target.write_bytes(b"weights")
    return PeerSetting(
        program=program,
        target=target,
        draft_model=Path("draft.gguf"),
        n_ctx=4096,
        options=options or LoadOptions(),
        threads=3,
        n_batch=128,
    )


def runs(program: Path, is_cancelled: Callable[[], bool] = lambda: False) -> PeerRuns:
    return PeerRuns(setting(program), [[5, 6, 7]], ASKED, is_cancelled)


def test_an_answer_is_timed_and_counted_token_by_token(tmp_path: Path) -> None:
    with closing(runs(fake_server(tmp_path))) as peer:
        trial = peer.run(SLOT)
    assert trial.tokens == (0, 1, 2, 3, 4)
    assert trial.n_tokens == 5
    times = [arrival.seconds for arrival in trial.arrivals]
    assert times == sorted(times)
    assert times[0] > 0
    assert (trial.drafted, trial.accepted) == (10, 7)
    assert trial.prefill_s == 0.25


def test_a_token_that_ends_the_answer_counts_though_it_is_not_streamed(tmp_path: Path) -> None:
    with closing(runs(fake_server(tmp_path, "eog"))) as peer:
        trial = peer.run(SLOT)
    assert (trial.n_tokens, len(trial.tokens)) == (6, 5)


def test_an_answer_that_breaks_off_is_a_complaint(tmp_path: Path) -> None:
    with (
        closing(runs(fake_server(tmp_path, "breaks off"))) as peer,
        pytest.raises(LocalspecError, match="llama-server broke off"),
    ):
        peer.run(SLOT)


def test_cancelling_ends_a_run(tmp_path: Path) -> None:
    cancelled: list[bool] = []
    with closing(runs(fake_server(tmp_path, "trickles"), lambda: bool(cancelled))) as peer:
        assert peer.run(SLOT).n_tokens == 5
        cancelled.append(True)
        with pytest.raises(Cancelled):
            peer.run(SLOT)


def pids(directory: Path) -> list[int]:
    """Return the processes that run the fake of a directory."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                command = (entry / "cmdline").read_bytes()
            except OSError:
                continue
            if str(directory).encode() in command and int(entry.name) != os.getpid():
                found.append(int(entry.name))
    return found


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads processes from /proc")
def test_servers_stay_between_requests_but_not_those_that_remember(tmp_path: Path) -> None:
    with closing(runs(fake_server(tmp_path))) as peer:
        peer.run(SLOT)
        kept = pids(tmp_path)
        assert len(kept) == 1
        peer.run(SLOT)
        assert pids(tmp_path) == kept
        peer.run(Slot(0, 0.0, 0, "server:ngram-mod", 0))
        assert pids(tmp_path) == kept
        peer.warm_up(list(PEER_FLAGS))
        assert len(pids(tmp_path)) == len(PEER_FLAGS) - 1
    assert pids(tmp_path) == []


def test_a_server_is_started_as_our_own_models_are_loaded(tmp_path: Path) -> None:
    options = LoadOptions(kv_type="q8_0", gpu_layers=7, threads_batch=2, devices=("CUDA0",))
    flags = setting(tmp_path / "x", options).flags("server:draft")
    text = " ".join(flags)
    for wanted in (
        "-c 4096",
        "-t 3 -tb 2",
        "-b 128 -ub 128",
        "-ctk q8_0 -ctv q8_0",
        "-ngl 7",
        "-dev CUDA0",
        "-md draft.gguf --spec-draft-n-max 3",
        "--spec-type draft-simple",
    ):
        assert wanted in text
    options = LoadOptions(devices=("cpu",), split="tensor", tensor_split="3,1", kv_offload=False)
    assert "-dev none -sm tensor -ts 3,1 -nkvo" in " ".join(
        setting(tmp_path / "x", options).flags("server:none")
    )
    plain = setting(tmp_path / "x").flags("server:none")
    assert "--spec-type" not in plain
    assert "-ngl" not in plain
    assert "--no-repack" in setting(tmp_path / "x", LoadOptions().exact()).flags("server:none")


def test_a_peer_that_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="there is no file"):
        peer_program(str(tmp_path))
    program = fake_server(tmp_path)
    assert peer_program(str(program)) == program


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path")
def test_localspec_is_measured_beside_a_server(tmp_path: Path) -> None:
    arms = mode_arms("lookup:3", LaunchOptions())
    prompts = [BenchPrompt("chat", "Say hello."), BenchPrompt("edit", "Repeat: one two one two")]
    bench = Bench(arms, prompts, "", [0.0], ReplyOptions(seed=1, max_tokens=4))
    found = beside_server(bench, str(fake_server(tmp_path)), ["server:none"])
    assert found.is_whole
    assert {each.mode for each in figures(found)} == {"off", "lookup:3", "server:none"}
    lines = against_best(found)
    assert len(lines) == 4
    assert all(line.endswith(" of server:none") for line in lines)
    with pytest.raises(UsageError, match="workers"):
        beside_server(replace(bench, arms=mode_arms("off", ON_A_WORKER)), "", ["server:none"])
