"""`show --for`: command lines of other programs."""

import json
import shlex
from pathlib import Path

import pytest

from localspec.calibration import calibrated
from localspec.decoding.costs import PassCosts
from localspec.decoding.model import Role
from localspec.errors import LocalspecError
from localspec.models.registry import load_registry
from localspec.plugins.remote import other_engines
from localspec.plugins.remote.other_engines import PROGRAMS, launch_of
from tests.cli.command import assert_one_complaint, localspec, succeed


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No model is here."""
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hub"))


@pytest.mark.parametrize(
    ("program", "name", "words"),
    [
        ("llama-server", "qwen3-8b", "llama-server -hf Qwen/Qwen3-8B-GGUF:Q4_K_M -c 8192 -hfd Qwen/Qwen3-0.6B-GGUF:Q8_0 --spec-type draft-simple --spec-draft-n-max 2"),
        ("llama-server", "qwen3.6-27b", "llama-server -hf unsloth/Qwen3.6-27B-MTP-GGUF:Q4_K_M -c 8192 --spec-type draft-mtp --spec-draft-n-max 4"),
        ("vllm", "qwen3-8b", """vllm serve Qwen/Qwen3-8B --max-model-len 8192 --speculative-config '{"method": "draft_model", "model": "Qwen/Qwen3-0.6B", "num_speculative_tokens": 2}'"""),
        ("sglang", "qwen3-8b", "python -m sglang.launch_server --model-path Qwen/Qwen3-8B --context-length 8192 --speculative-algorithm STANDALONE --speculative-draft-model-path Qwen/Qwen3-0.6B --speculative-num-steps 2 --speculative-eagle-topk 1 --speculative-num-draft-tokens 3"),
        ("lmstudio", "qwen3-8b", "lms load Qwen/Qwen3-8B-GGUF -y --context-length 8192 --speculative-draft-simple --speculative-draft-model Qwen/Qwen3-0.6B-GGUF --speculative-draft-max-tokens 2"),
        ("vllm", "smollm2-135m", "vllm serve QuantFactory/SmolLM2-135M-Instruct --max-model-len 8192"),
        ("sglang", "me/Mine-GGUF:Q8_0", "python -m sglang.launch_server --model-path me/Mine --context-length 8192"),
    ],
)  # fmt: skip
def test_the_command_of_a_pair(program: str, name: str, words: str) -> None:
    launch = launch_of(name, program, load_registry())
    assert words in map(shlex.join, launch.commands)


def test_every_pair_has_a_command_of_every_program() -> None:
    registry = load_registry()
    for name in registry.pairs:
        for program in PROGRAMS:
            launch = launch_of(name, program, registry)
            flags = [word for words in launch.commands for word in words if "spec" in word]
            assert bool(flags) is (launch.draft_length is not None)
            assert all(each.isprintable() and "\n" not in each for each in launch.notes)


def test_heads_that_no_program_can_fetch_are_left_out_with_a_note() -> None:
    launch = launch_of("gemma4-e2b", "vllm", load_registry())
    assert launch.draft_length is None
    assert "without drafting" in launch.notes[0]


def test_costs_that_were_measured_here_come_before_published_ones(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(other_engines, "local_file", lambda _entry: tmp_path / "x.gguf")

    def launched(widest_s: float) -> other_engines.Launch:
        """Return the launch where a pass of sixteen takes so long, and one of one a second."""

        def stored(_path: object, _load: object, role: Role) -> calibrated.StoredCosts:
            target = PassCosts((1, 16), (1.0, widest_s))
            return calibrated.StoredCosts(
                target if role is Role.TARGET else PassCosts((1,), (0.01,))
            )

        monkeypatch.setattr(other_engines, "stored_costs", stored)
        return launch_of("qwen3-8b", "llama-server", load_registry())

    cheap, dear = launched(1.05), launched(16.0)
    assert cheap.draft_length is not None
    assert cheap.draft_length > 4
    assert "measured on this machine" in cheap.notes[0]
    assert "would not pay on this machine" in dear.notes[0]
    assert ("-m", str(tmp_path / "x.gguf")) == dear.commands[0][1:3]


@pytest.mark.parametrize("name", ["nope", "qwen3-8b-eagle3", "/none/of.gguf"])
def test_what_is_no_model_is_refused(name: str) -> None:
    with pytest.raises(LocalspecError):
        launch_of(name, "vllm", load_registry())


def test_show_prints_commands_on_stdout_and_reasons_on_stderr() -> None:
    done = succeed("show", "qwen3-8b", "--for", "llama-server")
    assert done.out.startswith("llama-server -hf ")
    assert "draft length 2: by costs of passes published of a GPU" in done.err
    document = json.loads(succeed("show", "qwen3-8b", "--for", "vllm", "--json").out)
    assert document["draft_length"] == 2
    done = localspec("show", "smollm2-135m", "--for", "ollama")
    assert_one_complaint(done, 2, "llama-server", "lmstudio")
