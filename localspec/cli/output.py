"""Printing an answer: how much of its prompt is read, its text, and its figures as a line or as JSON."""

import json
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from localspec.chat.events import Event, Prefilling, Reply, Started, Text
from localspec.chat.reply_figures import rounded, speculation, timings, usage
from localspec.cli.progress import ProgressLine
from localspec.decoding.round import StopReason
from localspec.display import (
    Wrapping,
    clean,
    columns_of,
    counted,
    drafting_text,
    notice,
    reading_text,
)
from localspec.errors import LocalspecError
from localspec.storage.paths import shown

if TYPE_CHECKING:
    from localspec.session.approval import CarriedOut

PATIENCE_S = 1.0
"""Seconds of reading a prompt before a line appears."""


class ReadingLine:
    """Shows how much of a prompt is read, by the events of its reply; nothing if that takes a moment only. Leaves nothing behind.

    A timer draws first, since no event comes during a pass.

    Args:
        enabled: False shows nothing at all.
    """

    def __init__(self, *, enabled: bool) -> None:
        self._line = ProgressLine(enabled=enabled)
        self._lock = threading.Lock()
        self._timer = threading.Timer(PATIENCE_S, self._show)
        self._timer.daemon = True
        self._text = ""
        self._drawn = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._end()

    def take(self, event: Event) -> None:
        """Take the next event; the first one after those of the prompt ends the line."""
        match event:
            case Started():
                self._text = reading_text(0, event.prompt_tokens - event.cached_tokens)
                if self._line.drawn:
                    self._timer.start()
            case Prefilling():
                with self._lock:
                    self._text = reading_text(event.done_tokens, event.total_tokens)
                    if self._drawn:
                        self._line.draw(self._text)
            case _:
                self._end()

    def _show(self) -> None:
        with self._lock:
            if self._text:
                self._drawn = True
                self._line.draw(self._text)

    def _end(self) -> None:
        self._timer.cancel()
        with self._lock:
            self._text = ""
            if self._drawn:
                self._drawn = False
                self._line.draw("")


class AnswerStream:
    """Writes chunks as they come.

    A pipe or a file gets every character; a terminal gets nothing that it would obey, and prose in lines that end between words.

    Args:
        silent: write nothing.
        show_thinking: write thoughts, too, set off from the answer.
        is_prose: whether lines may be broken; of code and JSON a line feed would be a part.
    """

    def __init__(self, *, silent: bool, show_thinking: bool, is_prose: bool = True) -> None:
        self._silent = silent
        self._show_thinking = show_thinking
        self._at_terminal = sys.stdout.isatty()
        self._wrapping: Wrapping | None = None
        if self._at_terminal and is_prose:
            self._wrapping = Wrapping(lambda: columns_of(sys.stdout))
        self._in_thoughts = False
        self._last = "\n"

    def write(self, chunk: Text) -> None:
        """Write one chunk and flush."""
        if self._silent or (chunk.thinking and not self._show_thinking):
            return
        if chunk.thinking != self._in_thoughts:
            self._emit("<think>\n" if chunk.thinking else "\n</think>\n\n")
            self._in_thoughts = chunk.thinking
        self._emit(chunk.text)
        sys.stdout.flush()

    def end(self) -> None:
        """Close what is open, and end the last line."""
        if self._in_thoughts:
            self._emit("\n</think>")
        if self._wrapping is not None:
            self._write(self._wrapping.flush())
        if not self._silent and self._last != "\n":
            self._write("\n")
        sys.stdout.flush()

    def _emit(self, text: str) -> None:
        text = clean(text, tabs=True) if self._at_terminal else text
        self._write(text if self._wrapping is None else self._wrapping.feed(text))

    def _write(self, text: str) -> None:
        if text:
            sys.stdout.write(text)
            self._last = text[-1]


def print_code(text: str, *, quiet: bool) -> None:
    """Print the code blocks in the language of the first; without any, all of the answer."""
    # Imported late: its parser takes 40 ms.
    from localspec.markup import code_blocks  # noqa: PLC0415

    every = code_blocks(text)
    blocks = [each for each in every if each.is_fenced] or every
    code = [each.text for each in blocks if each.language == blocks[0].language]
    printed = "\n\n".join(each for each in code if each)
    if not quiet:
        if not blocks:
            notice("the answer has no block of code: printing all of it")
        elif not printed:
            notice("the block of code is empty: printing nothing")
        elif len(code) < len(blocks):
            notice(f"printing {len(code)} of {len(blocks)} blocks of code: only the first language")
    stream = AnswerStream(silent=False, show_thinking=False, is_prose=False)
    stream.write(Text(printed if blocks else text))
    stream.end()


