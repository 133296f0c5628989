"""Commands: run in a folder with limits, without secrets and without a terminal, confined where the system can."""

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from localspec.display import printable
from localspec.toolbox import confined
from localspec.toolbox.confined import STOPPED, TOO_MANY, TOO_MUCH_DISK, TOO_MUCH_MEMORY, Confines
from localspec.toolbox.hidden import hidden_paths

_LOOK_S = 0.02
_ENDING_S = 8.0
_PIECE = 1 << 16
# What programs need to work; keys and tokens are in none of them.
_VARIABLES = frozenset((
    "CARGO_HOME", "CONDA_PREFIX", "GOPATH", "GOROOT", "HOME", "JAVA_HOME", "LANG", "LANGUAGE", "LOGNAME",
    "LC_ALL", "LC_COLLATE", "LC_CTYPE", "LC_MESSAGES", "LC_MONETARY", "LC_NUMERIC", "LC_TIME",
    "NVM_DIR", "PATH", "PYENV_ROOT", "PYTHONPATH", "RUSTUP_HOME", "SHELL", "TZ", "USER", "VIRTUAL_ENV",
))  # fmt: skip
_TOO_MUCH = {
    TOO_MANY: "started too many processes",
    TOO_MUCH_MEMORY: "took too much shared memory",
    TOO_MUCH_DISK: "took too much of the disk",
}
_MAC_DEVICES = ["/dev/null", "/dev/zero", "/dev/random", "/dev/urandom", "/dev/fd", "/dev/dtracehelper"]  # fmt: skip
_SANDBOX_EXEC = "/usr/bin/sandbox-exec"
# ECMA-48: control sequences, operating-system commands and the like, and two-character escapes.
_SEQUENCE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|[\]P_^X][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])"
)


@dataclass(frozen=True, slots=True)
class CommandLimits:
    """What a command may use.

    Args:
        seconds: until it is stopped.
        output_bytes: what it may write before it is stopped.
        returned_bytes: how much of that is returned, half from its beginning and half from its end.
        memory_bytes: private memory of each process, and what they share in all.
        processes: at a time.
        file_bytes: the longest file that it may write.
        disk_bytes: what it may take of a disk; never more than half of what is free.
    """

    seconds: float = 120.0
    output_bytes: int = 16 << 20
    returned_bytes: int = 12 << 10
    memory_bytes: int = 4 << 30
    processes: int = 128
    file_bytes: int = 1 << 30
    disk_bytes: int = 16 << 30


@dataclass(frozen=True, slots=True)
class CommandEnded:
    """How a command ended.

    Args:
        output: what it wrote, standard output and standard error together; in the middle some may be left out.
        why: why it ended, one line; empty where it did by itself.
        code: its exit code where it ended by itself.
    """

    output: bytes
    why: str
    code: int


def confinement() -> tuple[str, bool]:
    """Return in a sentence what a command is kept from here, and whether that holds it to the folder."""
    if confined.landlock_version():
        network = "no network" if confined.blocks_network() else "the network is open"
        return f"confined: writes only in this folder, {network}", True
    if sys.platform == "darwin" and Path(_SANDBOX_EXEC).exists():
        return "confined: writes only in this folder, no network", True
    return "NOT confined: this system offers no sandbox, so it can do all that you can", False


def environment(temporary: str) -> dict[str, str]:
    """Return the variables of a command; `temporary` is where it may write beside its folder."""
    inherited = {name: value for name, value in os.environ.items() if name in _VARIABLES}
    return {
        **inherited,
        "TERM": "dumb",
        "TMPDIR": temporary,
        "XDG_CACHE_HOME": f"{temporary}/cache",
        "GIT_TERMINAL_PROMPT": "0",
    }


