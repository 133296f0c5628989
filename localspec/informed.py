"""Informed: what this kind of text earned before is told to the policy as a reply begins."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from localspec.chat.tracing import Trace, Tracer
from localspec.decoding.adaptive import AdaptivePolicy
from localspec.telemetry.pair import Pair
from localspec.telemetry.prior import Prior, read_prior
from localspec.telemetry.workload import workload_of

_DRAFTER = "model"


class Informed:
    """A tracer before another one: it looks up, once for each kind of text, what the draft model earned.

    Chances only plan how far to draft: no text depends on them.

    Args:
        tracer: sees the reply.
        policy: is told; only of a policy with a draft model is anything looked up.
        directory: of the telemetry.
        pair: what answers.
        workload: what kind of text all of it is; None guesses by what is asked.
        now: seconds since 1970.
    """

    def __init__(
        self,
        tracer: Tracer,
        policy: AdaptivePolicy,
        directory: Path,
        pair: Pair,
        workload: str | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._tracer = tracer
        self._policy = policy
        self._directory = directory
        self._pair = pair
        self._workload = workload
        self._now = now
        self._known: dict[tuple[str, bool], Mapping[str, Prior]] = {}

    def begin(self, asked: str, tokens: Sequence[int], *, greedy: bool) -> Trace:
        """Tell the policy what to expect, and start the other tracer's trace; see `Tracer`."""
        kind = (self._workload or workload_of(asked), greedy)
        if kind not in self._known:
            self._known[kind] = read_prior(
                self._directory, self._pair, kind[0], greedy=greedy, now_s=self._now()
            )
        earned = self._known[kind].get(_DRAFTER)
        gaps = {} if earned is None else earned.gaps
        self._policy.expect(
            {bucket: (chance.rate, chance.weight) for bucket, chance in gaps.items()},
            greedy=greedy,
        )
        return self._tracer.begin(asked, tokens, greedy=greedy)
