"""The campaign's own part: which stages there are, how long each may take, what is kept, and the page."""

import argparse
import io
import json
import os
import socket
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from lab.gpu_campaign import __main__ as campaign
from lab.gpu_campaign import measured
from lab.gpu_campaign.__main__ import library_environment, limit_s, wait_for, wanted, with_workers
from lab.gpu_campaign.measured import MEASURES, Found, print_found
from lab.gpu_campaign.page import page
from lab.gpu_campaign.results import CUT_SHORT, DONE, FAILED, Outcome, Results
from lab.gpu_campaign.runner import documents, run
from lab.gpu_campaign.stages import Stage, Subject, Tools, stages
from localspec.bench.prompts import read
from localspec.errors import LocalspecError

PLAIN = Subject("small", Path("small.gguf"))
HEAVY = Subject("4 x small", Path("heavy.gguf"), Path("small.gguf"))
Costs = dict[int, dict[int, float]]
TOOLS = Tools(Path("/b/llama-server"), Path("/b/llama-bench"))
FOUND = {
    "devices": [
        {
            "machine": "a processor",
            "devices": [
                {"name": "CUDA0", "description": "a | card", "free_bytes": 8e9, "total_bytes": 9e9}
            ],
        }
    ],
    "cost of a pass": [{"by_depth": {"64": {"1": 5.0, "32": 9.25}}, "after_idling": [7.5]}],
    "speed": [
        {
            "figures": [
                {
                    "mode": "auto",
                    "workload": "code",
                    "temperature": 0,
                    "tokens_per_s": 100.0,
                    "first_token_s": 0.01,
                    "acceptance_rate": None,
                    "same_text": 2,
                    "runs": 2,
                }
            ],
            "ratios": [
                {"mode": "auto", "workload": "code", "temperature": 0, "ratio": 1.5, "low": 1.4,
                 "high": 1.6, "pairs": 2}
            ],
        }
    ],
    "memory": [
        {
            "foreseen": {"CUDA0": {"weights_bytes": 98_000_000, "kv_bytes": 0, "compute_bytes": 0}},
            "taken": {"CUDA0": {"weights_bytes": 100_000_000}},
            "less_free": {},
        }
    ],
    "first token": [{"seconds_by_prompt": {"100": 0.012}}],
    "cancelling": [{"a prompt": {"median_ms": 20.0, "most_ms": 31.0, "n": 10}}],
    "safe widths": [{"exact": {"safe": [1, 2], "others_differ_by": {"8": 0.5}, "depths": [120]}}],
    "same text": [
        {"mode": "auto", "texts": 4, "differing": 1, "drafted": 9, "first_differences": [7]}
    ],
    "several sequences": [
        {"at_once": 8, "tokens_per_s": {"off": 80.0}, "ratio": 1.1, "texts": 16, "same_text": 15}
    ],
    "llama-bench": [
        {"n_gen": 0, "n_prompt": 4, "avg_ts": 400.0, "stddev_ts": 1.0, "avg_ns": 10_000_000}
    ],
}  # fmt: skip


def outcome(kind: str, status: str = DONE, **more: object) -> Outcome:
    return Outcome(kind, "small", status, 6.0, FOUND[kind], **more)  # type: ignore[arg-type]


def test_what_is_done_is_not_done_again_and_what_failed_or_was_cut_short_is(tmp_path: Path) -> None:
    results = Results(tmp_path / "campaign.json")
    results.add("a", outcome("memory"))
    results.add("b", outcome("memory", FAILED, complaint="no memory"))
    results.add("c", outcome("memory", CUT_SHORT))
    again = Results(tmp_path / "campaign.json")
    assert [again.is_settled(name) for name in "abcd"] == [True, False, False, False]
    assert [again.cut_short_after_s(name) for name in "abcd"] == [0, 0, 6, 0]
    assert again.outcomes == results.outcomes
    assert again.spent_s == 18


