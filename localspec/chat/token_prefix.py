"""What was said, and the ids that were evaluated for it. Receives a template and a tokenizer, knows no model.

Contract: past turns keep the ids that were generated, so that the next prompt begins with everything evaluated so
far, and only what is new gets evaluated. Where the template writes the past otherwise (it leaves out thoughts, or
trims), the ids end before that turn and the rest is tokenized again: right, only slower.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from localspec.calls import Tool
from localspec.calls.policy import CallPolicy
from localspec.chat.reply_text import ThinkingFilter, split_thinking
from localspec.chat.request import Request
from localspec.chat.template import ChatTemplate
from localspec.chat.thinking import ThinkingTags, opened_by, thinking_tags
from localspec.chat.tokenizer import BREAK, ContentGuard, Tokenizer, raw_tokens, tokenize_rendered
from localspec.display import printable_line
from localspec.errors import UsageError
from localspec.messages import MediaPart, Message, TextPart, ToolCall

if TYPE_CHECKING:
    from localspec.chat.call_heads import CallsInThoughts


@dataclass(frozen=True, slots=True)
class Segment:
    """Text with its breaks, and the ids that it was evaluated as."""

    text: str
    tokens: tuple[int, ...]


def tag_texts(tags: Iterable[ThinkingTags]) -> list[str]:
    """Return the texts of tags, opening and closing."""
    return [tag for pair in tags for tag in (pair.open, pair.close)]


def begun_reply(
    message: Message,
    later: Sequence[Segment],
    tokenizer: Tokenizer,
    guard: ContentGuard,
    tags: Sequence[ThinkingTags],
    opened: ThinkingTags | None,
) -> tuple[str, Segment]:
    """Return what a reply that is to go on says, as its model wrote it, and the ids of it.

    Args:
        message: the reply.
        later: what is remembered after the prompt of it.
        tokenizer: for what is not remembered.
        guard: of its text.
        tags: what may enclose thoughts.
        opened: the block that the prompt opens.
    """
    text, tokens = "", tuple[int, ...]()
    for segment in later:
        text, tokens = text + segment.text, (*tokens, *segment.tokens)
        written = text.replace(BREAK, "")
        if split_thinking(written, tags, opened) == (message.thinking, message.text):
            return written, Segment(text, tokens)
    written = message.text
    if message.thinking and tags:
        pair = opened or tags[0]
        before = "" if opened else pair.open + "\n"
        head = next((each.open for each in tags if pair.more and each.words), "\n\n")
        # thoughts without an answer were cut
        after = f"{pair.close}{head}{message.text}" if message.text else ""
        written = before + message.thinking + after
    text = guard.break_up(written, exempt=tag_texts(tags) if message.thinking else [])
    return written, Segment(text, tuple(tokenize_rendered(text, tokenizer, at_start=False)))


__all__ = ["NO_ANSWER", "Conversation", "Segment", "Tokenizer", "raw_tokens"]

# Stands for a reply that was cut off before its answer began: some templates refuse an empty one.
NO_ANSWER = "…"


def _text_only(part: MediaPart) -> Sequence[int]:
    raise UsageError(f"{printable_line(part.name)} cannot be read: this model reads text only")


@dataclass(frozen=True, slots=True)
class _Prompt:
    """The last prompt: what it reused and added, and what a reply to it is read with.

    `begun` is what the reply says already, where the prompt ends within one that is to go on.
    """

    segments: tuple[Segment, ...]
    template: ChatTemplate
    tokenizer: Tokenizer
    guard: ContentGuard
    tags: tuple[ThinkingTags, ...]
    opened: ThinkingTags | None
    begun: str


class Conversation:
    """Messages in order; the system prompt, if there is one, is the first of them.

    Args:
        system: the system prompt; None leaves it to the template, which may have a default.
        messages: earlier turns, as when a conversation is taken up again; their ids are unknown.
        remembered: what another conversation with the same model, mostly an earlier state of this one, remembers
            of ids; of use as far as the texts are the same.
        tools: functions that the model may call.
        call_policy: which of them, how often and in what order.

    `tools` and `call_policy` can be replaced before any reply.
    """

    def __init__(
        self,
        system: str | None = None,
        messages: Iterable[Message] = (),
        remembered: tuple[Segment, ...] = (),
        *,
        tools: Sequence[Tool] = (),
        call_policy: CallPolicy | None = None,
    ) -> None:
        first = [] if system is None else [Message.system(system)]
        self._messages = [*first, *messages]
        self._segments = remembered
        self._prompt: _Prompt | None = None
        self.tools = tuple(tools)
        self.call_policy = call_policy or CallPolicy()

    @classmethod
    def of(cls, request: Request, remembered: tuple[Segment, ...] = ()) -> "Conversation":
        """Return the conversation of a request."""
        tools, rules = request.tools, request.call_policy
        return cls(None, request.messages, remembered, tools=tools, call_policy=rules)

    @property
    def offered(self) -> tuple[Tool, ...]:
        """The functions that the model is offered."""
        return tuple(each for each in self.tools if self.call_policy.offers(each.name))

    @property
    def messages(self) -> tuple[Message, ...]:
        """All that was said so far."""
        return tuple(self._messages)

    @property
    def remembered(self) -> tuple[Segment, ...]:
        """The ids of what was said, with their texts."""
        return self._segments

    @property
    def goes_on(self) -> bool:
        """Whether the last turn is the assistant's, so that the next reply is more of it."""
        return bool(self._messages) and self._messages[-1].role == "assistant"

    @property
    def begun(self) -> tuple[int, ...]:
        """The ids of what the reply to the last prompt says already; none where a new one begins."""
        return self._prompt.segments[-1].tokens if self._prompt and self.goes_on else ()

    def append_user(self, message: str | Message) -> None:
        """Add what the user says."""
        self._messages.append(Message.user(message) if isinstance(message, str) else message)

    def append(self, message: Message) -> None:
        """Add a message, such as the result of a call."""
        self._messages.append(message)

    def prompt_tokens(
        self,
        template: ChatTemplate,
        tokenizer: Tokenizer,
        media_tokens: Callable[[MediaPart], Sequence[int]] = _text_only,
    ) -> list[int]:
        """Return the ids of the whole conversation up to where the next reply begins, or goes on.

        Text in contents that spells a special token stays text. An unlike tokenizer forgets all remembered ids.

        Args:
            template: the target's.
            tokenizer: the target's.
            media_tokens: returns the ids of a picture or a sound. It gets all of the conversation, also those whose ids
                are remembered: what was evaluated of them may have to be evaluated again.

        Raises:
            TemplateError: the template does not render these messages.
            UsageError: the last message calls functions, or a picture or a sound cannot be read.
        """
        if self.goes_on and self._messages[-1].calls:
            raise UsageError("the last message calls functions: add their results before an answer")
        template = template.offering(tools=bool(self.offered))
        last = self._prompt
        if last is not None and last.tokenizer != tokenizer:
            self._segments = ()
        if last is not None and last.tokenizer == tokenizer and last.template is template:
            guard = last.guard
        else:
            guard = ContentGuard(tokenizer, template.source)
        files = {part.sha256: part for each in self._messages for part in each.media}
        media = {name: media_tokens(part) for name, part in files.items()}
        begun_message = self._messages[-1] if self.goes_on else None
        messages = self._messages[:-1] if begun_message else self._messages
        tags = thinking_tags(template.source)
        text = template.render(
            [_for_template(message, guard, tags) for message in messages],
            tools=guarded(self.offered, guard),
            variables=_broken_up(template.variables, guard),
        )
        known, rest = _reusable(self._segments, text)
        new = tokenize_rendered(rest, tokenizer, at_start=not known, media=media)
        segments = (*known, Segment(rest, tuple(new)))
        opened = opened_by(text, tags)
        begun = ""
        if begun_message:
            later = () if rest else self._segments[len(known) :]
            begun, segment = begun_reply(begun_message, later, tokenizer, guard, tags, opened)
            segments = (*segments, segment)
        self._prompt = _Prompt(segments, template, tokenizer, guard, tags, opened, begun)
        return [token for segment in segments for token in segment.tokens]

    def thinking_filter(self, calls: "CallsInThoughts | None" = None) -> ThinkingFilter:
        """Return a filter for the reply to the last prompt, with what finds calls in its thoughts; without a prompt, text passes untouched."""
        if self._prompt is None:
            return ThinkingFilter(())
        thinking = ThinkingFilter(self._prompt.tags, self._prompt.opened, calls)
        thinking.feed(self._prompt.begun)
        return thinking

    @property
    def template(self) -> ChatTemplate | None:
        """The template of the last prompt."""
        return None if self._prompt is None else self._prompt.template

    @property
    def thinking_tags(self) -> tuple[tuple[ThinkingTags, ...], ThinkingTags | None]:
        """The tags that the last prompt's template knows, and those of the block that the prompt has opened."""
        return ((), None) if self._prompt is None else (self._prompt.tags, self._prompt.opened)

    def append_reply(
        self,
        text: str,
        tokens: Sequence[int],
        *,
        calls: Sequence[ToolCall] = (),
        words: str = "",
        thoughts: str = "",
        markers: Iterable[str] = (),
    ) -> None:
        """Add the reply to the last prompt, or what is new of it where it goes on.

        Args:
            text: all that was generated up to a stop string, thoughts and their tags included.
            tokens: the ids that spell it, as generated, without EOG.
            calls: in it.
            words: of its answer, where it has calls.
            thoughts: before them, where it has calls.
            markers: special texts that the calls are made of.
        """
        prompt = self._prompt
        if prompt is None:
            self._messages.append(Message.assistant(text))
            return
        if self.goes_on:
            self._messages.pop()
        thinking, answer = split_thinking(prompt.begun + text, prompt.tags, prompt.opened)
        exempt = tag_texts(prompt.tags) if thinking else []
        if calls:
            begun = split_thinking(prompt.begun, prompt.tags, prompt.opened)
            thinking, answer = begun[0] + thoughts, begun[1] + words
            exempt = [*exempt, *markers]
        turn = Message.assistant(answer, thinking)
        self._messages.append(replace(turn, parts=(*turn.parts, *calls)))
        written = prompt.guard.break_up(text, exempt=exempt)
        # An empty text would match anywhere.
        self._segments = (*prompt.segments, *([Segment(written, tuple(tokens))] if text else []))


