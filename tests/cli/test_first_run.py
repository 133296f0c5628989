"""The first run: what a person who chose no model is asked, and what holds without a person."""

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


def chosen(typed: str, monkeypatch: pytest.MonkeyPatch) -> Settings:
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
def test_the_chosen_model_is_the_default_from_then_on(
    typed: str,
    name: str,
    settings: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert chosen(typed, monkeypatch).launch.pair == name
    assert tomllib.loads(settings.read_text()) == {"pair": name}
    out, printed = capsys.readouterr()
    assert out == ""
    assert "2  gemma3-1b: 1.0 GB to download · about 14 tokens/s · chat" in printed
    assert f"{name} is now your default model" in printed
    assert chosen("", monkeypatch).launch.pair == name  # without a question


@pytest.mark.parametrize("typed", ["n\n", ""])
def test_choosing_none_ends_with_what_to_do(
    typed: str, settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="localspec config set model NAME"):
        chosen(typed, monkeypatch)
    assert not settings.exists()


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize(
    ("given", "quiet", "told"),
    [
        ({}, False, "no model chosen: using smollm2-135m"),
        ({}, True, ""),
        ({"model": "demo"}, False, ""),
    ],
)
def test_without_a_person_one_line_names_the_default(
    given: dict[str, str], quiet: bool, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    settings, line = with_model(settings_of(given), quiet=quiet)
    assert settings.launch.pair in {None, "smollm2-135m"}
    assert line.startswith(told)
    assert bool(line) == bool(told)


def test_the_model_that_was_downloaded_last_is_proposed_as_the_default(
    settings: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(settings.parent / "data"))
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    blobs, registry = settings.parent / "data/blobs", load_registry()
    blobs.mkdir(parents=True)
    for age, name in enumerate(("gemma3-1b", "qwen3-4b-2507", "smollm2-135m")):
        target = registry.model(registry.pair(name).target)
        with (blobs / target.sha256).open("wb") as file:
            file.truncate(target.size_bytes)
        os.utime(blobs / target.sha256, (10**9 - age, 10**9 - age))
    _, line = with_model(settings_of({}), quiet=False)
    assert "`localspec config set model gemma3-1b`" in line


def test_the_program_alone_is_the_chat(monkeypatch: pytest.MonkeyPatch) -> None:
    for stream in ("stdin", "stdout"):
        monkeypatch.setattr(sys, stream, Typed())
    monkeypatch.setattr(sys, "argv", ["localspec"])
    assert root._implied() == ["chat"]
    monkeypatch.setattr(sys, "argv", ["localspec", "--help"])
    assert root._implied() is None


def test_a_folder_given_as_a_file_is_refused_before_a_model_is_chosen(tmp_path: Path) -> None:
    places = {f"LOCALSPEC_{each}_DIR": str(tmp_path / each) for each in ("CONFIG", "DATA")}
    words = (sys.executable, "-m", "localspec", "run", "-f", str(tmp_path), "Hi")
    terminal = Terminal(*words, **places)
    try:
        terminal.until("is a folder")
        assert terminal.process.wait(10) == 2
        assert b"You have not chosen" not in terminal.seen
    finally:
        terminal.close()
