"""Prior: what drafters earned before on this kind of text, for a policy to start a new conversation from.

Older days count less, and what was before a change that drift found does not count at all.
"""

from collections.abc import Mapping
from pathlib import Path

from localspec.errors import LocalspecError
from localspec.telemetry.log import read_records
from localspec.telemetry.reply import Pair

_TAIL_BYTES = 1 << 17
"""Of the log: some 170 replies. An answer waits for it, and a policy counts 300 tokens a bucket at most."""
_HALF_LIFE_S = 30 * 86400.0


def read_prior(
    directory: Path, pair: Pair, workload: str, *, greedy: bool, now_s: float
) -> dict[str, Mapping[int, tuple[float, float]]]:
    """Return by drafter, and by bucket of the gap, see `GAPS`, the share that was accepted, and how many tokens say so.

    What is long ago counts as fewer tokens. Nothing is returned where nothing is known, or it cannot be read.

    Args:
        directory: of the records.
        pair: what answers.
        workload: kind of text.
        greedy: whether the temperature is 0.
        now_s: seconds since 1970.
    """
    try:
        records = read_records(directory, _TAIL_BYTES)
    except LocalspecError:
        return {}
    since = {
        each.drafter: each.since_s
        for each in records.shifts
        if (each.pair, each.workload) == (pair.name, workload)
    }
    sums: dict[str, dict[int, tuple[float, float]]] = {}
    for reply in records.replies.values():
        if (reply.pair.name, reply.workload, reply.greedy) != (pair.name, workload, greedy):
            continue
        weight = 0.5 ** (max(0.0, now_s - reply.at) / _HALF_LIFE_S)
        for drafter, kinds in reply.tallies.items():
            if reply.at < since.get(drafter, 0.0):
                continue
            earned = sums.setdefault(drafter, {})
            for bucket, (tried, accepted) in enumerate(kinds.get("gap", ())):
                before = earned.get(bucket, (0.0, 0.0))
                earned[bucket] = (before[0] + weight * tried, before[1] + weight * accepted)
    return {
        drafter: {at: (hits / tried, tried) for at, (tried, hits) in earned.items() if tried}
        for drafter, earned in sums.items()
    }
