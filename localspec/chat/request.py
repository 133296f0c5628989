"""Request: what is to be answered, and how; who watches and answers requests, and what comes of them. Flags, batch lines and HTTP bodies become one; its JSON goes over the engine's wire."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from localspec.calls import Tool
from localspec.calls.policy import CallPolicy
from localspec.chat.events import Event, Reply
from localspec.decoding.round import StopReason
from localspec.errors import LocalspecError
from localspec.messages import Infill, Message, Tagged
from localspec.options import ReplyOptions

if TYPE_CHECKING:
    from localspec.decoding.policy import Policy


class Request(Tagged, frozen=True):
    """One prompt to answer: a conversation, a text as it is, or a gap in a text.

    Args:
        id: chosen by the caller, new for every request.
        messages: the whole conversation, system prompt first. Where it begins like an earlier one, nothing is
            evaluated twice. If its last message is the assistant's, that one goes on.
        options: how to answer.
        draft: the drafter for this request, as `--draft` has it; None takes the loaded one. The text is the same.
        most_cached: use so many of the sequence's own cached tokens at most, so that two runs evaluate the same; None uses what fits.
        ephemeral: do not remember this conversation; what was remembered before stays.
        drop_oldest: where the conversation is too long, leave out its oldest messages, never the
            system prompt, instead of failing.
        least_questions: of the user's, which stay even so: 2 for what asks about the one before.
        raw: a text that goes to the model as it is, without the chat template, or its ids; then there are no messages.
        infill: a gap to fill in, where the model can; then there are no messages.
        logprobs: report how likely every token was, and so many of the likeliest beside it; None reports nothing.
        deterministic: use only whole cached chunks, so that no bit depends on what was answered before.
        client: the sender. Of the requests that wait, those of the client with the fewest under way go first, in turns.
        owner: whose evaluated tokens may be used, and who may use those of this request; empty where all share theirs.
        tools: functions that the model may call.
        call_policy: which of them, how often and in what order.
        conversation: the history's number of the conversation, so that what is said may go into the store, and leave it with
            the conversation; None where the history does not keep it.
        rounds: send a `RoundDone` for every round, which is most of the traffic.
        gate: what is masked in the reply: `usual`, or the rules as TOML; empty lets everything through.
        echo: begin with the prompt itself, of `raw` alone, with `logprobs` of its tokens where there are to be any.
        prediction: a text that the reply is expected to be like; drafts are looked up in it.
        given: sampling options that the caller set explicitly; a server has its own values of the others.
        drafts: by what name its client proposes tokens meanwhile; empty where it proposes none.
    """

    id: int
    messages: tuple[Message, ...] = ()
    options: ReplyOptions = ReplyOptions()
    draft: str | None = None
    most_cached: int | None = None
    ephemeral: bool = False
    drop_oldest: bool = False
    least_questions: int = 1
    raw: str | tuple[int, ...] | None = None
    infill: Infill | None = None
    logprobs: int | None = None
    deterministic: bool = False
    client: str = ""
    tools: tuple[Tool, ...] = ()
    call_policy: CallPolicy = CallPolicy()
    conversation: int | None = None
    rounds: bool = True
    gate: str = ""
    echo: bool = False
    prediction: str = ""
    given: tuple[str, ...] = ()
    owner: str = ""
    drafts: str = ""

    @property
    def question(self) -> str:
        """The last message of the user, or the text that goes on."""
        if self.infill is not None:
            return self.infill.prefix
        users = (each.text for each in reversed(self.messages) if each.role == "user")
        return next(users, self.raw if isinstance(self.raw, str) else "")


@dataclass(frozen=True, slots=True, eq=False)
class RequestOutcome:
    """What came of a request: a reply, or the reason why there is none.

    Args:
        key: of the request.
        reply: the answer; None where `error` says why.
        error: what is wrong with this request alone; the others go on.
        reason: why it was drafted as it was, a sentence.
    """

    key: int
    reply: Reply | None
    error: LocalspecError | None = None
    reason: str = ""

    @property
    def is_cancelled(self) -> bool:
        """Whether the reply was cancelled."""
        return self.reply is not None and self.reply.stop_reason is StopReason.CANCELLED


class Observer(Protocol):
    """Sees how replies come about, and changes nothing; nothing of it may fail, or wait."""

    def begin(
        self, request: Request, tokens: Sequence[int], policy: "Policy"
    ) -> Callable[[Event], None]:
        """Return what takes the events of a reply that begins.

        Args:
            request: what is answered.
            tokens: ids of the whole prompt.
            policy: drafts for it; it may learn what to expect.
        """

    def close(self) -> None:
        """End: the models are closed."""


class Reads(Protocol):
    """Keeps what sequences have read; nothing of it may fail.

    Attributes:
        needs_points: whether it has to know where other questions may begin, since no part of what was read can be cut off.
    """

    needs_points: bool

    def keep(self, slot: int, tokens: Sequence[int] = ()) -> None:
        """Keep what a free sequence is about to lose, if a prompt that comes leaves little of it."""

    def ready(
        self, slot: int, tokens: Sequence[int], request: Request, points: Sequence[int] = ()
    ) -> None:
        """Take note of what a free sequence is for, and put back what is known of the prompt, if the request may use that.

        `points` are counts of its tokens behind which others may begin.
        """

    def passed(self, slot: int) -> None:
        """Look at a sequence behind a pass of its prompt."""

    def withhold(self, slot: int) -> None:
        """Keep nothing of the reply."""

    def close(self) -> None:
        """Keep what the sequences hold: the models are closed."""


def at_once() -> bool:
    """Return that the next request can be had without waiting."""
    return True


class RequestDriver(Protocol):
    """Answers requests, in whatever order they are done."""

    def outcomes(
        self, requests: Iterator[Request], ready: Callable[[], bool] = at_once
    ) -> Iterator[RequestOutcome]:
        """Take requests as there is room for them, and yield each once it is answered.

        A request is taken only when it can be started, so an endless iterator is fine.
        A reply that was cancelled is yielded as such, and nothing is taken after it.

        Args:
            requests: to answer.
            ready: says whether the next one, or the end, can be had without waiting. While it
                cannot, those that are under way go on.
        """
