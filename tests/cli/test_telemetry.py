"""`stats`, and what `run` records, as their users have them."""

import json
import sys
from pathlib import Path
from subprocess import run

import pytest

from localspec.options.recording import Switch
from localspec.storage.token_log import FILE as STORE_FILE
from localspec.storage.token_log import TokenLog
from localspec.telemetry.log import FILE, read_records
from tests.cli.command import PLAIN, assert_one_complaint, localspec
from tests.telemetry.talking import recording

IMPORTED_BY_RUN = """
import sys
import localspec.cli.run, localspec.launch.local_engine, localspec.launch.observe
print(*sorted(sys.modules))
"""
POEM = "Write a poem about rain."


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    config = {"LOCALSPEC_CONFIG_DIR": str(tmp_path / "config")}
    return {"LOCALSPEC_DATA_DIR": str(tmp_path), "LOCALSPEC_TELEMETRY": "on", **config}


def test_recording_is_a_setting_and_an_earlier_off_survives(
    tmp_path: Path, elsewhere: dict[str, str]
) -> None:
    env = {**elsewhere, "LOCALSPEC_TELEMETRY": ""}
    switch = tmp_path / "telemetry" / "switch.json"
    switch.parent.mkdir()
    switch.write_text('{"on": false, "text": false, "megabytes": 128, "days": 365}')
    settings = json.loads(localspec("config", "show", "--json", env=env).out)
    assert settings["telemetry"]["value"] == "off"
    assert not switch.exists()
    for words in (("telemetry", "text"), ("store", "on")):
        assert localspec("config", "set", *words, env=env).code == 0
    doctor = localspec("doctor", "--offline", env=env).out
    assert "counts, times and text: 0 MB of 128 MB, kept for 365 days" in doctor
    settings = json.loads(localspec("config", "show", "--json", env=env).out)
    assert (settings["telemetry"]["value"], settings["store"]["value"]) == ("text", True)


@pytest.mark.parametrize("broken", [False, True])
def test_wipe_deletes_the_store_too_whatever_becomes_of_the_records(
    tmp_path: Path, elsewhere: dict[str, str], broken: bool
) -> None:
    path = tmp_path / "store" / STORE_FILE
    TokenLog(path, megabytes=2).append("conversation 1", range(1000))
    if broken:
        (tmp_path / "telemetry" / FILE).mkdir(parents=True)
    done = localspec("stats", "--wipe", "--yes", env=elsewhere)
    if broken:
        assert_one_complaint(done, 1)
        assert "cannot be wiped" in done.err
    else:
        assert (done.code, done.out) == (0, "")
    assert TokenLog(path).figures() == (0, 0)


def test_stats_shows_retags_and_writes_records(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    with recording(tmp_path / "telemetry") as talk:
        talk.reply(rounds=60, asked=POEM)
    done = localspec("stats", env=elsewhere)
    assert done.code == 0, done.err
    assert "66 of 144 drafted tokens accepted" in done.out
    assert "by pair" in done.out
    assert "creative" not in done.out
    assert len(done.out.splitlines()) < 12
    assert "--all" in done.out
    assert "creative" in localspec("stats", "--all", env=elsewhere).out
    assert localspec("stats", "--replies", "5", env=elsewhere).out.split()[0] == "1"
    assert localspec("stats", "--retag", "1=chat", env=elsewhere).code == 0
    assert_one_complaint(localspec("stats", "--retag", "7=code", env=elsewhere), 2)
    document = json.loads(localspec("stats", "--json", "--since", "1d", env=elsewhere).out)
    assert list(document["workloads"]) == ["chat"]
    assert document["total"]["rounds"] == 60
    page = tmp_path / "page.html"
    assert localspec("stats", "--html", str(page), env=elsewhere).out == ""
    assert "by kind of text" in page.read_text(encoding="utf-8")
    assert page.stat().st_mode & 0o777 == 0o600
    with recording(tmp_path / "telemetry") as talk:
        for _ in range(6):
            talk.reply(rounds=60, asked=POEM)
    assert "drafting saved" in localspec("stats", env=elsewhere).out


def test_damaged_records_are_reported_and_wiped(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    (tmp_path / "telemetry").mkdir()
    (tmp_path / "telemetry" / FILE).write_bytes(b"no record at all, not even nearly" * 99)
    assert_one_complaint(localspec("stats", env=elsewhere), 1)
    assert "deleted all records" in localspec("stats", "--wipe", env=elsewhere).err
    assert "no records" in localspec("stats", "--wipe", env=elsewhere).err


def test_recorded_drafts_are_exported_as_json_lines(
    tmp_path: Path, elsewhere: dict[str, str]
) -> None:
    with recording(tmp_path / "telemetry", Switch(text=True)) as talk:
        talk.reply(rounds=10)
    done = localspec("stats", "--export", "-", "--context", "8", env=elsewhere)
    rounds = [json.loads(line) for line in done.out.splitlines()]
    assert len(rounds) == 8
    assert {"context_ids", "draft_ids", "accepted", "next_id", "next_is"} <= rounds[0].keys()
    file = tmp_path / "proposals.jsonl"
    written = localspec("stats", "--export", str(file), "--context", "8", env=elsewhere)
    assert (written.code, written.out, file.read_text()) == (0, "", done.out)
    assert file.stat().st_mode & 0o777 == 0o600
    localspec("stats", "--wipe-text", env=elsewhere)
    assert_one_complaint(localspec("stats", "--export", "-", env=elsewhere), 1)
    assert localspec("stats", env=elsewhere).code == 0


def test_run_imports_nothing_that_only_writes_or_shows() -> None:
    done = run([sys.executable, "-c", IMPORTED_BY_RUN], capture_output=True, text=True, check=True)
    unwanted = ("storing", "log", "drift", "report", "view", "workload")
    assert not {*done.stdout.split()} & {
        "rich.console",
        *(f"localspec.telemetry.{name}" for name in unwanted),
    }


@pytest.mark.slow
@pytest.mark.weights
def test_an_answer_is_recorded_once_without_its_text_and_prompt(
    smollm2_path: Path, elsewhere: dict[str, str], tmp_path: Path
) -> None:
    flags = ("--target", str(smollm2_path), "-n", "24", "--draft", "lookup", "--json", *PLAIN)
    done = localspec("run", *flags, "Say xyzzyplugh and xyzzyplugh.", env=elsewhere)
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["workload"] in {"chat", "creative"}
    files = b"".join(each.read_bytes() for each in (tmp_path / "telemetry").iterdir())
    (reply,) = read_records(tmp_path / "telemetry").replies.values()
    stages_s = sum(reply.sums[4:]) / 1e6
    assert reply.tokens == document["usage"]["completion_tokens"]
    assert stages_s == pytest.approx(reply.decode_s, rel=0.02)
    # How near, is in tests/telemetry/test_real_times.py.
    assert reply.prefill_s + stages_s <= reply.wall_s
    first = document["text"].split()[0]
    assert b"xyzzyplugh" not in files
    assert first.encode() not in files or len(first) < 5


@pytest.mark.weights
def test_switched_off_nothing_is_recorded(
    smollm2_path: Path, elsewhere: dict[str, str], tmp_path: Path
) -> None:
    flags = ("--target", str(smollm2_path), "--max-tokens", "3", "--draft", "off", *PLAIN)
    env = {**elsewhere, "LOCALSPEC_TELEMETRY": "off"}
    assert localspec("run", *flags, "Hi", env=env).code == 0
    assert not (tmp_path / "telemetry").exists()
