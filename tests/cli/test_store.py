"""`localspec store`, as its users have it."""

import json
from pathlib import Path

import pytest

from localspec.storage.token_log import FILE, TokenLog
from tests.cli.command import assert_one_complaint, localspec


@pytest.fixture
def elsewhere(tmp_path: Path) -> dict[str, str]:
    return {"LOCALSPEC_DATA_DIR": str(tmp_path), "LOCALSPEC_CONFIG_DIR": str(tmp_path / "config")}


def status(env: dict[str, str]) -> dict[str, object]:
    found: dict[str, object] = json.loads(localspec("store", "status", "--json", env=env).out)
    return found


def test_it_is_off_until_it_is_switched_on_and_wiped_whole(
    tmp_path: Path, elsewhere: dict[str, str]
) -> None:
    assert localspec("store", "status", env=elsewhere).out.startswith("off: turn it on with")
    assert not (tmp_path / "store").exists()
    refused = localspec("store", "add", str(tmp_path), env=elsewhere)
    assert "the store is off" in refused.err
    assert localspec("store", "on", "--megabytes", "2", env=elsewhere).code == 0
    assert localspec("store", "status", env=elsewhere).out == "on\n"
    path = tmp_path / "store" / FILE
    TokenLog(path, megabytes=2).append("conversation 1", range(1000))
    assert (tmp_path / "store" / "on").read_text() == "2"
    found = status(elsewhere)
    assert (found["on"], found["texts"]) == (True, 1)
    assert 1000 <= found["tokens"] < 1100  # type: ignore[operator]
    assert "1 conversations and files" in localspec("store", "status", env=elsewhere).out
    refused = localspec("store", "on", "--megabytes", "3", env=elsewhere)
    assert "has its size already" in refused.err
    assert localspec("store", "off", env=elsewhere).code == 0
    assert (status(elsewhere)["on"], path.exists()) == (False, True)
    assert "everything is removed" in localspec("store", "wipe", env=elsewhere).err
    assert list((tmp_path / "store").iterdir()) == []
    assert "was empty" in localspec("store", "wipe", env=elsewhere).err


def test_what_is_no_store_is_complained_of_and_wiped(
    tmp_path: Path, elsewhere: dict[str, str]
) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / FILE).write_bytes(b"something else")
    complaint = localspec("store", "status", env=elsewhere)
    assert_one_complaint(complaint, 1)
    assert "it is damaged" in complaint.err
    assert localspec("store", "wipe", env=elsewhere).code == 0
    assert status(elsewhere)["tokens"] == 0


@pytest.mark.weights
def test_files_are_added_for_a_model(
    tmp_path: Path, elsewhere: dict[str, str], smollm2_path: Path
) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("def f(x):\n    return x + 1\n")
    localspec("store", "on", env=elsewhere)
    added = localspec("store", "add", str(tmp_path / "src"), "-m", str(smollm2_path), env=elsewhere)
    assert added.code == 0, added.err
    assert "added 1 files, " in added.err
    assert status(elsewhere)["texts"] == 1
    missing = localspec("store", "add", str(tmp_path / "nothing"), env=elsewhere)
    assert missing.code != 0
