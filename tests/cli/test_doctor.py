"""`localspec doctor`: both forms of its answer, its exit code, and what it keeps to itself."""

import json
import sys
from pathlib import Path

import pytest

from localspec.cli import system as doctor
from localspec.diagnosis.doctor import Fact
from tests.cli.command import localspec

SECRETS = {"HF_TOKEN": "hf_s3cret", "HTTPS_PROXY": "http://me:s3cret@127.0.0.1:9"}


def test_a_bare_machine_has_nothing_to_mend_and_no_secret_is_told(
    bare_machine: dict[str, str], tmp_path: Path
) -> None:
    done = localspec("doctor", env={**bare_machine, **SECRETS}, cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "s3cret" not in done.out
    assert done.out.splitlines()[-1].startswith("no problems, 1 warning (?)")
    assert done.out.startswith("software\n")
    sections = [line for line in done.out.splitlines() if line and line[0] not in " -?!"]
    assert sections[:-1] == [
        "software",
        "hardware",
        "GPU build",
        "files",
        "settings",
        "network",
        "store",
        "memory",
    ]
    assert "HF_TOKEN           set" in done.out
    assert "? hub 127.0.0.1      does not answer (no connection)" in done.out


@pytest.mark.parametrize("columns", [40, 80])
def test_no_line_is_wider_than_the_terminal(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(doctor, "columns_of", lambda _: columns)
    value = "the CPU computes, and no GPU was found: a machine without one is fast enough for most"
    lines = doctor._line(Fact("setup", value, "note")).splitlines()
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
    asked = [fact for fact in document["facts"] if fact["name"] == "hub 127.0.0.1"]
    assert asked[0]["value"] == "not checked, offline"


def test_settings_that_cannot_be_are_told_beside_everything_else(
    bare_machine: dict[str, str], tmp_path: Path
) -> None:
    env = {**bare_machine, "LOCALSPEC_CTX": "many"}
    done = localspec("doctor", "--offline", env=env, cwd=tmp_path)
    assert done.code == 1
    assert "! failed             environment variable LOCALSPEC_CTX is 'many'" in done.out
    assert done.out.splitlines()[-1].startswith("1 problem (!), ")
