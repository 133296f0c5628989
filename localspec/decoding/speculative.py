"""The algorithm, on one page: propose, evaluate the target once, verify.

It asks for passes and makes none itself, so that a scheduler can merge those of several sequences.
"""

from collections.abc import Generator, Sequence

from localspec.decoding.choose import Chooser
from localspec.decoding.drafters.drafter import Plan
from localspec.decoding.model import Logits, Pass, Role
from localspec.decoding.round import Draft, Verdict


def speculative_round(
    tokens: Sequence[int], plan: Plan, chooser: Chooser
) -> Generator[Pass, Logits, tuple[Draft, Verdict]]:
    """Propose up to `plan.draft_length` tokens to follow `tokens`, and return what became of them."""
    draft = yield from plan.drafter.propose(tokens, plan, chooser)
    if min(draft.tokens, default=0) < 0:
        draft = draft.until(next(at for at, token in enumerate(draft.tokens) if token < 0))
    second_choices = [draft.alternatives[at][0] for at in draft.branches]
    drafted, n_past = (*draft.tokens, *second_choices), len(tokens)
    assert len(drafted) <= plan.draft_length, f"{draft.drafter} overshoots"  # noqa: S101
    branches = tuple(n_past + at for at in draft.branches)
    logits = yield Pass(Role.TARGET, [*tokens, *drafted], rows=len(drafted) + 1, branches=branches)
    return draft, verify(tokens, draft, logits, chooser)


def verify(tokens: Sequence[int], draft: Draft, logits: Logits, chooser: Chooser) -> Verdict:
    """Accept the longest prefix of the draft that the target chooses too, and the branch that goes on from there.

    Args:
        tokens: everything confirmed so far, prompt included.
        draft: the proposal that followed `tokens` in the target's pass.
        logits: row i follows `tokens` and the first i drafted tokens; behind them one row for each branch. Shape
            (len(draft.tokens) + 1 + len(draft.branches), n_vocab).
        chooser: the same for target and draft model.
    """
    prefix = list(tokens)
    for row, drafted in enumerate(draft.tokens):
        token = chooser.choose(logits[row], prefix)
        if token != drafted:
            if row in draft.branches and token == draft.alternatives[row][0]:
                own = len(draft.tokens) + 1 + draft.branches.index(row)
                return Verdict(row, chooser.choose(logits[own], [*prefix, token]), token)
            return Verdict(row, token)
        prefix.append(token)
    return Verdict(len(draft.tokens), chooser.choose(logits[len(draft.tokens)], prefix))
