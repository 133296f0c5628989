"""Server: the engine's own end of the pipe. Answers several requests at once, and does all else one after the other.

Whatever goes wrong with a request becomes one `Failed`, and the next request is served.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from localspec.chat.request import Request
from localspec.chat.thinking import thinking_tags
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.engine.answering import Answering, failure
from localspec.engine.factory import Factory, Loaded, StateLeftError
from localspec.engine.forecast import break_even
from localspec.engine.interruption import Interruption
from localspec.engine.protocol import (
    Command,
    Count,
    Counted,
    Detokenize,
    Load,
    LoadCancelled,
    Notice,
    Question,
    Ready,
    RestoreState,
    SaveState,
    StateLeft,
    StateRestored,
    StateSaved,
    Tokenize,
)
from localspec.engine.requests import Requests
from localspec.errors import TemplateError, UsageError


@dataclass(slots=True, eq=False)
class Server:
    """Serves one client.

    Args:
        factory: loads models.
        requests: what the client says.
        cancel: the flag that `requests` sets.
        interruption: what `requests` does beside it.
        tell: says something to the client; never waits.
    """

    factory: Factory
    requests: Requests
    cancel: CancelFlag
    interruption: Interruption
    tell: Callable[[Notice], None]
    answering: Answering | None = field(default=None, init=False)

    def serve(self) -> None:
        """Serve until the client ends it.

        Answers go on between two commands; what changes the models waits until none is left.
        """
        self.requests.start(self._cancel_reply)
        while True:
            command = self.requests.next(busy=self._busy)
            if command is not None:
                self._do(command)
            elif self._busy:
                self._step()
            else:
                return

    @property
    def _busy(self) -> bool:
        return self.answering is not None and self.answering.busy

    def _step(self) -> None:
        """Go on with what is being answered; a fault in a pass ends all of it, and not the models."""
        assert self.answering is not None, "it is busy"  # noqa: S101
        if self.requests.ended:
            self.cancel.set()
        try:
            self.answering.step()
        except Exception as error:
            self.answering.abandon(error)

    def _cancel_reply(self, number: int) -> None:
        """End one answer; called by the thread that reads."""
        if self.answering is not None:
            self.answering.cancel(number)

    def _do(self, command: Command) -> None:
        """Do it; whatever goes wrong becomes one `Failed`, and the next command is served."""
        try:
            self._tried(command)
        except Exception as error:  # one request must not cost the models, nor the chat
            number = command.id if isinstance(command, Question) else None
            self.tell(failure(number, error))

    def _tried(self, command: Command) -> None:
        match command:
            case Load():
                self._load(command)
            case Request():
                answering = self._loaded()
                answering.submit(command)
                if self.requests.is_cancelled(command.id):
                    answering.cancel(command.id)
            case Count():
                tokens, n_ctx = self._loaded().count(command.messages, command.tools)
                self.tell(Counted(command.id, tokens, n_ctx))
            case Tokenize():
                self.tell(self._loaded().tokenize(command))
            case Detokenize():
                self.tell(self._loaded().spell(command.id, command.tokens))
            case SaveState():
                self._save(command)
            case RestoreState():
                self._restore(command)

    def _load(self, command: Load) -> None:
        try:
            self._fetch(command)
            # Only now does the old pair go, and its memory is free before the new one is planned.
            self._drop()
            loaded = self.factory.load(command, self.cancel, self.tell)
        except (Cancelled, KeyboardInterrupt):
            kept = self.answering
            self.tell(LoadCancelled(None if kept is None else kept.target_name))
            return
        self.answering = Answering(loaded, self.tell)
        self.tell(ready_of(loaded))

    def _fetch(self, command: Load) -> None:
        with self.interruption.allowed():
            if not self.cancel.is_set:
                self.factory.fetch(command, self.tell)
        if self.cancel.is_set:  # also where a library took the interruption for an error of its own
            raise Cancelled

    def _save(self, command: SaveState) -> None:
        try:
            saved = self._loaded().save(Path(command.directory))
        except (StateLeftError, UsageError) as error:  # also where no model is loaded
            self.tell(StateLeft(command.directory, str(error)))
        else:
            self.tell(StateSaved(command.directory, saved.tokens, saved.size_bytes))

    def _restore(self, command: RestoreState) -> None:
        try:
            tokens = self._loaded().restore(Path(command.directory))
        except (StateLeftError, UsageError) as error:  # also where no model is loaded
            self.tell(StateLeft(command.directory, str(error)))
        else:
            self.tell(StateRestored(command.directory, tokens))

    def _loaded(self) -> Answering:
        if self.answering is None:
            raise UsageError("no model loaded: choose one with F8 or /model")
        return self.answering

    def _drop(self) -> None:
        if self.answering is not None:
            self.answering.close()
            self.answering = None


def ready_of(loaded: Loaded) -> Ready:
    """Return what is told of models that are loaded."""
    assistant, costs = loaded.assistant, loaded.costs
    try:
        thinks = bool(thinking_tags(assistant.template.source))
    except TemplateError:  # said when something is asked
        thinks = False
    return Ready(
        target=assistant.models.target_name,
        draft_model=assistant.models.draft_model_name,
        drafter=assistant.policy.name,
        n_ctx=assistant.models.target.n_ctx,
        notes=assistant.notes,
        load_s=assistant.load_s,
        thinks=thinks,
        break_even=None if costs is None else break_even(costs),
    )
