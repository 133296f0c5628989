"""The campaign's own part: which stages there are, how long each may take, what is kept, and the page."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lab.gpu_campaign import __main__ as campaign
from lab.gpu_campaign.__main__ import library_environment, limit_s
from lab.gpu_campaign.measured import MEASURES, Found, print_found
from lab.gpu_campaign.outcomes import (
    CUT_SHORT,
    DONE,
    FAILED,
    Outcome,
    documents,
    page,
    read,
    run,
    write,
)
from lab.gpu_campaign.stages import Stage, Subject, Tools, stages
from localspec.errors import LocalspecError
from localspec.plugins.bench.prompts import read as read_prompts

PLAIN = Subject("small", Path("small.gguf"))
HEAVY = Subject("4 x small", Path("heavy.gguf"), Path("small.gguf"))
TOOLS = Tools(Path("/b/llama-server"), Path("/b/llama-bench"))


def printing(source: str, name: str = "a") -> Stage:
    return Stage("memory", name, 1, (sys.executable, "-c", source))


def stage_words(kind: str, *settings: str) -> tuple[str, ...]:
    listed = stages([HEAVY], TOOLS, settings, brief=True)
    return next(each.command for each in listed if each.kind == kind)


def test_stages_that_are_done_stay_and_others_are_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed = [printing("print('{\"b\": 2}')", name) for name in ("done", "cut", "failed", "new")]
    monkeypatch.setattr(campaign, "subjects", lambda *_: [])
    monkeypatch.setattr(campaign, "stages", lambda *_, brief: listed)
    before = {
        "memory done": Outcome(DONE, 1.0, [{"a": 1}]),
        "memory cut": Outcome(CUT_SHORT, 1.0, [{"a": 1}], "interrupted"),
        "memory failed": Outcome(FAILED, 1.0, (), "no memory"),
    }
    file = tmp_path / "campaign.json"
    write(file, before)
    monkeypatch.setattr(sys, "argv", ["campaign", "--model", "none", "--out", str(tmp_path)])
    assert campaign.main() == 0
    found = {name: (each.status, each.found) for name, each in read(file).items()}
    again = (DONE, [{"b": 2}])
    assert found.pop("memory done") == (DONE, [{"a": 1}])
    assert found == dict.fromkeys(("memory cut", "memory failed", "memory new"), again)
    for content in ("", "[]", '{"a": {"kind": 1}}', '{"a": 1}'):
        file.write_text(content)
        with pytest.raises(LocalspecError, match="no campaign's"):
            read(file)


def test_every_stage_has_a_name_and_a_program_and_nothing_that_is_missing_is_asked_for() -> None:
    listed = list(stages([PLAIN, HEAVY], TOOLS, ["gpu_layers=0"], brief=False))
    assert len({each.name for each in listed}) == len(listed)
    own = [each.command[3] for each in listed if "lab.gpu_campaign.measured" in each.command]
    assert set(own) == set(MEASURES)
    without = list(stages([PLAIN], Tools(), [], brief=True))
    assert "llama-bench" not in {each.kind for each in without}
    words = [word for each in without for word in each.command]
    assert not any("server" in word or "draft-model" in word or "model:" in word for word in words)
    speed = stage_words("speed")
    assert speed[2:4] == ("lab.peers", "/b/llama-server")
    assert "server:draft" in speed[speed.index("--server-modes") + 1]
    prompts = read_prompts(Path(speed[speed.index("--prompts") + 1]))
    assert len({each.workload for each in prompts}) == len(prompts) > 1


def test_settings_reach_every_program_and_a_switch_is_a_flag_without_a_value() -> None:
    for stage in stages([PLAIN, HEAVY], TOOLS, ["gpu_layers=7"], brief=True):
        text = " ".join(stage.command)
        assert "gpu_layers=7" in text or "--gpu-layers 7" in text or "-ngl 7" in text, stage.name
    words = stage_words("speed", "kv_offload=false", "cpu_moe=true", "fit=true", "gpu_layers=7")
    assert {"--no-kv-offload", "--cpu-moe"} < set(words)
    assert not {"--fit", "false", "true"} & set(words)
    for named, passed in {"CUDA0, CUDA1": "CUDA0/CUDA1", " cpu": "none", "auto": None}.items():
        words = stage_words("llama-bench", f"device={named}")
        assert (words[words.index("-dev") + 1] if "-dev" in words else None) == passed


def test_programs_of_a_build_take_its_own_libraries_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", "/cuda")
    with pytest.raises(LocalspecError, match="BUILD_SHARED_LIBS"):
        library_environment(tmp_path)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "libllama.so").touch()
    folder = str(tmp_path / "bin")
    assert library_environment(tmp_path) == {
        "LLAMA_CPP_LIB_PATH": folder,
        "LD_LIBRARY_PATH": folder + os.pathsep + "/cuda",
    }


def test_json_objects_are_read_from_output_the_last_of_its_kind_counts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def cut() -> Iterator[Found]:
        yield {"a": 1}
        yield {"a": 1, "b": 2}
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        print_found(cut())
    assert documents(capsys.readouterr().out) == [{"a": 1, "b": 2}]
    assert documents('[\n {"a": 1},\n {"a": 2}\n]', ["a"]) == [{"a": 1}, {"a": 2}]
    mixed = 'a machine\n{"a": 1}\n{broken\n{"a": 2}\n{"a": 1, "b": 0}'
    assert documents(mixed, ["a"]) == [{"a": 1, "b": 0}, {"a": 2}]
    assert documents("nothing\n3\n", ["a"]) == []


@pytest.mark.parametrize(
    ("source", "status", "found", "complaint"),
    [
        ("print('{\"a\": 1}')", DONE, [{"a": 1}], ""),
        ("raise SystemExit('no such card')", FAILED, [], "no such card"),
        ("pass", FAILED, [], "nothing printed"),
        ("print('{\"a\": 1}', flush=True); 1 / 0", FAILED, [{"a": 1}], "ZeroDivisionError"),
        (
            "import os; print('{\"a\": 1}', flush=True); os.kill(os.getpid(), 9)",
            *(FAILED, [{"a": 1}], "SIGKILL"),
        ),
    ],
)
def test_a_stage_is_done_or_has_failed_and_keeps_what_it_printed(
    source: str, status: str, found: list[object], complaint: str
) -> None:
    outcome = run(printing(source), 60, {})
    assert (outcome.status, outcome.found) == (status, found)
    assert complaint in outcome.complaint


def test_a_stage_that_takes_too_long_is_interrupted() -> None:
    # Without a first line there would be nothing to keep: on a busy machine an interpreter starts late.
    source = "import time; print('{\"a\": 1}', flush=True); time.sleep(600)"
    outcomes = (run(printing(source), most_s, {}) for most_s in (0.4, 2, 20))
    outcome = next(each for each in outcomes if each.found)
    assert (outcome.status, outcome.found) == (CUT_SHORT, [{"a": 1}])
    assert run(printing("import time; time.sleep(600)"), 0.25, {}).status == FAILED


def test_a_stage_may_take_its_share_and_half_as_much_and_no_more_than_is_left() -> None:
    listed = [Stage("memory", name, weight, ()) for name, weight in (("a", 10.0), ("b", 30.0))]
    assert limit_s(listed[0], listed, 100) == pytest.approx(37.5)
    assert limit_s(listed[1], listed[1:], 100) == 100
    assert limit_s(listed[0], listed, 4) == 4


def test_the_page_has_all_that_was_printed_and_what_failed() -> None:
    costs = {"by_depth": {"64": {"1": 5.0, "32": 9.25}}, "after_idling": [7.5]}
    bench = [{"n": 1, "ts": 400.0}, {"n": 4, "ts": 0.5}]
    outcomes = {
        "cost of a pass small": Outcome(DONE, 6.0, [costs]),
        "llama-bench a | b": Outcome(DONE, 6.0, bench),
        "memory small": Outcome(FAILED, 6.0, (), "no\nmemory"),
    }
    text = page(outcomes)
    for line in ("| 64 | 5 | 9.25 |", "- after_idling: [7.5]", "| 4 | 0.5 |"):
        assert line in text
    assert "6 s, failed: no memory" in text
