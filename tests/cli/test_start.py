"""How the program starts and ends: help texts by snapshots, whatever a verb raises, and Ctrl-C wherever it strikes."""

import errno
import os
import pty
import re
import signal
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from localspec import __main__ as program
from localspec.cli import INTERRUPTED
from localspec.cli import main as root
from localspec.cli.options import SECTIONS, SectionedCommand
from localspec.config.keys import KEYS
from localspec.errors import (
    ContextOverflow,
    LocalspecError,
    ModelUnavailable,
    PairMismatch,
    UsageError,
)
from tests.cli.command import (
    PLAIN,
    Started,
    answer,
    environment,
    localspec,
    started,
    succeed,
)
from tests.models.loopback_hub import loopback_hub
from tests.waiting import PATIENCE_S, until

ROOT = Path(__file__).parents[2]
SNAPSHOTS = Path(__file__).parent / "snapshots"
UPDATE = "LOCALSPEC_UPDATE_SNAPSHOTS"
INSTALLED = "import sys; sys.argv = ['localspec', *sys.argv[1:]]; from localspec.__main__ import main; main()"
RARE = [name for _, names in SECTIONS.values() for name in names]
HIDDEN = {"--tensor-split", "--no-kv-offload", "--workers", "--draft-device"}


def commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield all commands by their words."""
    with click.Context(root.localspec) as context:
        yield (), root.localspec
        for verb in root.localspec.list_commands(context):
            command = root.localspec.get_command(context, verb)
            assert command is not None
            yield (verb,), command
            if isinstance(command, click.Group):
                yield from (((verb, name), each) for name, each in command.commands.items())


def page(*words: str) -> str:
    done = CliRunner().invoke(root.localspec, words, prog_name="localspec", terminal_width=80)
    return done.output


def flags_of(text: str) -> set[str]:
    return set(re.findall(r"--[a-z-]+", text))


@pytest.mark.parametrize("verb", [None, *root.MODULES, *root.added()[0]])
def test_the_help_of_a_verb_is_as_in_its_snapshot(verb: str | None) -> None:
    """Update with LOCALSPEC_UPDATE_SNAPSHOTS=1."""
    pages = []
    for words, command in commands():
        if words[:1] == ((verb,) if verb else ()):
            pages.append(page(*words, "--help"))
            if isinstance(command, SectionedCommand):
                pages.append(page(*words, "--help-all"))
    path, text = SNAPSHOTS / f"{verb or 'localspec'}.txt", "\n\n".join(pages)
    if os.environ.get(UPDATE):
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def test_help_leaves_out_rare_flags_which_help_all_and_the_settings_reference_have() -> None:
    rows = dict[str, str]()
    with click.Context(root.localspec) as context:
        for words, command in commands():
            if not isinstance(command, SectionedCommand):
                continue
            usual, every = page(*words, "--help"), page(*words, "--help-all")
            flags = {
                flag
                for each in command.params
                for flag in each.opts
                if not getattr(each, "hidden", False)  # an old name of another
            }
            assert {flag for flag in flags if flag.startswith("--")} <= flags_of(every)
            assert not HIDDEN & flags_of(usual)
            headings = re.findall(r"^(\S.*):$", usual, flags=re.MULTILINE)
            assert headings == ["Options", *(each for each in SECTIONS if each in headings)]
            for each in command.params if words[0] in {"run", "chat", "batch"} else ():
                record = each.get_help_record(context)
                if each.name in RARE and record is not None:
                    flag, text = (part.replace("|", "\\|") for part in record)
                    rows.setdefault(each.name, f"| `{flag}` | {text} |")
    reference = (ROOT / "docs/settings.md").read_text(encoding="utf-8")
    assert "\n".join(rows[name] for name in RARE) in reference


@pytest.mark.parametrize("columns", ["", "40", "64", "300", "many"])
def test_help_is_as_wide_as_click_makes_it(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    with click.Context(root.localspec, max_content_width=root.MOST_COLUMNS) as context:
        expected = click.Group.get_help(root.localspec, context)
        assert root.localspec.get_help(context) == expected


def test_help_names_every_drafter_and_cuts_no_summary() -> None:
    draft = KEYS["draft"]
    assert all(re.search(rf"\b{each}\b", draft.help) for each in draft.choices)
    for words, command in commands():
        if isinstance(command, click.Group) and words:
            assert "..." not in page(*words, "--help").partition("Commands:")[2]


def test_a_name_of_another_program_and_no_command_are_answered_with_what_is_meant() -> None:
    assert "List the models on this" in page("help", "ls")
    for verb, meant in [
        ("pul", "did you mean pull?"),
        ("rum", "did you mean run or rm?"),
        ("rnu", "did you mean run"),
        ("models", "did you mean list or search?"),
        ("Why is the sky blue?", "localspec run"),
        ("xyzzy", "there is no command 'xyzzy'\n"),
    ]:
        result = CliRunner().invoke(root.localspec, [verb])
        assert result.exit_code == 2
        assert meant in result.output


def test_verbs_options_and_names_are_completed() -> None:
    for words, offered in [
        ("localspec ch", {"chat", "check"}),
        ("localspec chat --draft lo", {"lookup"}),
        ("localspec run --pair qwen3", {"qwen3-4b", "qwen3-8b"}),
        ("localspec run qwen3", {"qwen3-0.6b"}),
        ("localspec pull smollm2-13", {"smollm2-135m"}),
        ("localspec config set temp", {"temperature"}),
    ]:
        asked = {"COMP_WORDS": words, "COMP_CWORD": str(len(words.split()) - 1)}
        done = localspec(env={"_PYTHON _M LOCALSPEC_COMPLETE": "bash_complete", **asked})
        assert done.err == ""
        assert offered <= {line.partition(",")[2] for line in done.out.splitlines()}
    asked = {"COMP_WORDS": "localspec ch", "COMP_CWORD": "1"}
    env = environment({"_LOCALSPEC_COMPLETE": "bash_complete", **asked})
    program = [sys.executable, "-c", INSTALLED]
    ended = subprocess.run(program, capture_output=True, text=True, check=True, env=env)
    assert (ended.stdout.split(), ended.stderr) == (["plain,chat", "plain,check"], "")
    for shell in ["bash", "zsh", "fish"]:
        assert "_LOCALSPEC_COMPLETE" in succeed("completion", shell).out


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


def test_an_error_is_one_short_line_and_its_own_code_and_debug_shows_where(end: End) -> None:
    for error, code, told in [
        (LocalspecError("one\n  two\tthree"), 1, "localspec: one two three\n"),
        (LocalspecError("\x1b[2J\x9b" + "x" * 9000), 1, "localspec: ?[2J?x"),
        (UsageError("no"), 2, "no"),
        (ModelUnavailable("no"), 3, "no"),
        (PairMismatch("no"), 4, "no"),
        (PermissionError(errno.EACCES, "Permission denied", "/a/b"), 1, "/a/b: Permission denied"),
        (OSError(errno.EIO, "Input/output error"), 1, "failed (Input/output error): check the disk"),
        (MemoryError(), 1, "out of memory: try a smaller model"),
        (RuntimeError("can't start new thread"), 1, "too few processes are allowed (ulimit -u, pids.max)"),
        (BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"), 1, "too few processes are allowed"),
        # A larger context is advised where the model has one that holds the prompt.
        *((ContextOverflow("shorten it", (9, 8, trained)), 1, "shorten it, or raise --ctx\n") for trained in (0, 16)),
        *((ContextOverflow("shorten it", sizes), 1, "shorten it\n") for sizes in ((9, 8, 9), (9, 8, 8), None)),
        (ImportError("x.so: failed to map segment from shared object"), 1, "out of memory: try"),
        (ZeroDivisionError("by 0"), 1, "ZeroDivisionError: by 0; this is a bug in localspec, --debug"),
    ]:  # fmt: skip
        ended, out, err = end(raising(error))
        assert (ended, out, err.count("\n")) == (code, "", 1)
        assert told in err
        assert len(err) < 1100
    for error in [UsageError("no"), ZeroDivisionError("no")]:
        code, _, err = end(raising(error), "--debug")
        assert code == getattr(error, "exit_code", 1)
        assert err.startswith("Traceback (most recent call last):\n")
        assert err.splitlines()[-1].startswith("localspec: ")


def test_without_memory_nothing_is_tidied_up(end: End) -> None:
    left = []

    def leave(code: int) -> None:
        left.append(code)
        raise SystemExit(code)

    for error in (MemoryError(), OSError("no")):
        assert end(raising(error), leave=leave)[0] == 1
    assert left == [1], "everybody else ends in the usual way"


def test_a_character_that_is_replaced(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with (tmp_path / "out").open("w", encoding="latin-1") as narrow:
        monkeypatch.setattr(sys, "stdout", narrow)
        program._use_unbreakable_streams()
        print("é漢")
    assert (tmp_path / "out").read_bytes() == b"\xe9?\n"


# Dataclasses are made by exec(), and Python would end itself by SIGINT after one was interrupted, though it was caught.
EXEC = """
from localspec.__main__ import main
from localspec.cli import main as root
root._call = lambda _: exec('raise KeyboardInterrupt')
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


