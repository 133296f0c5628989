"""What `run` and `chat --plain` do where a person sits at a terminal; in process."""

import importlib
import io
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from localspec.cli import conversing
from localspec.cli.main import localspec
from localspec.cli.options import Settings
from localspec.cli.prompt import SystemFlags
from localspec.errors import UsageError

run = importlib.import_module("localspec.cli.run")


class ArrivedError(Exception):
    """Carries what a chat would be started with."""


@pytest.fixture
def at_terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def start_chat(
        settings: Settings, system: SystemFlags, *_: object, plain: bool = False, **__: object
    ) -> int:
        raise ArrivedError(settings.named_model, system.system, plain)

    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    monkeypatch.setattr(run, "_at_terminal", lambda: True)
    monkeypatch.setattr(conversing, "start_chat", start_chat)


@pytest.mark.usefixtures("at_terminal")
@pytest.mark.parametrize(
    ("words", "arrived"),
    [
        ([], (None, None, False)),
        (["qwen2.5-coder:1.5b"], ("qwen2.5-coder:1.5b", None, False)),
        (["-m", "demo", "-s", "Be brief."], ("demo", "Be brief.", False)),
    ],
)
def test_run_without_a_prompt_is_the_chat(words: list[str], arrived: tuple[object, ...]) -> None:
    with pytest.raises(ArrivedError) as caught:
        CliRunner().invoke(localspec, ["run", *words], catch_exceptions=False)
    assert caught.value.args == arrived


@pytest.mark.usefixtures("at_terminal")
def test_chat_takes_a_model_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ArrivedError) as caught:
        CliRunner().invoke(
            localspec, ["chat", "--plain", "qwen2.5-coder:1.5b"], catch_exceptions=False
        )
    assert caught.value.args == ("qwen2.5-coder:1.5b", None, True)


def test_many_lines_on_a_pipe_are_warned_of(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for quiet, said in ((False, 1), (True, 0)):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"a\nb\nc\nd\n")))
        assert list(conversing._typed_lines(quiet=quiet)) == ["a", "b", "c", "d"]
        assert capsys.readouterr().err.count("each line is a separate question") == said


def test_ctrl_c_takes_a_line_back_and_twice_it_leaves(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def typed() -> Iterator[str | type[BaseException]]:
        yield "one"
        yield KeyboardInterrupt
        yield "two"
        yield KeyboardInterrupt

    script = typed()

    def read(_: str) -> str:
        line = next(script)
        if isinstance(line, str):
            return line
        raise line

    monkeypatch.setattr("builtins.input", read)
    lines = conversing._lines_of_a_person([])
    assert [next(lines) for _ in range(3)] == ["one", None, "two"]
    assert "Ctrl-C again quits" in capsys.readouterr().err
    with pytest.raises(KeyboardInterrupt):
        next(lines)


@pytest.mark.usefixtures("at_terminal")
@pytest.mark.parametrize(
    "words", [["--raw", "--keep"], ["--raw", "-c"], ["--raw", "-f", "x"], ["-c", "-s", "Be brief."]]
)
def test_options_that_exclude_each_other_are_refused(words: list[str]) -> None:
    with pytest.raises(UsageError, match=r"remove -(-system|c \(--continue\))"):
        CliRunner().invoke(localspec, ["run", "Hi", *words], catch_exceptions=False)
