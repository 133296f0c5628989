"""What passes cost in simulated worlds.

Those of real machines are milliseconds on two CPU cores, Qwen2.5 1.5B and 0.5B in several types;
the others are made up, and their names say what of.
"""

from lab.simulator.world import TrueCosts
from localspec.decoding.costs import PassCosts

_WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 32)


def _table(*milliseconds: float) -> PassCosts:
    return PassCosts(_WIDTHS, tuple(ms / 1000 for ms in milliseconds))


def scaled(costs: PassCosts, factor: float) -> PassCosts:
    return PassCosts(costs.widths, tuple(s * factor for s in costs.seconds))


_DRAFT = _table(14.2, 30.6, 38.3, 43.8, 57.8, 62.3, 60.0, 75.2, 81.9, 154.3)
_Q4_0 = _table(22.8, 43.0, 58.9, 48.4, 64.7, 80.0, 79.9, 106.4, 109.0, 207.5)
Q4_K_M = TrueCosts(_table(22.7, 41.5, 55.8, 68.5, 83.7, 98.4, 114.9, 143.4, 137.7, 250.3), _DRAFT)
F16 = TrueCosts(_table(50.8, 78.5, 90.8, 96.8, 105.4, 111.2, 133.9, 161.4, 186.7, 323.0), _DRAFT)
FOUR_TIMES = TrueCosts(scaled(_Q4_0, 4), _DRAFT)
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
DEAR = TrueCosts(Q4_K_M.target, scaled(Q4_K_M.target, 1.1))  # a step costs more than the target's
TABLES = {"q4_k_m": Q4_K_M, "f16": F16, "four-times": FOUR_TIMES, "gpu": GPU}
