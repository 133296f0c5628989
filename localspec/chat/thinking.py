"""The tags around a reasoning model's thoughts. The template says which ones count; `reply_text` separates thoughts from the answer.

A block of thoughts opens a reply or nothing does: a tag that an answer mentions later is just text, as in llama.cpp.
Only gpt-oss writes several blocks, of which some are words.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from localspec.chat.tokenizer import Tokenizer, control_pieces


@dataclass(frozen=True, slots=True)
class ThinkingTags:
    """The texts around a block.

    Args:
        open: begins it.
        close: ends it; empty if it goes on to the end of the reply.
        words: whether it belongs to the answer; else it is thoughts.
        more: whether another block may follow.
    """

    open: str
    close: str
    words: bool = False
    more: bool = False


_NEXT = "<|end|><|start|>assistant"


KNOWN_TAGS = (
    # Qwen3, DeepSeek R1, GLM, SmolLM3, Nemotron and most others
    ThinkingTags("<think>", "</think>"),
    ThinkingTags("[THINK]", "[/THINK]"),  # Magistral, Ministral
    ThinkingTags("<seed:think>", "</seed:think>"),  # Seed-OSS
    ThinkingTags("<mm:think>", "</mm:think>"),  # MiniMax M3
    ThinkingTags("<|START_THINKING|>", "<|END_THINKING|>"),  # Command
    ThinkingTags("<|channel>thought", "<channel|>"),  # Gemma 4
    # gpt-oss: thoughts, an answer, what it says before it calls, and a call, whose rest its format knows
    ThinkingTags("<|channel|>analysis<|message|>", _NEXT, more=True),
    ThinkingTags("<|channel|>final<|message|>", "", words=True),
    ThinkingTags("<|channel|>commentary<|message|>", _NEXT, words=True, more=True),
    ThinkingTags("<|channel|>commentary", "", words=True),
)


def overlap(text: str, tag: str) -> int:
    """Return how many characters of the beginning of a tag a text ends with; all of it does not count."""
    longest = min(len(text), len(tag) - 1)
    return next((n for n in range(longest, 0, -1) if tag.startswith(text[-n:])), 0)


def thinking_tags(template_source: str) -> tuple[ThinkingTags, ...]:
    """Return the known tags of which a chat template mentions one side; none for a model that does not think."""
    return tuple(
        tags
        for tags in KNOWN_TAGS
        if tags.open in template_source or (tags.close and tags.close in template_source)
    )


def opened_by(prompt: str, tags: Iterable[ThinkingTags]) -> ThinkingTags | None:
    """Return the tags whose block a rendered prompt ends in, white space aside."""
    end = prompt.rstrip()
    return next((each for each in tags if not each.words and end.endswith(each.open)), None)


def tag_pieces(tags: Iterable[ThinkingTags], tokenizer: Tokenizer) -> dict[int, bytes]:
    """Return the bytes of those control tokens that tags are made of, by id: `[THINK]`, `<|channel|>`."""
    return control_pieces([text for pair in tags for text in (pair.open, pair.close)], tokenizer)
