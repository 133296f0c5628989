"""Exchange: one request and what has come back for it so far. No screen, no pipe."""

from dataclasses import dataclass, field

import msgspec

from localspec.chat.events import (
    CallBegun,
    CallDelta,
    Event,
    Finished,
    Prefilling,
    RoundDone,
    Started,
    Text,
    Withheld,
)
from localspec.chat.request import Request
from localspec.decoding.round import SERVER, Round, StopReason
from localspec.errors import LocalspecError
from localspec.messages import ToolCall
from localspec.session.conversation import StoredMessage


@dataclass(slots=True)
class Exchange:
    """One request to the engine, filled by its events.

    Args:
        request: what was sent.
        parent: the message of the history that it answers; None where the answer is not saved.
        continued: the same, if it is an answer that goes on; else None.

    Attributes:
        number: the engine's of the request; None before it has it.
        model: what answers, as `--pair` or `--target` names it; empty until it begins.
        answer: text of the answer, without the part that a continued one had before.
        thoughts: the same of its thoughts.
        calls: of functions, as far as their arguments have come.
        happened: every round, the first token among them, with the texts of its tokens.
        withheld: what an `ask` rule of a gate masked.
        started: figures of the prompt, once the engine works on it.
        prefilled: share of the prompt that is evaluated, 0 to 1.
        finished: the end, once it is there.
        pieces: how many parts of texts and calls have come.
        failure: why it could not be done, or broke off; None while it can.
    """

    request: Request
    parent: int | None = None
    continued: StoredMessage | None = None
    number: int | None = None
    model: str = ""
    answer: str = ""
    thoughts: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    happened: list[RoundDone] = field(default_factory=list)
    withheld: list[Withheld] = field(default_factory=list)
    started: Started | None = None
    prefilled: float = 0.0
    finished: Finished | None = None
    pieces: int = 0
    failure: LocalspecError | None = None

    @property
    def rounds(self) -> list[Round]:
        """Every round; the first token, which the prompt gives, is none."""
        return [each.round for each in self.happened if not each.round.is_first]

    @property
    def tokens(self) -> int:
        """Confirmed tokens, but for what ended the answer; of a server, which sends no rounds, about as many until the end."""
        rounds = sum(len(each.texts) for each in self.happened)
        if self.finished is not None and self.finished.reply.drafter == SERVER:
            return self.finished.reply.completion_tokens
        return rounds or (self.pieces if self.finished is None else 0)

    @property
    def done(self) -> bool:
        """Whether nothing more will come."""
        return self.finished is not None or self.failure is not None

    @property
    def cancelled(self) -> bool:
        """Whether the user stopped it."""
        done = self.finished
        return done is not None and done.reply.stop_reason is StopReason.CANCELLED

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens after the first, per second of decoding; None before there are any."""
        if self.finished is not None:
            return self.finished.reply.tokens_per_s
        seconds = sum(each.spent.wall_s for each in self.rounds)
        return sum(len(each.confirmed) for each in self.rounds) / seconds if seconds else None

    @property
    def no_drafting(self) -> str:
        """Why nothing was drafted, in about five words; empty before the end, and where something was."""
        return "" if self.finished is None else self.finished.no_drafting

    @property
    def context_tokens(self) -> int:
        """Tokens of context in use."""
        if (
            self.finished is not None and self.finished.reply.drafter == SERVER
        ):  # which counted last
            return self.finished.reply.prompt_tokens + self.tokens
        return (0 if self.started is None else self.started.prompt_tokens) + self.tokens

    def begin(self, number: int) -> None:
        """Take note of the engine's number."""
        self.number = number

    def take(self, event: Event) -> None:
        """Add what happened."""
        self.pieces += isinstance(event, Text | CallDelta)
        match event:
            case Started():
                self.started = event
            case Prefilling():
                self.prefilled = event.done_tokens / max(event.total_tokens, 1)
            case RoundDone():
                self.happened.append(event)
            case Text(text, thinking=True):
                self.thoughts += text
            case Text(text):
                self.answer += text
            case CallBegun():
                self.calls.append(ToolCall(event.id, event.name, ""))
            case CallDelta():
                self._add_arguments(event)
            case Withheld():
                self.withheld.append(event)
            case Finished():
                self.finished = event

    def _add_arguments(self, delta: CallDelta) -> None:
        for at, each in enumerate(self.calls):
            if each.id == delta.id:
                whole = each.arguments + delta.text
                self.calls[at] = msgspec.structs.replace(each, arguments=whole)