def test_what_was_cut_short_is_repeated_where_it_may_take_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = outcome("memory", CUT_SHORT)
    told = f"print({json.dumps(before.found[0])!r})"
    stage = Stage("memory", "a", 1, (sys.executable, "-c", told))
    monkeypatch.setattr(campaign, "subjects", lambda *_: [])
    monkeypatch.setattr(campaign, "stages", lambda *_, brief: [stage] if brief else [])
    file = tmp_path / "campaign.json"
    Results(file).add(stage.name, replace(before, seconds=30.0))
    for minutes, status in ((0.5, CUT_SHORT), (0.9, CUT_SHORT), (14, DONE)):
        words = ("--model", "none", "--out", str(tmp_path), "--minutes", str(minutes))
        monkeypatch.setattr(sys, "argv", ["campaign", *words])
        assert campaign.main() == 0
        assert Results(file).outcomes[stage.name].status == status


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"stages": {"a": {"kind": 1}}}', '{"stages": 1}']
)
def test_another_file_is_refused_in_one_line(tmp_path: Path, content: str) -> None:
    (tmp_path / "campaign.json").write_text(content)
    with pytest.raises(LocalspecError, match="no campaign's") as raised:
        Results(tmp_path / "campaign.json")
    assert "\n" not in str(raised.value)


def test_every_stage_has_a_name_of_its_own_a_section_and_a_program() -> None:
    listed = list(stages([PLAIN, HEAVY], TOOLS, ["gpu_layers=0"], brief=False))
    names = [each.name for each in listed]
    assert len(names) == len(set(names))
    assert {each.kind for each in listed} == set(FOUND)
    own = [each.command[3] for each in listed if "lab.gpu_campaign.measured" in each.command]
    assert set(own) == set(MEASURES)
    assert sum(each.weight for each in listed) > 0


def test_nothing_that_is_not_there_is_asked_for() -> None:
    listed = list(stages([PLAIN], Tools(), [], brief=True))
    words = [word for each in listed for word in each.command]
    assert "llama-bench" not in {each.kind for each in listed}
    assert not any("server" in word or "draft-model" in word or "model:" in word for word in words)
    heavy = next(each for each in stages([HEAVY], TOOLS, [], brief=True) if each.kind == "speed")
    assert heavy.command[2:4] == ("lab.peers", "/b/llama-server")
    assert "server:draft" in heavy.command[heavy.command.index("--server-modes") + 1]


def test_settings_reach_every_program() -> None:
    for stage in stages([PLAIN, HEAVY], TOOLS, ["gpu_layers=7"], brief=True):
        told = " ".join(stage.command)
        assert "gpu_layers=7" in told or "--gpu-layers 7" in told or "-ngl 7" in told, stage.name


def stage_words(kind: str, *settings: str) -> tuple[str, ...]:
    listed = stages([HEAVY], TOOLS, settings, brief=True)
    return next(each.command for each in listed if each.kind == kind)


def test_a_switch_is_a_flag_without_a_value() -> None:
    words = stage_words("speed", "kv_offload=false", "cpu_moe=true", "fit=true", "gpu_layers=7")
    assert {"--no-kv-offload", "--cpu-moe"} < set(words)
    assert not {"--fit", "false", "true"} & set(words)
    assert words[words.index("--gpu-layers") + 1] == "7"


def test_workers_that_are_set_elsewhere_are_for_every_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LOCALSPEC_WORKERS", "127.0.0.1:1,127.0.0.1:2")
    assert with_workers(["seed=1"]) == ["seed=1", "workers=127.0.0.1:1,127.0.0.1:2"]
    assert with_workers(["workers=127.0.0.1:3"]) == ["workers=127.0.0.1:3"]


def test_llama_server_is_not_measured_beside_models_on_workers() -> None:
    assert "lab.peers" in stage_words("speed")
    words = stage_words("speed", "workers=127.0.0.1:1")
    assert "lab.peers" not in words
    assert "server" not in " ".join(words)
    bench = stage_words("llama-bench", "workers=127.0.0.1:1")
    assert bench[bench.index("-rpc") + 1] == "127.0.0.1:1"


