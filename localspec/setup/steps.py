"""Steps: a new build is made in a folder beside the one in use, is tried there, and only then is used.

Whatever ends this on the way leaves a folder that nobody uses, which the next run removes. What is in use changes in one moment, when a
link is replaced.
"""

import filecmp
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.llama.chosen import BUILD_VARIABLE, OWN, builds_dir, choose, chosen
from localspec.setup.backends import RPC, RPC_OPTION
from localspec.setup.plan import SetupPlan
from localspec.setup.said import last_said
from localspec.storage.files import sync_directory
from localspec.storage.locks import try_lock
from localspec.storage.paths import shown

_NEW = ".new-"
_PACKAGE = "llama-cpp-python"
_PIP = (sys.executable, "-P", "-m", "pip")
_DONE = re.compile(r"\[(\d+)/(\d+)\]")  # as ninja counts
_LEAST_STEPS = 20
"""Checks of a compiler are counted likewise, up to a few."""
_LONGEST_S, _TRIAL_S = 6 * 3600.0, 600.0
"""Seconds after which something hangs: a step, and a trial."""
_ANSWER, _TRIAL_BEGINS = "9, 10, 11", '{"backends": '

OnProgress = Callable[[str, float], None]
"""Is told what is being done, and the share of it, 0 to 1."""


@dataclass(frozen=True, slots=True)
class Step:
    """One program to run.

    Args:
        title: what it does, in a word or two.
        command: its words.
        variables: of the environment, beside those that are set.
    """

    title: str
    command: tuple[str, ...]
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BuildTrial:
    """What a build said of itself.

    Args:
        backends: that it has.
        devices: that it can compute on, CPUs left out.
        answer: to the question; None where no model was there to answer.
        seconds: that the answer took, without loading.
    """

    backends: tuple[str, ...]
    devices: tuple[str, ...]
    answer: str | None
    seconds: float


def steps(plan: SetupPlan, version: str, work: Path) -> list[Step]:
    """Return the programs that make a build and try it, in their order.

    Args:
        plan: what to build.
        version: of the binding, which localspec needs exactly.
        work: folder for all that comes of it.
    """
    wanted, wheel = f"{_PACKAGE}=={version}", str(work / "wheel")
    # All that pip writes on the way is in the folder, and goes with it.
    usual = {"TMPDIR": str(work), "PIP_USER": "0", "PIP_REQUIRE_VIRTUALENV": "0"}
    common = ("--no-deps", "--no-cache-dir", "--no-input", "--disable-pip-version-check")
    if plan.wheels is None:
        compiled = ("wheel", "--verbose", *common, "--no-binary", _PACKAGE, "--wheel-dir", wheel)
        # Of two values CMake takes the last: the user's, but not against what is asked for.
        words = (*plan.defaults, os.environ.get("CMAKE_ARGS", ""), *plan.options)
        options = " ".join(each for each in words if each)
        variables = {"CMAKE_ARGS": options, **plan.variables}
        made = Step("compiling", (*_PIP, *compiled, wanted), variables | usual)
    else:
        fetched = ("download", *common, "--only-binary=:all:", "--dest", wheel)
        index = ("--index-url", plan.wheels)
        made = Step("fetching", (*_PIP, *fetched, *index, wanted), usual)
    beside = ("install", *common, "--no-index", "--find-links", wheel, "--target")
    return [
        made,
        Step("unpacking", (*_PIP, *beside, str(work / "site"), wanted), usual),
        trial_step(work / "site", plan.variables),
    ]


def trial_step(folder: Path | None, variables: Mapping[str, str]) -> Step:
    """Return what tries the build in a folder; None is the environment's own."""
    forced = OWN if folder is None else str(folder)
    command = (sys.executable, "-P", "-m", "localspec.setup.trial")
    return Step("trying", command, {**variables, BUILD_VARIABLE: forced})


def install(plan: SetupPlan, version: str, progress: OnProgress) -> BuildTrial:
    """Make a build, try it, and use it from then on.

    Raises:
        LocalspecError: it cannot be made, or does not work; what was in use is used as before.
    """
    with _workplace() as work:
        log = work.parent / "setup.log"
        log.write_bytes(b"")
        *making, trying = steps(plan, version, work)
        for step in making:
            _run(step, log, progress)
        _slim(work / "site")
        trial = tried(trying, plan, log, progress)
        assert plan.backend is not None, "it was built for one"  # noqa: S101
        folder = work.with_name(f"{plan.backend.name}-{version}-{time.strftime('%Y%m%d-%H%M%S')}")
        progress("switching", 0.0)
        (work / "site").rename(folder)
        sync_directory(folder.parent)
        choose(folder)
        _prune(folder)
    return trial


