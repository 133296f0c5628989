"""The catalogue of simulated worlds: what they cost, what they say, who is against us.

Costs of real machines are those of FACTS (milliseconds on two CPU cores, Qwen2.5 1.5B and
0.5B); the others are made up, and their names say what of.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from localspec.decoding.costs import PassCosts
from tests.decoding.simulation import Build
from tests.decoding.virtual_pair import MARGIN, Adversary, GapLaw, TrueCosts, World

_WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 32)
_N_VOCAB = 500
_PROMPT = 300


def _table(*milliseconds: float) -> PassCosts:
    return PassCosts(_WIDTHS, tuple(ms / 1000 for ms in milliseconds))


def _scaled(costs: PassCosts, factor: float) -> PassCosts:
    return PassCosts(costs.widths, tuple(s * factor for s in costs.seconds))


_DRAFT = _table(14.2, 30.6, 38.3, 43.8, 57.8, 62.3, 60.0, 75.2, 81.9, 154.3)
_Q4_0 = _table(22.8, 43.0, 58.9, 48.4, 64.7, 80.0, 79.9, 106.4, 109.0, 207.5)
Q4_K_M = TrueCosts(_table(22.7, 41.5, 55.8, 68.5, 83.7, 98.4, 114.9, 143.4, 137.7, 250.3), _DRAFT)
F16 = TrueCosts(_table(50.8, 78.5, 90.8, 96.8, 105.4, 111.2, 133.9, 161.4, 186.7, 323.0), _DRAFT)
FOUR_TIMES = TrueCosts(_scaled(_Q4_0, 4), _DRAFT)
GPU = TrueCosts(
    PassCosts((1, 2, 8, 9, 16, 32, 64), (0.010, 0.0105, 0.0105, 0.014, 0.015, 0.018, 0.024)),
    PassCosts((1, 8, 9, 64), (0.001, 0.00105, 0.0015, 0.003)),
)
DIPS = TrueCosts(  # 4 is cheaper than 3, and 8 than 5 to 7
    PassCosts(
        (1, 2, 3, 4, 5, 6, 7, 8, 9, 16, 32),
        (0.020, 0.028, 0.040, 0.032, 0.050, 0.055, 0.058, 0.042, 0.070, 0.080, 0.150),
    ),
    PassCosts((1, 2, 8, 32), (0.003, 0.005, 0.008, 0.025)),
)
DEAR = TrueCosts(Q4_K_M.target, _scaled(Q4_K_M.target, 1.1))  # a step costs more than the target's
TABLES = {"q4_k_m": Q4_K_M, "f16": F16, "four-times": FOUR_TIMES, "gpu": GPU}

UNINFORMATIVE = GapLaw((1.0, 1.5), (1.0, 1.5))
CONFIDENTLY_WRONG = GapLaw((1.0, 1.5), (2.0, 1.5))


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of text of one kind.

    Args:
        length: tokens.
        regime: its number.
        agreement: the draft model's.
        edits: None says something new; a number copies from the prompt, changing this share.
    """

    length: int
    regime: int
    agreement: float
    edits: float | None = None


def scripted(
    name: str,
    seed: int,
    stretches: Sequence[Stretch],
    costs: TrueCosts,
    *,
    n_prompt: int = _PROMPT,
    gap_law: GapLaw | None = None,
    adversary: Adversary | None = None,
) -> World:
    """Build a world of one reply from its stretches; odd seeds sample at temperature 0.8."""
    rng = np.random.default_rng((seed, 0))
    prompt: list[int] = rng.integers(0, _N_VOCAB, n_prompt).tolist()
    text = list(prompt)
    for stretch in stretches:
        text += _say(rng, prompt, stretch)
    end = len(text)
    text += rng.integers(0, _N_VOCAB, MARGIN).tolist()
    before, after = stretches[0], stretches[-1]
    lengths = [n_prompt, *(s.length for s in stretches), MARGIN]
    around = [before, *stretches, after]
    return World(
        name=name,
        seed=seed,
        n_vocab=_N_VOCAB,
        text=text,
        turns=((n_prompt, end),),
        regimes=np.repeat([s.regime for s in around], lengths),
        agreement=np.repeat([s.agreement for s in around], lengths),
        costs=costs,
        tables=(costs.target, costs.draft),
        gap_law=gap_law or GapLaw(),
        slowness=np.ones(len(text)),
        temperature=0.8 if seed % 2 else 0.0,
        copies=any(s.edits is not None for s in stretches),
        adversary=adversary,
    )


def _say(rng: np.random.Generator, prompt: Sequence[int], stretch: Stretch) -> list[int]:
    if stretch.edits is None:
        new: list[int] = rng.integers(0, _N_VOCAB, stretch.length).tolist()
        return new
    said: list[int] = []
    source = int(rng.integers(0, max(1, len(prompt) - stretch.length)))
    while len(said) < stretch.length:
        edit = rng.random() < stretch.edits
        kind = rng.integers(0, 3) if edit else 3
        if kind in {0, 1}:  # replaced, or put in
            said.append(int(rng.integers(0, _N_VOCAB)))
        elif kind == 3:
            said.append(prompt[source % len(prompt)])
        source += kind != 1
    return said


