"""Turns of a conversation: the ids that they were evaluated as, and how one that was cut goes on."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from localspec.chat.thinking import ThinkingTags, split_thinking
from localspec.chat.tokenizer import BREAK, ContentGuard, Tokenizer, tokenize_rendered
from localspec.messages import Message


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
        guard: likewise.
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
        # thoughts without an answer were cut
        after = f"{pair.close}\n\n{message.text}" if message.text else ""
        written = before + message.thinking + after
    text = guard.break_up(written, exempt=tag_texts(tags) if message.thinking else [])
    return written, Segment(text, tuple(tokenize_rendered(text, tokenizer, at_start=False)))
