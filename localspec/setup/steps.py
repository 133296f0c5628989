"""Steps: a new build is made in a folder beside the one in use, is tried there, and only then is used.

An interruption leaves a folder that is not used, which the next run removes. The build in use changes in one moment, when a link is replaced.
"""

import filecmp
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from localspec.errors import LocalspecError
from localspec.llama.selection import BUILD_VARIABLE, OWN, builds_dir, choose, linked
from localspec.setup.plan import BACKENDS, CPU, RPC, RPC_OPTION, SetupPlan
from localspec.setup.trial import ANSWER, BuildTrial
from localspec.storage.files import sync_directory
from localspec.storage.locks import try_lock
from localspec.storage.paths import shown

_NEW = ".new-"
_PACKAGE = "llama-cpp-python"
_FILE = Path(__file__).with_name("libraries_only.cmake")  # says why
_LIBRARIES_ONLY = f"-DCMAKE_PROJECT_INCLUDE={shlex.quote(str(_FILE))}"
_DONE = re.compile(r"\[(\d+)/(\d+)\]")  # as ninja counts
_LEAST_STEPS = 20  # checks of a compiler are counted in the same way, up to a few
_LONGEST_S, _TRIAL_S = 6 * 3600.0, 600.0

OnProgress = Callable[[str, float], None]
"""Receives the title of a step, and the share of it that is done, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Step:
    """One program to run.

    Args:
        title: what it does, in a word.
        command: its words.
        variables: of the environment, beside those that are set.
        most_s: seconds after which it hangs, and is ended.
    """

    title: str
    command: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)
    most_s: float = _LONGEST_S

    def __str__(self) -> str:
        """Return the step as a shell takes it."""
        variables = [f"{name}={shlex.quote(value)}" for name, value in self.variables.items()]
        return " ".join([*variables, shlex.join(self.command)])


def steps(plan: SetupPlan, version: str, work: Path) -> list[Step]:
    """Return the programs that make a build and try it, in their order.

    Args:
        plan: what to build.
        version: of the binding, which localspec needs exactly.
        work: folder for all that comes of it.
    """
    trial = (sys.executable, "-P", "-m", "localspec.setup.trial", str(work / "trial.json"))
    build = OWN if plan.to_own else str(work / "site")
    trying = Step("trying", trial, {**plan.variables, BUILD_VARIABLE: build}, _TRIAL_S)
    if plan.to_own:
        return [trying]
    common = ("--no-deps", "--no-cache-dir", "--no-input", "--disable-pip-version-check")
    pip = (sys.executable, "-P", "-m", "pip", "install", "--verbose", *common, "--target", build)
    # All that pip writes on the way is in the folder, and goes with it.
    variables = {"TMPDIR": str(work), "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}
    wanted = f"{_PACKAGE}=={version}"
    if plan.wheels is not None:
        index = ("--only-binary=:all:", "--index-url", plan.wheels)
        return [Step("fetching", (*pip, *index, wanted), variables), trying]
    # Of two values CMake takes the last: the user's, but not against what was requested.
    words = (_LIBRARIES_ONLY, *plan.defaults, os.environ.get("CMAKE_ARGS", ""), *plan.options)
    variables |= {"CMAKE_ARGS": " ".join(filter(None, words)), **plan.variables}
    return [Step("compiling", (*pip, "--no-binary", _PACKAGE, wanted), variables), trying]


def carry_out(plan: SetupPlan, version: str, progress: OnProgress) -> BuildTrial:
    """Make the build that is planned, or take the environment's own, try it, and use it from then on.

    Raises:
        LocalspecError: it cannot be made, or does not work; the build in use stays.
    """
    with _workplace() as work:
        log, site = work.parent / "setup.log", work / "site"
        log.write_bytes(b"")
        for step in steps(plan, version, work):
            _run(step, log, progress)
            _slim(site)
        trial = msgspec.json.decode((work / "trial.json").read_bytes(), type=BuildTrial)
        problem = find_problem(trial, plan)
        if problem is not None:
            raise LocalspecError(f"the new build {problem}; {_stays(log)}")
        progress("switching", 0.0)
        if plan.to_own:
            choose(None)
        else:
            name = f"{plan.backend}-{version}-{time.strftime('%Y%m%d-%H%M%S')}"
            folder = site.rename(work.with_name(name))
            sync_directory(folder.parent)
            choose(folder)
    return trial


def find_problem(trial: BuildTrial, plan: SetupPlan) -> str | None:
    """Return why a build that was tried cannot be used; None if it can."""
    has = {each.lower() for each in trial.backends}
    kind = BACKENDS[plan.backend or CPU]
    if not (plan.to_own or kind.called & has):
        return f"has no {kind.title}, only {', '.join(trial.backends)}"
    if RPC_OPTION in plan.options and RPC not in has:
        return "has no RPC"
    if plan.gpus and not trial.devices:
        return f"finds no device where the system has {', '.join(plan.gpus)}"
    if trial.answer is not None and ANSWER not in trial.answer:
        return f"gives a wrong answer ({trial.answer[:60]!r})"
    return None


def _run(step: Step, log: Path, progress: OnProgress) -> None:
    """Run a program to its end.

    Raises:
        LocalspecError: it fails, or takes longer than it may.
    """
    progress(step.title, 0.0)
    last = deque[str](maxlen=50)
    with subprocess.Popen(  # noqa: S603 - our own interpreter
        step.command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **step.variables},
        text=True,
        errors="replace",
        start_new_session=True,  # on Ctrl-C, a compiler's children are ended with it
    ) as process:
        watchdog = threading.Timer(step.most_s, _kill, [process])
        watchdog.start()
        try:
            with log.open("a", encoding="utf-8", buffering=1) as written:
                for line in process.stdout or ():
                    written.write(line)
                    last.append(line.strip())
                    counted = _DONE.search(line)
                    if counted is not None and int(counted[2]) >= _LEAST_STEPS:
                        progress(step.title, int(counted[1]) / int(counted[2]))
            code = process.wait()
        finally:
            watchdog.cancel()
            if process.poll() is None:
                _kill(process)
    if code != 0:
        how = f"ended by {signal.Signals(-code).name}" if code < 0 else f"failed (exit code {code})"
        lines = list(filter(None, last))
        reason = next((line for line in lines if "error" in line.lower()), "".join(lines[-1:]))
        text = f"{step.title} the new build {how}: {reason[:200]}".removesuffix(": ")
        raise LocalspecError(f"{text}; {_stays(log)}")


def _kill(process: subprocess.Popen[str]) -> None:
    """Kill a program with all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _stays(log: Path) -> str:
    return f"the build in use stays; {shown(log)} has the rest"


