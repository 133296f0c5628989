"""How much a draft model agrees with a target, and the speed-up that follows from that and from costs of passes."""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from localspec.api import ReplyOptions, SamplingParams, StopReason
from localspec.chat.assistant import Assistant
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.costs import PassCosts
from localspec.decoding.policy import plain_policy
from localspec.llama.model import LlamaModel
from localspec.llama.sequence import LlamaContext
from localspec.plugins.bench.measure import prompt_tokens
from localspec.plugins.bench.prompts import BenchPrompt

MOST_TOKENS = 96
ROWS = 32
_LONGEST = 31

Hits = Mapping[str, Sequence[Sequence[bool]]]
"""By kind of text, for each answer, whether a draft model would have proposed each of its tokens."""

Prompts = Sequence[BenchPrompt]


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """A target's greedy answer to a prompt of a kind, both as tokens."""

    kind: str
    prompt: list[int]
    answer: list[int]


def prompt_length(assistant: Assistant, prompts: Prompts) -> int:
    """Return the tokens of all prompts together; see `prompt_tokens`."""
    return sum(map(len, prompt_tokens(assistant, prompts)))


def record_answers(
    assistant: Assistant, prompts: Prompts, on_share: Callable[[float], None]
) -> list[RecordedAnswer]:
    """Return the target's greedy answers, up to `MOST_TOKENS` each.

    Raises:
        Cancelled: the assistant's flag was set.
        ContextOverflow: a prompt leaves no room for an answer.
    """
    answers = []
    greedy = ReplyOptions(SamplingParams(temperature=0), seed=1, max_tokens=MOST_TOKENS)
    tokens = prompt_tokens(assistant, prompts)
    for done, (prompt, before) in enumerate(zip(prompts, tokens, strict=True), start=1):
        reply = assistant.reply(prompt.prompt, greedy, policy=plain_policy())
        if reply.stop_reason is StopReason.CANCELLED:
            raise Cancelled
        answers.append(RecordedAnswer(prompt.workload, before, list(reply.tokens)))
        on_share(done / len(prompts))
    return answers


def agreement(
    model: LlamaModel, answers: Sequence[RecordedAnswer], shared_vocab: int, cancel: CancelFlag
) -> Hits:
    """Return which tokens of recorded answers a draft model would have proposed greedily.

    Args:
        model: the draft model.
        answers: of its target.
        shared_vocab: ids that both have.
        cancel: stops it.
    """
    hits = defaultdict(list)
    longest = max(len(each.prompt) + len(each.answer) for each in answers)
    context = LlamaContext(model, cancel, replace(model.options, n_ctx=longest, max_rows=ROWS))
    try:
        for each in answers:
            tokens, drafted = [*each.prompt, *each.answer], list[int]()
            for start in range(0, len(each.answer), ROWS):
                rows = min(ROWS, len(each.answer) - start)
                end = len(each.prompt) + start + rows - 1
                logits = context.logits(tokens[:end], rows)[:, :shared_vocab]
                drafted += np.argmax(logits, axis=1).tolist()
            pairs = zip(drafted, each.answer, strict=True)
            hits[each.kind].append([one == other for one, other in pairs])
    finally:
        context.close()
    return dict(hits)


def speed_up(hits: Hits, target: PassCosts, draft_model: PassCosts) -> dict[str, float]:
    """Return a draft model's speed-up over plain decoding on recorded greedy answers, by kind of text.

    Replays every draft length, and takes the one that suits each kind; 1 where none gains. Behind accepted tokens the
    recorded text goes on.

    Args:
        hits: tokens that the draft model would have proposed.
        target: costs of its passes.
        draft_model: costs of its passes of widths 1 and 2.
    """
    lengths = range(1, _LONGEST)
    return {
        kind: max(1.0, *(_speed_up(answers, each, target, draft_model) for each in lengths))
        for kind, answers in hits.items()
    }


def _speed_up(
    answers: Sequence[Sequence[bool]], length: int, target: PassCosts, draft_model: PassCosts
) -> float:
    """Return the speed-up of drafts of one length."""
    plain_s = spent_s = 0.0
    for hits in answers:
        at, behind = 1, 1  # the first token comes with the prompt
        plain_s += (len(hits) - 1) * target.of(1)
        while at < len(hits):
            drafted = min(length, len(hits) - at - 1)
            right = next((n for n in range(drafted) if not hits[at + n]), drafted)
            spent_s += target.of(drafted + 1)
            if drafted:
                spent_s += draft_model.of(behind) + (drafted - 1) * draft_model.of(1)
            # Of a draft that was accepted as a whole, it has not evaluated the last token.
            behind = 2 if right == drafted else 1
            at += right + 1
    return plain_s / spent_s if spent_s else 1.0