def test_what_ends_a_start_is_one_line_at_most(tmp_path: Path) -> None:
    for planted, code, told in [
        (EXEC, INTERRUPTED, ""),
        (WINDOWS, 1, "localspec: Windows is not supported: "),
    ]:
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


# Within a second it ends on a machine that has time for it.
SOON_S = 60.0


def interrupt(process: Started, number: int = signal.SIGINT, code: int = 130) -> tuple[str, str]:
    """Send a signal, see the program end soon with its code, and return what it wrote meanwhile."""
    process.send_signal(number)
    out, err = process.communicate(timeout=SOON_S)
    assert process.returncode == code, err
    text = (err or b"").decode()
    assert "Traceback" not in text
    assert "Exception" not in text
    return out.decode(), text


@pytest.mark.usefixtures("smollm2_path")
def test_ctrl_c_in_decode_keeps_the_text_so_far() -> None:
    with started("run", *PLAIN, "--raw", "Once upon a time", "--temperature", "0") as process:
        before = process.stdout.read(8)
        rest, figures = interrupt(process)
    assert len(before) == 8
    assert rest.endswith("\n")
    assert " · interrupted · seed " in figures


@pytest.mark.slow
@pytest.mark.usefixtures("smollm2_path")
def test_ctrl_c_in_prefill_ends_it_before_a_token_is_out() -> None:
    answer("--ctx", "8192", "--raw", "-n", "1", "Hi")  # what a first start measures is known then
    prompt = "All work and no play makes Jack a dull boy. " * 700
    figures = ""
    for patience_s in (1, 2, 4, 8, 16, 32):  # until loading is over: then there are figures
        with started("run", *PLAIN, "--ctx", "8192", "--raw", prompt) as process:
            _wait_for_python(process.pid)
            time.sleep(patience_s)
            out, figures = interrupt(process)
        assert out == ""
        if " tokens · " in figures:
            break
    assert " · 0 tokens · " in figures
    assert " · interrupted · seed " in figures


