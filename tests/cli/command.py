"""The command line as its users have it: a process with streams, an exit code and signals."""

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from tests import warm

# One thread, no GPU: the same on every machine, and at ease beside other programs.
PLAIN = ("--threads", "1", "--gpu-layers", "0")
_READ_BY_PYTHON = ("PYTHON", "LC_", "LANG")
COMMAND = (sys.executable, "-m", "localspec")


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    out: str
    err: str


def environment(changes: Mapping[str, str] | None = None) -> dict[str, str]:
    inherited = {key: value for key, value in os.environ.items() if key != "PYTHONWARNINGS"}
    return {**inherited, **(changes or {})}


def localspec(
    *arguments: str,
    stdin: bytes = b"",
    env: Mapping[str, str] | None = None,
    shell: Sequence[str] = (),
    cwd: Path | None = None,
    timeout_s: float = 120,
    cold: bool = False,
) -> Done:
    """Run the command to its end, in a warm process where it makes no difference.

    `shell` runs the command after it, such as `sh -c 'exec "$@" >&-' sh`; `cold` starts Python anew, as users do.
    """
    if cold or shell or any(key.startswith(_READ_BY_PYTHON) for key in env or ()):
        ended = subprocess.run(
            [*shell, *COMMAND, *arguments],
            input=stdin,
            capture_output=True,
            check=False,
            env=environment(env),
            cwd=cwd,
            timeout=timeout_s,
        )
    else:
        ended = warm.run("localspec", arguments, environment(env), stdin, cwd, timeout_s)
    return Done(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


def succeed(*arguments: str, **how: Any) -> Done:
    """Run the command, and see it succeed."""
    done = localspec(*arguments, **how)
    assert done.code == 0, done.err
    return done


def answer(*arguments: str, stdin: bytes = b"") -> Done:
    """Run `localspec run` on the CPU, and see it succeed."""
    return succeed("run", *PLAIN, *arguments, stdin=stdin)


class Started(subprocess.Popen[bytes]):
    """The command, which runs; streams that were not given are pipes."""

    stdin: IO[bytes]
    stdout: IO[bytes]
    stderr: IO[bytes]

    def __init__(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        stdin: int = subprocess.PIPE,
        stderr: int = subprocess.PIPE,
        shell: Sequence[str] = (),
    ) -> None:
        streams = {"stdin": stdin, "stdout": subprocess.PIPE, "stderr": stderr}
        super().__init__([*shell, *COMMAND, *arguments], **streams, env=environment(env))  # type: ignore[call-overload]


@contextmanager
def started(
    *arguments: str, env: Mapping[str, str] | None = None, stderr: int = subprocess.PIPE
) -> Iterator[Started]:
    """Start the command and leave it running; it is killed if it outlives the test."""
    process = Started(*arguments, env=env, stdin=subprocess.DEVNULL, stderr=stderr)
    try:
        yield process
    finally:
        process.kill()
        process.wait()
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                stream.close()


def assert_one_complaint(done: Done, code: int, *words: str) -> None:
    """See that it ended with this code, gave no answer, and named the reason in one line with these words."""
    assert done.code == code, done.err
    assert done.out == ""
    assert done.err.startswith("localspec: ")
    assert done.err.count("\n") == 1
    assert done.err.endswith("\n")
    assert "bug in localspec" not in done.err
    assert [each for each in words if each not in done.err] == [], done.err
