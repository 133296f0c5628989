"""verify: the target's own choice at every row, compared with the draft."""

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.decoding.choose import Chooser
from localspec.decoding.drafter import Draft
from localspec.decoding.model import Logits


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a draft.

    Args:
        accepted: how many drafted tokens the target would have chosen itself, from the first on.
        next_token: the target's choice after them: its correction of the first that it would
            not have chosen, or the bonus when all were accepted.
    """

    accepted: int
    next_token: int


def verify(tokens: Sequence[int], draft: Draft, logits: Logits, chooser: Chooser) -> Verdict:
    """Accept the longest prefix of the draft that the target chooses too.

    Args:
        tokens: everything confirmed so far, prompt included.
        draft: the proposal that followed `tokens` in the target's pass.
        logits: row i follows `tokens` and the first i drafted tokens; shape (len(draft) + 1, n_vocab).
        chooser: the same for target and draft model.
    """
    prefix = list(tokens)
    for row, drafted in enumerate(draft.tokens):
        token = chooser.choose(logits[row], prefix)
        if token != drafted:
            return Verdict(row, token)
        prefix.append(token)
    return Verdict(len(draft.tokens), chooser.choose(logits[len(draft.tokens)], prefix))