@pytest.mark.usefixtures("smollm2_path")
def test_ctrl_c_while_loading_wipes_the_progress_line() -> None:
    prompt = "All work and no play makes Jack a dull boy. " * 150  # no token is out so soon
    for _ in range(5):
        screen, terminal = pty.openpty()
        try:
            with started("run", *PLAIN, "--raw", prompt, stderr=terminal) as process:
                drawn = b""
                while b"loading smollm2-135m" not in drawn:
                    drawn += os.read(screen, 1000)
                out, _ = interrupt(process)
            os.set_blocking(screen, False)
            drawn += os.read(screen, 10_000)
        finally:
            os.close(screen)
            os.close(terminal)
        assert out == ""
        assert b"Traceback" not in drawn
        if b" tokens " not in drawn.rpartition(b"loading")[2]:
            break  # it struck before loading was over, else there are figures
    assert drawn.endswith(b"\r\x1b[K")


@pytest.mark.first(1)
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_download_that_is_stopped_leaves_nothing_in_the_store(
    bare_machine: dict[str, str], stored: Path, number: signal.Signals, code: int
) -> None:
    with loopback_hub() as server:
        server.silent.set()
        env = {**bare_machine, "HF_ENDPOINT": server.url}
        if number is signal.SIGTERM:
            index = {"PIP_INDEX_URL": f"{server.url}/simple", "PIP_NO_INDEX": "0"}
            env = {**bare_machine, **index}
        with started("pull", "smollm2-135m", env=env) as process:
            assert until(lambda: server.requests)
            out, _ = interrupt(process, number, code)
    assert out == ""
    assert {path.name for path in stored.rglob("*") if not path.is_dir()} <= {"registry.json"}
    assert list((stored / "partial").glob("*")) == []


SLOW_IMPORT = """
import os, runpy, signal, sys, time

class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "click":
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)

sys.meta_path.insert(0, Interrupted())
sys.argv = ["localspec", "--version"]
runpy.run_module("localspec", run_name="__main__")
"""


def test_ctrl_c_while_the_command_line_is_imported_is_as_silent() -> None:
    done = subprocess.run([sys.executable, "-c", SLOW_IMPORT], capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, b"", b"")


def _wait_for_python(pid: int) -> None:
    """Wait until a process handles Ctrl-C itself; on a busy machine that may take a while."""
    status = Path(f"/proc/{pid}/status")

    def catches() -> bool:
        caught = next(line for line in status.read_text().splitlines() if "SigCgt" in line)
        return bool(int(caught.split()[1], 16) >> (signal.SIGINT - 1) & 1)

    assert not status.exists() or until(catches)
