"""Each plug-in's folder is deleted in turn, in a copy: what is left is listed, answers as before, and passes tests of the core."""

import json
import os
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

import localspec
from localspec.entry_points import VERBS
from tests.support.machines import with_what_is_known

PACKAGE = Path(localspec.__file__).parent
ROOT = Path(__file__).parents[2]
PLUG_INS = sorted(each.parent.name for each in PACKAGE.glob("plugins/*/__init__.py"))
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"][
    "entry-points"
]
# Quick tests of the core that are about options, settings, drafters, what is planned, batches and conversations.
CORE = [
    f"tests/{each}"
    for each in ("config", "batch", "calls", "chat/test_turns.py", "decoding/test_policy.py", "history/test_archive.py", "models/test_names.py")
]  # fmt: skip
NAMED = dict.fromkeys(
    ("serve", "store"),
    "tests/config/test_resolve.py::test_variables_are_read_as_what_their_key_takes",
)
"""Tests that name a plug-in among others."""
OPTIONS = ("--draft", "auto", "--temperature", "0", "--threads", "1", "--own")


def without(name: str, place: Path) -> Path:
    """Return a checkout in which the folders of a plug-in are not there; the others are links."""
    for base in ("localspec", "tests"):
        (place / base / "plugins").mkdir(parents=True)
        for each in (ROOT / base).iterdir():
            if each.name != "plugins":
                (place / base / each.name).symlink_to(each)
        for each in (ROOT / base / "plugins").iterdir():
            if each.name != name:
                (place / base / "plugins" / each.name).symlink_to(each)
    for other in ("lab", "student", "docs", "pyproject.toml", "models.toml"):
        (place / other).symlink_to(ROOT / other)
    return place


def run(
    place: Path, *words: str, stdin: str = "", module: str = "localspec", data: Path | None = None
) -> subprocess.CompletedProcess[str]:
    own = {} if data is None else {"LOCALSPEC_DATA_DIR": str(data)}
    return subprocess.run(
        [sys.executable, "-m", module, *words],
        input=stdin,
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(place), **own},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


def answers(place: Path, data: Path) -> list[str]:
    """Return what run, chat and batch answer."""
    data.mkdir()
    with_what_is_known(data, "blobs")
    question, model = "Say hello.", "smollm2-135m"
    (data / "in.jsonl").write_text(json.dumps({"prompt": question}))
    files = (str(data / "in.jsonl"), "-o", str(data / "out.jsonl"))
    calls = (
        ("run", model, question),
        ("chat", model, "--plain"),
        ("batch", *files, "--model", model),
    )
    texts = []
    for words in calls:
        done = run(place, *words, "-n", "5", *OPTIONS, stdin=question, data=data)
        assert done.returncode == 0, done.stderr
        texts.append(done.stdout)
    record = json.loads((data / "out.jsonl").read_text().splitlines()[0])
    return [*texts[:2], record["text"]]


@cache
def usual(folder: Path) -> list[str]:
    return answers(ROOT, folder)


def test_there_are_eight_and_one_that_is_deleted_takes_its_verbs_along(tmp_path: Path) -> None:
    assert " ".join(PLUG_INS) == "agents bench mcp_server remote serve store tailor workers"
    place = without("workers", tmp_path / "copy")
    done = run(place, "--help")
    assert "worker " not in done.stdout
    assert "cannot be used" not in done.stdout
    assert "there is no command 'worker'" in run(place, "worker").stderr
    assert "--workers needs a plug-in" in run(place, "run", "--workers", "127.0.0.1:9", "x").stderr


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.parametrize("name", PLUG_INS)
def test_without_a_plug_in_all_else_works(
    name: str, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = without(name, tmp_path / "copy")
    page = run(place, "--help").stdout
    own = f"localspec.plugins.{name}:"
    gone = {verb for verb, value in DECLARED[VERBS].items() if value.startswith(own)}
    listed = {line.split()[0] for line in page.splitlines() if line[:2] == "  " and line.strip()}
    assert not gone & listed
    assert {*DECLARED[VERBS]} - gone <= listed
    assert answers(place, tmp_path / "data") == usual(tmp_path_factory.getbasetemp() / "usual")
    leave = ("--deselect", NAMED[name]) if name in NAMED else ()
    quiet = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist")
    done = run(place, *quiet, *leave, *CORE, module="pytest")
    assert done.returncode == 0, done.stdout[-3000:]
