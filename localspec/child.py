"""`python -m localspec.child`: the engine's process. A client at the other end of stdin and stdout tells it what to do."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import localspec
from localspec.chat.assistant import Assistant
from localspec.chat.conversation import Segment
from localspec.decoding.cancel import CancelFlag
from localspec.engine.factory import Loaded, RestoredState, SavedState, StateLeftError
from localspec.engine.forecast import Costs
from localspec.engine.protocol import Downloading, Load, Loading, Measuring
from localspec.engine.serving import serve
from localspec.launch import Launch, prepare
from localspec.llama.context import LlamaContext
from localspec.llama.options import LoadOptions
from localspec.llama.state import StateUnfitError, restore_state, save_state
from localspec.models.transfer import Progress
from localspec.recording import record
from localspec.telemetry.recorder import Recorder


class Factory:
    """Loads what the engine's client asks for, and has its replies recorded."""

    def __init__(self) -> None:
        self._recorder: Recorder | None = None

    def fetch(self, request: Load, tell: Callable[[Downloading], None]) -> None:
        """Obtain the files and check them; the memory is not looked at, another pair may still be in it."""

        def report(progress: Progress) -> None:
            tell(
                Downloading(
                    progress.name, progress.done_bytes, progress.total_bytes, progress.source
                )
            )

        prepare(replace(launch_of(request), fit=False), report)

    def load(
        self, request: Load, cancel: CancelFlag, tell: Callable[[Loading | Measuring], None]
    ) -> Loaded:
        """Load them; see `localspec.engine.factory`."""
        prepared = prepare(launch_of(request))
        opened = prepared.open(
            cancel,
            lambda name, share: tell(Loading(name, share)),
            lambda name, share: tell(Measuring(name, share)),
        )
        # What is left out since it never pays is told with its price.
        costs = prepared.left_out or opened.drafting.costs
        self._recorder = record(opened.assistant, costs)
        known = None if costs is None else Costs(costs.target, costs.draft_model)
        return _loaded(opened.assistant, prepared.target, known)

    def close(self) -> None:
        """Have what was recorded written down."""
        if self._recorder is not None:
            self._recorder.close()


def launch_of(request: Load) -> Launch:
    """Return the same request as the composition root takes it.

    Raises:
        UsageError: it contradicts itself.
    """
    return Launch(
        pair=request.pair,
        target=request.target,
        draft_model=request.draft_model,
        draft=request.draft,
        draft_length=request.draft_length,
        options=LoadOptions(
            n_ctx=request.n_ctx,
            gpu_layers=request.gpu_layers,
            devices=request.devices,
            threads=request.threads,
            kv_type=request.kv_type,
        ),
        exact=request.exact,
        offline=request.offline,
        fit=request.fit,
    )


def _loaded(assistant: Assistant, path: Path, costs: Costs | None) -> Loaded:
    context, identity = assistant.models.target, _identity(path)
    assert isinstance(context, LlamaContext), context  # noqa: S101 - what `launch` loads

    def watch_prefill(watch: Callable[[int, int], None] | None) -> None:
        context.watch = watch

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

    return Loaded(assistant, watch_prefill, save, restore, costs)


def _segments(remembered: list[Any]) -> tuple[Segment, ...]:
    segments = tuple(Segment(text, tuple(tokens)) for text, tokens in remembered)
    for each in segments:
        if type(each.text) is not str or not all(type(token) is int for token in each.tokens):
            raise TypeError(each)
    return segments


def _identity(path: Path) -> str:
    """Return what tells a model's file from all others: its sha256 where the store knows it."""
    if path.parent.name == "blobs":
        return f"sha256 {path.name}"
    status = path.stat()
    return f"{path}, {path.resolve()} of {status.st_size} bytes, changed at {status.st_mtime_ns}"


if __name__ == "__main__":
    factory = Factory()
    serve(factory, localspec.__version__, factory.close)