@pytest.mark.parametrize(
    ("named", "told"),
    [("Vulkan0", "Vulkan0"), ("CUDA0, CUDA1", "CUDA0/CUDA1"), (" cpu", "none"), ("auto", None)],
)
def test_llama_bench_computes_where_the_others_do(named: str, told: str | None) -> None:
    words = stage_words("llama-bench", f"device={named}")
    assert (words[words.index("-dev") + 1] if "-dev" in words else None) == told


def test_a_worker_is_greeted_before_a_stage_and_what_is_wrong_with_it_is_left_to_that() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        greeted = []

        def answer() -> None:
            with listening.accept()[0] as connection:
                greeted.append(connection.recv(1))

        worker = threading.Thread(target=answer)
        worker.start()
        wait_for(address, patience_s=60)
        worker.join()
        assert len(greeted) == 1
    wait_for(f"{address},nonsense")


def test_programs_of_a_build_take_its_own_libraries_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "libllama.so").touch()
    folder = str(tmp_path / "bin")
    monkeypatch.setenv("LD_LIBRARY_PATH", "/cuda")
    assert library_environment(tmp_path) == {
        "LLAMA_CPP_LIB_PATH": folder,
        "LD_LIBRARY_PATH": folder + os.pathsep + "/cuda",
    }
    monkeypatch.delenv("LD_LIBRARY_PATH")
    assert library_environment(tmp_path)["LD_LIBRARY_PATH"] == folder


def test_an_interrupted_measure_has_printed_what_it_has(capsys: pytest.CaptureFixture[str]) -> None:
    def cut() -> Iterator[Found]:
        found: Found = {"exact": {"safe": [1]}}
        yield found
        found["default"] = {"safe": [1, 2]}
        yield found
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        print_found(cut())
    assert documents(capsys.readouterr().out) == [
        {"exact": {"safe": [1]}, "default": {"safe": [1, 2]}}
    ]


