"""SetupPlan: what setup will do, by what was found and what was asked for. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from localspec.errors import LocalspecError, UsageError
from localspec.setup.backends import BACKENDS, CPU, RPC, RPC_OPTION, BackendKind
from localspec.setup.gpus import GpuFinding


@dataclass(frozen=True, slots=True)
class SetupRequest:
    """What was asked for.

    Args:
        backend: to build for; None takes what suits the machine.
        rpc: whether the build is to use GPUs of other machines, too.
        rebuild: whether to build what is there already.
        wheels: address of an index of prebuilt wheels; None compiles.
    """

    backend: str | None = None
    rpc: bool = False
    rebuild: bool = False
    wheels: str | None = None


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """What will be done.

    Args:
        reason: what was found, or why nothing is to be done, in a sentence.
        backend: to build for; None changes nothing.
        options: of CMake, which nothing overrides.
        defaults: likewise, for what is not here; the user's own override them.
        gpus: what the new build should find to compute on; without any, only that it loads is tried.
        variables: that the build needs, and its trial.
        lacks: what has to be installed first.
        to_own: whether the environment's own build is used again, and none is made.
        wheels: as in the request.
    """

    reason: str
    backend: BackendKind | None = None
    options: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    to_own: bool = False
    wheels: str | None = None

    def minutes(self, cores: int) -> str:
        """Say how long compiling takes on so many cores."""
        assert self.backend is not None, "something is built"  # noqa: S101
        told = f"about {max(1, round(self.backend.core_minutes / cores))} minutes on {cores} cores"
        return told if self.backend.measured else f"{told} (a guess: nobody has measured it)"


def decide(
    found: Sequence[GpuFinding], built_in: Collection[str], request: SetupRequest, *, beside: bool
) -> SetupPlan:
    """Return what to do.

    Args:
        found: what is on this machine.
        built_in: backends of the build in use.
        request: what was asked for.
        beside: whether the build in use is one that setup made.

    Raises:
        UsageError: no such backend on this system.
    """
    known, has = {each.backend: each for each in found}, {each.lower() for each in built_in}
    if request.backend is not None and request.backend not in known:
        raise UsageError(
            f"--for {request.backend} is for another system: choose one of {', '.join(known)}"
        )
    with_gpu = [each for each in found if each.gpus and not each.software]
    if request.backend is not None:
        place = known[request.backend]
    elif with_gpu:
        # What is in use stays; else what could be had at once goes before what needs a compiler first.
        used = (each for each in with_gpu if BACKENDS[each.backend].called & has)
        ready = (each for each in with_gpu if request.wheels or not each.lacks)
        place = next(used, None) or next(ready, with_gpu[0])
    elif request.rpc or request.rebuild:
        place = known[CPU]
    else:
        return SetupPlan(
            f"no GPU was found{_software(found)}: the CPU is used, and nothing changes"
        )
    backend = BACKENDS[place.backend]
    what = f"{backend.title} ({', '.join(place.gpus)})" if place.gpus else backend.title
    rpc = request.rpc or (RPC in has and place.backend != CPU)
    if place.backend == CPU and beside and not (request.rpc or request.rebuild):
        return SetupPlan("the environment's own build is used again", backend, to_own=True)
    if backend.called & has and (RPC in has or not request.rpc) and not request.rebuild:
        return SetupPlan(f"{what} is built in: nothing is to be done")
    options = (*((backend.option,) if backend.option else ()), *((RPC_OPTION,) if rpc else ()))
    lacks = () if request.wheels else place.lacks
    defaults = tuple[str, ...]()
    if not request.wheels and not lacks:  # what has to be installed may bring it
        defaults = tuple(option for option, _ in place.instead)
        what = "; ".join((what, *(note for _, note in place.instead)))
    return SetupPlan(
        what,
        backend,
        options,
        defaults,
        place.gpus,
        dict(place.variables),
        lacks,
        wheels=request.wheels,
    )


def require_ready(plan: SetupPlan) -> None:
    """Check that nothing is missing.

    Raises:
        LocalspecError: something is; the message names all of it.
    """
    if plan.lacks:
        raise LocalspecError(
            f"{plan.reason}: install {' and '.join(plan.lacks)}, then run localspec setup again"
        )


def _software(found: Sequence[GpuFinding]) -> str:
    names = [name for each in found if each.software for name in each.gpus]
    return f" ({', '.join(names)} computes on the CPU)" if names else ""
