"""ModelSwitch: what answers, what is being loaded, and what to go back to where that fails.

Also what a name means. Reads no model, so that a start costs little.
"""

from collections import deque
from dataclasses import dataclass, replace

from localspec.display import clean_line
from localspec.engine.client import EngineClient
from localspec.engine.protocol import EngineDied, Failed, LoadCancelled, Notice, Ready
from localspec.launch.names import name_of, named, with_names
from localspec.models.registry import load_registry
from localspec.options import LaunchOptions
from localspec.ui.engine_state import EngineState

DEMONSTRATION = "this is a tiny demo model that makes things up"
# Errors of a load that come after the models before it were let go, to make room.
_AFTER_UNLOADING = {"ModelLoadError", "Fault"}


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A load that was requested, and what to load where it fails and nothing else is loaded."""

    request: LaunchOptions
    otherwise: LaunchOptions | None = None


class ModelSwitch:
    """Loads models, and knows which ones are loaded.

    Args:
        engine: loads them.
        state: what is known of the engine; takes every message before this does.
        usual: what is loaded where nothing else is asked for.

    Attributes:
        loaded: what answers; None until something could be loaded.
        instead: why something else answers than what was asked for last, on one line; empty where it does not.
    """

    def __init__(self, engine: EngineClient, state: EngineState, usual: LaunchOptions) -> None:
        self._engine, self._state, self.usual = engine, state, usual
        self.loaded: LaunchOptions | None = None
        self.instead = ""
        self._under_way: deque[_Attempt] = deque()
        self._again: _Attempt | None = None

    @property
    def name(self) -> str:
        """What is loaded, as `--pair` or `--target` names it; empty where nothing is."""
        return "" if self.loaded is None else name_of(self.loaded)

    @property
    def next_name(self) -> str:
        """What will be loaded as far as all goes well."""
        return name_of(self._under_way[-1].request) if self._under_way else self.name

    @property
    def is_default(self) -> bool:
        """Whether what is loaded is what nobody chose."""
        return self.name == load_registry().default_pair

    @property
    def under_way(self) -> bool:
        """Whether something is being loaded."""
        return bool(self._under_way)

    def load_usual(self) -> None:
        """Load what is loaded where nothing else is asked for."""
        self._begin(_Attempt(with_names(self.usual)))

    def load(self, name: str) -> None:
        """Load a pair, or else a target, by its name; where that fails, what is loaded stays."""
        self._begin(_Attempt(named(self.usual, name)))

    def load_again(self, name: str, *, fetch: bool, n_ctx: int | None = None) -> None:
        """Load what a conversation was held with; where that fails and nothing is loaded, the usual models.

        Args:
            name: of a pair or a target.
            fetch: whether files that are not here may be fetched.
            n_ctx: tokens of its context; None as is usual.
        """
        otherwise = with_names(self.usual)
        if n_ctx is not None:
            self.usual = _sized(self.usual, n_ctx)
        self._begin(_Attempt(named(self.usual, name), otherwise), fetch=fetch)

    def resize(self, n_ctx: int | None) -> None:
        """Load what is loaded with so many tokens of context, and whatever is loaded later; None as by default.

        Raises:
            UsageError: no context has so many.
        """
        before = self.loaded or with_names(self.usual)
        self.usual = _sized(self.usual, n_ctx)
        self._begin(_Attempt(_sized(before, n_ctx), before))

    def restart(self) -> None:
        """Start the engine again, and load what worked last; where nothing did, what was to be loaded."""
        self._engine.close(wait_s=0)
        self._engine.start()
        self._under_way.clear()
        self._request(self._again or _Attempt(with_names(self.usual)))

    def take(self, message: Notice) -> bool:
        """Take a message; return whether something else is being loaded because of it."""
        match message:
            case Ready():
                if self._under_way:
                    self.loaded = self._under_way.popleft().request
                    self._again = _Attempt(self.loaded)
            case LoadCancelled():
                if self._under_way:
                    self._under_way.popleft()
                if message.target is None:
                    self.loaded = None
            case Failed(id=None) if self._under_way:
                return self._fall_back(self._under_way.popleft(), message)
            case EngineDied():
                self._bury(message)
            case _:
                pass
        return False

    def _begin(self, attempt: _Attempt, *, fetch: bool = True) -> None:
        self.instead = ""
        self._request(attempt, fetch=fetch)

    def _request(self, attempt: _Attempt, *, fetch: bool = True) -> None:
        self._under_way.append(attempt)
        self._again = self._again or attempt
        self._state.expect_load()
        request = attempt.request
        self._engine.load(request if fetch else replace(request, offline=True))

    def _fall_back(self, failed: _Attempt, message: Failed) -> bool:
        """Load what was loaded before if it is gone, or what was given for the case; say what answers now."""
        # An engine that was started again has nothing loaded yet, whatever it had before it died.
        had = self.loaded is not None and self._state.ready is not None
        kept = had and message.kind not in _AFTER_UNLOADING
        other = self.loaded or failed.otherwise
        if other is None or (other == failed.request and not kept):
            self.loaded = None
            self._state.unload(message.reason)
            return False
        self.usual = replace(self.usual, load=other.load)  # whose context could be had
        self.instead = f"{clean_line(message.reason)}; {name_of(other)} answers instead"
        if kept:
            self._state.trouble = self.instead
            return False
        self._request(_Attempt(other))
        return True

    def _bury(self, message: EngineDied) -> None:
        """Take note of what to load when the engine is started again: not what it died of."""
        died_of = self._under_way[0] if self._under_way else None
        other = None if died_of is None else self.loaded or died_of.otherwise
        self._under_way.clear()
        self.instead = ""
        if died_of is not None and other is not None and other != died_of.request:
            self.instead = f"{clean_line(message.reason)}; {name_of(other)} answers instead"
            self._again = _Attempt(other)


def _sized(load: LaunchOptions, n_ctx: int | None) -> LaunchOptions:
    return replace(load, load=replace(load.load, n_ctx=n_ctx))
