"""`python -m localspec.launch.child`: the engine's process. A client at the other end of stdin and stdout tells it what to do."""

import gc
from collections.abc import Callable
from dataclasses import astuple, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import localspec
from localspec.calibration.key import file_identity
from localspec.chat.assistant import Assistant
from localspec.chat.conversation import Segment
from localspec.decoding.cancel import CancelFlag
from localspec.engine.answering import Loaded, StateLeftError
from localspec.engine.child import serve
from localspec.engine.protocol import Downloading, Load, Loading, Measuring, StateSaved
from localspec.launch.kept_prefixes import keeper
from localspec.launch.load import HOLD_UP_S, Runtime
from localspec.launch.load import load as load_plan
from localspec.launch.plan import make_plan
from localspec.launch.recording import recorded
from localspec.llama.model import give_back_memory
from localspec.llama.state import StateUnfitError, restore_state, save_state

if TYPE_CHECKING:
    from localspec.launch.observe import Telemetry


def telemetry(workload: str | None) -> "Telemetry | None":
    """Return what records replies; None if nothing is recorded, or if this program has no telemetry."""
    if not recorded():
        return None
    try:
        from localspec.launch.observe import Telemetry  # noqa: PLC0415 - a feature that can be taken away
    except ModuleNotFoundError:
        return None
    return Telemetry(workload)


class RuntimeFactory:
    """Loads what the engine's client asks for, and has its replies recorded."""

    def __init__(self) -> None:
        self._assistant: Assistant | None = None

    def fetch(self, load: Load, tell: Callable[[Downloading], None]) -> None:
        """Obtain the files and check them; the memory is not looked at, another pair may still be in it."""
        make_plan(
            replace(load.options, fit=False), lambda progress: tell(Downloading(*astuple(progress)))
        )

    def load(
        self,
        load: Load,
        cancel: CancelFlag,
        tell: Callable[[Loading | Measuring], None],
    ) -> Loaded:
        """Load them; see `Factory`."""
        # An assistant is in a circle with its scheduler: until it is looked for, all that an old one knew stays in memory.
        self._assistant = None
        gc.collect()
        give_back_memory()
        observer = telemetry(load.workload)
        # One conversation grows; several share the memory.
        plan = make_plan(load.options, parallel=load.parallel, roomy=load.parallel == 1)
        runtime = load_plan(
            plan,
            cancel,
            lambda name, share: tell(Loading(name, share)),
            lambda name, share: tell(Measuring(name, share)),
            parallel=load.parallel,
            hold_up_s=HOLD_UP_S,
            observe=observer.observe if observer else None,
            keep=keeper(plan.target) if load.keep else None,
        )
        self._assistant = runtime.assistant
        return loaded(runtime, plan.target)

    def close(self) -> None:
        """Have what was recorded, and what was evaluated, written down."""
        if self._assistant is not None:
            self._assistant.settle()


def loaded(runtime: Runtime, path: Path) -> Loaded:
    """Return what a server can have done with a runtime, whose target is a file."""
    context, identity = runtime.target, file_identity(path)

    def save(directory: Path, remembered: tuple[Segment, ...]) -> StateSaved:
        extra = {"remembered": [[each.text, each.tokens] for each in remembered]}
        try:
            size_bytes = save_state(context, directory, identity, extra)
        except StateUnfitError as error:
            raise StateLeftError(str(error)) from error
        return StateSaved(str(directory), context.n_cached, size_bytes)

    def restore(directory: Path) -> tuple[int, tuple[Segment, ...]]:
        try:
            extra = restore_state(context, directory, identity)
        except StateUnfitError as error:
            raise StateLeftError(str(error)) from error
        try:
            return context.n_cached, _segments(extra["remembered"])
        except (KeyError, TypeError, ValueError):
            context.truncate(0)
            raise StateLeftError("it is damaged") from None

    return Loaded(runtime.assistant, save, restore, runtime.drafting.policy, runtime.costs)


def _segments(remembered: list[Any]) -> tuple[Segment, ...]:
    segments = tuple(Segment(text, tuple(tokens)) for text, tokens in remembered)
    for each in segments:
        if type(each.text) is not str or not all(type(token) is int for token in each.tokens):
            raise TypeError(each)
    return segments


if __name__ == "__main__":
    factory = RuntimeFactory()
    serve(factory, localspec.__version__, factory.close)
