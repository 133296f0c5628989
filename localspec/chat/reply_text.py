"""ReplyText: confirmed tokens become the text of one reply, through a chain of filters: thoughts, calls, stop strings. Knows no models and no rounds."""

import codecs
import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from localspec.chat.events import CallDone, Delta, Text
from localspec.chat.thinking import ThinkingTags, overlap
from localspec.errors import UsageError
from localspec.messages import Infill, ToolCall

if TYPE_CHECKING:
    from localspec.chat.call_heads import CallsInThoughts
    from localspec.chat.call_parser import CallParser

_LINE = re.compile(r"\n([ \t]*)")


_ANSWER = ThinkingTags("", "", words=True)


class ThinkingFilter:
    """Cuts a growing reply into thoughts and answer; the tags are in neither.

    White space after either tag and before an opening one is dropped. A block that never closes is thoughts up to the
    first call in it, or to its end.

    Args:
        tags: what may open the reply; without any, text passes untouched.
        opened: the block that the prompt has opened already, if any.
        calls: finds calls in thoughts; None where none are looked for.
    """

    def __init__(
        self,
        tags: Sequence[ThinkingTags],
        opened: ThinkingTags | None = None,
        calls: "CallsInThoughts | None" = None,
    ) -> None:
        self._tags = sorted(tags, key=lambda each: -len(each.open))  # one may begin with another
        self._block = opened  # None where one may begin
        self._drop_space = opened is not None
        self._held = ""
        self._calls = calls
        self._at_line = True

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
                size = len(text) - overlap(text, block.close)
                text, rest = text[:size], text[size:]
            calls, held = False, ""
            if self._calls is not None and block.close and not (block.words or block.more):
                ended = final or bool(closed)
                size, calls = self._calls.find(text, at_line=self._at_line, final=ended)
                text, held = text[:size], text[size:]
            self._block, self._held = block, held + closed * calls + rest
            if text:
                spans.append(Text(text, thinking=not block.words))
                self._at_line = text.endswith("\n")
            if calls:
                self._block = _ANSWER
                continue
            if not closed:
                break
            self._block = None if block.more else _ANSWER
            self._drop_space = self._at_line = True
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


class StopStrings:
    """Passes text on up to the stop string that begins first, and holds back what may become one.

    Where one stop string begins inside another that is not complete yet, the earlier beginning is waited for; so the
    text is the same for every way of cutting it, and equals `text[:min(text.find(s) for s in stops found)]`.

    Args:
        stops: none at all lets everything pass.

    Attributes:
        stopped: whether a stop string came.
        cut: whether the text ended elsewhere than at a stop string.

    Raises:
        UsageError: a stop string is empty.
    """

    def __init__(self, stops: Iterable[str] = ()) -> None:
        self._stops = tuple(stops)
        if "" in self._stops:
            raise UsageError('a stop string is "": give it at least one character')
        self._longest = max(map(len, self._stops), default=0)
        self._held = ""
        self.stopped = self.cut = False

    def feed(self, text: str, *, final: bool = False) -> str:
        """Take the next text, which may be empty and the last, and return what certainly stays."""
        if self.stopped:
            return ""
        held = self._held + text
        places = [at for stop in self._stops if (at := held.find(stop)) >= 0]
        end = match = min(places, default=len(held))
        for at in range(max(0, len(held) - self._longest + 1), 0 if final else match):
            if any(stop.startswith(held[at:]) for stop in self._stops):
                end = at
                break
        self.stopped = bool(places) and end == match
        self._held = "" if self.stopped else held[end:]
        return held[:end]


class InfillStop(StopStrings):
    """Ends what fills a gap: at a stop string, or at the end of a line, before one that is indented less or when it took long enough.

    An empty line is one that is not indented, as for llama-server, whose `n_indent` and `t_max_predict_ms` these are.

    Args:
        stops: stop strings.
        gap: how far lines are indented, and how long it may take.
        clock: seconds, monotonic.
    """

    def __init__(self, stops: Iterable[str], gap: Infill, clock: Callable[[], float]) -> None:
        super().__init__(stops)
        self._gap = gap
        self._clock = clock
        self._until: float | None = None
        # A line of which only white space is there yet, and the end of the one before it.
        self._begun = ""

    def feed(self, text: str, *, final: bool = False) -> str:
        """Take the next text, which may be empty and the last, and return what certainly stays."""
        if self._until is None and self._gap.within_s is not None:
            self._until = self._clock() + self._gap.within_s
        text = self._lines(super().feed(text, final=final))
        return text + self._begun if final and not self.cut else text

    def _lines(self, text: str) -> str:
        """Return what is certain of a text that has no stop string."""
        text, self._begun = self._begun + text, ""
        for line in _LINE.finditer(text):
            late = self._until is not None and self._clock() > self._until
            short = len(line[1]) < self._gap.indent
            if short and line.end() == len(text) and not (late or self.stopped):
                self._begun = line[0]
                return text[: line.start()]
            if short or late:
                self.stopped = self.cut = True
                return text[: line.start()]
        return text


