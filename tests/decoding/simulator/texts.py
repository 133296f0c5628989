"""Builders of worlds: texts from stretches, and what may happen on the way."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from localspec.decoding.costs import PassCosts
from tests.decoding.simulator.costs import scaled
from tests.decoding.simulator.world import MARGIN, Adversary, Build, GapLaw, TrueCosts, World

N_VOCAB = 500
_PROMPT = 300


@dataclass(frozen=True, slots=True)
class Stretch:
    """A stretch of text of one kind: of so many tokens, with its number, and how often the draft model agrees."""

    length: int
    regime: int
    agreement: float
    edits: float | None = (
        None  # says something new; a number copies from the prompt, changing this share
    )


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
    prompt: list[int] = rng.integers(0, N_VOCAB, n_prompt).tolist()
    text = list(prompt)
    for stretch in stretches:
        text += _say(rng, prompt, stretch)
    end = len(text)
    text += rng.integers(0, N_VOCAB, MARGIN).tolist()
    before, after = stretches[0], stretches[-1]
    lengths = [n_prompt, *(s.length for s in stretches), MARGIN]
    around = [before, *stretches, after]
    return World(
        name=name,
        seed=seed,
        n_vocab=N_VOCAB,
        text=text,
        turns=((n_prompt, end),),
        regimes=np.repeat([s.regime for s in around], lengths),
        agreement=np.repeat([s.agreement for s in around], lengths),
        costs=costs,
        tables=(costs.target, costs.draft),
        gap_law=gap_law or GapLaw(),
        slowness=[1.0] * len(text),
        temperature=0.8 if seed % 2 else 0.0,
        copies=any(s.edits is not None for s in stretches),
        adversary=adversary,
    )


def _say(rng: np.random.Generator, prompt: Sequence[int], stretch: Stretch) -> list[int]:
    if stretch.edits is None:
        new: list[int] = rng.integers(0, N_VOCAB, stretch.length).tolist()
        return new
    said: list[int] = []
    source = int(rng.integers(0, max(1, len(prompt) - stretch.length)))
    while len(said) < stretch.length:
        edit = rng.random() < stretch.edits
        kind = rng.integers(0, 3) if edit else 3
        if kind in {0, 1}:  # replaced, or put in
            said.append(int(rng.integers(0, N_VOCAB)))
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
        world.costs = replace(costs, target=true_target, draft=scaled(costs.draft, draft))
        return world

    return built


def measured_under_load(build: Build) -> Build:
    """Calibration met other programs: narrow passes of the target look far dearer than they are, and one of 6 cheaper than one of 4."""

    def built(seed: int) -> World:
        world = build(seed)
        factors = {1: 2.2, 2: 1.6, 3: 1.4, 4: 1.3, 6: 0.85}
        table = world.tables[0]
        seconds = (
            s * factors.get(w, 1.1) for w, s in zip(table.widths, table.seconds, strict=True)
        )
        world.tables = (PassCosts(table.widths, tuple(seconds)), scaled(world.tables[1], 0.8))
        return world

    return built


def slow_midway(build: Build) -> Build:
    """The machine is twice as slow for fifty tokens, twice."""

    def built(seed: int) -> World:
        world = build(seed)
        for begin in (700, 1100):
            world.slowness[begin : begin + 50] = [2.0] * 50
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


def adversarial(
    costs: TrueCosts,
    adversary: Callable[[], Adversary],
    agreement: float = 0.95,
    edits: float | None = None,
) -> Build:
    """What would be right nearly always is wrong whenever somebody bets on it."""
    stretch = Stretch(1500, 0, agreement, edits)
    return lambda seed: scripted("", seed, [stretch], costs, adversary=adversary())