@contextmanager
def _workplace() -> Iterator[Path]:
    """Yield a new folder beside the builds, for one process at a time; at the end only the build in use is left.

    Raises:
        LocalspecError: builds cannot be kept in this environment, or are being made.
    """
    builds = builds_dir()
    try:
        builds.mkdir(parents=True, exist_ok=True)
        lock = try_lock(builds)
    except OSError as error:
        raise LocalspecError(
            f"{shown(builds)} cannot be used ({error.strerror}): install localspec into an environment "
            "of your own, with pipx, uv or venv"
        ) from error
    if lock is None:
        raise LocalspecError("localspec setup is running already: wait for it to end")
    try:
        _remove_unused(builds)  # of a run that was killed
        yield Path(tempfile.mkdtemp(dir=builds, prefix=_NEW))
    finally:
        _remove_unused(builds)  # a process that runs with one has it in memory
        os.close(lock)


def _remove_unused(builds: Path) -> None:
    for each in builds.iterdir():
        if each.is_dir() and not each.is_symlink() and each.resolve() != linked():
            shutil.rmtree(each, ignore_errors=True)


def _slim(site: Path) -> None:
    """Remove what localspec does not load; of copies of a library under several names, keep one."""
    for name in ("bin", "include", "lib", "share"):
        shutil.rmtree(site / name, ignore_errors=True)
    for file in sorted((site / "llama_cpp" / "lib").glob("lib*.so.*")):
        first = file.with_name(f"{file.name.partition('.so.')[0]}.so")
        if first.is_file() and filecmp.cmp(first, file, shallow=False):
            file.unlink()
            file.hardlink_to(first)