def run_command(
    command: str, folder: Path, limits: CommandLimits, stop: threading.Event
) -> CommandEnded:
    """Run a command by the shell, up to its end and that of all that it started.

    Args:
        command: as a shell reads it.
        folder: where it runs, the only place where it may write.
        limits: what it may use.
        stop: once set, it ends soon.

    Raises:
        OSError: it cannot be started.
    """
    # Not `TemporaryDirectory`: where something cannot be removed, that follows links, which a command may have left.
    temporary = tempfile.mkdtemp(prefix="localspec-")
    try:
        reader, writer = os.pipe()
        confines = Confines(
            writes=[str(folder.resolve()), temporary],
            hidden=hidden_paths(),
            confined=bool(confined.landlock_version()),
            processes=limits.processes,
            memory_bytes=limits.memory_bytes,
            file_bytes=limits.file_bytes,
            disk_bytes=limits.disk_bytes,
            report=writer,
        )
        words = [*_sandboxed(folder, temporary), "/bin/sh", "-c", command]
        with os.fdopen(reader, "rb") as report:
            try:
                process = subprocess.Popen(  # noqa: S603 - the caller has the permission
                    [sys.executable, "-I", "-S", confined.__file__, json.dumps(asdict(confines)), *words],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    cwd=folder,
                    env=environment(temporary),
                    pass_fds=(writer,),
                    start_new_session=True,
                )  # fmt: skip
            finally:
                os.close(writer)
            with process:
                output, why = _followed(process, limits, stop)
                ending, code = json.loads(report.read() or json.dumps([STOPPED, 0]))
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    too_much = _TOO_MUCH.get(str(ending))
    if too_much is not None:
        why = f"it was stopped: it {too_much}"
    elif ending == STOPPED:
        why = why or "it was stopped"
    return CommandEnded(_shortened(output, limits.returned_bytes), why, code)


def _followed(
    process: "subprocess.Popen[bytes]", limits: CommandLimits, stop: threading.Event
) -> tuple[bytes, str]:
    """Return the output of a process, and why it was stopped; empty where it ended by itself."""
    output = bytearray()

    def read() -> None:
        with suppress(OSError, ValueError):  # closed meanwhile
            while len(output) <= limits.output_bytes and (
                piece := os.read(process.stdout.fileno(), _PIECE)  # type: ignore[union-attr]
            ):
                output.extend(piece)

    reading = threading.Thread(target=read, daemon=True)
    reading.start()
    end_s, why = time.monotonic() + limits.seconds, ""
    while not why:
        if stop.wait(_LOOK_S):
            why = "it was stopped by the user"
        elif time.monotonic() > end_s:
            why = f"it was stopped after {limits.seconds:g} s"
        elif len(output) > limits.output_bytes:
            why = f"it was stopped: it wrote more than {limits.output_bytes >> 20} MB"
        elif process.poll() is not None:
            break
    try:
        process.stdin.close()  # type: ignore[union-attr]
        process.wait(_ENDING_S)
    except subprocess.TimeoutExpired:
        process.kill()
    # What is left of its children, if the one that ends them was killed, must not hold this up.
    reading.join(1.0)
    return bytes(output), why


def _shortened(output: bytes, most: int) -> bytes:
    left_out, half = len(output) - most, most // 2
    if left_out <= 0:
        return output
    return output[:half] + f"\n[… {left_out} bytes left out …]\n".encode() + output[-half:]


def command_text(ended: CommandEnded) -> str:
    """Return what a model reads of a command: its output without what a terminal obeys, and how it ended."""
    text = _SEQUENCE.sub("", ended.output.decode(errors="replace")).replace("\r\n", "\n")
    # What a carriage return lets stand at last is what a person saw.
    lines = (each.rstrip("\r").rpartition("\r")[2] for each in text.split("\n"))
    text = printable("\n".join(lines), "\n\t").strip("\n")
    how = ended.why or f"exit code {ended.code}"
    return f"{text}\n[{how}]" if text else f"[{how}, no output]"


def _sandboxed(folder: Path, temporary: str) -> list[str]:
    """Return what stands before a command on macOS to confine it; nothing elsewhere."""
    if sys.platform != "darwin" or not Path(_SANDBOX_EXEC).exists():
        return []
    writes = [str(folder.resolve()), str(Path(temporary).resolve())]
    return [_SANDBOX_EXEC, "-p", profile(writes, hidden_paths())]


def profile(writes: list[str], hidden: list[str]) -> str:
    """Return a profile for `sandbox-exec`."""

    def paths(names: list[str]) -> str:
        return " ".join(f"(subpath {json.dumps(each, ensure_ascii=False)})" for each in names)

    lines = ["(version 1)", "(allow default)", "(deny network*)", "(deny file-write*)"]
    lines.append(f"(allow file-write* {paths(writes)})")
    lines.append(f"(deny file-read-data file-write* {paths(['/dev'])})")  # of rules the last counts
    lines.append(f"(allow file-read* file-write* {paths(_MAC_DEVICES)})")
    if hidden:
        lines.append(f"(deny file-read* {paths(hidden)})")
    return "\n".join(lines)
