"""Exchange: one request and what has come back for it so far. No screen, no pipe."""

from dataclasses import dataclass, field

import msgspec

from localspec.chat.events import (
    CallBegun,
    CallDelta,
    Finished,
    Forecast,
    Prefilling,
    RoundDone,
    Started,
    StreamEvent,
    Text,
)
from localspec.decoding.round import Round
from localspec.engine.protocol import Failed, Notice, ReplyEvents
from localspec.messages import Message, ToolCall
from localspec.session.conversation import StoredMessage


@dataclass(slots=True)
class Exchange:
    """One request to the engine, filled by its notices.

    Args:
        id: what its notices bear.
        messages: the conversation that was sent.
        parent: the message of the history that it answers; None where the answer is not saved.
        continued: the same, if it is an answer that goes on; else None.

    Attributes:
        model: what answers, as `--pair` or `--target` names it; empty until it begins.
        answer: text of the answer, without the part that a continued one had before.
        thoughts: the same of its thoughts.
        calls: of functions, as far as their arguments have come.
        happened: every round, the first token among them, with the texts of its tokens.
        started: figures of the prompt, once the engine works on it.
        prefilled: share of the prompt that is evaluated, 0 to 1.
        finished: the end, once it is there.
        failure: why it could not be done; None while it can.
    """

    id: int
    messages: tuple[Message, ...]
    parent: int | None = None
    continued: StoredMessage | None = None
    model: str = ""
    answer: str = ""
    thoughts: str = ""
    calls: list[ToolCall] = field(default_factory=list)
    happened: list[RoundDone] = field(default_factory=list)
    started: Started | None = None
    prefilled: float = 0.0
    finished: Finished | None = None
    failure: Failed | None = None

    @property
    def rounds(self) -> list[Round]:
        """Every round; the first token, which the prompt gives, is none."""
        return [each.round for each in self.happened if not each.round.is_first]

    @property
    def tokens(self) -> int:
        """Confirmed tokens, but for what ended the answer."""
        return sum(len(each.texts) for each in self.happened)

    @property
    def done(self) -> bool:
        """Whether nothing more will come."""
        return self.finished is not None or self.failure is not None

    @property
    def forecast(self) -> Forecast | None:
        """What drafting was to gain, and what it came to; None before the end, and if costs are not known."""
        return None if self.finished is None else self.finished.forecast

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
        """Tokens of context in use; what was refused uses none."""
        if self.failure is not None:
            return 0
        return (0 if self.started is None else self.started.prompt_tokens) + self.tokens

    def take(self, notice: Notice) -> bool:
        """Take a notice; return whether it was for this request."""
        if getattr(notice, "id", None) != self.id:
            return False
        match notice:
            case ReplyEvents():
                for event in notice.events:
                    self._take_event(event)
            case Finished():
                self.finished = notice
            case Failed():
                self.failure = notice
            case _:
                return False
        return True

    def _take_event(self, event: StreamEvent) -> None:
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
            case CallBegun(number, name):
                self.calls.append(ToolCall(number, name, ""))
            case CallDelta(number, text):
                for at, each in enumerate(self.calls):
                    if each.id == number:
                        whole = each.arguments + text
                        self.calls[at] = msgspec.structs.replace(each, arguments=whole)
            case _:
                pass
