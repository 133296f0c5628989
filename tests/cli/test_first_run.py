"""The first run: what a person who chose no model is asked, and what holds where nobody can be."""

import io
import os
import sys
import tomllib
from pathlib import Path

import pytest

from localspec.cli import main as root
from localspec.cli.options import Settings, settings_of
from localspec.cli.prompt import with_model
from localspec.errors import UsageError
from localspec.launch.rows import ModelRow
from localspec.models.registry import load_registry
from tests.tui.terminal import Terminal

EVERY = [
    ModelRow("gemma3-1b", 10**9, False, True, "chat", True, 14.0),
    ModelRow("qwen3-4b", 10**9, True, True, "reasoning", True, 8.5, True, own=True),
    ModelRow("smollm2-135m", 10**8, True, True, "a toy"),
]


class Typed(io.StringIO):
    """What a person types."""

    def isatty(self) -> bool:
        return True


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path))
    monkeypatch.setattr("localspec.cli.first_run.measured_choices", lambda: EVERY)
    return tmp_path / "config.toml"


def taken(typed: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setattr(sys, "stdin", Typed(typed))
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    return with_model(settings_of({}), quiet=False)[0]


@pytest.mark.parametrize(
    ("typed", "name"),
    [
        ("\n", "qwen3-4b"),
        ("2\n", "gemma3-1b"),
        ("a\n3\n", "smollm2-135m"),
        ("9\nqwen3-8b\n", "qwen3-8b"),
    ],
)
def test_what_is_taken_is_kept(
    typed: str,
    name: str,
    settings: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert taken(typed, monkeypatch).launch.pair == name
    assert tomllib.loads(settings.read_text()) == {"pair": name}
    told = capsys.readouterr().err
    assert "2  gemma3-1b: 1.0 GB to download · about 14 tokens/s · chat" in told
    assert f"{name} is now your default model" in told
    assert taken("", monkeypatch).launch.pair == name  # nobody is asked again


@pytest.mark.parametrize("typed", ["n\n", ""])
def test_who_takes_none_is_told_in_one_line_how_to(
    typed: str, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="localspec config set model NAME"):
        taken(typed, monkeypatch)
    assert not settings.exists()


@pytest.mark.usefixtures("settings")
def test_where_nobody_can_be_asked_one_line_says_what_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    for given, quiet, told in (
        ({}, False, "no model chosen: using smollm2-135m"),
        ({}, True, ""),
        ({"model": "demo"}, False, ""),
    ):
        found, line = with_model(settings_of(given), quiet=quiet)
        assert found.launch.pair in {None, "smollm2-135m"}
        assert line.startswith(told)
        assert bool(line) == bool(told)


def test_who_has_a_model_is_told_how_to_make_it_the_default(
    settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(settings.parent / "data"))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    blobs = settings.parent / "data/blobs"
    blobs.mkdir(parents=True)
    for age, name in enumerate(("gemma3-1b", "qwen3-4b-2507", "smollm2-135m")):
        registry = load_registry()
        target = registry.model(registry.pair(name).target)
        with (blobs / target.sha256).open("wb") as file:
            file.truncate(target.size_bytes)
        os.utime(blobs / target.sha256, (10**9 - age, 10**9 - age))
    _, told = with_model(settings_of({}), quiet=False)
    assert told.startswith("no model chosen: using smollm2-135m")
    assert "`localspec config set model gemma3-1b` makes" in told


def test_the_name_of_the_program_alone_is_the_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", Typed())
    monkeypatch.setattr(sys, "stdout", Typed())
    monkeypatch.setattr(sys, "argv", ["localspec"])
    assert root._implied() == ["chat"]
    monkeypatch.setattr(sys, "argv", ["localspec", "--help"])
    assert root._implied() is None


def test_a_folder_that_is_given_as_a_file_is_refused_before_a_model_is_chosen(
    tmp_path: Path,
) -> None:
    places = {f"LOCALSPEC_{each}_DIR": str(tmp_path / each) for each in ("CONFIG", "DATA")}
    terminal = Terminal(
        sys.executable, "-m", "localspec", "run", "-f", str(tmp_path), "Hi", **places
    )
    try:
        terminal.until("is a folder")
        assert terminal.process.wait(10) == 2
        assert b"You have not chosen" not in terminal.seen
    finally:
        terminal.close()
