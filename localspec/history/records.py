"""Records of the history, how messages with calls and results stand in its rows, and the tags that users give."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from localspec.errors import HistoryError, UsageError
from localspec.messages import MediaPart, Message, Part, ToolCall, ToolResult

State = Literal["streaming", "complete", "cut"]
Mark = Literal["", "good", "bad"]
"""What the user thinks of a reply."""
SUMMARY = "compact"
"""The figure of a question that asks for a summary of what was said."""
_TAG = re.compile(r"[\w.-]{1,40}")
_IN_QUERY = re.compile(r"(?:^|(?<=\s))(?:tag:|#)([\w.-]{1,40})(?=\s|$)")


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message in a tree of them.

    Args:
        id: never used again, also after it was deleted.
        parent: the message that it follows; None for a first one.
        message: what was said.
        state: `streaming` while it is written, `cut` where it was stopped or its writer died, else `complete`.
        created_s: seconds since 1970.
        model: what answered, as it was called; of a result, the function; empty for the user's.
        figures: what the screen wants to remember of a reply or a result, as JSON; empty without any.
        siblings: ids of all messages with the same parent and conversation, itself included, oldest first; questions and
            requests for a summary apart, and without requests that came to nothing.
        mark: the user's, of a reply.
    """

    id: int
    parent: int | None
    message: Message
    state: State
    created_s: float
    model: str
    figures: str
    siblings: tuple[int, ...]
    mark: Mark = ""

    @property
    def known_figures(self) -> Mapping[str, object]:
        """The figures; none where they are damaged or another program wrote them."""
        try:
            return msgspec.json.decode(self.figures or "{}", type=dict[str, object])
        except (msgspec.DecodeError, RecursionError):
            return {}


class MarkedReply(NamedTuple):
    """A reply with a mark; its seed and the tokens of its prompt are None where they are not known."""

    conversation: int
    id: int
    mark: Mark
    model: str
    seed: int | None
    prompt: int | None


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """What a list of conversations shows.

    Args:
        id: never used again, also after it was deleted.
        title: as the user named it, else the beginning of the first question.
        system: the system prompt; None without one.
        pair: what it was last held with, as `--pair` or `--target` names it.
        settings: what the screen wants to remember, as JSON; empty without any.
        created_s: seconds since 1970.
        updated_s: seconds since 1970, of the last message.
        leaf: the last message that was added or visible, with which the conversation opens; None for an empty one.
        n_messages: in all branches.
        excerpt: where a search has a match in a message, the words around it; else empty.
        tags: what the user calls it, to find it again.
    """

    id: int
    title: str
    system: str | None
    pair: str
    settings: str
    created_s: float
    updated_s: float
    leaf: int | None
    n_messages: int
    excerpt: str = ""
    tags: tuple[str, ...] = ()


class _Call(msgspec.Struct):
    id: str
    name: str
    arguments: str


class _Media(msgspec.Struct):
    """A picture or a sound, and how many characters of the content stand before it."""

    kind: Literal["image", "audio"]
    name: str
    sha256: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    at: int


class _Acts(msgspec.Struct, omit_defaults=True):
    """What a message has beside words: media, calls, or what it is the result of. Media come first: queries look for that."""

    media: list[_Media] = []
    calls: list[_Call] = []
    result_of: str | None = None
    is_error: bool | None = None


def acts_of(message: Message) -> str:
    """Return what a message has beside words as JSON; empty for one of words alone."""
    media = [
        _Media(
            each.kind,
            storable(each.name),
            each.sha256,
            len(replace(message, parts=message.parts[:at]).text),
        )
        for at, each in enumerate(message.parts)
        if isinstance(each, MediaPart)
    ]
    acts = _Acts(media, [_Call(each.id, each.name, each.arguments) for each in message.calls])
    for each in message.parts:
        if isinstance(each, ToolResult):
            acts = _Acts(result_of=each.call_id, is_error=each.is_error)
    text = msgspec.json.encode(acts).decode()
    return "" if text == "{}" else text


def content_of(message: Message) -> str:
    """Return the words of a message: what was said, or the text of a result."""
    results = [each.text for each in message.parts if isinstance(each, ToolResult)]
    return results[0] if results else message.text


def message_of(row: Mapping[str, Any], media: Callable[[str], bytes]) -> Message:
    """Return the message of a row.

    Args:
        row: by column.
        media: returns the content of a file by its hash.

    Raises:
        HistoryError: another program wrote its acts.
    """
    role, content, thinking, text = (row[key] for key in ("role", "content", "thinking", "acts"))
    if not text:
        return Message.from_text(role, content, thinking)
    try:
        acts = msgspec.json.decode(text, type=_Acts)
    except (msgspec.DecodeError, RecursionError):
        raise HistoryError(
            f"what belongs to a message cannot be read ({text[:40]!r}): delete its conversation"
        ) from None
    if acts.result_of is not None:
        return Message("tool", (ToolResult(acts.result_of, content, bool(acts.is_error)),))
    if acts.media:
        return Message("user", tuple(_with_media(content, acts.media, media)))
    words = Message.from_text("assistant", content, thinking)
    calls = (ToolCall(each.id, each.name, each.arguments) for each in acts.calls)
    return Message("assistant", (*words.parts, *calls), thinking)


def _with_media(
    content: str, media: Sequence[_Media], read: Callable[[str], bytes]
) -> Iterator[Part]:
    done = 0
    for each in media:
        end = max(done, each.at)
        yield from Message.from_text("user", content[done:end]).parts
        data = read(each.sha256)
        yield MediaPart(each.kind, each.name, data, "" if data else each.sha256)
        done = end
    yield from Message.from_text("user", content[done:]).parts


def storable(text: str) -> str:
    """Return a text without lone surrogates, which UTF-8 has no bytes for."""
    return text.encode(errors="replace").decode() if not text.isascii() else text


def tags_of(text: str) -> tuple[Sequence[str], Sequence[str]]:
    """Return the tags that are to be added and those that are to be removed, which begin with a minus.

    Raises:
        UsageError: one is no tag.
    """
    added, removed = list[str](), list[str]()
    for word in text.replace(",", " ").split():
        name = word.removeprefix("-").removeprefix("#").lower()
        if not _TAG.fullmatch(name) or name.isdecimal():
            raise UsageError(
                f"{word[:40]!r} is not a tag: use letters, digits, _, - and ., and not only digits"
            )
        (removed if word.startswith("-") else added).append(name)
    return added, removed


def split_query(query: str) -> tuple[str, list[str]]:
    """Return a query without its tags, which stand there as `tag:NAME` or `#NAME`, and these tags."""
    tags = [each.lower() for each in _IN_QUERY.findall(query)]
    return " ".join(_IN_QUERY.sub(" ", query).split()) if tags else query, tags
