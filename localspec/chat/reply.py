"""ReplyInProgress: a reply that is being made. It asks for passes and makes none itself, so that several can be made at once."""

from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import msgspec

from localspec.chat.conversation import Conversation
from localspec.chat.events import Event, Reply, RoundDone, Text, TokenLogprob, Told
from localspec.chat.reply_text import ReplyText
from localspec.decoding.cancel import Cancelled
from localspec.decoding.generation import Generation
from localspec.decoding.model import LanguageModel, Pass, Passed, Role
from localspec.decoding.round import Round, Spent, StopReason
from localspec.decoding.stats import AcceptanceStats
from localspec.errors import PassFailed


@dataclass(slots=True, eq=False)
class ReplyInProgress:
    """Turns what a generation confirms into events, until it ends or a stop string is met.

    Args:
        prompt: token ids of it.
        conversation: gets the reply appended; None if the prompt is a text as it is.
        seed: of the reply.
        start: when it was asked for, by `clock`.
        generation: confirms tokens.
        target: makes the generation's passes; in the end it forgets what plain decoding would not
            have evaluated.
        eog: ids that are no text.
        text: gets the tokens.
        drafter: what drafts, in one word.
        clock: seconds, monotonic.
        emit: takes the events.
        logprobs: gets one for every choice of the target's, in their order; stays empty where none are wanted.
        markers: special texts that calls are made of.
        gated: says whether a gate has stopped it.
    """

    prompt: Sequence[int]
    conversation: Conversation | None
    seed: int
    start: float
    generation: Generation
    target: LanguageModel
    eog: Collection[int]
    text: ReplyText
    drafter: str
    clock: Callable[[], float]
    emit: Callable[[Event], None]
    logprobs: list[TokenLogprob] = field(default_factory=list)
    markers: Sequence[str] = ()
    gated: Callable[[], bool] = lambda: False
    _pending: list[TokenLogprob] = field(default_factory=list)
    _acceptance: AcceptanceStats = field(default_factory=AcceptanceStats)
    _spent: Spent = field(default_factory=Spent)
    _completion_tokens: int = 0
    _first_token_at: float | None = None
    _branched: bool = False

    def run(self) -> Generator[Pass, Passed, Reply]:
        """Go on to the end, and return the reply."""
        while not (self.text.stopped or self.gated()):
            done = yield from self.generation.advance()
            if done is None:
                break
            self._take(done)
            self._branched = done.verdict.branch is not None
        may_go_on = self.generation.stop_reason is not StopReason.EOG
        for each in self._with_logprobs(self.text.flush(may_go_on=may_go_on)):
            self.emit(each)
        if self._branched:
            yield from self._evaluate_branch()
        return self._finished()

    def _evaluate_branch(self) -> Generator[Pass, Passed, None]:
        """Evaluate the branch that the reply ends with, as plain decoding would have."""
        evaluated = [*self.prompt, *self.text.tokens[:-1]]
        if self.target.common_prefix(evaluated) < len(evaluated):
            with suppress(Cancelled, PassFailed):
                yield Pass(Role.TARGET, evaluated, rows=1)

    def _take(self, done: Round) -> None:
        if done.is_first:
            self._first_token_at = self.clock()
        else:
            self._spent += done.spent
        texts: list[str] = []
        chunks: list[Told] = []
        for at, token in enumerate(done.confirmed):
            if token not in self.eog:
                self._pending += self.logprobs[at : at + 1]
                text, new = self.text.feed(token)
                texts.append(text)
                chunks += self._with_logprobs(new)
            if self.text.stopped:  # what was confirmed behind that is in no answer
                done = replace(done, confirmed=done.confirmed[: at + 1])
                break
        self._completion_tokens += len(done.confirmed)
        self._acceptance.add(done)
        self.logprobs.clear()
        self.emit(RoundDone(done, tuple(texts)))
        for chunk in chunks:
            self.emit(chunk)

    def _with_logprobs(self, chunks: list[Told]) -> list[Told]:
        """Return chunks, the last text with the logprobs of all tokens since the one before; calls have none."""
        for at in reversed(range(len(chunks) if self._pending else 0)):
            last = chunks[at]
            if isinstance(last, Text):
                chunks[at] = msgspec.structs.replace(last, logprobs=tuple(self._pending))
                self._pending.clear()
                break
        return chunks

    def _finished(self) -> Reply:
        text, generation = self.text, self.generation
        # What plain decoding would not have evaluated is forgotten: the next turn then starts
        # from the same cache, and rounds alike, however this one was drafted.
        self.target.truncate(len(self.prompt) + len(text.tokens) - 1)
        if self.conversation is not None:
            self.conversation.append_reply(
                text.written,
                text.tokens,
                calls=text.calls,
                words=text.answer,
                markers=self.markers,
            )
        first = self._first_token_at
        return Reply(
            text=text.answer,
            thinking=text.thoughts,
            tokens=text.tokens,
            stop_reason=self._reason(),
            seed=self.seed,
            prompt_tokens=len(self.prompt),
            cached_tokens=len(self.prompt) - generation.prefill_tokens,
            completion_tokens=self._completion_tokens,
            first_token_s=None if first is None else first - self.start,
            prefill_s=generation.prefill_s,
            decode_s=generation.decode_s,
            spent=self._spent,
            drafter=self.drafter,
            acceptance=self._acceptance,
            calls=tuple(text.calls),
        )

    def _reason(self) -> StopReason:
        if self.text.stopped:
            return StopReason.LENGTH if self.text.cut else StopReason.STOP_STRING
        if self.gated():
            return StopReason.GATED
        reason = self.generation.stop_reason
        assert reason is not None, "it has ended"  # noqa: S101
        return StopReason.TOOL_CALL if reason is StopReason.EOG and self.text.calls else reason
