"""How often a draft model foretells what a target says, and what its steps cost beside the target's."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import exp

import numpy as np
from numpy.typing import NDArray

from localspec.bench.measure import prompt_tokens
from localspec.bench.prompts import BenchPrompt
from localspec.chat.assistant import Assistant
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.costs import PassCosts
from localspec.decoding.policy.policy import plain_policy
from localspec.decoding.round import StopReason
from localspec.decoding.sampling import logprobs
from localspec.llama.context import LlamaContext
from localspec.llama.model import LlamaModel
from localspec.options import ReplyOptions, SamplingParams

MOST_TOKENS = 96
ROWS = 32
_REPEATS = 8
_DEPTH, N_CTX = 64, 256
_FEW_TOKENS, _FEW_BEFORE = 32, 64
"""Of an answer, and before it, what a search looks at."""
# Counted on twelve answers of a real pair, each with ids that were chosen by the others
_USUAL_WEIGHT, _FIRST_IDS = 0.1, 1000
_TOKEN = 100  # any: a pass takes as long whatever it evaluates


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """What a target said.

    Args:
        kind: of text.
        prompt: its tokens.
        answer: greedy, likewise.
    """

    kind: str
    prompt: list[int]
    answer: list[int]


def answers(
    assistant: Assistant, prompts: Sequence[BenchPrompt], on_share: Callable[[float], None]
) -> list[RecordedAnswer]:
    """Return a target's own greedy answers, up to `MOST_TOKENS` each.

    Raises:
        Cancelled: its flag was set.
        ContextOverflow: a prompt leaves no room for an answer.
    """
    found = []
    greedy = ReplyOptions(SamplingParams(temperature=0), seed=1, max_tokens=MOST_TOKENS)
    tokens = prompt_tokens(assistant, prompts)
    for done, (prompt, before) in enumerate(zip(prompts, tokens, strict=True), start=1):
        reply = assistant.reply(prompt.prompt, greedy, policy=plain_policy())
        if reply.stop_reason is StopReason.CANCELLED:
            raise Cancelled
        found.append(RecordedAnswer(prompt.workload, before, list(reply.tokens)))
        on_share(done / len(prompts))
    return found


def foretold(
    model: LlamaModel,
    texts: Sequence[RecordedAnswer],
    shared_vocab: int,
    cancel: CancelFlag,
    heads: Sequence[NDArray[np.int64]] | None = None,
) -> dict[str, list[list[bool]]]:
    """Return, by kind of text and for each answer, whether a model would have drafted each of its tokens, greedily.

    Args:
        model: the draft model.
        texts: what the target said.
        shared_vocab: ids that both have.
        cancel: stops it.
        heads: for each text, the ids that may be drafted, ascending; None lets all.
    """
    found = defaultdict(list)
    for place, (each, logits) in enumerate(_forced(model, texts, shared_vocab, cancel)):
        if heads is None:
            drafted = np.concatenate([np.argmax(rows, axis=1) for rows in logits])
        else:
            ids = heads[place]
            drafted = np.concatenate([ids[np.argmax(rows[:, ids], axis=1)] for rows in logits])
        found[each.kind].append((drafted == each.answer).tolist())
    return dict(found)


def likelihood(
    model: LlamaModel, texts: Sequence[RecordedAnswer], shared_vocab: int, cancel: CancelFlag
) -> float:
    """Return the mean probability that a model gives the first tokens of answers: smoother than how many it foretells.

    Args:
        model: the draft model.
        texts: what the target said; of each, a part that is evaluated soon.
        shared_vocab: ids that both have.
        cancel: stops it.
    """
    few = [
        replace(each, prompt=each.prompt[-_FEW_BEFORE:], answer=each.answer[:_FEW_TOKENS])
        for each in texts
    ]
    found = list[float]()
    for each, logits in _forced(model, few, shared_vocab, cancel):
        for row, token in zip(chain.from_iterable(logits), each.answer, strict=True):
            found.append(exp(logprobs(row, token, 0)[0]))
    return sum(found) / len(found)


def spoken(
    target: LlamaModel, texts: Sequence[RecordedAnswer], cancel: CancelFlag
) -> list[NDArray[np.float64]]:
    """Return for each of its answers how often a target might have said each id: the sum of its probabilities.

    That ranks also the ids that so little text does not have.
    """
    found = []
    for _, logits in _forced(target, texts, target.n_vocab, cancel):
        total = np.zeros(target.n_vocab)
        for row in chain.from_iterable(logits):
            weights = np.exp(row - row.max(), dtype=np.float64)
            total += weights / weights.sum()
        found.append(total)
    return found


def often_spoken(counts: Sequence[NDArray[np.float64]], n_ids: int) -> NDArray[np.int64]:
    """Return the ids that a target says most often, ascending.

    What is known of them is two things: how often it might have said them in some texts, and that tokenizers number
    their tokens as they found them in far more text, the most frequent first.

    Args:
        counts: for each text, see `spoken`.
        n_ids: how many.
    """
    total = np.sum(counts, axis=0)
    usual = 1.0 / (_FIRST_IDS + np.arange(len(total)))
    likely = total / total.sum() + _USUAL_WEIGHT * usual / usual.sum()
    return np.sort(np.argsort(-likely, kind="stable")[:n_ids])


def _forced(
    model: LlamaModel, texts: Sequence[RecordedAnswer], shared_vocab: int, cancel: CancelFlag
) -> Iterator[tuple[RecordedAnswer, Iterator[NDArray[np.float32]]]]:
    """Yield each text with the rows of logits that a model has for the tokens of its answer, chunk by chunk."""
    longest = max(len(each.prompt) + len(each.answer) for each in texts)
    context = LlamaContext(model, cancel, replace(model.options, n_ctx=longest, max_rows=ROWS))

    def chunks(each: RecordedAnswer) -> Iterator[NDArray[np.float32]]:
        tokens = [*each.prompt, *each.answer]
        for start in range(0, len(each.answer), ROWS):
            rows = min(ROWS, len(each.answer) - start)
            end = len(each.prompt) + start + rows - 1
            yield context.logits(tokens[:end], rows)[:, :shared_vocab]

    try:
        for each in texts:
            yield each, chunks(each)
    finally:
        context.close()


def step_costs(
    target: LlamaModel, draft_model: LlamaModel, plain_s: float, cancel: CancelFlag
) -> PassCosts:
    """Return what passes of one and two tokens of a draft model take.

    Timed in turns with the target's, since what else runs slows both; of each the fastest counts.

    Args:
        target: loaded.
        draft_model: likewise.
        plain_s: what a pass of the target is known to take.
        cancel: stops it.
    """
    contexts = [
        LlamaContext(each, cancel, replace(each.options, n_ctx=N_CTX, max_rows=1))
        for each in (target, draft_model)
    ]
    passes = ((0, 1), (1, 1), (1, 2))
    fastest = dict.fromkeys(passes, float("inf"))
    try:
        tokens = [_TOKEN % min(each.n_vocab for each in contexts)] * (_DEPTH + 2)
        for repeat in range(_REPEATS + 1):  # the first one wakes threads and touches every weight
            for which, width in passes:
                context = contexts[which]
                context.prefill(tokens[:_DEPTH])
                context.truncate(_DEPTH)
                start = time.perf_counter()
                context.logits(tokens[: _DEPTH + width], rows=1)
                took = time.perf_counter() - start
                if repeat:
                    fastest[which, width] = min(fastest[which, width], took)
    finally:
        for context in contexts:
            context.close()
    plain = fastest[0, 1]
    seconds = (plain_s * fastest[1, 1] / plain, plain_s * fastest[1, 2] / plain)
    return PassCosts((1, 2), seconds)
