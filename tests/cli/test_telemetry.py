"""`telemetry`, `stats` and what `run` records, as their users have them."""

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


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    return {"LOCALSPEC_DATA_DIR": str(tmp_path), "LOCALSPEC_TELEMETRY": "on"}


def test_telemetry_and_store_are_settings(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    env = {"LOCALSPEC_DATA_DIR": str(tmp_path), "LOCALSPEC_CONFIG_DIR": str(tmp_path / "config")}
    env["LOCALSPEC_TELEMETRY"] = ""
    for words in (("telemetry", "off"), ("telemetry", "text"), ("store", "on")):
        assert localspec("config", "set", *words, env=env).code == 0
    doctor = localspec("doctor", "--offline", env=env).out
    assert "counts, times and text: 0 MB of 128 MB, kept for 365 days" in doctor
    shown = json.loads(localspec("config", "show", "--json", env=env).out)
    assert (shown["telemetry"]["value"], shown["store"]["value"]) == ("text", True)
    for words in (("telemetry", "perhaps"), ("telemetry_days", "0"), ("store_megabytes", "x")):
        assert_one_complaint(localspec("config", "set", *words, env=env), 2)


def test_an_earlier_off_survives_the_first_verb(tmp_path: Path) -> None:
    env = {"LOCALSPEC_DATA_DIR": str(tmp_path), "LOCALSPEC_CONFIG_DIR": str(tmp_path / "config")}
    env["LOCALSPEC_TELEMETRY"] = ""
    switch = tmp_path / "telemetry" / "switch.json"
    switch.parent.mkdir()
    switch.write_text('{"on": false, "text": false, "megabytes": 128, "days": 365}')
    shown = json.loads(localspec("config", "show", "--json", env=env).out)
    assert shown["telemetry"]["value"] == "off"
    assert not switch.exists()


@pytest.mark.parametrize(
    ("words", "now"),
    [
        (("telemetry", "off"), "config set telemetry"),
        (("telemetry", "wipe"), "stats --wipe"),
        (("store",), "config set store"),
        (("store", "wipe"), "stats --wipe"),
        (("store", "add", "src"), "gone"),
    ],
)
def test_earlier_names_name_the_new_place(words: tuple[str, ...], now: str) -> None:
    done = localspec(*words)
    assert_one_complaint(done, 2)
    assert now in done.err


def test_stats_wipe_removes_the_store_too(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    path = tmp_path / "store" / STORE_FILE
    TokenLog(path, megabytes=2).append("conversation 1", range(1000))
    assert localspec("stats", "--wipe", "--yes", env=elsewhere).code == 0
    assert TokenLog(path).figures() == (0, 0)


def test_stats_wipe_removes_the_store_where_telemetry_cannot_be_removed(
    tmp_path: Path, elsewhere: dict[str, str]
) -> None:
    path = tmp_path / "store" / STORE_FILE
    TokenLog(path, megabytes=2).append("conversation 1", range(1000))
    (tmp_path / "telemetry" / FILE).mkdir(parents=True)
    done = localspec("stats", "--wipe", "--yes", env=elsewhere)
    assert_one_complaint(done, 1)
    assert "cannot be wiped" in done.err
    assert "stats --wipe" not in done.err
    assert TokenLog(path).figures() == (0, 0)


def test_stats_of_what_was_recorded(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    with recording(tmp_path / "telemetry") as talk:
        talk.reply(rounds=60, asked="Write a poem about rain.")
    told = localspec("stats", env=elsewhere)
    assert "no measurable difference by drafting (66 of 144 drafted tokens accepted" in told.out
    assert told.code == 0, told.err
    assert "by pair" in told.out
    assert "creative" not in told.out
    assert len(told.out.splitlines()) < 12
    assert "--all" in told.out
    assert "creative" in localspec("stats", "--all", env=elsewhere).out
    listed = localspec("stats", "--replies", "5", env=elsewhere).out
    assert listed.split()[0] == "1"
    assert localspec("stats", "--retag", "1=chat", env=elsewhere).code == 0
    document = json.loads(localspec("stats", "--json", "--since", "1d", env=elsewhere).out)
    assert list(document["workloads"]) == ["chat"]
    assert document["total"]["rounds"] == 60
    page = tmp_path / "page.html"
    assert localspec("stats", "--html", str(page), env=elsewhere).out == ""
    assert "by kind of text" in page.read_text(encoding="utf-8")
    assert page.stat().st_mode & 0o777 == 0o600
    with recording(tmp_path / "telemetry") as talk:
        for _ in range(6):
            talk.reply(rounds=60, asked="Write a poem about rain.")
    assert "drafting saved" in localspec("stats", env=elsewhere).out


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (("stats",), 1),
        (("stats", "--since", "yesterday"), 2),
        (("stats", "--retag", "1"), 2),
        (("stats", "--retag", "1=poetry"), 2),
        (("stats", "--export", "-"), 1),
        (("stats", "--export", "-", "--drafter", "guess"), 2),
        (("ab", "--a", "off", "--b", "fast"), 2),
        (("ab", "--a", "off", "--b", "auto", "--pairs", "2"), 2),
    ],
)
def test_what_cannot_be_done_is_said_in_one_line(
    elsewhere: dict[str, str], arguments: tuple[str, ...], code: int
) -> None:
    assert_one_complaint(localspec(*arguments, env=elsewhere), code)


def test_reply_that_is_not_there_cannot_be_tagged(
    tmp_path: Path, elsewhere: dict[str, str]
) -> None:
    with recording(tmp_path / "telemetry") as talk:
        talk.reply()
    assert_one_complaint(localspec("stats", "--retag", "7=code", env=elsewhere), 2)


def test_records_that_are_nonsense_are_told_and_wiped(
    tmp_path: Path, elsewhere: dict[str, str]
) -> None:
    (tmp_path / "telemetry").mkdir()
    (tmp_path / "telemetry" / FILE).write_bytes(b"no record at all, not even nearly" * 99)
    assert_one_complaint(localspec("stats", env=elsewhere), 1)
    assert (
        localspec("stats", "--wipe", env=elsewhere).err
        == "localspec: removed everything that was recorded\n"
    )
    assert localspec("stats", "--wipe", env=elsewhere).err == "localspec: nothing was recorded\n"


def test_proposals_are_json_lines(tmp_path: Path, elsewhere: dict[str, str]) -> None:
    with recording(tmp_path / "telemetry", Switch(text=True)) as talk:
        talk.reply(rounds=10)
    done = localspec("stats", "--export", "-", "--context", "8", env=elsewhere)
    found = [json.loads(line) for line in done.out.splitlines()]
    assert len(found) == 8
    file = tmp_path / "proposals.jsonl"
    written = localspec("stats", "--export", str(file), "--context", "8", env=elsewhere)
    assert (written.code, written.out, file.read_text()) == (0, "", done.out)
    assert file.stat().st_mode & 0o777 == 0o600
    assert {"context_ids", "draft_ids", "accepted", "next_id", "next_is"} <= found[0].keys()
    localspec("stats", "--wipe-text", env=elsewhere)
    assert_one_complaint(localspec("stats", "--export", "-", env=elsewhere), 1)
    assert localspec("stats", env=elsewhere).code == 0


def test_run_imports_nothing_that_only_writes_or_shows() -> None:
    done = run([sys.executable, "-c", IMPORTED_BY_RUN], capture_output=True, text=True, check=True)
    imported = set(done.stdout.split())
    unwanted = ("storing", "log", "drift", "report", "view", "workload")
    assert not imported & {"rich.console", *(f"localspec.telemetry.{name}" for name in unwanted)}


@pytest.mark.slow
@pytest.mark.weights
def test_answer_is_recorded_once_and_neither_its_text_nor_its_prompt(
    smollm2_path: Path, tmp_path: Path
) -> None:
    env = {"LOCALSPEC_DATA_DIR": str(tmp_path), "LOCALSPEC_TELEMETRY": "on"}
    flags = (
        "--target",
        str(smollm2_path),
        "--max-tokens",
        "24",
        "--draft",
        "lookup",
        "--json",
        *PLAIN,
    )
    done = localspec("run", *flags, "Say xyzzyplugh and xyzzyplugh.", env=env)
    assert done.code == 0, done.err
    document = json.loads(done.out)
    assert document["workload"] in {"chat", "creative"}
    files = b"".join(each.read_bytes() for each in (tmp_path / "telemetry").iterdir())
    (reply,) = read_records(tmp_path / "telemetry").replies.values()
    stages_s = sum(reply.sums[4:]) / 1e6
    assert reply.tokens == document["usage"]["completion_tokens"]
    assert stages_s == pytest.approx(reply.decode_s, rel=0.02)
    assert (
        reply.prefill_s + stages_s <= reply.wall_s
    )  # how near, is in tests/telemetry/test_real_times.py
    assert b"xyzzyplugh" not in files
    assert document["text"].split()[0].encode() not in files or len(document["text"].split()[0]) < 5


@pytest.mark.weights
def test_switched_off_nothing_is_recorded(smollm2_path: Path, tmp_path: Path) -> None:
    env = {"LOCALSPEC_DATA_DIR": str(tmp_path), "LOCALSPEC_TELEMETRY": "off"}
    flags = ("--target", str(smollm2_path), "--max-tokens", "3", "--draft", "off", *PLAIN)
    assert localspec("run", *flags, "Hi", env=env).code == 0
    assert not (tmp_path / "telemetry").exists()
