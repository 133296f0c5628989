"""Server: the engine's own end of the pipe. Does what it is asked, one thing after the other.

Whatever goes wrong with a request becomes one `Failed`, and the next request is served.
"""

import sys
import traceback
from collections.abc import Callable
from pathlib import Path

from localspec.chat.thinking import thinking_tags
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.engine.answering import Answering
from localspec.engine.factory import Factory, Loaded, StateLeftError
from localspec.engine.forecast import break_even
from localspec.engine.interruption import Interruption
from localspec.engine.protocol import (
    Ask,
    Command,
    Count,
    Counted,
    Failed,
    Load,
    LoadCancelled,
    Message,
    Ready,
    RestoreState,
    SaveState,
    StateLeft,
    StateRestored,
    StateSaved,
)
from localspec.engine.requests import Requests
from localspec.errors import LocalspecError, TemplateError, UsageError


class Server:
    """Serves one client.

    Args:
        factory: loads models.
        requests: what the client says.
        cancel: the flag that `requests` sets.
        interruption: what `requests` does beside it.
        tell: says something to the client; never waits.
    """

    def __init__(
        self,
        factory: Factory,
        requests: Requests,
        cancel: CancelFlag,
        interruption: Interruption,
        tell: Callable[[Message], None],
    ) -> None:
        self._factory = factory
        self._requests = requests
        self._cancel = cancel
        self._interruption = interruption
        self._tell = tell
        self._answering: Answering | None = None

    def serve(self) -> None:
        """Serve until the client ends it."""
        while (command := self._requests.next()) is not None:
            try:
                self._do(command)
            except LocalspecError as error:
                self._fail(command, type(error).__name__, str(error))
            except Exception as error:  # one request must not cost the models, nor the chat
                traceback.print_exc(file=sys.stderr)
                reason = " ".join(f"{type(error).__name__}: {error}".split())[:300]
                self._fail(command, "Fault", f"this is a fault of localspec, report it ({reason})")

    def _do(self, command: Command) -> None:
        match command:
            case Load():
                self._load(command)
            case Ask():
                self._loaded().answer(command)
            case Count():
                tokens, n_ctx = self._loaded().count(command.turns)
                self._tell(Counted(command.id, tokens, n_ctx))
            case SaveState():
                self._save(command)
            case RestoreState():
                self._restore(command)

    def _load(self, request: Load) -> None:
        try:
            self._fetch(request)
            # Only now does the old pair go, and its memory is free before the new one is planned.
            self._drop()
            loaded = self._factory.load(request, self._cancel, self._tell)
        except (Cancelled, KeyboardInterrupt):
            kept = self._answering
            self._tell(LoadCancelled(None if kept is None else kept.target_name))
            return
        self._answering = Answering(loaded, self._tell)
        self._tell(_ready(loaded))

    def _fetch(self, request: Load) -> None:
        with self._interruption.allowed():
            if not self._cancel.is_set:
                self._factory.fetch(request, self._tell)
        if (
            self._cancel.is_set
        ):  # also where a library took the interruption for an error of its own
            raise Cancelled

    def _save(self, command: SaveState) -> None:
        try:
            saved = self._loaded().save(Path(command.directory))
        except (StateLeftError, UsageError) as error:  # also where no model is loaded
            self._tell(StateLeft(command.directory, str(error)))
        else:
            self._tell(StateSaved(command.directory, saved.tokens, saved.size_bytes))

    def _restore(self, command: RestoreState) -> None:
        try:
            tokens = self._loaded().restore(Path(command.directory))
        except (StateLeftError, UsageError) as error:  # also where no model is loaded
            self._tell(StateLeft(command.directory, str(error)))
        else:
            self._tell(StateRestored(command.directory, tokens))

    def _loaded(self) -> Answering:
        if self._answering is None:
            raise UsageError("no model is loaded: load a pair first")
        return self._answering

    def _drop(self) -> None:
        if self._answering is not None:
            self._answering.close()
            self._answering = None

    def _fail(self, command: Command, kind: str, reason: str) -> None:
        number = command.id if isinstance(command, Ask | Count) else None
        self._tell(Failed(number, kind, reason))


def _ready(loaded: Loaded) -> Ready:
    assistant, costs = loaded.assistant, loaded.costs
    try:
        thinks = bool(thinking_tags(assistant.template.source))
    except TemplateError:  # said when something is asked
        thinks = False
    return Ready(
        target=assistant.models.target_name,
        draft_model=assistant.models.draft_model_name,
        drafter=assistant.policy.drafter_name,
        n_ctx=assistant.models.target.n_ctx,
        notes=assistant.notes,
        load_s=assistant.load_s,
        thinks=thinks,
        plain_round_s=None if costs is None else costs.target.of(1),
        break_even=None if costs is None else break_even(costs),
    )
