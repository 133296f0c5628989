"""The catalogue of simulated worlds."""

from dataclasses import replace

from lab.simulator.adversaries import (
    BreakBets,
    CollapseAfterDraft,
    DivergeAfterCopy,
    Honeymoon,
)
from lab.simulator.costs import (
    ACROSS,
    DEAR,
    DIPS,
    EIGHTH,
    F16,
    FOUR_TIMES,
    GPU,
    METAL_Q4_K,
    METAL_Q8_0,
    PUBLISHED,
    Q4_K_M,
    RTX_3090_Q4_0,
    TABLES,
)
from lab.simulator.offers import OFFERS
from lab.simulator.texts import (
    Stretch,
    adversarial,
    bimodal,
    drifting,
    measured_under_load,
    miscalibrated,
    repetitive,
    short_replies,
    slow_midway,
    stationary,
)
from lab.simulator.world import Build, GapLaw, TrueCosts, World

UNINFORMATIVE = GapLaw((1.0, 1.5), (1.0, 1.5))
CONFIDENTLY_WRONG = GapLaw((1.0, 1.5), (2.0, 1.5))
CODE, CREATIVE = Stretch(0, 0, 0.97), Stretch(0, 1, 0.3)
COPIED, NEW = Stretch(0, 0, 0.97, edits=0.03), Stretch(0, 1, 0.5)


def _deep(costs: TrueCosts) -> TrueCosts:
    return replace(costs, target_growth=1 / 3000, draft_growth=1 / 1500)


WORLDS: dict[str, Build] = {
    **{
        f"stationary-{name}-{agreement}": stationary(costs, agreement)
        for name, costs in {**TABLES, **PUBLISHED, **EIGHTH}.items()
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
    "breaking-copy-q4_k_m": adversarial(Q4_K_M, BreakBets, 0.0, edits=0.0),
    "breaking-copy-gpu": adversarial(GPU, BreakBets, 0.0, edits=0.0),
    "bimodal-f16": bimodal(F16, CODE, CREATIVE),
    "bimodal-gpu": bimodal(GPU, CODE, CREATIVE),
    "bimodal-four-times": bimodal(FOUR_TIMES, CODE, CREATIVE),
    "bimodal-copy-q4_k_m": bimodal(Q4_K_M, COPIED, NEW),
    "bimodal-copy-f16": bimodal(F16, COPIED, NEW),
    "bimodal-copy-gpu": bimodal(GPU, COPIED, NEW),
    "bimodal-rtx3090-q4_0": bimodal(RTX_3090_Q4_0, CODE, CREATIVE),
    "bimodal-metal-q8_0": bimodal(METAL_Q8_0, CODE, CREATIVE),
    "bimodal-copy-rtx3090-q4_0": bimodal(RTX_3090_Q4_0, COPIED, NEW),
    "bimodal-eighth-q4_k_m": bimodal(EIGHTH["eighth-q4_k_m"], CODE, CREATIVE),
    "bimodal-eighth-f16": bimodal(EIGHTH["eighth-f16"], CODE, CREATIVE),
    "hopeless-eighth-q4_k_m": stationary(EIGHTH["eighth-q4_k_m"], 0.0),
    "edit-q4_k_m": bimodal(Q4_K_M, COPIED, replace(COPIED, edits=0.08)),
    "staircase": stationary(DIPS, 0.85),
    "staircase-copy": bimodal(DIPS, COPIED, NEW),
    "hopeless-q4_k_m": stationary(Q4_K_M, 0.0),
    "hopeless-f16": stationary(F16, 0.0),
    "hopeless-gpu": stationary(GPU, 0.0),
    "hopeless-rtx3090-q4_0": stationary(RTX_3090_Q4_0, 0.0),
    "hopeless-metal-q4_k": stationary(METAL_Q4_K, 0.0),
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
    **{
        f"table-under-load-{agreement}": measured_under_load(stationary(Q4_K_M, agreement))
        for agreement in (0.0, 0.5, 0.7, 0.85, 0.95)
    },
    "table-under-load-short-replies": measured_under_load(
        short_replies(Q4_K_M, 0.7, length=120, n=10)
    ),
    "table-under-load-copy": measured_under_load(bimodal(Q4_K_M, COPIED, NEW)),
    "slow-midway-f16": slow_midway(stationary(F16, 0.85)),
    "slow-midway-gpu": slow_midway(stationary(GPU, 0.85)),
    "short-replies-f16": short_replies(F16, 0.85),
    "short-replies-gpu": short_replies(GPU, 0.7),
    "short-replies-across-0.5": short_replies(ACROSS, 0.5, length=64, n=20),
    "stationary-across-0.7": stationary(ACROSS, 0.7),
    "repetitive-q4_k_m": repetitive(Q4_K_M, 0.7),
    "repetitive-gpu": repetitive(GPU, 0.7),
}


def build(name: str, seed: int) -> World:
    """Build a world of the catalogue; `NAME+OFFER` has more that may draft, see `lab.simulator.offers`."""
    kind, *offers = name.split("+")
    world = WORLDS[kind](seed)
    world.name = name
    for offer in offers:
        OFFERS[offer](world)
    return world
