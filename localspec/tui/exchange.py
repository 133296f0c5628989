"""Exchange: one request and what has come back for it so far, and how that is saved. No screen, no pipe."""

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
from localspec.errors import ContextOverflow, LocalspecError
from localspec.messages import ToolCall
from localspec.session.conversation import ReplyRecorder, SavedConversation, StoredMessage


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
        alone_tokens: of the question without the turns before it, where it found no room; 0 where that is not known.
        summarises: whether what was said is summarised, and nothing is answered.
        can_summarise: whether a summary would find room where this found none.
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
    alone_tokens: int = 0
    summarises: bool = False
    can_summarise: bool = True

    @property
    def is_too_long(self) -> bool:
        """Whether the question found no room and would find none without the turns before it; not where its answer was to go on."""
        if self.continued is not None:
            return False
        sizes = self.failure.sizes if isinstance(self.failure, ContextOverflow) else None
        return sizes is not None and self.alone_tokens >= sizes[1]

    @property
    def no_room(self) -> str:
        """What found no room in the context, on one line; empty where that is not what failed."""
        if not isinstance(self.failure, ContextOverflow):
            return ""
        if self.failure.sizes is not None and self.summarises:
            prompt, n_ctx, _ = self.failure.sizes
            return f"a summary finds no room: it reads {prompt:,} tokens at least, and the context holds {n_ctx:,}"
        if self.is_too_long and (asked := self.asked_tokens) is not None:
            return "the question has {:,} tokens and the context holds {:,}: shorten it".format(
                *asked
            )
        return str(self.failure)

    @property
    def asked_tokens(self) -> tuple[int, int] | None:
        """Tokens of a question that found no room, without what came before as far as that is known, and of the context."""
        sizes = self.failure.sizes if isinstance(self.failure, ContextOverflow) else None
        return None if sizes is None else (self.alone_tokens or sizes[0], sizes[1])

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
        if self.finished is not None and self.finished.reply.drafter == SERVER:  # it counted last
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


class ReplySaver:
    """Saves the reply of one exchange after the other as it comes; one without a token leaves nothing behind.

    Args:
        talk: the conversation.

    Attributes:
        message: the reply's message in the history, or that of the last one; None before its first text.
    """

    def __init__(self, talk: SavedConversation) -> None:
        self._talk = talk
        self._recorder: ReplyRecorder | None = None
        self.message: int | None = None

    def reset(self) -> None:
        """Begin with another reply."""
        self._recorder = self.message = None

    def feed(self, event: Text, exchange: Exchange, model: str) -> None:
        """Save a text of a reply by a model."""
        self._begun(exchange, model).feed(event.text, thinking=event.thinking)

    def finish(self, done: Finished, exchange: Exchange, model: str) -> None:
        """Save the end of a reply by a model."""
        turn = done.message
        before = exchange.continued
        if before is not None and self._recorder is None and not exchange.calls:
            return  # nothing was added: what the answer was before stays, its figures, too
        if turn.text or turn.thinking or turn.calls or self._recorder is not None:
            recorder = self._begun(exchange, model)
            self._talk.finish_reply(
                recorder,
                done.reply,
                turn,
                done.dropped_turns,
                done.no_drafting,
                {} if before is None else before.known_figures,
            )
            self._recorder = None

    def tick(self) -> None:
        """Save what came in though nothing more comes."""
        if self._recorder is not None:
            self._recorder.tick()

    def cut(self) -> None:
        """Keep what there is of a reply that will not end by itself."""
        if self._recorder is not None:
            self._recorder.cut()
            self._talk.show_branch(self._recorder.message)
            self._recorder = None

    def _begun(self, exchange: Exchange, model: str) -> ReplyRecorder:
        """Return what saves the reply, begun with its first text."""
        if self._recorder is None:
            history = self._talk.history
            assert self._talk.conversation is not None  # noqa: S101 - it holds the question
            if exchange.continued is not None:
                begun = exchange.continued
                self._recorder = history.resume_reply(begun.id, begun.message)
            else:
                self._recorder = history.begin_reply(
                    self._talk.conversation, exchange.parent, model
                )
            self.message = self._recorder.message
        return self._recorder
