"""Logprobs: how likely the target held a token to be, by the row of logits that chose it."""

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.top import ranked_ids


def logprobs(
    row: NDArray[np.float32], token: int, most: int
) -> tuple[float, list[tuple[int, float]]]:
    """Return a token's log probability, and the likeliest ids with theirs, the best first.

    Args:
        row: the target's own logits, shape (n_vocab,): before bias, penalties, truncation and temperature.
        token: the one that was chosen.
        most: how many of the likeliest ids.
    """
    scores = row.astype(np.float64)
    scores -= scores.max()
    scores -= np.log(np.exp(scores).sum())
    best = ranked_ids(row, min(most, row.size)) if most else ()
    return float(scores[token]), [(int(each), float(scores[each])) for each in best]