@dataclass(frozen=True, slots=True)
class _Known:
    """What was said to someone, and the ids of it."""

    messages: tuple[Message, ...]
    segments: tuple[Segment, ...]
    owner: str


class KnownConversations:
    """The ids of the last conversations, so that their next turns evaluate only what is new.

    Args:
        most: how many; more than sequences may still hold are of no use.

    Attributes:
        last: what is remembered of the one that was answered last.
    """

    def __init__(self, most: int) -> None:
        self.last: tuple[Segment, ...] = ()
        self._owner = ""  # of the last
        self._known: deque[_Known] = deque(maxlen=most)

    def conversation(self, request: Request) -> Conversation:
        """Return the conversation of a request, with the ids of the one that begins most like it."""
        known = [each for each in self._known if each.owner == request.owner]
        beginnings = [_common(request.messages, each.messages) for each in known]
        remembered = self.last if self._owner == request.owner else ()
        if longest := max(beginnings, default=0):  # of equal ones the last that was said
            at = len(beginnings) - 1 - beginnings[::-1].index(longest)
            remembered = known[at].segments
        return Conversation.of(request, remembered)

    def remember(self, conversation: Conversation, owner: str = "") -> None:
        """Keep the ids of what was said for someone, in place of those of an earlier state of it."""
        messages, self.last, self._owner = conversation.messages, conversation.remembered, owner
        earlier = [
            each
            for each in self._known
            if each.owner == owner and _common(each.messages, messages) == len(each.messages)
        ]
        for each in earlier:
            self._known.remove(each)
        self._known.append(_Known(messages, self.last, owner))


