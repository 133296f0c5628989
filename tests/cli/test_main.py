"""How the program ends, whatever a verb raises."""

import errno
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path

import click
import pytest

from localspec import __main__ as program
from localspec.cli import INTERRUPTED
from localspec.cli import main as root
from localspec.errors import (
    ContextOverflow,
    IntegrityError,
    LocalspecError,
    ModelUnavailable,
    PairMismatch,
    UsageError,
)
from tests.waiting import PATIENCE_S

End = Callable[..., tuple[int, str, str]]


@pytest.fixture
def end(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> End:
    """Runs the program with one verb, `do`, and returns code, stdout and stderr."""

    def run(
        do: Callable[[], object], *options: str, leave: Callable[[int], object] = sys.exit
    ) -> tuple[int, str, str]:
        @click.command()
        @click.option("--debug", is_flag=True)
        def verb(debug: bool) -> object:
            return do()

        monkeypatch.setattr(root.LazyGroup, "get_command", lambda *_: verb)
        monkeypatch.setattr(sys, "argv", ["localspec", "do", *options])
        monkeypatch.setattr(os, "_exit", leave)  # it would take the tests along
        with pytest.raises(SystemExit) as ended:
            program.main()
        assert isinstance(ended.value.code, int)
        return (ended.value.code, *capfd.readouterr())

    return run


def raising(error: BaseException) -> Callable[[], None]:
    def do() -> None:
        raise error

    return do


def test_a_verb_chooses_its_code_and_warnings_of_libraries_are_not_printed(end: End) -> None:
    def warn() -> None:
        warnings.warn("deprecated", DeprecationWarning, stacklevel=1)

    assert end(lambda: print("done")) == (0, "done\n", "")
    assert end(lambda: INTERRUPTED) == (130, "", "")
    assert end(warn) == (0, "", "")
    code, out, err = end(raising(KeyboardInterrupt()))
    assert (code, out, err.strip()) == (130, "", "")


@pytest.mark.parametrize(
    ("error", "code", "told"),
    [
        (LocalspecError("one\n  two\tthree"), 1, "localspec: one two three\n"),
        (LocalspecError("\x1b[2J\x9b" + "x" * 9000), 1, "localspec: ?[2J?x"),
        (ContextOverflow("no"), 1, "no"),
        (UsageError("no"), 2, "no"),
        (ModelUnavailable("no"), 3, "no"),
        (IntegrityError("no"), 3, "no"),
        (PairMismatch("no"), 4, "no"),
        (PermissionError(errno.EACCES, "Permission denied", "/a/b"), 1, "/a/b: Permission denied"),
        (
            OSError(errno.EIO, "Input/output error"),
            1,
            "failed (Input/output error): check the disk",
        ),
        (MemoryError(), 1, "out of memory: try a smaller model"),
        (RuntimeError("can't start new thread"), 1, "out of memory: try"),
        (ImportError("x.so: failed to map segment from shared object"), 1, "out of memory: try"),
        (
            ZeroDivisionError("by 0"),
            1,
            "ZeroDivisionError: by 0; this is a bug in localspec, --debug",
        ),
    ],
)
def test_an_error_is_one_short_line_and_its_own_code(
    end: End, error: Exception, code: int, told: str
) -> None:
    ended, out, err = end(raising(error))
    assert (ended, out) == (code, "")
    assert told in err
    assert err.count("\n") == 1
    assert len(err) < 1100


def test_without_memory_nothing_is_tidied_up(end: End) -> None:
    left = []

    def leave(code: int) -> None:
        left.append(code)
        raise SystemExit(code)

    code, _, _ = end(raising(MemoryError()), leave=leave)
    assert (code, left) == (1, [1])
    assert end(raising(OSError("no")), leave=leave)[0] == 1
    assert left == [1], "everybody else ends in the usual way"


@pytest.mark.parametrize("error", [UsageError("no"), ZeroDivisionError("no"), OSError("no")])
def test_debug_shows_where(end: End, error: Exception) -> None:
    code, _, err = end(raising(error), "--debug")
    assert code == getattr(error, "exit_code", 1)
    assert err.startswith("Traceback (most recent call last):\n")
    assert "raise error\n" in err
    assert err.splitlines()[-1].startswith("localspec: ")


def test_a_character_that_a_stream_has_not_is_replaced(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "out").open("w", encoding="latin-1") as narrow:
        monkeypatch.setattr(sys, "stdout", narrow)
        program._use_unbreakable_streams()
        print("é漢")
    assert (tmp_path / "out").read_bytes() == b"\xe9?\n"


# Dataclasses are made by exec(), and Python would end itself by SIGINT after one was interrupted, though it was caught.
EXEC = """
from localspec.__main__ import main
from localspec.cli import main as root
root._call = lambda: exec('raise KeyboardInterrupt')
main()
"""
# There is no fcntl, and importing it would be a traceback.
WINDOWS = """
import sys
sys.platform = 'win32'
sys.modules['fcntl'] = None
sys.argv = ['localspec', 'list']
from localspec.__main__ import main
main()
"""


@pytest.mark.parametrize(
    ("planted", "code", "told"),
    [(EXEC, INTERRUPTED, ""), (WINDOWS, 1, "localspec: Windows is not supported: ")],
)
def test_what_ends_a_start_is_one_line_at_most(
    tmp_path: Path, planted: str, code: int, told: str
) -> None:
    (tmp_path / "planted.py").write_text(planted)
    done = subprocess.run(
        [sys.executable, "-m", "planted"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
        check=False,
        timeout=PATIENCE_S,
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr.startswith(told)
    assert done.stderr.count("\n") == bool(told)
