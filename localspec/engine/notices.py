"""What the engine says to a screen. See `protocol`."""

from dataclasses import dataclass

from localspec.engine.replies import ReplyDone, ReplyEvents


@dataclass(frozen=True, slots=True)
class Hello:
    """The process is there and reads; nothing is loaded."""

    version: str
    pid: int


@dataclass(frozen=True, slots=True)
class Downloading:
    """A model is being fetched; bytes count from 0 again when another source is tried."""

    name: str
    done_bytes: int
    total_bytes: int
    source: str


@dataclass(frozen=True, slots=True)
class Loading:
    """A model is being loaded; `share` is 0 to 1."""

    model: str
    share: float


@dataclass(frozen=True, slots=True)
class Measuring:
    """A loaded model's passes are measured, once on every machine; `share` is 0 to 1."""

    model: str
    share: float


@dataclass(frozen=True, slots=True)
class Ready:
    """The models are loaded.

    Args:
        target: the target's name.
        draft_model: the draft model's, where one is loaded.
        drafter: what drafts: off, lookup, model, or what a policy calls itself.
        n_ctx: tokens of context.
        notes: what the user should know of how it was set up, a sentence each.
        load_s: seconds that loading took.
        thinks: whether the target's template knows thinking blocks.
        plain_round_s: what a round without a draft takes here, in a short text; None where that was not measured.
        break_even: from which chance of acceptance on the draft model pays, 0 to 1; None where it never does, or is
            not there, or was not measured.
    """

    target: str
    draft_model: str | None
    drafter: str
    n_ctx: int
    notes: tuple[str, ...]
    load_s: float
    thinks: bool
    plain_round_s: float | None = None
    break_even: float | None = None


@dataclass(frozen=True, slots=True)
class LoadCancelled:
    """A load was stopped; `target` is what is still loaded, None if nothing is."""

    target: str | None


@dataclass(frozen=True, slots=True)
class Counted:
    """A conversation takes so many tokens of a context of `n_ctx`."""

    id: int
    tokens: int
    n_ctx: int


@dataclass(frozen=True, slots=True)
class Tokens:
    """Ids, and the bytes of each as text in Latin-1, control tokens as their file writes them."""

    id: int
    tokens: tuple[int, ...]
    pieces: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class StateSaved:
    """The directory now holds what was evaluated."""

    directory: str
    tokens: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class StateRestored:
    """So many tokens need not be evaluated again."""

    directory: str
    tokens: int


@dataclass(frozen=True, slots=True)
class StateLeft:
    """A state was not written, or does not fit and was left alone; the text is evaluated as usual."""

    directory: str
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A request could not be done; the engine goes on.

    Args:
        id: of the request; None for a load, a state, or a frame that nobody understood.
        kind: name of the error's class in `localspec.errors`, or `FrameError`.
        reason: one line: what, which value, and what to do.
    """

    id: int | None
    kind: str
    reason: str


@dataclass(frozen=True, slots=True)
class EngineDied:
    """The process is gone, and nobody had asked it to. Made by the client: it never travels.

    Args:
        reason: one line: by which signal or code, in words, and what to do.
    """

    reason: str


Notice = (
    Hello
    | Downloading
    | Loading
    | Measuring
    | Ready
    | LoadCancelled
    | ReplyEvents
    | ReplyDone
    | Counted
    | Tokens
    | StateSaved
    | StateRestored
    | StateLeft
    | Failed
    | EngineDied
)
