"""Job: a request that waits or is being answered, and what its reply is made with."""

# ruff: noqa: PLC0415 - few requests have a gate or offer functions

import math
import secrets
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from localspec.chat.answer_constraint import answer_constraint
from localspec.chat.conversation import Conversation
from localspec.chat.events import Event, TokenLogprob
from localspec.chat.loaded_models import LoadedModels
from localspec.chat.reply import ReplyInProgress
from localspec.chat.reply_text import InfillStop, ReplyText, StopStrings, ThinkingFilter
from localspec.chat.request import Request
from localspec.chat.thinking import tag_pieces
from localspec.chat.tokenizer import infill_tokens, raw_tokens, spelling
from localspec.decoding.choose import Chooser
from localspec.decoding.generation import Generation, Limits
from localspec.decoding.noise import Noise
from localspec.decoding.policy import Policy
from localspec.decoding.sampling import logprobs
from localspec.errors import ContextOverflow, UsageError
from localspec.options import SamplingParams

if TYPE_CHECKING:
    from localspec.chat.calling import Calling
    from localspec.chat.gated import GatedReply
    from localspec.chat.template import ChatTemplate

_SEED_BITS = 32  # short enough to be copied by hand


@dataclass(slots=True, eq=False)
class Job:
    """A request that waits or is being answered.

    Args:
        request: to answer.
        conversation: its conversation; None for a text as it is, for a gap, and before it begins.
        make_policy: as for `Assistant.submit`.
        is_known: whether its conversation is remembered.
        slot: which sequence answers it.
        policy: what drafts for it; None before it begins.
        cached: tokens of its prompt that need no evaluation.
        observers: take its events, unmasked.
        gate: masks its events; None where nothing does.
    """

    request: Request
    conversation: Conversation | None
    make_policy: Callable[[int], Policy] | None
    is_known: bool = False
    slot: int = -1
    policy: Policy | None = None
    cached: int = 0
    observers: list[Callable[[Event], None]] = field(default_factory=list)
    gate: "GatedReply | None" = None

    def add_gate(self) -> None:
        """Mask the reply as the request demands.

        Raises:
            UsageError: the rules are wrong, or logprobs are wanted as well.
        """
        if not self.request.gate:
            return
        if self.request.logprobs is not None:
            raise UsageError(
                "logprobs cannot be had behind a gate: leave them out, or ask without one"
            )
        from localspec.chat.gated import GatedReply, gate_of

        self.gate = GatedReply(gate_of(self.request.gate))

    def prompt(self, models: LoadedModels, template: "Callable[[], ChatTemplate]") -> list[int]:
        """Return the ids of the prompt.

        Raises:
            UsageError: it is empty, or the model cannot fill gaps.
            ContextOverflow: it leaves no room for an answer.
            TemplateError: the template is missing, or does not render.
        """
        request, n_ctx = self.request, models.target.n_ctx
        if request.infill is not None:
            most = request.options.max_tokens
            tokens = infill_tokens(request.infill, models.fim, models.tokenizer, n_ctx, most)
        elif self.conversation is not None:
            tokens = self.conversation.prompt_tokens(template(), models.tokenizer)
        else:
            tokens = raw_tokens(request.raw or "", models.tokenizer)
        if not tokens:
            raise UsageError("the prompt has no tokens: write something")
        if len(tokens) >= n_ctx:
            raise ContextOverflow(
                f"the prompt has {len(tokens)} tokens and the context holds {n_ctx}: "
                "shorten it, or raise --ctx"
            )
        return tokens

    def reply(
        self,
        models: LoadedModels,
        tokens: list[int],
        start_s: float,
        calling: "Calling | None",
        emit: Callable[[Event], None],
    ) -> ReplyInProgress:
        """Return the reply, not yet begun.

        Args:
            models: make it.
            tokens: ids of the prompt.
            start_s: when it was requested, by `time.perf_counter`.
            calling: the calls that it may have; None where no functions are offered.
            emit: takes its events.
        """
        request, options, gate = self.request, self.request.options, self.gate
        assert self.policy is not None, "it begins"  # noqa: S101
        target = models.targets.views[self.slot]
        seed = secrets.randbits(_SEED_BITS) if options.seed is None else options.seed
        chosen: list[TokenLogprob] = []
        chooser = Chooser(
            _sampling(options.sampling, models),
            Noise(seed),
            answer_constraint(options, models, self.conversation, len(tokens), calling),
            _observer(models, request.logprobs, chosen),
        )
        limits = Limits(options.max_tokens, models.eog, options.stop_loops)
        return ReplyInProgress(
            prompt=tokens,
            conversation=self.conversation,
            seed=seed,
            start=start_s,
            generation=Generation(tokens, target, self.policy, chooser, limits, time.perf_counter),
            target=target,
            eog=models.eog,
            text=self._text(models, calling, seed, tokens),
            drafter=self.policy.name,
            clock=time.perf_counter,
            emit=emit,
            logprobs=chosen,
            markers=() if calling is None else calling.dialect.markers,
            gated=lambda: gate is not None and gate.stopped,
        )

    def _text(
        self, models: LoadedModels, calling: "Calling | None", seed: int, prompt: Sequence[int]
    ) -> ReplyText:
        options, gap, conversation = self.request.options, self.request.infill, self.conversation
        stops = StopStrings(options.stop)
        if gap is not None:
            stops = InfillStop(options.stop, gap, time.perf_counter)
        if conversation is None:
            return ReplyText(spelling(models.tokenizer, {}), ThinkingFilter(()), stops)
        pieces = tag_pieces(conversation.thinking_tags[0], models.tokenizer)
        filters = conversation.thinking_filter(), stops, conversation.begun
        if calling is None:
            return ReplyText(spelling(models.tokenizer, pieces), *filters)
        spell = spelling(models.tokenizer, {**pieces, **calling.dialect.pieces})
        parsers = calling.parser(seed, prompt), calling.written(seed, prompt)
        return ReplyText(spell, *filters, *parsers)


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
