"""Job: a request that waits or is being answered, and its reply, which asks for passes and makes none itself, so that several can be made at once."""

# ruff: noqa: PLC0415 - few requests have a gate or offer functions

import math
import secrets
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import msgspec
import numpy as np
from numpy.typing import NDArray

from localspec.chat.answer_constraint import Preparation, answer_constraint
from localspec.chat.events import Delta, Echo, Event, Reply, RoundDone, Text, TokenLogprob
from localspec.chat.loaded_models import LoadedModels
from localspec.chat.reply_text import InfillStop, ReplyText, StopStrings, ThinkingFilter
from localspec.chat.request import Request
from localspec.chat.thinking import tag_pieces
from localspec.chat.token_prefix import Conversation
from localspec.chat.tokenizer import infill_tokens, raw_tokens, spelling
from localspec.decoding.cancel import Cancelled
from localspec.decoding.choose import Chooser
from localspec.decoding.constraint import Constraint, MinLength
from localspec.decoding.drafters.copying import predicted
from localspec.decoding.gain import GainMeter
from localspec.decoding.generation import Generation, Limits
from localspec.decoding.model import Pass, Passed, Role
from localspec.decoding.noise import Noise
from localspec.decoding.policy import Policy
from localspec.decoding.proposals import Proposals
from localspec.decoding.round import Round, Spent, StopReason
from localspec.decoding.sampling import logprobs
from localspec.decoding.scheduler import SequenceView
from localspec.decoding.stats import AcceptanceStats
from localspec.errors import ContextOverflow, PassFailed, UsageError
from localspec.messages import MediaPart
from localspec.options import ReplyOptions, SamplingParams

if TYPE_CHECKING:
    from localspec.chat.calling import Calling
    from localspec.chat.gated import GatedReply
    from localspec.chat.template import ChatTemplate

_SEED_BITS = 32  # short enough to be copied by hand
_clock = time.perf_counter


