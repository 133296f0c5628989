"""How often a draft model foretells what a target says, and what its steps cost beside the target's."""

import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from localspec.bench.measure import prompt_tokens
from localspec.bench.prompts import BenchPrompt
from localspec.chat.assistant import Assistant
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.costs import PassCosts
from localspec.decoding.policy.policy import plain_policy
from localspec.decoding.round import StopReason
from localspec.llama.context import LlamaContext
from localspec.llama.model import LlamaModel
from localspec.options import ReplyOptions, SamplingParams

MOST_TOKENS = 96
_ROWS = 32
_REPEATS = 8
_DEPTH, _N_CTX = 64, 256
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
    model: LlamaModel, texts: Sequence[RecordedAnswer], shared_vocab: int, cancel: CancelFlag
) -> dict[str, list[list[bool]]]:
    """Return, by kind of text and for each answer, whether a model would have drafted each of its tokens, greedily.

    Args:
        model: the draft model.
        texts: what the target said.
        shared_vocab: ids that both have.
        cancel: stops it.
    """
    longest = max(len(each.prompt) + len(each.answer) for each in texts)
    context = LlamaContext(model, cancel, replace(model.options, n_ctx=longest, max_rows=_ROWS))
    found = defaultdict(list)
    try:
        for each in texts:
            tokens, drafted = [*each.prompt, *each.answer], list[int]()
            while len(drafted) < len(each.answer):
                rows = min(_ROWS, len(each.answer) - len(drafted))
                end = len(each.prompt) + len(drafted) + rows - 1
                logits = context.logits(tokens[:end], rows)[:, :shared_vocab]
                drafted += np.argmax(logits, axis=1).tolist()
            found[each.kind].append([a == b for a, b in zip(drafted, each.answer, strict=True)])
    finally:
        context.close()
    return dict(found)


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
        LlamaContext(each, cancel, replace(each.options, n_ctx=_N_CTX, max_rows=1))
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
