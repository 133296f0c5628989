"""`python -m localspec.launch.child`: the engine's process. A client at the other end of stdin and stdout tells it what to do.

Its first argument is the number of requests to answer at once, or `auto`; without one it is one. Behind it, `keep`
has what is evaluated kept from run to run, and `workload=KIND` says what kind of text all of it is.
"""

import gc
import sys
from collections.abc import Callable
from dataclasses import astuple, replace
from pathlib import Path
from typing import Any

import localspec
from localspec.calibration.key import file_identity
from localspec.chat.assistant import Assistant
from localspec.chat.conversation import Segment
from localspec.decoding.cancel import CancelFlag
from localspec.engine.factory import Loaded, RestoredState, SavedState, StateLeftError
from localspec.engine.protocol import Downloading, Loading, Measuring
from localspec.engine.serving import serve
from localspec.launch.kept_prefixes import keeper
from localspec.launch.load import HOLD_UP_S, Runtime, load
from localspec.launch.observe import Telemetry
from localspec.launch.plan import make_plan
from localspec.llama.model import give_back_memory
from localspec.llama.state import StateUnfitError, restore_state, save_state
from localspec.options import LaunchOptions

_KIND = "workload="


class RuntimeFactory:
    """Loads what the engine's client asks for, and has its replies recorded.

    Args:
        parallel: how many requests are answered at once; None takes what pays and the memory holds.
        keep: whether what is evaluated is kept from run to run.
        workload: what kind of text all of it is, for the telemetry; None guesses.
    """

    def __init__(
        self, parallel: int | None, *, keep: bool = False, workload: str | None = None
    ) -> None:
        self._parallel = parallel
        self._keep = keep
        self._workload = workload
        self._assistant: Assistant | None = None

    def fetch(self, options: LaunchOptions, tell: Callable[[Downloading], None]) -> None:
        """Obtain the files and check them; the memory is not looked at, another pair may still be in it."""
        make_plan(
            replace(options, fit=False), lambda progress: tell(Downloading(*astuple(progress)))
        )

    def load(
        self,
        options: LaunchOptions,
        cancel: CancelFlag,
        tell: Callable[[Loading | Measuring], None],
    ) -> Loaded:
        """Load them; see `localspec.engine.factory`."""
        # An assistant is in a circle with its scheduler: until it is looked for, all that an old one knew stays in memory.
        self._assistant = None
        gc.collect()
        give_back_memory()
        # One conversation grows; several share the memory.
        plan = make_plan(options, parallel=self._parallel, roomy=self._parallel == 1)
        runtime = load(
            plan,
            cancel,
            lambda name, share: tell(Loading(name, share)),
            lambda name, share: tell(Measuring(name, share)),
            parallel=self._parallel,
            hold_up_s=HOLD_UP_S,
            observe=Telemetry(self._workload).observe,
            keep=keeper(plan.target) if self._keep else None,
        )
        self._assistant = runtime.assistant
        return _loaded(runtime, plan.target)

    def close(self) -> None:
        """Have what was recorded, and what was evaluated, written down."""
        if self._assistant is not None:
            self._assistant.settle()


def _loaded(runtime: Runtime, path: Path) -> Loaded:
    context, identity = runtime.target, file_identity(path)

    def save(directory: Path, remembered: tuple[Segment, ...]) -> SavedState:
        extra = {"remembered": [[each.text, each.tokens] for each in remembered]}
        try:
            size_bytes = save_state(context, directory, identity, extra)
        except StateUnfitError as error:
            raise StateLeftError(str(error)) from error
        return SavedState(context.n_cached, size_bytes)

    def restore(directory: Path) -> RestoredState:
        try:
            extra = restore_state(context, directory, identity)
        except StateUnfitError as error:
            raise StateLeftError(str(error)) from error
        try:
            return RestoredState(context.n_cached, _segments(extra["remembered"]))
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
    told = sys.argv[1] if sys.argv[1:] else "1"
    kinds = [each.removeprefix(_KIND) for each in sys.argv[2:] if each.startswith(_KIND)]
    factory = RuntimeFactory(
        None if told == "auto" else int(told),
        keep="keep" in sys.argv[2:],
        workload=kinds[0] if kinds else None,
    )
    serve(factory, localspec.__version__, factory.close)
