"""SetupPlan: what setup will do, by what is here and what was requested. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from localspec.errors import UsageError
from localspec.setup.gpus import BACKENDS, CPU, RPC, RPC_OPTION, GpuFinding


@dataclass(frozen=True, slots=True)
class SetupPlan:
    """What setup will do.

    Args:
        reason: what is here, or why nothing is done, in a sentence.
        backend: to build for; None changes nothing.
        options: of CMake, which nothing overrides.
        defaults: options of CMake that the user's own override.
        gpus: that the new build should find.
        variables: of the environment, for the build and its trial.
        lacks: what has to be installed first.
        to_own: whether to go back to the environment's own build, and make none.
        wheels: address of an index of prebuilt wheels; None compiles.
    """

    reason: str
    backend: str | None = None
    options: tuple[str, ...] = ()
    defaults: tuple[str, ...] = ()
    gpus: tuple[str, ...] = ()
    variables: Mapping[str, str] = field(default_factory=dict)
    lacks: tuple[str, ...] = ()
    to_own: bool = False
    wheels: str | None = None

    def minutes(self, cores: int) -> str:
        """Return how long compiling takes on so many cores."""
        assert self.backend is not None, "something is built"  # noqa: S101
        kind = BACKENDS[self.backend]
        text = f"about {max(1, round(kind.core_minutes / cores))} minutes on {cores} cores"
        return text if kind.measured else f"{text} (an estimate, not measured)"


def decide(
    machine: Mapping[str, GpuFinding],
    built_in: Collection[str],
    *,
    beside: bool,
    backend: str | None = None,
    rpc: bool = False,
    rebuild: bool = False,
    wheels: str | None = None,
) -> SetupPlan:
    """Return what to do.

    Args:
        machine: GPUs that are here, by backend.
        built_in: backends of the build in use.
        beside: whether the build in use is one that setup made.
        backend: to build for; None takes what suits the machine.
        rpc: whether the build is to use devices of other machines, too.
        rebuild: whether to build what is there already.
        wheels: address of an index of prebuilt wheels; None compiles.

    Raises:
        UsageError: no such backend on this system.
    """
    has = {each.lower() for each in built_in}
    if backend is None:
        with_gpu = [each for each, place in machine.items() if place.gpus]
        used = [each for each in with_gpu if BACKENDS[each].called & has]
        ready = [each for each in with_gpu if wheels or not machine[each].lacks]
        any_build = [CPU] if rpc or rebuild else []
        backend = next(iter((*used, *ready, *with_gpu, *any_build)), None)
    if backend is None:
        hints = "".join(f" ({each.hint})" for each in machine.values() if each.hint)
        return SetupPlan(f"no GPU was found{hints}: the CPU is used, and nothing changes")
    if backend not in machine:
        systems = ", ".join(machine)
        raise UsageError(f"--for {backend} is for another system: choose one of {systems}")
    kind, place = BACKENDS[backend], machine[backend]
    detail = ", ".join(place.gpus) or place.hint
    reason = f"{kind.title} ({detail})" if detail else kind.title
    if backend == CPU and beside and not (rpc or rebuild):
        reason = "back to the build that localspec was installed with"
        return SetupPlan(reason, backend, to_own=True)
    if kind.called & has and (RPC in has or not rpc) and not rebuild:
        return SetupPlan(f"{reason} is already built in")
    rpc = rpc or (RPC in has and backend != CPU)
    options = (*kind.options, RPC_OPTION) if rpc else kind.options
    lacks = () if wheels else place.lacks
    # What has to be installed first may bring what these make up for.
    instead = {} if wheels or lacks else place.instead
    reason = "; ".join((reason, *instead.values()))
    defaults, variables = tuple(instead), place.variables
    return SetupPlan(
        reason, backend, options, defaults, place.gpus, variables, lacks, wheels=wheels
    )
