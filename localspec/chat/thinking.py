"""Tells a reasoning model's thoughts from its answer. Works on text alone; which tags count, the template says.

A block of thoughts opens a reply or nothing does: a tag that an answer mentions later is just text, as in llama.cpp.
Only gpt-oss writes several blocks, of which some are words.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from localspec.chat.events import Text
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


_ANSWER = ThinkingTags("", "", words=True)


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


class ThinkingFilter:
    """Cuts a growing reply into thoughts and answer; the tags are in neither.

    White space after either tag and before an opening one is dropped. A block that never closes is all thoughts.

    Args:
        tags: what may open the reply; without any, text passes untouched.
        opened: the block that the prompt has opened already, if any.
    """

    def __init__(self, tags: Sequence[ThinkingTags], opened: ThinkingTags | None = None) -> None:
        self._tags = sorted(tags, key=lambda each: -len(each.open))  # one may begin with another
        self._block = opened  # None where one may begin
        self._drop_space = opened is not None
        self._held = ""

    def feed(self, text: str, *, final: bool = False) -> list[Text]:
        """Take the next text, which may be the last, and return what it makes certain, in order."""
        self._held += text
        spans = []
        while (block := self._block or self._opening(final=final)) is not None:
            if self._drop_space:
                self._held = self._held.lstrip()
                self._drop_space = not self._held
            text, closed, rest = self._held, "", ""
            if block.close:
                text, closed, rest = self._held.partition(block.close)
            if not (closed or final):
                size = len(text) - _overlap(text, block.close)
                text, rest = text[:size], text[size:]
            self._block, self._held = block, rest
            if text:
                spans.append(Text(text, thinking=not block.words))
            if not closed:
                break
            self._block = None if block.more else _ANSWER
            self._drop_space = True
        return spans

    def _opening(self, *, final: bool) -> ThinkingTags | None:
        """Return the block that begins, and take its tag; None where that is not certain."""
        text = self._held.lstrip()
        if not final and any(
            each.open.startswith(text) and each.open != text for each in self._tags
        ):
            return None
        tags = next((each for each in self._tags if text.startswith(each.open)), _ANSWER)
        if tags.open:
            self._held, self._drop_space = text.removeprefix(tags.open), True
        return tags


def split_thinking(
    text: str, tags: Sequence[ThinkingTags], opened: ThinkingTags | None = None
) -> tuple[str, str]:
    """Return a whole reply's thoughts and its answer, as `ThinkingFilter` tells them apart.

    Templates want them apart: those that know `reasoning_content` (Qwen3, GLM, Seed-OSS, Kimi) decide by themselves
    what of it earlier turns keep; for the others, leaving it out of `content` is how thoughts of earlier turns go.
    """
    thinking = ThinkingFilter(tags, opened)
    spans = thinking.feed(text, final=True)
    return (
        "".join(span.text for span in spans if span.thinking),
        "".join(span.text for span in spans if not span.thinking),
    )


def _overlap(text: str, tag: str) -> int:
    longest = min(len(text), len(tag) - 1)
    return next((n for n in range(longest, 0, -1) if tag.startswith(text[-n:])), 0)
