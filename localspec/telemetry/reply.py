"""ReplyRecord: the one record that a reply leaves, added up while its rounds go by. Counts and times: no text, no ids."""

from bisect import bisect
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from itertools import chain
from operator import add, attrgetter
from typing import Any, Self

from localspec.decoding.drafters.register import counted_as
from localspec.decoding.round import GAPS, Round
from localspec.errors import UsageError

WORKLOADS = ("code", "edit", "chat", "summarise", "structured", "creative")
"""The kinds of text that are told apart."""
STAGES = ("draft_prefill", "draft", "verify", "sample", "truncate", "other")
COUNTS = ("rounds", "drafted", "accepted", "confirmed", *(f"{stage}_us" for stage in STAGES))
NOTHING = (0,) * len(COUNTS)
LOT = 5
"""Consecutive rounds of one drafter whose sums drift is told."""
_SPENT_S = attrgetter(*(f"{stage}_s" for stage in STAGES))
_LEAST_DEPTH = 256
_MOST = 1 << 53

Pairs = list[list[int]]
"""By bucket: tokens that were judged, and how many of them were accepted."""


@dataclass(frozen=True, slots=True)
class Pair:
    """What answers.

    Args:
        target: its name.
        draft_model: likewise; empty without one.
        plain_s: seconds of a plain pass as it was calibrated; None where it was not.
        at_once: how many texts it makes at once; their passes are shared.
    """

    target: str
    draft_model: str = ""
    plain_s: float | None = None
    at_once: int = 1

    @property
    def name(self) -> str:
        """As people read it."""
        models = f"{self.target} + {self.draft_model}" if self.draft_model else self.target
        return models if self.at_once == 1 else f"{models}, {self.at_once} at a time"


@dataclass(slots=True)
class ReplyRecord:
    """What is known of one reply.

    Args:
        at: when it began, seconds since 1970.
        pair: what answered.
        greedy: whether the temperature was 0.
        prompt: tokens of the prompt.
        workload: what kind of text it is.
        by_user: whether the user said so.
        id: its number; 0 before it is written.
        tokens: what came of it.
        prefill_s: seconds of evaluating the prompt.
        decode_s: seconds from there to the last token.
        wall_s: seconds of all of it.
        cells: by drafter and depth, from where on: the sums of `COUNTS`. Plain rounds are of `off`.
        tallies: by drafter and kind. The bucket of a `position` is the place in the draft, of a `confidence` its tenth,
            of a `gap` its place in `GAPS`, and of a `rank` the correction's place among the drafter's choices, 0 being
            farther; of ranks only the first number counts. Of a `branch`, a second choice that was verified, too, it is
            its place in the draft.
        lots: by drafter, consecutive rounds: how many, tokens judged and accepted in them.
    """

    at: float
    pair: Pair
    greedy: bool
    prompt: int
    workload: str = "chat"
    by_user: bool = False
    id: int = 0
    tokens: int = 0
    prefill_s: float = 0.0
    decode_s: float = 0.0
    wall_s: float = 0.0
    cells: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    tallies: dict[str, dict[str, Pairs]] = field(default_factory=dict)
    lots: dict[str, list[list[int]]] = field(default_factory=dict)

    @property
    def sums(self) -> list[int]:
        """Sums of `COUNTS` over all rounds."""
        return [sum(column) for column in zip(*self.cells.values(), strict=True)] or [*NOTHING]

    def add(self, done: Round) -> None:
        """Count a round. The prompt's own token is a token, and no round."""
        if not done.is_first:
            drafter = counted_as(done)
            key = (drafter, _depth_from(self.prompt + self.tokens))
            spent_us = (max(0, round(1e6 * each)) for each in _SPENT_S(done.spent))
            counts = (1, done.drafted, done.accepted, len(done.confirmed), *spent_us)
            self.cells[key] = tuple(map(add, self.cells.get(key, NOTHING), counts))
            if done.drafted:
                self._judge(drafter, done)
        self.tokens += len(done.confirmed)

    def _judge(self, drafter: str, done: Round) -> None:
        draft, accepted = done.draft, done.verdict.accepted
        # Those behind the first that was not accepted tell nothing.
        judged = min(accepted + 1, done.drafted)
        tenths = [min(int(10 * each), 9) for each in draft.confidences[:judged]]
        gaps = [bisect(GAPS, each) for each in draft.gaps[:judged]]
        kinds = self.tallies.setdefault(drafter, {})
        for kind, buckets in (("position", range(judged)), ("confidence", tenths), ("gap", gaps)):
            pairs = kinds.setdefault(kind, [])
            for at, bucket in enumerate(buckets):
                _count(pairs, bucket, at < accepted)
        for at in draft.branches:
            branch = at == accepted and done.verdict.branch is not None
            _count(kinds.setdefault("branch", []), at, branch)
        if gaps and accepted < done.drafted:
            _count(kinds.setdefault("rank", []), done.correction_rank or 0, False)
        lots = self.lots.setdefault(drafter, [])
        if not lots or lots[-1][0] == LOT:
            lots.append([0, 0, 0])
        lots[-1] = list(map(add, lots[-1], (1, judged, accepted)))

    def to_json(self) -> dict[str, Any]:
        """Return it as JSON can hold it."""
        cells = [[*key, *counts] for key, counts in self.cells.items()]
        return {**asdict(self), "cells": cells}

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Return what `to_json` was called on.

        Raises:
            TypeError, ValueError, LookupError or AttributeError: it was not.
        """
        pair = Pair(**values["pair"])
        cells = {(drafter, depth): tuple(counts) for drafter, depth, *counts in values["cells"]}
        reply = cls(**{**values, "pair": pair, "cells": cells})
        tallied = [*chain(*(its for kinds in reply.tallies.values() for its in kinds.values()))]
        names = (pair.target, pair.draft_model, reply.workload, *(drafter for drafter, _ in cells))
        numbers = (reply.at, reply.prefill_s, reply.decode_s, reply.wall_s, pair.plain_s or 0)
        checked(names, (reply.id, reply.prompt, reply.tokens, pair.at_once), numbers)
        depths = (depth for _, depth in cells)
        checked((), chain(depths, *cells.values(), *tallied), ())
        if {*map(len, cells.values())} - {len(COUNTS)} or any(hits > its for its, hits in tallied):
            raise ValueError
        return reply


def _count(pairs: Pairs, bucket: int, hit: bool) -> None:
    while len(pairs) <= bucket:
        pairs.append([0, 0])
    pairs[bucket][0] += 1
    pairs[bucket][1] += hit


def checked(texts: Iterable[Any], counts: Iterable[Any], numbers: Iterable[Any]) -> None:
    """Raise ValueError or TypeError where texts, counts, or numbers from 0 on are none."""
    counts = list(counts)
    if not (
        {*map(type, texts)} <= {str}
        and {*map(type, counts)} <= {int}
        and 0 <= min(counts, default=0) <= max(counts, default=0) <= _MOST
        and all(0 <= each <= _MOST for each in numbers)
    ):
        raise ValueError


def _depth_from(depth: int) -> int:
    """Return where the bucket of a depth begins: 0, 256, 512, 1024, and so on."""
    return 0 if depth < _LEAST_DEPTH else 1 << (depth.bit_length() - 1)


def required(workload: str) -> str:
    """Return a kind of text that a user named.

    Raises:
        UsageError: there is no such kind.
    """
    if workload not in WORKLOADS:
        raise UsageError(f"workload {workload!r}: choose one of {', '.join(WORKLOADS)}")
    return workload
