"""`python -m localspec.launch.child`: the engine's process. A client at the other end of stdin and stdout tells it what to do."""

import gc
from collections.abc import Callable
from dataclasses import astuple, replace

import localspec
from localspec.chat.assistant import Assistant
from localspec.decoding.cancel import CancelFlag
from localspec.engine.child import serve
from localspec.engine.embedding import LoadedEmbedder
from localspec.engine.protocol import Downloading, Load, Loading, Measuring
from localspec.launch.embedding import load_embedder
from localspec.launch.load import HOLD_UP_S, Runtime
from localspec.launch.load import load as load_plan
from localspec.launch.observe import Telemetry
from localspec.llama.model import give_back_memory
from localspec.plan.make import make_plan


class RuntimeFactory:
    """Loads what the engine's client wants, and has its replies recorded; see `Factory`."""

    def __init__(self) -> None:
        self._assistant: Assistant | None = None

    def fetch(self, load: Load, send: Callable[[Downloading], None]) -> None:
        """Obtain the files and check them; the memory is not looked at, another pair may still be in it."""
        if load.embeds:  # which nobody waits for while it is fetched
            return
        make_plan(
            replace(load.options, fit=False), lambda moment: send(Downloading(*astuple(moment)))
        )

    def load(
        self, load: Load, cancel: CancelFlag, send: Callable[[Loading | Measuring], None]
    ) -> Runtime | LoadedEmbedder:
        """Load them."""
        # An assistant is in a circle with its scheduler: until it is looked for, all that an old one knew stays in memory.
        self._assistant = None
        gc.collect()
        give_back_memory()
        if load.embeds:
            return load_embedder(load.options, load.others, cancel, send)
        # One conversation grows; several share the memory.
        plan = make_plan(
            load.options, parallel=load.parallel, roomy=load.parallel == 1, others=load.others
        )
        runtime = load_plan(
            plan,
            cancel,
            send,
            at_most=load.at_most,
            hold_up_s=HOLD_UP_S,
            observe=Telemetry(load.workload).observe,
            prompt_cache=load.options.prompt_cache,
        )
        self._assistant = runtime.assistant
        return runtime

    def close(self) -> None:
        """Have what was recorded, and what was evaluated, written down."""
        if self._assistant is not None:
            self._assistant.settle()


if __name__ == "__main__":
    factory = RuntimeFactory()
    serve(factory, localspec.__version__, factory.close)
