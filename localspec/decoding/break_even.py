"""Break-even: whether a draft model could ever pay, by what passes cost, and with how much of a text it starts."""

from localspec.decoding.costs import PassCosts
from localspec.decoding.lengths import WORTH_TRYING

_AT_BEST = 0.96
"""Chance of a drafted token on the text that a draft model knows best: edits and quotes of a real pair."""


def could_win(target: PassCosts, draft_model: PassCosts, longest: int) -> bool:
    """Say whether drafting could pay, by a tenth at least, on text that it foretells as well as any.

    Costs are not known much better than that. A draft model that would have to be right throughout
    loses more on the way to such a text, by being evaluated and tried, than it earns there.

    Args:
        target: costs of the target's passes.
        draft_model: costs of the draft model's.
        longest: most tokens of a draft.
    """
    step_s, plain_s = draft_model.of(1), target.of(1)
    expected = 1.0
    for length in range(1, longest + 1):
        expected += _AT_BEST**length
        if expected * plain_s > WORTH_TRYING * (length * step_s + target.of(length + 1)):
            return True
    return False


def window_length(target: PassCosts, draft_model: PassCosts, n_ctx: int) -> int:
    """Return how much of a long text a draft model is to start with.

    As much as it evaluates in the time of two plain steps; at least 32 tokens, with which it can
    show what it is good for.

    Args:
        target: costs of the target's passes.
        draft_model: costs of the draft model's.
        n_ctx: the draft model's context.
    """
    widest = draft_model.widths[-1]
    token_s = draft_model.of(widest) / widest
    return min(n_ctx, max(32, int(2 * target.of(1) / token_s)))
