"""Blocks: an answer as the stretches that Anthropic's messages and OpenAI's responses have: thoughts, words, and calls."""

import secrets
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from localspec.api import Finished, Text
from localspec.chat.events import CallBegun, CallDelta, CallDone, Delta
from localspec.messages import ToolCall

Kind = Literal["thinking", "text", "call"]
Step = Literal["start", "delta", "stop"]


@dataclass(slots=True)
class AnswerBlock:
    """A stretch of an answer.

    Args:
        kind: of the stretch.
        index: its place in the answer.
        begun: the call, of a stretch that is one.
        pieces: its text, or the arguments of its call, so far.
        is_whole: whether nothing of its call is missing; of one that was cut off, something is.
        id: of the stretch.
    """

    kind: Kind
    index: int
    begun: CallBegun | None = None
    pieces: list[Text | CallDelta] = field(default_factory=list)
    is_whole: bool = True
    id: str = field(default_factory=lambda: secrets.token_hex(12))

    @property
    def text(self) -> str:
        """Its text, or arguments, so far."""
        return "".join(each.text for each in self.pieces)

    @property
    def texts(self) -> list[Text]:
        """Its pieces with their logprobs; of a call none."""
        return [each for each in self.pieces if isinstance(each, Text)]

    @property
    def call(self) -> ToolCall:
        """The call, as far as it is written."""
        assert self.begun is not None, "it is a call"  # noqa: S101
        return ToolCall(self.begun.id, self.begun.name, self.text)


class Blocks(list[AnswerBlock]):
    """The blocks of one answer, as its events come."""

    def take(self, event: Delta | Finished) -> Iterator[tuple[Step, AnswerBlock]]:
        """Take an event in, and yield each step of a block right after it; a delta is the last of its pieces.

        The end stops the last block; an answer without a word and a call has an empty block of text.
        """
        match event:
            case CallBegun():
                yield from self._follow(AnswerBlock("call", len(self), event, is_whole=False))
            case CallDone():
                self[-1].is_whole = True
            case Text(thinking=thinking):
                kind: Kind = "thinking" if thinking else "text"
                if not self or self[-1].kind != kind:
                    yield from self._follow(AnswerBlock(kind, len(self)))
            case Finished():
                if all(each.kind == "thinking" for each in self):
                    yield from self._follow(AnswerBlock("text", len(self)))
                yield "stop", self[-1]
        if isinstance(event, Text | CallDelta):
            self[-1].pieces.append(event)
            yield "delta", self[-1]

    @property
    def whole(self) -> list[AnswerBlock]:
        """The blocks less a call that was cut off, in whose place is an empty text if nothing else was said."""
        blocks = [each for each in self if each.is_whole]
        said = any(each.kind != "thinking" for each in blocks)
        return blocks if said else [*blocks, AnswerBlock("text", len(blocks))]

    def _follow(self, block: AnswerBlock) -> Iterator[tuple[Step, AnswerBlock]]:
        if self:
            yield "stop", self[-1]
        self.append(block)
        yield "start", block
