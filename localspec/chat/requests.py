"""Requests: what is to be answered, and what came of it; who answers is not known here."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from localspec.chat.conversation import Conversation
from localspec.chat.events import Event, Reply
from localspec.decoding.policy import Policy
from localspec.errors import LocalspecError
from localspec.messages import Infill
from localspec.options import ReplyOptions


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One prompt to answer.

    Args:
        key: tells it from the others.
        prompt: a text, or a conversation; it gets the reply appended.
        options: how to answer.
        raw: let a text go to the model as it is, without the chat template.
        afresh: use nothing cached but whole chunks, so that the prompt is evaluated in the same chunks whatever
            was answered before.
        keep: use so many of the cached tokens at most; None uses what fits.
        policy: makes what drafts for this request alone, for the sequence that answers it; None takes the usual one.
        urgent: goes before requests that are not.
        infill: fill in a gap instead; then the prompt is not read.
        logprobs: tell how likely every token was, and so many of the likeliest beside it; None tells nothing.
        client: who asks. Of those who wait, whoever has the fewest answers under way goes first; of equals they take turns.
    """

    key: int
    prompt: str | Conversation
    options: ReplyOptions = field(default_factory=ReplyOptions)
    raw: bool = False
    afresh: bool = False
    keep: int | None = None
    policy: Callable[[int], Policy] | None = None
    urgent: bool = False
    infill: Infill | None = None
    logprobs: int | None = None
    client: str = ""

    @property
    def asked(self) -> str:
        """What the user said last."""
        if isinstance(self.prompt, str):
            return self.prompt
        messages = reversed(self.prompt.messages)
        return next((each.text for each in messages if each.role == "user"), "")


@dataclass(frozen=True, slots=True, eq=False)
class Answered:
    """What came of a request: a reply, or the reason why there is none.

    Args:
        key: of the request.
        reply: the answer; None where `error` says why.
        error: what is wrong with this request alone; the others go on.
    """

    key: int
    reply: Reply | None
    error: LocalspecError | None = None


class Observer(Protocol):
    """Sees how replies come about, and changes nothing; nothing of it may fail, or wait."""

    def begin(
        self, request: Request, tokens: Sequence[int], policy: Policy
    ) -> Callable[[Event], None]:
        """Return what takes the events of a reply that begins.

        Args:
            request: what is answered.
            tokens: ids of the whole prompt.
            policy: drafts for it; it may be told what to expect.
        """
        ...

    def close(self) -> None:
        """End: the models are closed."""
        ...


class Prefixes(Protocol):
    """Keeps what sequences have evaluated; nothing of it may fail."""

    def ready(self, slot: int, tokens: Sequence[int]) -> None:
        """Prepare a free sequence for a prompt: keep what it would lose, and put back what is known of the prompt."""
        ...

    def close(self) -> None:
        """Keep what the sequences hold: the models are closed."""
        ...


def at_once() -> bool:
    """Say that whoever asks for the next request need not wait for it."""
    return True


class Answerer(Protocol):
    """Answers requests, in whatever order they are done."""

    def answer(
        self, requests: Iterator[Request], ready: Callable[[], bool] = at_once
    ) -> Iterator[Answered]:
        """Take requests as there is room for them, and yield each once it is answered.

        A request is taken only when it can be started, so an endless iterator is fine.
        A reply that was cancelled is yielded as such, and nothing is taken after it.

        Args:
            requests: to answer.
            ready: says whether the next one, or the end, can be had without waiting. While it
                cannot, those that are under way go on.
        """
        ...
