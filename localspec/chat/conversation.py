"""What was said, and the ids that were evaluated for it. Receives a template and a tokenizer, knows no model.

Contract: past turns keep the ids that were generated, so that the next prompt begins with everything evaluated so
far, and only what is new gets evaluated. Where the template writes the past anew (it leaves out thoughts, or
trims), the ids end before that turn and the rest is tokenized again: right, only slower.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from localspec.chat.template import ChatTemplate
from localspec.chat.thinking import (
    ThinkingFilter,
    ThinkingTags,
    opened_by,
    split_thinking,
    thinking_tags,
)
from localspec.chat.tokenizer import ContentGuard, Tokenizer, raw_tokens, tokenize_rendered

__all__ = ["NO_ANSWER", "Conversation", "Message", "Tokenizer", "raw_tokens"]

# Stands for a reply that was cut off before its answer began: some templates refuse an empty one.
NO_ANSWER = "…"


@dataclass(frozen=True, slots=True)
class Message:
    """One turn: `role` is system, user or assistant; a reply's thoughts are kept apart from its content."""

    role: str
    content: str
    thinking: str = ""


@dataclass(frozen=True, slots=True)
class _Segment:
    """Text with its breaks, and the ids that it was evaluated as."""

    text: str
    tokens: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class _Prompt:
    """The last prompt: what it reused and added, and what a reply to it is read with."""

    segments: tuple[_Segment, ...]
    template: ChatTemplate
    tokenizer: Tokenizer
    guard: ContentGuard
    tags: tuple[ThinkingTags, ...]
    opened: ThinkingTags | None


class Conversation:
    """Messages in order; the system prompt, if there is one, is the first of them.

    Args:
        system: the system prompt; None leaves it to the template, which may have a default.
        messages: earlier turns, as when a conversation is taken up again; their ids are unknown.
    """

    def __init__(self, system: str | None = None, messages: Iterable[Message] = ()) -> None:
        first = [] if system is None else [Message("system", system)]
        self._messages = [*first, *messages]
        self._segments: tuple[_Segment, ...] = ()
        self._prompt: _Prompt | None = None

    @property
    def messages(self) -> tuple[Message, ...]:
        """All that was said so far."""
        return tuple(self._messages)

    def append_user(self, text: str) -> None:
        """Add what the user says."""
        self._messages.append(Message("user", text))

    def prompt_tokens(
        self, template: ChatTemplate, tokenizer: Tokenizer, *, enable_thinking: bool = True
    ) -> list[int]:
        """Return the ids of the whole conversation up to where the next reply begins.

        Text in contents that spells a special token stays text. An unlike tokenizer forgets all remembered ids.

        Raises:
            TemplateError: the template does not render these messages.
        """
        last = self._prompt
        if last is not None and last.tokenizer != tokenizer:
            self._segments = ()
        if last is not None and last.tokenizer == tokenizer and last.template is template:
            guard = last.guard
        else:
            guard = ContentGuard(tokenizer, template.source)
        text = template.render(
            [_for_template(message, guard) for message in self._messages],
            enable_thinking=enable_thinking,
        )
        known, rest = _reusable(self._segments, text)
        new = tokenize_rendered(rest, tokenizer, at_start=not known)
        segments = (*known, _Segment(rest, tuple(new)))
        tags = thinking_tags(template.source)
        self._prompt = _Prompt(segments, template, tokenizer, guard, tags, opened_by(text, tags))
        return [token for segment in segments for token in segment.tokens]

    def thinking_filter(self) -> ThinkingFilter:
        """Return a filter for the reply to the last prompt; without one, text passes untouched."""
        if self._prompt is None:
            return ThinkingFilter(())
        return ThinkingFilter(self._prompt.tags, self._prompt.opened)

    def append_reply(self, text: str, tokens: Sequence[int]) -> None:
        """Add the reply to the last prompt.

        Args:
            text: all that was generated up to a stop string, thoughts and their tags included.
            tokens: the ids that spell it, as generated, without EOG.
        """
        prompt = self._prompt
        if prompt is None:
            self._messages.append(Message("assistant", text))
            return
        thinking, answer = split_thinking(text, prompt.tags, prompt.opened)
        self._messages.append(Message("assistant", answer, thinking))
        tags = [tag for pair in prompt.tags for tag in (pair.open, pair.close)] if thinking else []
        written = prompt.guard.break_up(text, exempt=tags)
        # an empty text would match anywhere, also after `retract`
        self._segments = (*prompt.segments, *([_Segment(written, tuple(tokens))] if text else []))

    def retract(self) -> Message:
        """Take back the last message: a turn that failed, or that is to be said again.

        Raises:
            IndexError: nothing was said yet.
        """
        return self._messages.pop()


def _for_template(message: Message, guard: ContentGuard) -> dict[str, str]:
    content = message.content
    if message.role == "assistant" and not content:
        content = NO_ANSWER
    fields = {"role": message.role, "content": guard.break_up(content)}
    if message.thinking:
        fields["reasoning_content"] = guard.break_up(message.thinking)
    return fields


def _reusable(segments: Sequence[_Segment], text: str) -> tuple[tuple[_Segment, ...], str]:
    """Return the segments that `text` begins with, and the rest of it."""
    for index, segment in enumerate(segments):
        if not text.startswith(segment.text):
            return tuple(segments[:index]), text
        text = text[len(segment.text) :]
    return tuple(segments), text
