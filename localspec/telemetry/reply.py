"""Records of the log: what a reply leaves, added up while its rounds go by, shifts and findings. Counts and times: no text, no ids.

Each stands in the log as the JSON of its fields.
"""

from bisect import bisect
from operator import add, attrgetter
from typing import Annotated

from msgspec import Meta, Struct, field

from localspec.decoding.drafters.register import counted_as
from localspec.decoding.gain import Gain
from localspec.decoding.round import GAPS, Round

STAGES = ("draft_prefill", "draft", "verify", "sample", "truncate", "other")
COUNTS = ("rounds", "drafted", "accepted", "confirmed", *(f"{stage}_us" for stage in STAGES))
NOTHING = (0,) * len(COUNTS)
_SPENT_S = attrgetter(*(f"{stage}_s" for stage in STAGES))
_LEAST_DEPTH = 256
_MOST = 1 << 53

Count = Annotated[int, Meta(ge=0, le=_MOST)]
Number = Annotated[float, Meta(ge=0, le=_MOST)]
Sums = Annotated[tuple[Count, ...], Meta(min_length=len(COUNTS), max_length=len(COUNTS))]
"""Sums of `COUNTS`."""
Pairs = list[tuple[Count, Count]]
"""By bucket: tokens that were judged, and how many of them were accepted."""


class Pair(Struct, frozen=True):
    """What answers.

    Args:
        target: its name.
        draft_model: its draft model's; empty without one.
        at_once: how many texts it makes at once; their passes are shared.
    """

    target: str
    draft_model: str = ""
    at_once: Count = 1

    @property
    def name(self) -> str:
        """As people read it."""
        models = f"{self.target} + {self.draft_model}" if self.draft_model else self.target
        return models if self.at_once == 1 else f"{models}, {self.at_once} at a time"


class ReplyRecord(Struct, tag="reply"):
    """What is known of one reply.

    Args:
        at: when it began, seconds since 1970.
        pair: what answered.
        greedy: whether the temperature was 0.
        prompt: tokens of the prompt.
        workload: what kind of text it is.
        by_user: whether the user said so.
        id: its number in the log, which its body does not know.
        tokens: what came of it.
        prefill_s: seconds of evaluating the prompt.
        decode_s: seconds from there to the last token.
        wall_s: seconds of all of it.
        plain_s: what `prefill_s` and the rounds would have taken without drafting; 0 where nothing was drafted, or that is not known.
        no_drafting: why nothing was drafted, in about five words; empty where something was.
        cells: by drafter and depth, from where on: the sums of `COUNTS`. Plain rounds are of `off`.
        tallies: by drafter and kind. The bucket of a `position` is the place in the draft, of a `confidence` its tenth,
            of a `gap` its place in `GAPS`, and of a `rank` the correction's place among the drafter's choices, 0 being
            farther; of ranks only the first number counts. Of a `branch`, a second choice that was verified, too, it is
            its place in the draft.
    """

    at: Number
    pair: Pair
    greedy: bool
    prompt: Count
    workload: str = "chat"
    by_user: bool = False
    id: Count = 0
    tokens: Count = 0
    prefill_s: Number = 0.0
    decode_s: Number = 0.0
    wall_s: Number = 0.0
    plain_s: Number = 0.0
    no_drafting: str = ""
    cells: dict[str, dict[Count, Sums]] = field(default_factory=dict)
    tallies: dict[str, dict[str, Pairs]] = field(default_factory=dict)

    @property
    def sums(self) -> list[int]:
        """Sums of `COUNTS` over all rounds."""
        cells = (counts for by_depth in self.cells.values() for counts in by_depth.values())
        return [sum(column) for column in zip(*cells, strict=True)] or [*NOTHING]

    @property
    def gain(self) -> Gain | None:
        """What drafting gained in it; None where nothing was drafted, or that is not known. Its own error is not kept."""
        if not self.plain_s or not self.sums[1]:
            return None
        return Gain(self.plain_s, self.prefill_s + sum(self.sums[4:]) / 1e6, 0.0)

    def judged(self, drafter: str) -> tuple[int, int]:
        """Return the tokens of a drafter that were judged, and how many of them were accepted."""
        pairs = self.tallies.get(drafter, {}).get("position", [])
        return sum(tried for tried, _ in pairs), sum(hits for _, hits in pairs)

    def add(self, done: Round) -> None:
        """Count a round. The prompt's own token is a token, and no round."""
        if not done.is_first:
            drafter = counted_as(done)
            by_depth = self.cells.setdefault(drafter, {})
            depth = _depth_from(self.prompt + self.tokens)
            spent_us = (max(0, round(1e6 * each)) for each in _SPENT_S(done.spent))
            counts = (1, done.drafted, done.accepted, len(done.confirmed), *spent_us)
            by_depth[depth] = tuple(map(add, by_depth.get(depth, NOTHING), counts))
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


class Shift(Struct, frozen=True, tag="shift"):
    """A drafter came to be accepted at another rate.

    Args:
        at: when that was noticed, seconds since 1970.
        pair: the name of what answers.
        workload: kind of text.
        drafter: its name.
        since_s: when it began.
        before: acceptance rate until then.
        after: and since.
    """

    at: Number
    pair: str
    workload: str
    drafter: str
    since_s: Number
    before: Number
    after: Number


class GateCount(Struct, frozen=True, tag="gate"):
    """How often a rule of a gate had a match in the answers of a while, and what was done about it.

    Args:
        at: when that was, seconds since 1970.
        rule: its name.
        action: `mask`, `ask`, `stop` or `note`.
        times: how often.
    """

    at: Number
    rule: str
    action: str
    times: Count


Record = ReplyRecord | Shift | GateCount


def _count(pairs: Pairs, bucket: int, hit: bool) -> None:
    while len(pairs) <= bucket:
        pairs.append((0, 0))
    tried, hits = pairs[bucket]
    pairs[bucket] = (tried + 1, hits + hit)


def _depth_from(depth: int) -> int:
    """Return where the bucket of a depth begins: 0, 256, 512, 1024, and so on."""
    return 0 if depth < _LEAST_DEPTH else 1 << (depth.bit_length() - 1)
