"""Replying: a reply in the making. It asks for passes and makes none itself, so that several can be made at once."""

from collections.abc import Collection, Generator, Sequence
from dataclasses import dataclass, field

from localspec.chat.conversation import Conversation
from localspec.chat.events import Reply, TextChunk
from localspec.chat.reply_progress import ReplyProgress, Watch
from localspec.chat.reply_text import ReplyText
from localspec.chat.tracing import Trace
from localspec.decoding.generate import Confirmed, Generation, StopReason
from localspec.decoding.model import LanguageModel, Logits, Pass
from localspec.decoding.timings import Timings


@dataclass(slots=True, eq=False)
class Replying:
    """Turns what a generation confirms into text, until it ends or a stop string is met.

    Args:
        prompt: token ids of it.
        conversation: gets the reply appended; None where the prompt is a text as it is.
        seed: of the reply.
        start: when it was asked for, by the clock of `timings`.
        generation: confirms tokens.
        target: makes the generation's passes; in the end it forgets what plain decoding would not
            have evaluated.
        eog: ids that are no text.
        text: gets the tokens.
        timings: the generation's.
        drafter: what drafts, in one word.
        watches: see every round, before its text is handed on.
        trace: is told the end; None where nobody traces.
    """

    prompt: Sequence[int]
    conversation: Conversation | None
    seed: int
    start: float
    generation: Generation
    target: LanguageModel
    eog: Collection[int]
    text: ReplyText
    timings: Timings
    drafter: str
    watches: Sequence[Watch]
    trace: Trace | None
    _progress: ReplyProgress = field(default_factory=ReplyProgress)

    def advance(self) -> Generator[Pass, Logits, list[TextChunk] | None]:
        """Return what can be shown of one round's text; None at the end."""
        if self.text.stopped:
            return None
        confirmed = yield from self.generation.advance()
        return None if confirmed is None else self._take(confirmed)

    def whole(self) -> Generator[Pass, Logits, Reply]:
        """Go on to the end, and return the reply."""
        while (yield from self.advance()) is not None:
            pass
        self.flush()
        return self.finish()

    def flush(self) -> list[TextChunk]:
        """Return what was held back, at the end."""
        return self.text.flush(may_go_on=self._reason() is not StopReason.EOG)

    def finish(self) -> Reply:
        """Return the reply, after it was flushed; a conversation gets it appended."""
        text, timings, progress = self.text, self.timings, self._progress
        # What plain decoding would not have evaluated is forgotten: the next turn then starts
        # from the same cache, and rounds alike, however this one was drafted.
        self.target.truncate(len(self.prompt) + len(text.tokens) - 1)
        if self.conversation is not None:
            self.conversation.append_reply(text.written, text.tokens)
        if self.trace is not None:
            self.trace.end(text.written, timings)
        first = progress.first_token_at
        return Reply(
            text=text.answer,
            thinking=text.thoughts,
            tokens=text.tokens,
            stop_reason=self._reason(),
            seed=self.seed,
            prompt_tokens=len(self.prompt),
            cached_tokens=len(self.prompt) - timings.prefill_tokens,
            completion_tokens=progress.completion_tokens,
            first_token_s=None if first is None else first - self.start,
            timings=timings,
            drafter=self.drafter,
            acceptance=progress.acceptance,
        )

    def _take(self, confirmed: Confirmed) -> list[TextChunk]:
        for watch in self.watches:
            watch(confirmed, self.timings)
        progress, shown = self._progress, list[TextChunk]()
        if progress.first_token_at is None:
            progress.first_token_at = self.timings.clock()
        progress.count(confirmed)
        for token in confirmed.tokens:
            progress.completion_tokens += 1
            if token not in self.eog:
                shown += self.text.feed(token)
            if self.text.stopped:
                break
        return shown

    def _reason(self) -> StopReason:
        if self.text.stopped:
            return StopReason.STOP_STRING
        assert self.generation.stop_reason is not None, "it has ended"  # noqa: S101
        return self.generation.stop_reason