@dataclass(slots=True, eq=False)
class Job:
    """A request that waits or is being answered.

    Args:
        request: to answer.
        conversation: its conversation; None for a text as it is, for a gap, and before it begins.
        make_policy: as for `Assistant.submit`.
        models: answer it.

    Attributes:
        is_known: whether its conversation is remembered.
        slot: which sequence answers it.
        policy: what drafts for it; None before it begins.
        cached: tokens of its prompt that need no evaluation.
        observers: take its events, unmasked.
        gate: masks its events; None where nothing does.
        preparation: of what binds its reply; None where nothing does.
        is_shared: whether passes of it were another's, too.
        proposals: takes what the client proposes; None where it proposes nothing.
        emit: takes the events of its reply.
        start_s: when it began, by `time.perf_counter`.
    """

    request: Request
    conversation: Conversation | None
    make_policy: Callable[[int], Policy] | None
    models: LoadedModels
    is_known: bool = False
    slot: int = -1
    policy: Policy | None = None
    cached: int = 0
    observers: list[Callable[[Event], None]] = field(default_factory=list)
    gate: "GatedReply | None" = None
    preparation: Preparation | None = None
    is_shared: bool = False
    proposals: Proposals | None = None
    emit: Callable[[Event], None] = lambda _event: None
    start_s: float = 0.0
    # Of the target's choices in a round, and of tokens whose text is held back.
    _logprobs: list[TokenLogprob] = field(default_factory=list)
    _pending: list[TokenLogprob] = field(default_factory=list)
    _acceptance: AcceptanceStats = field(default_factory=AcceptanceStats)
    _spent: Spent = field(default_factory=Spent)
    _gains: GainMeter = field(default_factory=lambda: GainMeter(None))
    _completion_tokens: int = 0
    _first_token_at: float | None = None
    _note: str = ""
    _prediction: tuple[int, ...] = ()
    _echoed: int = 0  # tokens that were evaluated for it

    def add_gate(self) -> None:
        """Mask the reply as the request demands.

        Raises:
            UsageError: the rules are wrong, or logprobs are wanted as well, or a prediction is given.
        """
        if not self.request.gate:
            return
        if self.request.logprobs is not None:
            raise UsageError(
                "logprobs are not available with a gate: leave them out, or ask without a gate"
            )
        if self.request.prediction:  # how much of it was right tells what is masked
            raise UsageError(
                "prediction is not available with a gate: leave it out, or ask without a gate"
            )
        from localspec.chat.gated import GatedReply, gate_of

        self.gate = GatedReply(gate_of(self.request.gate))

    def prompt(
        self,
        template: "Callable[[], ChatTemplate]",
        media_tokens: Callable[[MediaPart], Sequence[int]],
    ) -> list[int]:
        """Return the ids of the prompt.

        Args:
            template: returns the target's.
            media_tokens: as for `Conversation.prompt_tokens`.

        Raises:
            UsageError: it is empty, or the model cannot fill gaps, or takes none of its pictures or sounds.
            ContextOverflow: it leaves no room for an answer.
            TemplateError: the template is missing, or does not render.
        """
        request, models, n_ctx = self.request, self.models, self.models.target.n_ctx
        if request.infill is not None:
            most = request.options.max_tokens
            tokens = infill_tokens(request.infill, models.fim, models.tokenizer, n_ctx, most)
        elif self.conversation is not None:
            chat = template().asked(request.options)
            self._note = chat.thinking.note
            tokens = self.conversation.prompt_tokens(chat, models.tokenizer, media_tokens)
        elif isinstance(request.raw, tuple):
            tokens = models.checked_ids(request.raw)
        else:
            tokens = raw_tokens(request.raw or "", models.tokenizer)
            if (think := request.options.think) is not None:
                self._note = f"no chat template is used, so think {think} changes nothing"
            if request.options.template_kwargs is not None:
                raise UsageError(
                    "template_kwargs need a chat template, and none is used for this text"
                )
        if not tokens:
            raise UsageError("the prompt has no tokens: write something")
        if len(tokens) >= n_ctx:
            raise ContextOverflow(
                f"the prompt has {len(tokens)} tokens and the context holds {n_ctx}: shorten it",
                (len(tokens), n_ctx, models.longest),
            )
        if request.prediction:
            ids = models.tokenizer.tokenize(
                request.prediction, add_special=False, parse_special=False
            )
            self._prediction = tuple(ids[:n_ctx])
        return tokens

    def reply(self, prompt: list[int], calling: "Calling | None") -> Generator[Pass, Passed, Reply]:
        """Return what makes the reply, not yet begun. In the end the target forgets what plain decoding would not have evaluated.

        Args:
            prompt: ids of its tokens.
            calling: the calls that it may have; None where no functions are offered.

        Raises:
            UsageError: the options ask for a grammar that this reply cannot have.
        """
        request, options, models = self.request, self.request.options, self.models
        assert self.policy is not None, "it begins"  # noqa: S101
        target = models.targets.views[self.slot]
        if request.drafts:
            self.proposals = Proposals(target.n_vocab)
        seed = secrets.randbits(_SEED_BITS) if options.seed is None else options.seed
        rules = None if self.preparation is None else self.preparation.rules()
        rule = answer_constraint(options, models, self.conversation, len(prompt), calling, rules)
        chooser = Chooser(
            _sampling(options.sampling, models),
            Noise(seed),
            _lasting(options, models, len(prompt), rule),
            _observer(models, request.logprobs, self._logprobs),
            self._prediction,
            self.proposals,
        )
        limits = Limits(options.max_tokens, models.eog, options.stop_loops)
        generation = Generation(prompt, target, self.policy, chooser, limits, _clock)
        text = self._text(calling, seed, prompt)
        self._gains = GainMeter(None if models.costs is None else models.costs.target)

        def run() -> Generator[Pass, Passed, Reply]:
            branched = False
            try:
                yield from self._echo(target, prompt)
            except Cancelled:
                generation.stop_reason = StopReason.CANCELLED
            else:
                branched = yield from self._write(generation, text)
            yield from self._settle(target, prompt, text.tokens, branched)
            if self.conversation is not None:
                markers = () if calling is None else calling.dialect.markers
                self.conversation.append_reply(
                    text.written,
                    text.tokens,
                    calls=text.calls,
                    words=text.answer,
                    thoughts=text.thoughts,
                    markers=markers,
                )
            return self._figures(generation, text)

        return run()

    def _echo(self, target: SequenceView, prompt: Sequence[int]) -> Generator[Pass, Passed, None]:
        """Emit the prompt where it is wanted; logprobs of its tokens take a row of each, as many in a pass as one may give."""
        request, models = self.request, self.models
        if not request.echo:
            return
        pieces = [models.tokenizer.piece(each, special=True) for each in prompt]
        written = b"".join(pieces).decode(errors="replace")
        logprobs: list[TokenLogprob] = []
        observe = _observer(models, request.logprobs, logprobs)
        if observe is not None:
            logprobs.append(TokenLogprob(pieces[0].decode("latin-1"), None))
            last = len(prompt) - 1
            rows = 1 if request.deterministic else models.targets.most_rows
            for start in range(0, last, rows):
                end = min(start + rows, last)
                passed = yield Pass(Role.TARGET, prompt[:end], rows=end - start)
                self._echoed = end
                for row, token in zip(passed.logits, prompt[start + 1 : end + 1], strict=True):
                    observe(row, token)
            if request.deterministic:  # a prompt is evaluated in whole chunks
                target.truncate(0)
                self._echoed = 0
        text = request.raw if isinstance(request.raw, str) else written
        self.emit(Echo(text, tuple(logprobs)))

    def _write(self, generation: Generation, text: ReplyText) -> Generator[Pass, Passed, bool]:
        """Make rounds up to the end, and events of them; return whether the last one took a branch."""
        branched = False
        while not (text.stopped or self._is_gated):
            done = yield from generation.advance()
            if done is None:
                break
            self._take(done, text)
            branched = done.verdict.branch is not None
        may_go_on = generation.stop_reason is not StopReason.EOG
        for each in self._with_logprobs(text.flush(may_go_on=may_go_on)):
            self.emit(each)
        if self._pending and self.request.echo:
            self.emit(Text("", logprobs=tuple(self._pending)))
        return branched

    def _settle(
        self, target: SequenceView, prompt: list[int], tokens: Sequence[int], branched: bool
    ) -> Generator[Pass, Passed, None]:
        """Leave the target with what plain decoding would have evaluated, however this reply was drafted.

        The next turn then starts from the same cache, and rounds alike.
        """
        evaluated = [*prompt, *tokens[:-1]]
        if branched and target.common_prefix(evaluated) < len(evaluated):
            with suppress(Cancelled, PassFailed):
                yield Pass(Role.TARGET, evaluated, rows=1)
        target.truncate(len(prompt) + len(tokens) - 1)

    def _figures(self, generation: Generation, text: ReplyText) -> Reply:
        prompt, first, prediction = generation.prompt, self._first_token_at, None
        if self.request.prediction:
            count = predicted(prompt, self._prediction, text.tokens)
            prediction = len(self._prediction), count
        gain = None if self.is_shared else self._gains.gain(generation.prefill_s)
        why = "others shared its passes" if self.is_shared else "too few rounds without a draft"
        reply = Reply(
            text=text.answer,
            thinking=text.thoughts,
            tokens=text.tokens,
            stop_reason=self._reason(text, generation.stop_reason),
            seed=generation.chooser.noise.seed,
            prompt_tokens=len(prompt),
            cached_tokens=len(prompt) - generation.prefill_tokens - self._echoed,
            completion_tokens=self._completion_tokens,
            first_token_s=None if first is None else first - self.start_s,
            prefill_s=generation.prefill_s,
            decode_s=generation.decode_s,
            spent=self._spent,
            drafter=generation.policy.name,
            acceptance=self._acceptance,
            gain=gain,
            no_gain=why if self._acceptance.drafted and gain is None else "",
            calls=tuple(text.calls),
            note=self._note,
            prediction=prediction,
        )
        return reply.noted()

    @property
    def _is_gated(self) -> bool:
        return self.gate is not None and self.gate.stopped

    def _take(self, done: Round, text: ReplyText) -> None:
        """Turn what a round confirms into events."""
        eog = self.models.eog
        if done.is_first:
            self._first_token_at = _clock()
        else:
            self._spent += done.spent
        texts, chunks = list[str](), list[Delta]()
        for at, token in enumerate(done.confirmed):
            if token not in eog or self.request.echo:
                self._pending += self._logprobs[at : at + 1]
            if token not in eog:
                more, new = text.feed(token)
                texts.append(more)
                chunks += self._with_logprobs(new)
            if text.stopped:  # what was confirmed behind that is in no answer
                done = replace(done, confirmed=done.confirmed[: at + 1])
                break
        self._completion_tokens += len(done.confirmed)
        self._acceptance.add(done)
        self._gains.add(done)
        self._logprobs.clear()
        self.emit(RoundDone(done, tuple(texts)))
        for chunk in chunks:
            self.emit(chunk)

    def _with_logprobs(self, chunks: list[Delta]) -> list[Delta]:
        """Return chunks, the last text with the logprobs of all tokens since the one before; calls have none."""
        for at in reversed(range(len(chunks) if self._pending else 0)):
            last = chunks[at]
            if isinstance(last, Text):
                chunks[at] = msgspec.structs.replace(last, logprobs=tuple(self._pending))
                self._pending.clear()
                break
        return chunks

    def _reason(self, text: ReplyText, reason: StopReason | None) -> StopReason:
        if text.stopped:
            return StopReason.LENGTH if text.cut else StopReason.STOP_STRING
        if self._is_gated:
            return StopReason.GATED
        assert reason is not None, "it has ended"  # noqa: S101
        return StopReason.TOOL_CALL if reason is StopReason.EOG and text.calls else reason

    def _text(self, calling: "Calling | None", seed: int, prompt: Sequence[int]) -> ReplyText:
        options, gap, conversation = self.request.options, self.request.infill, self.conversation
        tokenizer = self.models.tokenizer
        # JSON is whole at its end alone, so a stop text holds in other forms of answers.
        stops = StopStrings(() if options.json_schema is not None else options.stop)
        if gap is not None:
            stops = InfillStop(options.stop, gap, _clock)
        if conversation is None:
            return ReplyText(spelling(tokenizer, {}), ThinkingFilter(()), stops)
        pieces = tag_pieces(conversation.thinking_tags[0], tokenizer)
        in_thoughts = None if calling is None else calling.in_thoughts()
        filters = conversation.thinking_filter(in_thoughts), stops, conversation.begun
        if calling is None:
            return ReplyText(spelling(tokenizer, pieces), *filters)
        spell = spelling(tokenizer, {**pieces, **calling.dialect.pieces})
        parsers = calling.parser(seed, prompt), calling.written(seed, prompt)
        return ReplyText(spell, *filters, *parsers)


