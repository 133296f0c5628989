"""Compaction: in what a model reads of a long conversation, a summary by the model stands in the place of what was said before it.

A request and its answer, the summary, are messages like others, and the history keeps all that was said. So a compaction can be undone, asked for
again, and is in every export.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from localspec.display import printable_line
from localspec.errors import UsageError
from localspec.history.records import SUMMARY, StoredMessage
from localspec.messages import MediaPart, Message, Part, TextPart
from localspec.options import ReplyOptions

REQUEST = (
    "Summarise our conversation so far, so that it can go on without the messages above. Keep what I asked for and what we "
    "decided, names, numbers, paths and code that are still needed, and what is still open. Write only the summary."
)
_OF_MEDIA = "Describe what is still needed of pictures and sounds, which are left out as well."
COMMAND = "/compact"
"""What a request for a summary is shown as: its words are not the user's."""
NEARLY_FULL = 0.8
"""Share of the context from which on a summary is offered."""
LEAST_SHARE = 16
"""Of the context, a summary that is worth it has at least one part in so many."""
_SUMMARY_SHARE, _LEAST_TOKENS, _USUAL_TOKENS = 8, 64, 1024
_RECENT_SHARE = 0.25
_TOKEN_CHARS, _MEDIUM_CHARS = 3, 2000
"""A token is about as long, and a picture or a sound."""
MOST_MEDIA_BYTES = 88 << 20
"""Of all pictures and sounds that a model reads: more, in base64, have no room in a request to the engine."""


def figures_of(recent: int | None) -> str:
    """Return what the history keeps with a request; `recent` is the first message that stays as it is."""
    return json.dumps({SUMMARY: recent})


def request_for(context: Sequence[StoredMessage]) -> Message:
    """Return what asks for a summary of what a model reads."""
    media = any(each.message.media for each in context)
    return Message.user(f"{REQUEST} {_OF_MEDIA}" if media else REQUEST)


def is_request(message: StoredMessage) -> bool:
    """Return whether a message asks for a summary."""
    return message.message.role == "user" and SUMMARY in message.known_figures


def typed_of(message: StoredMessage) -> str:
    """Return what a message shows of what its user typed: a request's words are not theirs."""
    return COMMAND if is_request(message) else message.message.typed


def summary_at(branch: Sequence[StoredMessage]) -> int | None:
    """Return where the last summary stands; None where there is none, or it was stopped."""
    for at in reversed(range(1, len(branch))):
        stored = branch[at]
        whole = stored.state == "complete" and bool(stored.message.text.strip())
        if stored.message.role == "assistant" and whole and is_request(branch[at - 1]):
            return at
    return None


def context_of(branch: Sequence[StoredMessage], *, summarises: bool = False) -> list[StoredMessage]:
    """Return what a model reads of a branch: the last summary, what was kept as it was, and what came after.

    Where it ends with a request, or with a summary that is not whole or is to go on (`summarises`), that is what is to be summarised.
    """
    at = None if summarises else summary_at(branch)
    for open_at in (len(branch) - 1, len(branch) - 2):
        if open_at >= 0 and is_request(branch[open_at]) and at != open_at + 1:
            before = context_of(branch[:open_at])
            return [*before[: _recent_at(before, branch[open_at])], *branch[open_at:]]
    if at is None:
        return [*branch]
    before = context_of(branch[: at - 1])
    recent = before[_recent_at(before, branch[at - 1]) :]
    return [branch[at - 1], branch[at], *recent, *branch[at + 1 :]]


def recent_from(context: Sequence[StoredMessage], n_ctx: int = 0) -> int | None:
    """Return the first message that stays as it is beside a summary: as many of the last questions, with their answers, as are a quarter of it all.

    None where there are none. The first question never stays. What is longer than the context of `n_ctx` tokens counts as that long.
    """
    sizes = [len(each.message.text) + _MEDIUM_CHARS * len(each.message.media) for each in context]
    questions = [
        at
        for at, each in enumerate(context)
        if each.message.role == "user" and not is_request(each)
    ]
    whole = min(sum(sizes), n_ctx * _TOKEN_CHARS) if n_ctx else sum(sizes)
    fitting = (
        at
        for at in questions[1:]
        if sum(sizes[at:]) <= _RECENT_SHARE * whole
        and _media_bytes(each.message for each in context[at:]) <= _RECENT_SHARE * MOST_MEDIA_BYTES
    )
    first = next(fitting, None)
    return None if first is None else context[first].id


def with_media_that_fit(turns: Sequence[Message], *, leave_out: bool) -> tuple[Message, ...]:
    """Return turns whose pictures and sounds have room in a request.

    Args:
        turns: what a model is to read.
        leave_out: put their names in place of the oldest, as many as are too many, but for those of the last turn.

    Raises:
        UsageError: they have too many bytes, and none is left out.
    """
    size = _media_bytes(turns)
    if size <= MOST_MEDIA_BYTES:
        return tuple(turns)
    if not leave_out:
        raise UsageError(
            f"the pictures and sounds of this conversation have {size / (1 << 20):.0f} MB, more than {MOST_MEDIA_BYTES >> 20}: "
            "attach fewer, or have what was said summarised by /compact in the chat"
        )

    def fitting(part: Part) -> Part:
        nonlocal size
        if size <= MOST_MEDIA_BYTES or not isinstance(part, MediaPart):
            return part
        size -= len(part.data)
        return TextPart(f"[{printable_line(part.name)}: left out]\n")

    earlier = [replace(each, parts=tuple(map(fitting, each.parts))) for each in turns[:-1]]
    return (*earlier, *turns[-1:])


def _media_bytes(turns: Iterable[Message]) -> int:
    return sum(len(part.data) for each in turns for part in each.media)


def _recent_at(context: Sequence[StoredMessage], request: StoredMessage) -> int:
    recent = request.known_figures[SUMMARY]
    return next((at for at, each in enumerate(context) if each.id == recent), len(context))


def options_for(options: ReplyOptions, n_ctx: int, *, stop_loops: bool = True) -> ReplyOptions:
    """Return how a summary is made: in free words, in an eighth of the context, and not over and over.

    Args:
        options: of the conversation.
        n_ctx: tokens of the context; 0 where that is unknown.
        stop_loops: whether what answers can end a text that repeats itself.
    """
    most = max(_LEAST_TOKENS, n_ctx // _SUMMARY_SHARE) if n_ctx else _USUAL_TOKENS
    made = ReplyOptions(options.sampling, options.seed, most)
    kwargs = options.template_kwargs
    return replace(made, stop_loops=stop_loops, think=options.think, template_kwargs=kwargs)


def branched(message: StoredMessage, ids: Mapping[int, int]) -> str:
    """Return what the history keeps with a question in another conversation, where messages have other ids."""
    if not is_request(message):
        return message.figures
    recent = message.known_figures[SUMMARY]
    return figures_of(ids.get(recent) if isinstance(recent, int) else None)