class ReplyText:
    """Detokenizes, separates thoughts from the answer and its calls, and ends the answer at a stop string.

    Stop strings count in the answer alone: a reader who does not see the thoughts would not
    understand why they ended. White space before a call is no part of the answer.

    Args:
        spell: turns ids into bytes, also control tokens that a filter reads.
        thinking: separates thoughts from the answer.
        stops: what ends the answer.
        begun: ids of what the reply says already, where it goes on; the last may have begun a character.
        parser: separates calls from the answer; None where there are none.
        calls_in: returns calls in the words of an answer that has none; None where those are words.
    """

    def __init__(
        self,
        spell: Callable[[int], bytes],
        thinking: ThinkingFilter,
        stops: StopStrings,
        begun: Sequence[int] = (),
        parser: "CallParser | None" = None,
        calls_in: "Callable[[str], Iterable[Delta]] | None" = None,
    ) -> None:
        self._spell = spell
        # A character that spans tokens appears with its last byte; what is no UTF-8 becomes U+FFFD.
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._thinking = thinking
        self._stops = stops
        for token in begun:
            self._decoder.decode(spell(token))
        self._parser = parser
        self._calls_in = calls_in
        self._space = ""  # may stand before a call
        self._tokens: list[int] = []
        self._begins: list[int] = []
        self._written = ""
        self._answer_chars = 0
        self.thoughts = self.answer = ""
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
        """Whether what was written ends with the beginning of a call, which is dropped; behind calls nothing is."""
        return self._parser is not None and self._parser.broken_off and not self.calls

    @property
    def tokens(self) -> tuple[int, ...]:
        """The ids that spell the text; the last may spell some of the stop string, too."""
        if not self.stopped and not self._broken_off:
            return tuple(self._tokens)
        size = len(self.written)
        return tuple(self._tokens[: sum(begin < size for begin in self._begins)])

    @property
    def written(self) -> str:
        """All that the model wrote up to a stop string, thoughts and their tags included."""
        if self.calls and not self.stopped:
            return self._written
        # The answer is the end of what was written, so what follows it counts from there.
        return self._written[: len(self._written) - self._answer_chars + len(self.answer)]

    def feed(self, token: int) -> tuple[str, list[Delta]]:
        """Take a confirmed token; return what it adds to all that is written, and the chunks that are certain now."""
        self._tokens.append(token)
        self._begins.append(len(self._written))  # of a part of a character, where that begins
        text = self._decoder.decode(self._spell(token))
        self._written += text
        return text, self._filtered(self._thinking.feed(text))

    def flush(self, *, may_go_on: bool = False) -> list[Delta]:
        """Return what was held back, at the end of the reply.

        Args:
            may_go_on: it was cut, and the rest of a character may still come: half of one is left out then.
        """
        if self.stopped:
            return []
        rest = "" if may_go_on else self._decoder.decode(b"", final=True)
        self._written += rest
        chunks = self._filtered(self._thinking.feed(rest, final=True))
        if self._parser is not None:
            chunks += self._with_calls(self._parser.flush(cut=may_go_on))
            if not self.calls and not self._parser.broken_off:
                chunks += self._words(self._space)
        chunks += self._words("", final=True)
        if self._calls_in is not None and not self.calls and not may_go_on:
            chunks += self._with_calls(self._calls_in(self.answer))
        return chunks

    def _filtered(self, spans: Sequence[Text]) -> list[Delta]:
        thoughts = "".join(span.text for span in spans if span.thinking)
        answer = "".join(span.text for span in spans if not span.thinking)
        self.thoughts += thoughts
        self._answer_chars += len(answer)
        chunks: list[Delta] = [Text(thoughts, thinking=True)] if thoughts else []
        if self._parser is None:
            return chunks + self._words(answer)
        return chunks + self._with_calls(self._parser.feed(answer))

    def _words(self, text: str, *, final: bool = False) -> list[Delta]:
        text = self._stops.feed(text, final=final)
        self.answer += text
        return [Text(text)] if text else []

    def _with_calls(self, parsed: Iterable[Delta]) -> list[Delta]:
        chunks: list[Delta] = []
        for each in parsed:
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
