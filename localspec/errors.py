"""The exception tree. Every error says in one line what, which value, and what to do next.

    LocalspecError            1   something that the user should read
    ├─ UsageError             2   a value that was asked for cannot be used
    ├─ ModelUnavailable       3   a model is not here and cannot be obtained
    │  └─ IntegrityError      3   bytes arrived, but not the promised ones
    ├─ PairMismatch           4   two models do not fit each other
    ├─ ModelFileError         1   a file is not a GGUF that llama.cpp can load
    ├─ ModelLoadError         1   llama.cpp refused to load a model or to make a context
    │  ├─ MemoryShort         1   the memory that is free does not hold it
    │  └─ NoRoom              1   it would fit if a server let others go
    ├─ ContextOverflow        1   a prompt does not fit into the context
    ├─ TemplateError          1   a chat template is missing or does not render
    ├─ PassFailed             1   llama.cpp failed in the middle of a pass
    ├─ HistoryError           1   a stored conversation is not there, or cannot be read
    ├─ EngineGone             1   the engine died, or the server is gone
    ├─ EngineFault            1   a fault in the engine, due to no request
    ├─ Busy                   1   as many requests wait as may wait
    └─ Interrupted            1   loading was stopped

The number is the exit code of the command line. Cancelling is no error: it is a `StopReason`.
"""

from collections.abc import Collection
from importlib.util import find_spec
from operator import ne
from typing import ClassVar

_LEAST_BEGINNING, _MOST_LIKE, _LIKE = 3, 3, 0.75


class LocalspecError(Exception):
    """Base of all errors that are shown to a user as one line."""

    exit_code: ClassVar[int] = 1


class UsageError(LocalspecError):
    """A value that was asked for is out of range, contradictory or of the wrong kind."""

    exit_code = 2


class ModelUnavailable(LocalspecError):
    """A model is not on this machine and none of its sources could bring it."""

    exit_code = 3


class IntegrityError(ModelUnavailable):
    """A file arrived with another size or sha256 than the registry promises."""


class PairMismatch(LocalspecError):
    """The token ids of target and draft model mean different things."""

    exit_code = 4


class ModelFileError(LocalspecError):
    """A file is missing parts, or is no GGUF at all."""


class ModelLoadError(LocalspecError):
    """llama.cpp could not load a model or create a context."""


class ModelChanged(LocalspecError):
    """A file was written over while a model was loaded from it, so that what answers is neither the old nor the new one."""


class MemoryShort(ModelLoadError):
    """The memory that is free now does not hold a model, or so many sequences; it may later."""


class NoRoom(ModelLoadError):
    """A model would fit, or fit better, if its server let others go."""


class ContextOverflow(LocalspecError):
    """A prompt is longer than the context it has to fit into.

    Args:
        reason: one line.
        sizes: tokens of the prompt, of the context, and the most that the model was trained for, 0 if unknown; None
            where a larger context is not the user's to choose.
    """

    def __init__(self, reason: str, sizes: tuple[int, int, int] | None = None) -> None:
        super().__init__(reason)
        self.sizes = sizes

    @property
    def can_grow(self) -> bool:
        """Whether a larger context, as large as the model was trained for, could hold the prompt."""
        return self.sizes is not None and not 0 < self.sizes[2] <= self.sizes[0]


def for_command_line(error: LocalspecError) -> str:
    """Return what an error says where options are flags."""
    larger = isinstance(error, ContextOverflow) and error.can_grow
    return str(error) + ", or raise --ctx" * larger


class TemplateError(LocalspecError):
    """A chat template is missing, or failed to render."""


class PassFailed(LocalspecError):
    """`llama_decode` reported a failure that is neither a cancel nor a bad request."""


class HistoryError(LocalspecError):
    """A stored conversation or message is not there, or its database cannot be read."""


class EngineGone(LocalspecError):
    """The engine died, or the server is gone."""


class EngineFault(LocalspecError):
    """A fault in the engine, due to no request."""


class Busy(LocalspecError):
    """As many requests wait as may wait.

    Attributes:
        again_s: seconds after which another program's server may be asked again, 0 where it does not say; None of this program's.
    """

    again_s: float | None = None


class Interrupted(LocalspecError):
    """Loading was stopped."""


def did_you_mean(word: str, names: Collection[str]) -> str:
    """Return `did you mean NAME?`: the names that begin with a word, or else those like it; empty if there are none."""
    import difflib  # noqa: PLC0415 - only for a mistyped word

    like = (
        [each for each in names if each.startswith(word)] if len(word) >= _LEAST_BEGINNING else []
    )
    if not like:
        # One wrong letter is likelier than a letter too many, but counts as two: `rum` would be `rm` alone.
        like = [each for each in names if len(word) >= _LEAST_BEGINNING and _is_slip(word, each)]
        close = difflib.get_close_matches(word, names, _MOST_LIKE, _LIKE)
        like = list(dict.fromkeys((*like, *close)))
    return f"did you mean {' or '.join(like[:_MOST_LIKE])}?" if like else ""


def _is_slip(one: str, other: str) -> bool:
    """Return whether one letter is another, or two neighbours are swapped."""
    if len(one) != len(other):
        return False
    at = [place for place, pair in enumerate(zip(one, other, strict=True)) if ne(*pair)]
    if len(at) == 2:
        return at[1] - at[0] == 1 and one[at[0]] == other[at[1]] and one[at[1]] == other[at[0]]
    return len(at) == 1


def require_mcp() -> None:
    """Raise UsageError where `mcp` is not installed."""
    if find_spec("mcp") is None:
        raise UsageError(
            "MCP needs the package mcp, which is not installed: run `pip install 'mcp>=2.3,<3'` where localspec is"
            " (with pipx: `pipx inject localspec 'mcp>=2.3,<3'`)"
        )