def _common(some: Sequence[Message], others: Sequence[Message]) -> int:
    """Return how many messages two conversations begin with that are the same."""
    pairs = zip(some, others, strict=False)
    return next(
        (at for at, (one, other) in enumerate(pairs) if one != other), min(len(some), len(others))
    )


def _for_template(message: Message, guard: ContentGuard, tags: Sequence[ThinkingTags]) -> Message:
    message = _with_thoughts_apart(message, tags)
    if message.role == "assistant" and not message.text and not message.calls:
        message = replace(message, parts=(TextPart(NO_ANSWER),))
    return message.changed(guard.break_up)


def _with_thoughts_apart(message: Message, tags: Sequence[ThinkingTags]) -> Message:
    """Return a message whose thoughts are no words, where its words begin with whole ones between tags: some programs send them so."""
    begins, text = (each for each in tags if not each.words), message.text.lstrip()
    between = any(text.startswith(each.open) and each.close in text for each in begins)
    if message.role != "assistant" or message.thinking or not between:
        return message
    thoughts, answer = split_thinking(message.text, tags)
    words = (TextPart(answer),) if answer else ()
    return replace(message, parts=(*words, *message.calls), thinking=thoughts.strip())


def _reusable(segments: Sequence[Segment], text: str) -> tuple[tuple[Segment, ...], str]:
    """Return the segments that `text` begins with, and the rest of it."""
    for index, segment in enumerate(segments):
        if not text.startswith(segment.text):
            return tuple(segments[:index]), text
        text = text[len(segment.text) :]
    return tuple(segments), text


def guarded(tools: Sequence[Tool], guard: ContentGuard) -> tuple[Tool, ...]:
    """Return tools that a template can be given: what they say cannot become structure of it.

    Raises:
        UsageError: two have the same name.
    """
    names = [each.name for each in tools]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise UsageError(f"two tools are called {twice}: give them different names")
    texts = "\0".join(
        text for each in tools for text in _texts([each.description, each.parameters])
    )
    if guard.break_up(texts) == texts:  # looked for once, as that takes long
        return tuple(tools)
    return tuple(
        Tool(each.name, _broken_up(each.parameters, guard), guard.break_up(each.description))
        for each in tools
    )


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from (text for pair in value.items() for text in _texts(pair))
    elif isinstance(value, list | tuple):
        yield from (text for each in value for text in _texts(each))


def _broken_up(value: Any, guard: ContentGuard) -> Any:
    if isinstance(value, str):
        return guard.break_up(value)
    if isinstance(value, Mapping):
        return {_broken_up(key, guard): _broken_up(each, guard) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_broken_up(each, guard) for each in value]
    return value
