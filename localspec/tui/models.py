"""Models: what is loaded, what is being loaded, and what to go back to if that fails. Reads no model, so that a start costs little."""

from collections import deque
from dataclasses import dataclass, replace
from enum import Enum, auto

from localspec.display import clean_line
from localspec.engine.client import EngineClient
from localspec.engine.protocol import (
    Downloading,
    EngineDied,
    Failed,
    Hello,
    LoadCancelled,
    Loading,
    Measuring,
    Notice,
    Ready,
)
from localspec.launch.names import name_of, named, with_names
from localspec.options import LaunchOptions
from localspec.storage.files import size_text

STARTING = "loading the model"
# Errors of a load that come after the models before it were let go, to make room.
_AFTER_UNLOADING = {"ModelLoadError", "Fault"}


class Phase(Enum):
    """What the engine is at."""

    IDLE = auto()
    STARTING = auto()
    LOADING = auto()
    READY = auto()
    DEAD = auto()


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A load that was requested, and what to load if it fails and nothing else is loaded."""

    request: LaunchOptions
    fallback: LaunchOptions | None = None


class Models:
    """Loads models, and knows which ones are loaded.

    Args:
        engine: loads them.
        usual: what is loaded when nothing else is requested.

    Attributes:
        phase: what the engine is at; `IDLE` when nothing is loaded and nothing was requested.
        ready: what the engine has loaded.
        progress: what it is fetching or loading, for people.
        trouble: why the engine is dead, or why nothing could be loaded.
        loaded: the request that `ready` fulfils; None until something could be loaded.
        replaced: why something else answers than what was requested last, on one line; empty where nothing does.
    """

    def __init__(self, engine: EngineClient, usual: LaunchOptions) -> None:
        self._engine, self.usual = engine, usual
        self.phase = Phase.IDLE
        self.ready: Ready | None = None
        self.trouble = self.replaced = ""
        self.loaded: LaunchOptions | None = None
        self.progress = ""
        self._under_way: deque[_Attempt] = deque()
        self._reload: _Attempt | None = None

    @property
    def name(self) -> str:
        """What is loaded, as `--pair` or `--target` names it; empty when nothing is."""
        return "" if self.loaded is None else name_of(self.loaded)

    @property
    def next_name(self) -> str:
        """What will be loaded if all goes well."""
        return name_of(self._under_way[-1].request) if self._under_way else self.name

    @property
    def under_way(self) -> bool:
        """Whether something is being loaded."""
        return bool(self._under_way)

    @property
    def line(self) -> str:
        """The state for people, in a few words."""
        match self.phase:
            case Phase.READY if self.ready is not None:
                return clean_line(self.ready.target)
            case Phase.DEAD:
                return "the model has stopped: /restart"
            case Phase.IDLE:
                return "no model loaded: F8 chooses one"
            case _:
                return self.progress or STARTING

    def load_usual(self) -> None:
        """Load what is loaded when nothing else is requested."""
        self._begin(_Attempt(with_names(self.usual)))

    def load(self, name: str) -> None:
        """Load a pair, or else a target, by its name; if that fails, what is loaded stays."""
        self._begin(_Attempt(named(self.usual, name)))

    def load_again(self, name: str, *, fetch: bool, n_ctx: int | None = None) -> None:
        """Load the models of a conversation; if that fails and nothing is loaded, the usual ones.

        Args:
            name: of a pair or a target.
            fetch: whether files that are not here may be fetched.
            n_ctx: tokens of its context; None as usual.
        """
        fallback = with_names(self.usual)
        if n_ctx is not None:
            self.usual = _sized(self.usual, n_ctx)
        self._begin(_Attempt(named(self.usual, name), fallback), fetch=fetch)

    def resize(self, n_ctx: int | None) -> None:
        """Load what is loaded with so many tokens of context, and all that is loaded later; None as by default.

        Raises:
            UsageError: no context has so many.
        """
        before = self.loaded or with_names(self.usual)
        self.usual = _sized(self.usual, n_ctx)
        self._begin(_Attempt(_sized(before, n_ctx), before))

    def restart(self) -> None:
        """Start the engine again, and load what worked last; if nothing did, what was to be loaded."""
        self._engine.close(wait_s=0)
        self._engine.start()
        self._under_way.clear()
        self._request(self._reload or _Attempt(with_names(self.usual)))

    def take(self, notice: Notice) -> bool:
        """Take a notice that belongs to no request; return whether something else is being loaded because of it."""
        match notice:
            case Hello():
                self.progress = "reading the model's files"
            case Downloading() | Loading() | Measuring():
                self.phase, self.progress = Phase.LOADING, clean_line(_progress(notice))
            case Ready():
                self.phase, self.ready, self.trouble = Phase.READY, notice, ""
                if self._under_way:
                    self.loaded = self._under_way.popleft().request
                    self._reload = _Attempt(self.loaded)
            case LoadCancelled():
                if self._under_way:
                    self._under_way.popleft()
                self.phase = Phase.READY
                if notice.target is None:
                    self.phase, self.ready, self.loaded = Phase.IDLE, None, None
            case Failed():
                self.trouble = clean_line(notice.reason)
                self.phase = Phase.IDLE if self.ready is None else Phase.READY
                return bool(self._under_way) and self._fall_back(self._under_way.popleft(), notice)
            case EngineDied():
                self.phase, self.ready, self.trouble = Phase.DEAD, None, clean_line(notice.reason)
                self._drop_failed(notice)
            case _:
                pass
        return False

    def _begin(self, attempt: _Attempt, *, fetch: bool = True) -> None:
        self.replaced = ""
        self._request(attempt, fetch=fetch)

    def _request(self, attempt: _Attempt, *, fetch: bool = True) -> None:
        self._under_way.append(attempt)
        self._reload = self._reload or attempt
        self.phase, self.progress, self.trouble = Phase.STARTING, "", ""
        request = attempt.request
        self._engine.load(request if fetch else replace(request, offline=True))

    def _fall_back(self, failed: _Attempt, notice: Failed) -> bool:
        """Load what was loaded before if it is gone, or the fallback; note what answers now."""
        # An engine that was started again has nothing loaded yet, whatever it had before it died.
        had = self.loaded is not None and self.ready is not None
        stays = had and notice.kind not in _AFTER_UNLOADING
        other = self.loaded or failed.fallback
        if other is None or (other == failed.request and not stays):
            self.phase, self.ready, self.loaded = Phase.IDLE, None, None
            return False
        self.usual = replace(self.usual, load=other.load)  # whose context could be had
        self.replaced = f"{clean_line(notice.reason)}; {name_of(other)} answers instead"
        if stays:
            self.trouble = self.replaced
            return False
        self._request(_Attempt(other))
        return True

    def _drop_failed(self, notice: EngineDied) -> None:
        """Note what to load when the engine is started again: not what it died of."""
        died_of = self._under_way[0] if self._under_way else None
        other = None if died_of is None else self.loaded or died_of.fallback
        self._under_way.clear()
        self.replaced = ""
        if died_of is not None and other is not None and other != died_of.request:
            self.replaced = f"{clean_line(notice.reason)}; {name_of(other)} answers instead"
            self._reload = _Attempt(other)


def _sized(load: LaunchOptions, n_ctx: int | None) -> LaunchOptions:
    return replace(load, load=replace(load.load, n_ctx=n_ctx))


def _progress(notice: Downloading | Loading | Measuring) -> str:
    match notice:
        case Downloading():
            done, total = size_text(notice.done_bytes), size_text(notice.total_bytes)
            return f"fetching {notice.name}: {done} of {total}"
        case Loading():
            return f"loading {notice.model}: {notice.share:.0%}"
        case Measuring():
            return f"measuring {notice.model} on this machine: {notice.share:.0%}"
