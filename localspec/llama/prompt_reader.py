"""PromptReader: a plain copy of a model's weights, which reads prompts for the sequences of the repacked ones.

Repacked weights write faster; of some types the same weights as they lie in the file read faster, by kernels that repacked ones
never reach (`docs/measurements/pass-costs.md`). The copy is mapped: its pages are the file's. It reads a prompt in a context of
its own, and what it has evaluated is handed over, keys and values as they are.
"""

from collections.abc import Callable
from dataclasses import replace

from localspec.decoding.cancel import CancelFlag
from localspec.errors import ModelLoadError, PassFailed
from localspec.llama.cells import UnknownFormError, cells_of, joined
from localspec.llama.model import LlamaModel
from localspec.llama.native_context import NativeContext
from localspec.options import LoadOptions

_STEP = 1024
"""Tokens by which a context that reads grows: making another takes some hundredths of a second."""


class PromptReader:
    """The plain copy, as far as it is loaded, and its context, as long as a prompt is in it.

    Args:
        load: returns the model; called when the first prompt comes.
        takes: whether so many tokens behind so many that are evaluated are read here, see `plan.reading`.
        cancel: stops its passes.
        options: how its context is made, but for the size: in wider chunks than home's.
        home: of the sequences that it reads for, or a context that counts and gives way as theirs.
        n_ctx: most tokens of a sequence.
        keeps: whether the context stays when a prompt has left it.

    Attributes:
        native: the context; None while no prompt is in it, or was.
        reads_for: of which sequence a prompt is in it; None if of none.
    """

    def __init__(
        self,
        load: Callable[[], LlamaModel],
        takes: Callable[[int, int], bool],
        cancel: CancelFlag,
        options: LoadOptions,
        home: NativeContext,
        n_ctx: int,
        *,
        keeps: bool = False,
    ) -> None:
        self._load, self._cancel, self._options, self._home = load, cancel, options, home
        self._keeps, self._fails, self._n_ctx = keeps, False, n_ctx
        self._takes = takes
        self.native: NativeContext | None = None
        self.reads_for: object | None = None

    def takes(self, depth: int, count: int) -> bool:
        """Return whether it reads `count` tokens that come behind `depth` evaluated ones."""
        return not self._fails and self._takes(depth, count)

    def room(self, tokens: int) -> NativeContext | None:
        """Return its context, empty, with room for so many tokens; None where there is no memory for it."""
        tokens = min(-(-tokens // _STEP) * _STEP, self._n_ctx)
        if self.native is not None and self.native.n_ctx >= tokens:
            self.native.clear(0)
            return self.native
        self.close()
        try:
            small = replace(self._options, n_ctx=tokens)
            self.native = NativeContext(
                self._load(), self._cancel, small, max_rows=1, beside=self._home
            )
        except ModelLoadError:
            self._fails = True  # it is as it was: the repacked weights read, too
        return self.native

    def instead(self) -> NativeContext:
        """Return a context that stands in for that of the repacked weights, and read no more beside it.

        Raises:
            ModelLoadError: there is no memory for it.
        """
        self._fails = True
        options = replace(self._options, n_ctx=self._n_ctx)
        return NativeContext(
            self._load(), self._cancel, options, options.max_rows, beside=self._home
        )

    def leave(self) -> None:
        """Let go of a prompt."""
        self.reads_for = None
        if not self._keeps:
            self.close()

    def close(self) -> None:
        """Free the context; closing twice is harmless."""
        if self.native is not None:
            self.native.close()
        self.native = None

    @staticmethod
    def hand_over(
        source: NativeContext, number: int, target: NativeContext, place: int, tokens: int
    ) -> bool:
        """Have a sequence hold what one of another context does, of the same weights; return whether it does.

        Args:
            source: has evaluated them.
            number: of the sequence there.
            target: of as many cells, or more.
            place: of the sequence there.
            tokens: how many they are.
        """
        if source.copies_wait or target.copies_wait:
            return False
        try:
            state = source.copied(number)
            if source.streams != target.streams:
                cells = cells_of(state, tokens)
                whole = [(memoryview(b"".join(cells.stretch(0, tokens))), tokens)]
                state = joined(cells.layout, whole, tokens, target.streams, cells.tail)
        except (PassFailed, UnknownFormError, OSError):
            return False
        target.clear(place)
        return target.put_back(place, state) and target.held(place) == tokens
