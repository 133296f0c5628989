"""ReplyText: confirmed tokens become the text of one reply. Knows no models and no rounds."""

import codecs
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from localspec.chat.events import CallDone, Text, Told
from localspec.chat.stop_strings import StopStrings
from localspec.chat.thinking import Span, ThinkingFilter
from localspec.chat.tokenizer import Tokenizer
from localspec.messages import ToolCall

if TYPE_CHECKING:
    from localspec.chat.call_parser import CallParser


class Detokenizer:
    """An incremental UTF-8 decoder: a character that spans tokens appears with its last byte.

    Bytes that are no UTF-8 become U+FFFD, one for each maximal broken sequence, wherever the chunks were cut.
    """

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def feed(self, piece: bytes) -> str:
        """Return the text that `piece` completes, which may be empty."""
        return self._decoder.decode(piece)

    def flush(self) -> str:
        """Return U+FFFD for a character that never became whole, else nothing; then start afresh."""
        return self._decoder.decode(b"", final=True)


class ReplyText:
    """Detokenizes, tells thoughts from the answer and its calls, and ends the answer at a stop string.

    Stop strings count in the answer alone: nobody who does not see the thoughts would
    understand why they ended. White space before a call is no part of the answer.

    Args:
        tokenizer: turns ids into bytes.
        thinking: what tells thoughts from the answer.
        stops: what ends the answer.
        tag_pieces: bytes of control tokens that the filter has to see, by id.
        begun: ids of what the reply says already, where it goes on; the last may have begun a character.
        parser: tells calls from the answer; None where there are none.
        calls_in: finds calls in the words of an answer that has none; None where those are words.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        thinking: ThinkingFilter,
        stops: StopStrings,
        tag_pieces: Mapping[int, bytes],
        begun: Sequence[int] = (),
        parser: "CallParser | None" = None,
        calls_in: "Callable[[str], Iterable[Told]] | None" = None,
    ) -> None:
        self._tokenizer = tokenizer
        self._thinking = thinking
        self._stops = stops
        self._tag_pieces = tag_pieces
        self._detokenizer = Detokenizer()
        for token in begun:
            self._detokenizer.feed(self._piece(token))
        self._parser = parser
        self._calls_in = calls_in
        self._space = ""  # may stand before a call
        self._tokens: list[int] = []
        self._begins: list[int] = []
        self._written = ""
        self._answer_chars = 0
        self.thoughts = ""
        self.answer = ""
        self.calls: list[ToolCall] = []

    @property
    def stopped(self) -> bool:
        """Whether a stop string ended the answer, or what else `stops` ends it at."""
        return self._stops.stopped

    @property
    def cut(self) -> bool:
        """Whether that was no stop string."""
        return self._stops.cut

    @property
    def _broken_off(self) -> bool:
        """Whether what was written ends with the beginning of a call, which is not kept; behind calls all is."""
        return self._parser is not None and self._parser.broken_off and not self.calls

    @property
    def tokens(self) -> tuple[int, ...]:
        """The ids that spell the kept text; the last may spell some of the stop string, too."""
        if not self.stopped and not self._broken_off:
            return tuple(self._tokens)
        kept = len(self.written)
        return tuple(self._tokens[: sum(begin < kept for begin in self._begins)])

    @property
    def written(self) -> str:
        """All that the model wrote up to a stop string, thoughts and their tags included."""
        if self.calls and not self.stopped:
            return self._written
        # The answer is the end of what was written, so what follows it counts from there.
        return self._written[: len(self._written) - self._answer_chars + len(self.answer)]

    def feed(self, token: int) -> tuple[str, list[Told]]:
        """Take a confirmed token; return what it adds to all that is written, and what can be shown now."""
        self._tokens.append(token)
        self._begins.append(len(self._written))  # of a part of a character, where that begins
        text = self._detokenizer.feed(self._piece(token))
        self._written += text
        return text, self._show(self._thinking.feed(text))

    def flush(self, *, may_go_on: bool = False) -> list[Told]:
        """Return what was held back, at the end of the reply.

        Args:
            may_go_on: it was cut, and the rest of a character may still come: half of one is left out then.
        """
        if self.stopped:
            return []
        rest = "" if may_go_on else self._detokenizer.flush()
        self._written += rest
        chunks = self._show([*self._thinking.feed(rest), *self._thinking.flush()])
        if self._parser is not None:
            chunks += self._with_calls(self._parser.flush(cut=may_go_on))
            if not self.calls and not self._parser.broken_off:
                chunks += self._words(self._space)
        self.answer += (held := self._stops.flush())
        chunks += [Text(held)] if held else []
        if self._calls_in is not None and not self.calls and not may_go_on:
            chunks += self._with_calls(list(self._calls_in(self.answer)))
        return chunks

    def _piece(self, token: int) -> bytes:
        piece = self._tag_pieces.get(token)
        return self._tokenizer.piece(token) if piece is None else piece

    def _show(self, spans: list[Span]) -> list[Told]:
        thoughts = "".join(span.text for span in spans if span.thinking)
        answer = "".join(span.text for span in spans if not span.thinking)
        self.thoughts += thoughts
        chunks: list[Told] = [Text(thoughts, thinking=True)] if thoughts else []
        self._answer_chars += len(answer)
        if self._parser is None:
            return [*chunks, *self._words(answer)]
        return [*chunks, *self._with_calls(self._parser.feed(answer))]

    def _words(self, answer: str) -> list[Told]:
        shown = self._stops.feed(answer)
        self.answer += shown
        return [Text(shown)] if shown else []

    def _with_calls(self, told: Sequence[Told]) -> list[Told]:
        chunks: list[Told] = []
        for each in told:
            if isinstance(each, Text):
                text = self._space + each.text
                words = text.rstrip()
                self._space = text[len(words) :]
                chunks += self._words(words)
                continue
            if isinstance(each, CallDone):
                self.calls.append(each.call)
            if not self.stopped:
                chunks.append(each)
        return chunks
