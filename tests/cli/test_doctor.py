"""`localspec doctor` and `setup`: what they say of a machine, and what they keep to themselves."""

import json
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from localspec.cli import system
from localspec.cli.main import localspec as root
from localspec.diagnosis.doctor import Fact
from localspec.llama.chosen import builds_dir
from localspec.setup.plan import GpuFinding
from tests.cli.command import localspec

SECRETS = {"HF_TOKEN": "hf_s3cret", "HTTPS_PROXY": "http://me:s3cret@127.0.0.1:9"}
SECTIONS = ["software", "hardware", "GPU build", "files", "settings", "network", "store", "memory"]
NO_GPU = {"cuda": GpuFinding(lacks=("nvcc (the CUDA toolkit)",)), "cpu": GpuFinding()}


def test_a_bare_machine_has_no_problem_and_no_secret_is_printed(
    bare_machine: dict[str, str], tmp_path: Path
) -> None:
    done = localspec("doctor", env={**bare_machine, **SECRETS}, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "s3cret" not in done.out
    *_, last = done.out.splitlines()
    assert last.startswith("no problems, 1 warning (?)")
    sections = [line for line in done.out.splitlines() if line and line[0] not in " -?!"]
    assert sections[:-1] == SECTIONS
    assert "HF_TOKEN           set" in done.out
    assert "? hub 127.0.0.1      " in done.out


@pytest.mark.parametrize("columns", [40, 80])
def test_no_line_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(system, "columns_of", lambda _: columns)
    value = "the CPU computes, and no GPU was found: a machine without one is fast enough for most"
    lines = system._line(Fact("setup", value, "note")).splitlines()
    assert len(lines) > 1
    assert max(map(len, lines)) <= columns
    assert " ".join(" ".join(lines).split()) == f"- setup {value}"


def test_a_damaged_store_is_code_1_and_json_says_where(
    bare_machine: dict[str, str], stored: Path, tmp_path: Path
) -> None:
    (stored / "blobs").mkdir(parents=True)
    (stored / "blobs" / ("0" * 64)).write_bytes(b"other bytes")
    command = ("doctor", "--json", "--offline")
    assert localspec(*command, env=bare_machine, cwd=tmp_path).code == 0
    done = localspec(*command, "--verify", env=bare_machine, cwd=tmp_path)
    document = json.loads(done.out)
    assert (done.code, document["ok"]) == (1, False)
    (broken,) = [fact for fact in document["facts"] if fact["state"] == "broken"]
    assert (broken["section"], broken["name"]) == ("store", "0" * 12)


def test_a_wrong_setting_is_a_problem_among_the_others(
    bare_machine: dict[str, str], tmp_path: Path
) -> None:
    env = {**bare_machine, "LOCALSPEC_CTX": "many"}
    done = localspec("doctor", "--offline", env=env, cwd=tmp_path)
    assert done.code == 1
    assert "! failed             environment variable LOCALSPEC_CTX is 'many'" in done.out
    assert done.out.splitlines()[-1].startswith("1 problem (!), ")


@pytest.mark.parametrize(
    ("arguments", "less", "code", "printed"),
    [
        ((), "", 0, ["no GPU was found"]),
        (("--for", "cpu"), "", 0, ["already built in"]),
        (("--for", "cuda", "--yes"), "", "install nvcc (the CUDA toolkit)", ["CUDA"]),
        (
            ("--dry-run", "--for", "cuda", "--rpc"),
            "",
            0,
            ["CUDA", "first install nvcc", "CMAKE_ARGS='-DGGML_CUDA=ON -DGGML_RPC=ON'", "NEW"],
        ),
        (
            ("--dry-run", "--for", "cuda"),
            "it has less",
            0,
            ["CUDA; it has less", "-DLESS=ON", "NEW"],
        ),
    ],
)
def test_setup_says_what_it_would_do_and_what_is_missing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    less: str,
    code: int | str,
    printed: list[str],
) -> None:
    gpus = {"cuda": GpuFinding(instead={"-DLESS=ON": less})} if less else NO_GPU
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    monkeypatch.setattr("localspec.cli.system.find_gpus", lambda: gpus)
    monkeypatch.delenv("CMAKE_ARGS", raising=False)
    result = CliRunner().invoke(root, ["setup", *arguments], standalone_mode=False)
    assert result.return_value == code if code == 0 else str(code) in str(result.exception)
    lines = result.output.splitlines()
    assert len(lines) == len(printed)
    assert all(part in line for part, line in zip(printed, lines, strict=True))
    assert not builds_dir().exists()


def test_setup_asks_nothing_without_a_terminal() -> None:
    done = localspec("setup", "--for", "cpu", "--rebuild")
    assert done.code == 2
    assert "--yes" in done.err
    assert done.err.count("\n") == 1