def _lasting(
    options: ReplyOptions, models: LoadedModels, prompt_tokens: int, rule: Constraint | None
) -> Constraint | None:
    """Return a rule, which also says from where on the reply may end."""
    if not (options.ignore_eos or options.min_tokens) or not models.eog:
        return rule
    until = math.inf if options.ignore_eos else prompt_tokens + options.min_tokens
    return MinLength(models.eog, until, rule, models.target.n_vocab)


def _observer(
    models: LoadedModels, most: int | None, chosen: list[TokenLogprob]
) -> Callable[[NDArray[np.float32], int], None] | None:
    """Return what adds the target's choices to `chosen`; None where no logprobs are wanted."""
    if most is None:
        return None

    def piece(token: int) -> str:
        return models.tokenizer.piece(token, special=True).decode("latin-1")

    def observe(row: NDArray[np.float32], token: int) -> None:
        logprob, best = logprobs(row, token, most)
        top = tuple((piece(each), others) for each, others in best)
        chosen.append(TokenLogprob(piece(token), logprob, top))

    return observe


def _sampling(wanted: SamplingParams, models: LoadedModels) -> SamplingParams:
    """Add what the target's file forbids to what the user wants."""
    if not models.suppressed:
        return wanted
    forbidden = tuple((token, -math.inf) for token in models.suppressed)
    return replace(wanted, logit_bias=(*wanted.logit_bias, *forbidden))
