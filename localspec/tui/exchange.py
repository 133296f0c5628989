"""Exchange: one request and what has come back for it so far. No screen, no pipe."""

from dataclasses import dataclass, field

import msgspec

from localspec.chat.events import (
    CallBegun,
    CallDelta,
    Prefilling,
    RoundDone,
    Started,
    StreamEvent,
    Text,
)
from localspec.decoding.round import Round
from localspec.engine.protocol import Failed, Forecast, Notice, ReplyDone, ReplyEvents
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
        answer: text of the answer, the part that a continued one had before not included.
        thoughts: likewise.
        calls: of functions, as far as their arguments have come.
        happened: every round, the first token among them, with the texts of its tokens.
        started: figures of the prompt, once the engine works on it.
        prefilled: share of the prompt that is evaluated, 0 to 1.
        finished: the end, once it is there.
        failure: why it could not be done; empty while it can.
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
    finished: ReplyDone | None = None
    failure: Failed | None = None
    # Sums over the rounds, since the status line is asked for them all the time.
    _tokens: int = 0
    _seconds: float = 0.0
    _confirmed: int = 0
    _drafted: int = 0
    _accepted: int = 0

    def __post_init__(self) -> None:
        for each in self.happened:
            self._count(each.round)

    @property
    def rounds(self) -> list[Round]:
        """Every round; the first token, which the prompt gives, is none."""
        return [each.round for each in self.happened if not each.round.is_first]

    @property
    def tokens(self) -> int:
        """Confirmed tokens, but for what ended the answer."""
        return self._tokens

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
        return self._confirmed / self._seconds if self._seconds > 0 else None

    @property
    def acceptance(self) -> float | None:
        """Accepted over drafted tokens; None when nothing was drafted."""
        return self._accepted / self._drafted if self._drafted else None

    @property
    def drafted(self) -> int:
        """Drafted tokens."""
        return self._drafted

    @property
    def accepted(self) -> int:
        """Those of them that are in the text."""
        return self._accepted

    @property
    def no_drafting(self) -> str:
        """Why nothing was drafted, in about five words; empty before the end, and where something was."""
        return "" if self.finished is None else self.finished.no_drafting

    @property
    def context_tokens(self) -> int:
        """Tokens of context in use; what was refused uses none."""
        if self.failure is not None:
            return 0
        prompt = 0 if self.started is None else self.started.prompt_tokens
        return prompt + self.tokens

    def take(self, notice: Notice) -> bool:
        """Take a notice; return whether it was for this request."""
        if getattr(notice, "id", None) != self.id:
            return False
        match notice:
            case ReplyEvents():
                for event in notice.events:
                    self._see(event)
            case ReplyDone():
                self.finished = notice
            case Failed():
                self.failure = notice
            case _:
                return False
        return True

    def _see(self, event: StreamEvent) -> None:
        match event:
            case Started():
                self.started = event
            case Prefilling():
                self.prefilled = event.done_tokens / max(event.total_tokens, 1)
            case RoundDone():
                self.happened.append(event)
                self._tokens += len(event.texts)
                self._count(event.round)
            case Text(text, thinking=True):
                self.thoughts += text
            case Text(text):
                self.answer += text
            case CallBegun(number, name):
                self.calls.append(ToolCall(number, name, ""))
            case CallDelta(number, text):
                self.calls = [
                    msgspec.structs.replace(each, arguments=each.arguments + text)
                    if each.id == number
                    else each
                    for each in self.calls
                ]
            case _:
                pass

    def _count(self, done: Round) -> None:
        if done.is_first:
            return
        self._seconds += done.spent.wall_s
        self._confirmed += len(done.confirmed)
        self._drafted += done.drafted
        self._accepted += done.accepted