_ENDINGS = {
    StopReason.LENGTH: "cut off at --max-tokens",
    StopReason.LOOP: "stopped, it repeated itself",
    StopReason.CANCELLED: "interrupted",
    StopReason.CONTEXT_FULL: "cut off, the context is full",
    StopReason.GATED: "stopped by a rule of --gate",
}


@dataclass(frozen=True, slots=True)
class RunOutcome:
    """A reply, and the models of it.

    Args:
        reply: the last one.
        target: the target's name.
        draft_model: the draft model's; None without one.
        load_s: seconds that loading took.
        no_drafting: why nothing was drafted, in about five words.
        reason: why it was drafted as it was, a sentence.
        replies: all replies and the results of their calls, in order.
        can_grow: whether the context may be made larger.
    """

    reply: Reply
    target: str
    draft_model: str | None
    load_s: float
    no_drafting: str = ""
    reason: str = ""
    replies: "Sequence[Reply | CarriedOut]" = ()
    can_grow: bool = True

    def as_json(
        self, workload: str, cited: Mapping[str, Any] | None = None, *, bound: bool = False
    ) -> dict[str, Any]:
        """Return a JSON object. Durations are in seconds.

        Args:
            workload: its kind of text.
            cited: passages, and which of them the answer cites.
            bound: whether the answer must follow a grammar.
        """
        reply = self.reply
        document: dict[str, Any] = {
            "text": reply.text,
            **({"thinking": reply.thinking} if reply.thinking else {}),
            **(cited or {}),
            "stop_reason": reply.stop_reason.value,
            "complete": is_complete(reply, bound=bound),
            "seed": reply.seed,
            "workload": workload,
            "model": {"target": self.target, "draft_model": self.draft_model},
            "usage": usage(reply),
            "timings": {"load_s": rounded(self.load_s), **timings(reply)},
            "speculation": speculation(reply, self.reason),
            **({"note": reply.note} if reply.note else {}),
        }
        if rounds := list(_rounds(self.replies)):
            document["rounds"] = rounds
        return document

    def line(self) -> str:
        """Return model, speed, drafting and seed, for stderr."""
        reply = self.reply
        parts = [shown(self.target), counted(reply.completion_tokens, "token")]
        if reply.tokens_per_s is not None:
            parts.append(f"{reply.tokens_per_s:.1f} tokens/s")
        tokens, why = reply.acceptance, self.no_drafting or reply.no_gain
        parts.append(drafting_text(tokens.drafted, tokens.accepted, reply.gain_ratio, why))
        if tokens.branched:
            parts.append(f"{tokens.caught} of {counted(tokens.branched, 'second choice')} accepted")
        if reply.stop_reason in _ENDINGS:
            parts.append(_ENDINGS[reply.stop_reason])
            if reply.stop_reason is StopReason.CONTEXT_FULL and self.can_grow:
                parts[-1] += ": raise --ctx"
        return " · ".join([*parts, f"seed {reply.seed}"])


def cut_short_json(text: str, thinking: str, error: LocalspecError) -> dict[str, Any]:
    """Return the part of an answer that came before an error; its figures are lost with its engine."""
    thoughts = {"thinking": thinking} if thinking else {}
    trouble = {"type": type(error).__name__, "message": str(error)}
    return {"text": text, **thoughts, "error": trouble}


def _rounds(replies: "Sequence[Reply | CarriedOut]") -> Iterator[dict[str, Any]]:
    """Yield every reply with calls, and their results."""
    calls: list[dict[str, Any]] = []
    for each in replies:
        if not isinstance(each, Reply):
            calls.append(_carried_out(each))
        elif each.calls:
            calls = []
            yield {
                "text": each.text,
                "calls": calls,
                "usage": usage(each),
                "timings": timings(each),
            }


def _carried_out(done: "CarriedOut") -> dict[str, Any]:
    call, result = done.call, done.result
    try:
        arguments = json.loads(call.arguments)
    except ValueError:
        arguments = call.arguments
    return {
        "name": call.name,
        "arguments": arguments,
        "result": result.text,
        "is_error": result.is_error,
        "seconds": rounded(done.seconds),
    }


def is_complete(reply: Reply, *, bound: bool = False) -> bool:
    """Return whether an answer ended by itself or at a stop string; under a grammar, only by itself."""
    return reply.stop_reason not in _ENDINGS and (not bound or reply.stop_reason is StopReason.EOG)


def incomplete_line(reply: Reply, *, bound: bool) -> str:
    """Return why an answer is incomplete."""
    ending = _ENDINGS.get(reply.stop_reason, "ended at a stop string")
    so = " and may not match its grammar" if bound else ""
    return f"the answer is incomplete{so}: {ending}"