def test_costs_at_a_shallow_depth_are_told_before_a_deep_cache_is_filled(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def filled(_model: object, depths: Sequence[int], _widths: object) -> dict[int, None]:
        if depths == [3000]:
            raise KeyboardInterrupt
        return dict.fromkeys(depths)

    def costs(contexts: Mapping[int, None], _sweeps: int, widths: Sequence[int]) -> Costs:
        return {depth: {width: width / 1000 for width in widths} for depth in contexts}

    monkeypatch.setattr(measured, "loaded", lambda _asked: io.StringIO())
    monkeypatch.setattr(measured, "filled", filled)
    monkeypatch.setattr(measured, "costs_by_depth", costs)
    asked = argparse.Namespace(depths=[64, 3000], widths=[1, 2])
    with pytest.raises(KeyboardInterrupt):
        print_found(MEASURES["cost-of-a-pass"](asked))
    found = documents(capsys.readouterr().out)
    assert found == [{"by_depth": {"64": {"1": 1.0, "2": 2.0}}}]
    assert "| 64 | 1.0 | 2.0 |" in page({"a": replace(outcome("cost of a pass"), found=found)})


def test_of_what_is_told_again_with_more_the_last_counts() -> None:
    said = '{"mode": "auto", "texts": 1}\n{"mode": "lookup", "texts": 1}\n{"mode": "auto", "texts": 2}\n'
    assert documents(said, ["mode"]) == [
        {"mode": "auto", "texts": 2},
        {"mode": "lookup", "texts": 1},
    ]
    assert documents(said) == [{"mode": "auto", "texts": 2}]


@pytest.mark.parametrize(
    ("end", "complaint"),
    [
        ("1 / 0", "ZeroDivisionError"),
        ("os.abort()", "SIGABRT"),
        ("os.kill(os.getpid(), 9)", "SIGKILL"),
    ],
)
def test_what_fails_crashes_or_is_killed_has_failed_and_told_what_it_had(
    end: str, complaint: str
) -> None:
    told = f"import os; print('{{\"a\": 1}}', flush=True); {end}"
    outcome = run(Stage("memory", "a", 1, (sys.executable, "-c", told)), 60, {})
    assert (outcome.status, outcome.found) == (FAILED, [{"a": 1}])
    assert complaint in outcome.complaint


def test_a_brief_campaign_asks_prompts_of_its_own_which_are_short() -> None:
    words = stage_words("speed")
    prompts = read(Path(words[words.index("--prompts") + 1]))
    assert len({each.workload for each in prompts}) == len(prompts) > 1
    assert all(len(each.prompt) < 200 for each in prompts)


def test_stages_are_chosen_by_how_their_names_begin() -> None:
    listed = list(stages([PLAIN, HEAVY], TOOLS, [], brief=True))
    assert wanted(listed, []) == listed
    assert {each.kind for each in wanted(listed, ["memory", "speed 4 x"])} == {"memory", "speed"}
    assert len(wanted(listed, ["speed 4 x"])) == 1


def test_a_stage_may_take_its_share_and_half_as_much_and_no_more_than_is_left() -> None:
    listed = [Stage("memory", name, weight, ()) for name, weight in (("a", 10.0), ("b", 30.0))]
    assert limit_s(listed[0], listed, 100) == pytest.approx(37.5)
    assert limit_s(listed[1], listed[1:], 100) == 100
    assert limit_s(listed[0], listed, 4) == 4


@pytest.mark.parametrize(
    ("said", "found"),
    [
        ('{"a": 1}\n', [{"a": 1}]),
        ('[\n {"a": 1},\n {"a": 2}\n]', [{"a": 1}, {"a": 2}]),
        ('a machine\n{"a": 1}\n{broken\nmore\n{"a": 2}\n', [{"a": 1}, {"a": 2}]),
        ("nothing\n3\n", []),
        ("", []),
    ],
)
def test_what_a_program_prints_as_json_is_found(said: str, found: list[object]) -> None:
    assert documents(said, ["a"]) == found


def test_a_process_that_prints_json_is_done_and_one_that_does_not_has_failed() -> None:
    told = Stage("memory", "a", 1, (sys.executable, "-c", "print('{\"a\": 1}')"))
    assert run(told, 60, {}).found == [{"a": 1}]
    assert run(told, 60, {}).status == DONE
    failing = Stage("memory", "b", 1, (sys.executable, "-c", "raise SystemExit('no such card')"))
    failed = run(failing, 60, {})
    assert failed.status == FAILED
    assert failed.complaint == "no such card"


def test_what_has_nothing_to_tell_in_time_says_so_and_is_tried_again() -> None:
    sleeping = (sys.executable, "-c", "import time; time.sleep(60)")
    slow = run(Stage("memory", "a", 1, sleeping), 0.25, {})
    assert slow.status == FAILED
    assert slow.complaint.startswith("nothing to tell within 0 s; its last word: ")


def test_the_page_has_a_section_for_every_kind() -> None:
    outcomes = {f"{kind} small": outcome(kind) for kind in FOUND}
    told = page(outcomes, [f"{kind} small" for kind in reversed(FOUND)])
    for kind in FOUND:
        assert f"## {kind.capitalize()}" in told
    assert told.index("## Llama-bench") < told.index("## Devices")
    for figure in (
        "a / card",
        "9.2",
        "7.5",
        "1.50 (1.40 to 1.60)",
        "98.0 / 100.0 (-2.0%)",
        "| 100 | 12 |",
    ):
        assert figure in told
    for figure in ("31.0", "[1, 2]", "3 of 4", "15 of 16", "| pp4 | 400.0 | 1.0 | 10.0 |"):
        assert figure in told
    assert "10 stages, 1.0 minutes, 0 failed." in told


def test_the_page_says_what_failed_and_what_was_cut_short() -> None:
    failed = Outcome("memory", "small", FAILED, 1.0, (), "no\nmemory")
    cut = outcome("first token", CUT_SHORT, complaint="interrupted")
    told = page({"a": failed, "b": cut})
    assert "(failed: no memory)" in told
    assert "(cut short: interrupted)" in told
    assert "1 failed" in told


def test_results_are_json(tmp_path: Path) -> None:
    results = Results(tmp_path / "campaign.json")
    results.add("memory small", outcome("memory"))
    assert json.loads((tmp_path / "campaign.json").read_text())["stages"]["memory small"]
