"""LlamaContext: a `LanguageModel` that has a llama.cpp context for itself."""

from localspec.decoding.cancel import CancelFlag
from localspec.llama.model import LlamaModel
from localspec.llama.native_context import NativeContext
from localspec.llama.sequence import LlamaSequence
from localspec.options import LoadOptions


class LlamaContext(LlamaSequence):
    """A context of one sequence; see `LlamaSequence`.

    Args:
        model: where the weights are.
        cancel: stops prefill and passes when set.
        options: how to make the context; the model's own by default.

    Raises:
        ModelLoadError: llama.cpp cannot make such a context, mostly for want of memory.
    """

    def __init__(
        self,
        model: LlamaModel,
        cancel: CancelFlag | None = None,
        options: LoadOptions | None = None,
    ) -> None:
        options = model.options if options is None else options
        cancel = CancelFlag() if cancel is None else cancel
        super().__init__(NativeContext(model, cancel, options, options.max_rows))

    def close(self) -> None:
        """Free the context; closing twice is harmless."""
        self._native.close()
