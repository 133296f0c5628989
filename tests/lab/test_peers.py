"""llama-server as a peer: started as our own models are loaded, timed here, and its failures are one line."""

import os
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lab.peers import (
    MODES,
    PeerRuns,
    PeerServer,
    against_best,
    beside_server,
    server_flags,
    server_program,
)
from localspec.errors import LocalspecError, UsageError
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from localspec.plugins.bench.arms import mode_arms
from localspec.plugins.bench.measure import Bench
from localspec.plugins.bench.prompts import BenchPrompt
from localspec.plugins.bench.report import figures
from localspec.plugins.bench.trial import Slot
from tests.lab.fake_server import fake_server

REPLY = ReplyOptions(SamplingParams(top_k=20), seed=7, max_tokens=5)
SLOT = Slot(0, 0.8, 2, "server:none", 0)


def loaded(folder: Path, options: LoadOptions) -> Any:
    target = folder / "target.gguf"
    target.write_bytes(b"weights")
    plan = SimpleNamespace(target=target, draft_model=Path("draft.gguf"), options=options)
    models = SimpleNamespace(target=SimpleNamespace(n_ctx=4096))
    return SimpleNamespace(plan=plan, assistant=SimpleNamespace(models=models))


def runs(program: Path) -> PeerRuns:
    models = loaded(program.parent, LoadOptions(threads=3))
    return PeerRuns(program, models, [[5, 6, 7]], REPLY, lambda mode, _: [mode])


def test_an_answer_arrives_chunk_by_chunk_and_closing_twice_is_harmless(tmp_path: Path) -> None:
    server, request = PeerServer(fake_server(tmp_path), ["-m", "x"]), {"n_predict": 3}
    chunks = list(server.complete(request))
    assert [chunk["tokens"] for chunk in chunks] == [[0], [1], [2], []]
    assert chunks[-1]["request"] == {**request, "stream": True}
    server.close()
    server.close()
    with pytest.raises(ProcessLookupError):
        os.kill(server.process.pid, 0)


def test_a_program_that_never_serves_is_ended_and_quoted(tmp_path: Path) -> None:
    for behaviour, word, most_s in (
        ("ends", "bye", 60.0),
        ("hangs", "starting", 3.0),
        ("loads", "does not start", 1.0),
    ):
        with pytest.raises(LocalspecError, match=word) as caught:
            PeerServer(fake_server(tmp_path, behaviour), [], timeout_s=most_s)
        assert "\n" not in str(caught.value)
    (tmp_path / "llama-server").write_text("no program")
    with pytest.raises(LocalspecError, match="does not start"):
        PeerServer(tmp_path / "llama-server", [])
    with pytest.raises(UsageError, match="there is no file"):
        server_program(str(tmp_path))
    for behaviour, word in (("refuses", "too long"), ("breaks off", "broke off")):
        peer = runs(fake_server(tmp_path, behaviour))
        with closing(peer), pytest.raises(LocalspecError, match=word):
            peer.run(SLOT)


@pytest.mark.parametrize(("behaviour", "n_tokens"), [("answers", 5), ("eog", 6)])
def test_an_answer_is_timed_and_counted_token_by_token(
    behaviour: str, n_tokens: int, tmp_path: Path
) -> None:
    with closing(runs(fake_server(tmp_path, behaviour))) as peer:
        trial = peer.run(SLOT)
    assert trial.tokens == (0, 1, 2, 3, 4)
    assert trial.n_tokens == n_tokens
    times = [arrival.seconds for arrival in trial.arrivals]
    assert times == sorted(times)
    assert times[0] > 0
    assert (trial.drafted, trial.accepted, trial.prefill_s) == (10, 7, 0.25)


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="reads processes from /proc")
def test_servers_stay_between_requests_but_not_those_that_remember(tmp_path: Path) -> None:
    def processes() -> set[str]:
        found = set[str]()
        for entry in Path("/proc").glob("[1-9]*"):
            with suppress(OSError):
                if str(tmp_path).encode() in (entry / "cmdline").read_bytes():
                    found.add(entry.name)
        return found

    with closing(runs(fake_server(tmp_path))) as peer:
        peer.run(SLOT)
        first = processes()
        peer.run(SLOT)
        peer.run(replace(SLOT, mode="server:ngram-mod"))
        assert processes() == first
        peer.warm_up(list(MODES))
        assert len(processes()) == len(MODES) - 1
    assert processes() == set()


def test_a_server_is_started_as_our_own_models_are_loaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lab.peers.offloads", lambda _: False)

    def flags(mode: str, **options: Any) -> str:
        return " ".join(server_flags(mode, loaded(tmp_path, LoadOptions(threads=3, **options))))

    options = {"kv_type": "q8_0", "gpu_layers": 7, "threads_batch": 2, "devices": ("CUDA0",)}
    text = flags("server:draft", n_batch=128, **options)
    for words in (
        *("-c 4096", "-t 3 -tb 2", "-b 128 -ub 128", "-ctk q8_0 -ctv q8_0", "-ngl 7", "-dev CUDA0"),
        *("-md draft.gguf --spec-draft-n-max 3", "--spec-type draft-simple"),
    ):
        assert words in text
    options = {"devices": ("cpu",), "split": "tensor", "tensor_split": "3,1", "kv_offload": False}
    assert "-dev none -sm tensor -ts 3,1 -nkvo" in flags("server:none", **options)
    plain = flags("server:none")
    assert "--spec-type" not in plain
    assert "-ngl" not in plain
    assert "--no-repack" in server_flags("server:none", loaded(tmp_path, LoadOptions().exact()))


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.usefixtures("smollm2_path")
def test_localspec_is_measured_beside_a_server(tmp_path: Path) -> None:
    arms = mode_arms("lookup:3", LaunchOptions())
    prompts = [BenchPrompt("chat", "Say hello."), BenchPrompt("edit", "Repeat: one two one two")]
    bench = Bench(arms, prompts, "", [0.0], ReplyOptions(seed=1, max_tokens=4))
    result = beside_server(bench, str(fake_server(tmp_path)), ["server:none"])
    assert result.is_whole
    assert {each.mode for each in figures(result)} == {"off", "lookup:3", "server:none"}
    lines = against_best(result)
    assert len(lines) == 4
    assert all(line.endswith(" of server:none") for line in lines)
    on_a_worker = LaunchOptions(workers=("127.0.0.1:1",))
    with pytest.raises(UsageError, match="workers"):
        beside_server(replace(bench, arms=mode_arms("off", on_a_worker)), "", ["server:none"])
