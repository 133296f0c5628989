"""Candidates: what SamplingParams make of a row of logits, a sparse set.

Order and meaning of the transforms are llama.cpp's: a constraint, logit bias, penalties, top-k,
top-p, min-p, temperature. A row is truncated to its candidates first and in float64 from there on.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.top import Allows, allowed_ids, ranked_ids, top_ids
from localspec.errors import PassFailed
from localspec.options import FORBIDDEN, SamplingParams

_LEAST_TEMPERATURE = 1e-200
"""By which no difference of logits can be divided beyond the range of float64; it leaves rivals no weight."""
_NOTHING_FOLLOWS = (
    "the grammar lets none of the model's tokens follow here: it asks for characters that the "
    "model cannot write, or for tokens that are forbidden; change the grammar"
)


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """What sampling left of a row.

    Args:
        ids: of the tokens, ascending, shape (n,).
        log_weights: one for each, shape (n,).
    """

    ids: NDArray[np.int64]
    log_weights: NDArray[np.float64]

    def probabilities(self) -> NDArray[np.float64]:
        """Return the normalised weights, shape (n,)."""
        weights = np.exp(self.log_weights - self.log_weights.max())
        return np.asarray(weights / weights.sum())


def candidates(
    row: NDArray[np.float32],
    history: Sequence[int],
    params: SamplingParams,
    allows: Allows | None = None,
) -> Candidates:
    """Apply every sampling transform to one row of logits.

    Args:
        row: logits, shape (n_vocab,); not modified.
        history: all tokens before the position, prompt and drafted prefix included.
        params: the transforms.
        allows: says which ids may follow at all, before every other transform; None lets all.

    Raises:
        PassFailed: the row holds NaN, or nothing but -inf, or of its ids none may follow.

    Source: the order of llama.cpp's `common_sampler`; ties go to the lowest id.
    """
    # Bias and penalties change each logit by itself: to mask before or after them is the same.
    row, greedy = penalised(row, history, params), params.temperature == 0
    if allows is not None:
        likeliest(row)  # which no constraint makes usable
        ids = allowed_ids(row, 1 if greedy else params.top_k, allows)
        if ids.size == 0:
            raise PassFailed(_NOTHING_FOLLOWS)
    elif not greedy and params.top_k == 0 and params.top_p == 1 and params.min_p > 0:
        # All of a row with NaN, and perhaps some at the edge.
        edge = np.float32(float(row.max()) + math.log(params.min_p))
        ids = (~(row < np.nextafter(edge, np.float32(-np.inf)))).nonzero()[0]
    else:
        ids = top_ids(row, 1 if greedy else params.top_k)
    scores = (row if ids.size == row.size else row[ids]).astype(np.float64)
    # Whatever is not usable of a row is among its highest logits, so that a long one is read once.
    at = scores.argmax()
    best = float(scores[at])
    _require_finite(best)
    if greedy:
        return Candidates(ids[at : at + 1], np.zeros(1))
    if params.top_p < 1:
        # The smallest set of best scores that reaches it.
        falling = np.exp(np.sort(scores)[::-1] - best)
        reached = np.cumsum(falling) >= params.top_p * falling.sum()
        left = top_ids(scores, int(reached.argmax()) + 1)
        ids, scores = ids[left], scores[left]
    if params.min_p > 0:
        left = (scores >= best + math.log(params.min_p)).nonzero()[0]
        ids, scores = ids[left], scores[left]
    scores -= best
    return Candidates(ids, scores / max(params.temperature, _LEAST_TEMPERATURE))


def likeliest(row: NDArray[np.float32]) -> int:
    """Return the id of a row's highest logit, the lowest among equals.

    Raises:
        PassFailed: the row holds NaN, or nothing but -inf.
    """
    token = int(row.argmax())  # of NaN, as soon as one logit is
    _require_finite(float(row[token]))
    return token


def penalised(
    row: NDArray[np.float32], history: Sequence[int], params: SamplingParams
) -> NDArray[np.float32]:
    """Return the row after logit bias and penalties; the row itself when neither applies."""
    if not params.logit_bias and not params.penalises:
        return row
    row = row.copy()
    for token, bias in params.logit_bias:
        if token < row.size:
            row[token] += np.float32(bias if bias > FORBIDDEN else -math.inf)
    if not params.penalises:
        return row
    counts = Counter(history[-params.penalty_last_n :])
    # A picture's ids are negative.
    ids = np.array([token for token in counts if 0 <= token < row.size], dtype=np.int64)
    times = np.array([counts[token] for token in ids.tolist()], dtype=np.float32)
    scores = row[ids]
    repeat = np.float32(params.repeat_penalty)
    scores = np.where(scores <= 0, scores * repeat, scores / repeat)
    subtract = times * np.float32(params.frequency_penalty) + np.float32(params.presence_penalty)
    row[ids] = scores - subtract
    return row


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


def _require_finite(best: float) -> None:
    if not math.isfinite(best):
        raise PassFailed(
            f"the model gave no usable logits (the best is {best}): "
            "the file may be damaged or the device at fault; try another file or device"
        )