def back_to_own(plan: SetupPlan, progress: OnProgress) -> BuildTrial:
    """Use the environment's own build again, if it works.

    Raises:
        LocalspecError: it does not; what was in use is used as before.
    """
    with _workplace() as work:
        log = work.parent / "setup.log"
        log.write_bytes(b"")
        trial = tried(trial_step(None, {}), plan, log, progress)
        choose(None)
        _prune(None)
    return trial


def tried(step: Step, plan: SetupPlan, log: Path, progress: OnProgress) -> BuildTrial:
    """Let a build load, list its devices and answer a question, in a process of its own.

    Raises:
        LocalspecError: it does not, or has not what it was built for.
    """
    told = last_said(_run(step, log, progress, _TRIAL_S), _TRIAL_BEGINS)
    if told is None:
        raise _useless("says nothing of itself", log)
    trial = BuildTrial(
        tuple(told["backends"]), tuple(told["devices"]), told["answer"], told["seconds"]
    )
    backend = plan.backend
    has = {each.lower() for each in trial.backends}
    if backend is not None and not plan.to_own and not backend.called & has:
        raise _useless(f"has no {backend.title}, only {', '.join(trial.backends)}", log)
    if RPC_OPTION in plan.options and RPC not in has:
        raise _useless("has no RPC", log)
    if plan.gpus and not trial.devices:
        raise _useless(f"finds no device where the system has {', '.join(plan.gpus)}", log)
    if trial.answer is not None and _ANSWER not in trial.answer:
        raise _useless(f"answers nonsense ({trial.answer[:60]!r})", log)
    return trial


def _run(step: Step, log: Path, progress: OnProgress, most_s: float = _LONGEST_S) -> str:
    """Run a program to its end, and return what it printed.

    Raises:
        LocalspecError: it fails, or takes longer than it may.
    """
    progress(step.title, 0.0)
    said = ""
    with subprocess.Popen(  # noqa: S603 - our own interpreter
        step.command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **step.variables},
        text=True,
        errors="replace",
        # Ctrl-C is for us to hand on: a compiler's children go with it.
        start_new_session=True,
    ) as process:
        watchdog = threading.Timer(most_s, _end, [process])
        watchdog.start()
        try:
            with log.open("a", encoding="utf-8", buffering=1) as written:
                for line in process.stdout or ():
                    written.write(line)
                    said = f"{said[-4096:]}{line}"
                    counted = _DONE.search(line)
                    if counted is not None and int(counted[2]) >= _LEAST_STEPS:
                        progress(step.title, int(counted[1]) / int(counted[2]))
            code = process.wait()
        finally:
            watchdog.cancel()
            if process.poll() is None:
                _end(process)
    if code != 0:
        raise _failed(step, code, said, log)
    return said


def _end(process: subprocess.Popen[str]) -> None:
    """Kill a program with all that it started."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)


def _failed(step: Step, code: int, said: str, log: Path) -> LocalspecError:
    how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"failed (exit code {code})"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line.lower()] or lines[-1:]
    last = f": {errors[0][:200]}" if errors else ""
    return LocalspecError(f"{step.title} the new build {how}{last}; {_stays(log)}")


def _useless(what: str, log: Path) -> LocalspecError:
    return LocalspecError(f"the new build {what}: {_stays(log)}")


def _stays(log: Path) -> str:
    return f"the build in use stays; {shown(log)} has the rest"


@contextmanager
def _workplace() -> Iterator[Path]:
    """Yield an empty folder beside the builds, which nobody else uses meanwhile, and which is gone afterwards.

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
        for each in builds.glob(f"{_NEW}*"):  # of a run that was killed
            shutil.rmtree(each, ignore_errors=True)
        work = Path(tempfile.mkdtemp(dir=builds, prefix=_NEW))
        try:
            yield work
        finally:
            shutil.rmtree(work, ignore_errors=True)
    finally:
        os.close(lock)


def _prune(kept: Path | None) -> None:
    """Remove the builds that are not used any more; whoever runs with one has it in memory."""
    for each in builds_dir().iterdir():
        if each.is_dir() and not each.is_symlink() and each != kept and each != chosen():
            shutil.rmtree(each, ignore_errors=True)


def _slim(site: Path) -> None:
    """Leave of a build what localspec loads; of copies of a library under several names, one."""
    for name in ("bin", "include", "lib", "share"):
        shutil.rmtree(site / name, ignore_errors=True)
    library = site / "llama_cpp" / "lib"
    for file in sorted(library.glob("lib*.so.*")):
        first = library / f"{file.name.partition('.so.')[0]}.so"
        if first.is_file() and filecmp.cmp(first, file, shallow=False):
            file.unlink()
            file.hardlink_to(first)