def stationary(
    costs: TrueCosts, agreement: float, n: int = 1200, gap_law: GapLaw | None = None
) -> Build:
    """The same agreement throughout."""
    return lambda seed: scripted("", seed, [Stretch(n, 0, agreement)], costs, gap_law=gap_law)


def drifting(costs: TrueCosts, n: int = 1500) -> Build:
    """Agreement slides from 0.95 down to 0.3 and back."""
    slide = np.linspace(0.95, 0.3, 14).round(2).tolist()
    levels = [*enumerate(slide), *reversed(list(enumerate(slide)))]
    stretches = [Stretch(n // len(levels), level, agreement) for level, agreement in levels]
    return lambda seed: scripted("", seed, stretches, costs)


def bimodal(
    costs: TrueCosts, one: Stretch, other: Stretch, n: int = 1500, gap_law: GapLaw | None = None
) -> Build:
    """The kind of text changes every 60 to 200 tokens."""

    def build(seed: int) -> World:
        rng = np.random.default_rng((seed, 3))
        stretches: list[Stretch] = []
        while sum(s.length for s in stretches) < n:
            kind = (one, other)[(len(stretches) + seed // 2) % 2]
            stretches.append(replace(kind, length=int(rng.integers(60, 201))))
        return scripted("", seed, stretches, costs, gap_law=gap_law)

    return build


def miscalibrated(build: Build, target: float, draft: float, wide: float = 1.0) -> Build:
    """Passes really cost these factors of what was measured; `wide` of those beyond width 1."""

    def built(seed: int) -> World:
        world = build(seed)
        costs = world.costs
        by_width = tuple(
            s * target * (wide if w > 1 else 1)
            for w, s in zip(costs.target.widths, costs.target.seconds, strict=True)
        )
        true_target = PassCosts(costs.target.widths, by_width)
        world.costs = replace(costs, target=true_target, draft=_scaled(costs.draft, draft))
        return world

    return built


def slow_midway(build: Build) -> Build:
    """The machine is twice as slow for fifty tokens, twice."""

    def built(seed: int) -> World:
        world = build(seed)
        for begin in (700, 1100):
            world.slowness[begin : begin + 50] = 2.0
        return world

    return built


def short_replies(
    costs: TrueCosts, agreement: float, *, length: int = 20, asked: int = 15, n: int = 60
) -> Build:
    """Many short replies, with questions between them."""

    def build(seed: int) -> World:
        world = scripted("", seed, [Stretch((length + asked) * n, 0, agreement)], costs)
        starts = range(_PROMPT, _PROMPT + (length + asked) * n, length + asked)
        world.turns = tuple((start, start + length) for start in starts)
        return world

    return build


def repetitive(costs: TrueCosts, agreement: float, n: int = 1200) -> Build:
    """Few words in changing order: matches everywhere, and each is as good as a guess."""

    def build(seed: int) -> World:
        world = scripted("", seed, [Stretch(n, 0, agreement)], costs)
        rng = np.random.default_rng((seed, 4))
        # Permutations: every word is as frequent as any other, and none ends the wandering.
        followers = np.stack([rng.permutation(16) for _ in range(3)], axis=1)
        text = [0]
        picks = rng.choice(3, len(world.text), p=[0.5, 0.3, 0.2]).tolist()
        while len(text) < len(world.text):
            text.append(int(followers[text[-1], picks[len(text)]]))
        shift = rng.integers(1, 16, len(text))
        world.text, world.copies = text, True
        world.wrong = ((np.array(text) + shift) % 16).tolist()
        return world

    return build


@dataclass(slots=True)
class CollapseAfterDraft:
    """After any drafted round the draft model is wrong for the next tokens."""

    length: int = 20

    def after(self, world: World, drafted: bool, n_confirmed: int) -> None:
        if drafted:
            world.agreement[n_confirmed : n_confirmed + self.length] = 0.0


@dataclass(slots=True)
class Honeymoon:
    """Drafting goes well for a few rounds, then fails until it was given up for a while."""

    rounds: int = 6
    recovers: int = 40
    drafted_rounds: int = 0
    last: int = 0

    def after(self, world: World, drafted: bool, n_confirmed: int) -> None:
        if n_confirmed - self.last > self.recovers:
            self.drafted_rounds = 0
        if not drafted:
            return
        self.last = n_confirmed
        self.drafted_rounds += 1
        if self.drafted_rounds >= self.rounds:
            world.agreement[n_confirmed : n_confirmed + self.recovers] = 0.0


@dataclass(slots=True, eq=False)
class DivergeAfterCopy:
    """What is copied goes on as before, until somebody bets on it."""

    length: int = 20

    def after(self, world: World, drafted: bool, n_confirmed: int) -> None:
        if drafted:
            rng = np.random.default_rng((world.seed, n_confirmed))
            new: list[int] = rng.integers(0, _N_VOCAB, self.length).tolist()
            end = world.turns[-1][1]
            new = new[: max(0, end - n_confirmed)]
            world.text[n_confirmed : n_confirmed + len(new)] = new


def adversarial(
    costs: TrueCosts,
    adversary: Callable[[], Adversary],
    agreement: float = 0.95,
    edits: float | None = None,
) -> Build:
    """What would be right nearly always is wrong whenever somebody bets on it."""
    stretch = Stretch(1500, 0, agreement, edits)
    return lambda seed: scripted("", seed, [stretch], costs, adversary=adversary())


CODE, CREATIVE = Stretch(0, 0, 0.97), Stretch(0, 1, 0.3)
COPIED, NEW = Stretch(0, 0, 0.97, edits=0.03), Stretch(0, 1, 0.5)


def _deep(costs: TrueCosts) -> TrueCosts:
    return replace(costs, target_growth=1 / 3000, draft_growth=1 / 1500)


WORLDS: dict[str, Build] = {
    **{
        f"stationary-{name}-{agreement}": stationary(costs, agreement)
        for name, costs in TABLES.items()
        for agreement in (0.5, 0.7, 0.85, 0.95, 0.99)
    },
    "drifting-f16": drifting(F16),
    "drifting-gpu": drifting(GPU),
    "drifting-four-times": drifting(FOUR_TIMES),
    "adversarial-q4_k_m": adversarial(Q4_K_M, CollapseAfterDraft),
    "adversarial-f16": adversarial(F16, CollapseAfterDraft),
    "adversarial-gpu": adversarial(GPU, CollapseAfterDraft),
    "honeymoon-f16": adversarial(F16, Honeymoon),
    "honeymoon-gpu": adversarial(GPU, Honeymoon),
    "adversarial-copy-q4_k_m": adversarial(Q4_K_M, DivergeAfterCopy, 0.0, edits=0.0),
    "adversarial-copy-gpu": adversarial(GPU, DivergeAfterCopy, 0.0, edits=0.0),
    "bimodal-f16": bimodal(F16, CODE, CREATIVE),
    "bimodal-gpu": bimodal(GPU, CODE, CREATIVE),
    "bimodal-four-times": bimodal(FOUR_TIMES, CODE, CREATIVE),
    "bimodal-copy-q4_k_m": bimodal(Q4_K_M, COPIED, NEW),
    "bimodal-copy-f16": bimodal(F16, COPIED, NEW),
    "bimodal-copy-gpu": bimodal(GPU, COPIED, NEW),
    "edit-q4_k_m": bimodal(Q4_K_M, COPIED, replace(COPIED, edits=0.08)),
    "staircase": stationary(DIPS, 0.85),
    "staircase-copy": bimodal(DIPS, COPIED, NEW),
    "hopeless-q4_k_m": stationary(Q4_K_M, 0.0),
    "hopeless-f16": stationary(F16, 0.0),
    "hopeless-gpu": stationary(GPU, 0.0),
    "hopeless-confident-gpu": stationary(GPU, 0.0, gap_law=CONFIDENTLY_WRONG),
    "gaps-say-nothing-gpu": stationary(GPU, 0.7, gap_law=UNINFORMATIVE),
    "gaps-mislead-f16": bimodal(F16, CODE, CREATIVE, gap_law=CONFIDENTLY_WRONG),
    "dear": stationary(DEAR, 0.99),
    "dear-copy": bimodal(DEAR, COPIED, NEW),
    "deep-f16": stationary(_deep(F16), 0.9, 2500),
    "deep-gpu": stationary(_deep(GPU), 0.9, 2500),
    "miscalibrated-target-dearer": miscalibrated(stationary(F16, 0.9), 1.3, 0.7),
    "miscalibrated-draft-dearer": miscalibrated(stationary(F16, 0.9), 0.7, 1.3),
    "miscalibrated-wide-dearer": miscalibrated(stationary(GPU, 0.6), 1.0, 1.0, 1.4),
    "slow-midway-f16": slow_midway(stationary(F16, 0.85)),
    "slow-midway-gpu": slow_midway(stationary(GPU, 0.85)),
    "short-replies-f16": short_replies(F16, 0.85),
    "short-replies-gpu": short_replies(GPU, 0.7),
    "repetitive-q4_k_m": repetitive(Q4_K_M, 0.7),
    "repetitive-gpu": repetitive(GPU, 0.7),
}


def build(name: str, seed: int) -> World:
    """Build a world of the catalogue."""
    world = WORLDS[name](seed)
    world.name = name
    return world
