"""How many sequences are worth running side by side: the cost of a pass by its width says it."""

from localspec.decoding.costs import PassCosts

_NEARLY = 0.95


def best_count(costs: PassCosts, most: int) -> int:
    """Return the least number of sequences that gives nearly the most tokens per second.

    Beyond the knee of the curve, more of them take memory and make every reply slower, for next to nothing.

    Args:
        costs: of passes by their width.
        most: that there may be, 1 or more; of those, only widths that were measured are considered.
    """
    rates = {count: count / costs.of(count) for count in costs.widths if count <= most}
    best = max(rates.values())
    return next(count for count, rate in rates.items() if rate >= _NEARLY * best)
