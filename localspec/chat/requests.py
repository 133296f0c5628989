"""Requests: many prompts answered, one after the other or several at a time; who answers is not known here."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from localspec.chat.assistant import Assistant
from localspec.chat.conversation import Conversation
from localspec.chat.events import Reply
from localspec.decoding.generate import StopReason
from localspec.errors import LocalspecError
from localspec.options import ReplyOptions


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """One prompt to answer.

    Args:
        key: tells it from the others.
        prompt: a text, or a conversation; it gets the reply appended.
        options: how to answer.
        raw: let a text go to the model as it is, without the chat template.
    """

    key: int
    prompt: str | Conversation
    options: ReplyOptions
    raw: bool = False


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


class OneAtATime:
    """Answers requests in their order.

    Args:
        assistant: answers each.
        afresh: forget before each what was evaluated for others. What it shares with them is then
            evaluated again, and no bit of its answer depends on which they were.
    """

    def __init__(self, assistant: Assistant, *, afresh: bool = False) -> None:
        self._assistant = assistant
        self._afresh = afresh

    def answer(
        self,
        requests: Iterator[Request],
        ready: Callable[[], bool] = at_once,  # noqa: ARG002 - nothing is under way when it takes one
    ) -> Iterator[Answered]:
        """Answer each before the next is taken; see `Answerer`."""
        for request in requests:
            if self._afresh:
                self._assistant.models.target.truncate(0)
            try:
                reply = self._assistant.reply(request.prompt, request.options, raw=request.raw)
            except LocalspecError as error:
                yield Answered(request.key, None, error)
                continue
            yield Answered(request.key, reply)
            if reply.stop_reason is StopReason.CANCELLED:
                return
