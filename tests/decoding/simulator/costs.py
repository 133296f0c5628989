"""What passes cost in simulated worlds.

Those of real machines are milliseconds on two CPU cores, Qwen2.5 1.5B and 0.5B in several types, and of GPUs what
llama.cpp's developers published; the others are made up, and their names say what of.
"""

from collections.abc import Mapping

from localspec.decoding.costs import PassCosts
from tests.decoding.simulator.world import TrueCosts

_WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 32)


def _table(*milliseconds: float) -> PassCosts:
    return PassCosts(_WIDTHS, tuple(ms / 1000 for ms in milliseconds))


def scaled(costs: PassCosts, factor: float) -> PassCosts:
    return PassCosts(costs.widths, tuple(s * factor for s in costs.seconds))


def _rates(tokens_per_s: Mapping[int, float]) -> PassCosts:
    """Return costs from tokens per second by width, as llama-bench prints them for micro-batches of a width."""
    return PassCosts(
        tuple(tokens_per_s), tuple(width / rate for width, rate in tokens_per_s.items())
    )


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
ACROSS = TrueCosts(Q4_K_M.target, PassCosts((1, 32), (0.0057, 0.080)))  # SmolLM2 for Qwen2.5 1.5B
DEAR = TrueCosts(Q4_K_M.target, scaled(Q4_K_M.target, 1.1))  # a step costs more than the target's
# Published, after the change that each pull request makes; github.com/ggml-org/llama.cpp/pull/N.
_LLAMA_1B_F16 = _rates(  # 24216, RTX 3090
    {1: 379.20, 2: 682.74, 4: 1349.54, 8: 2602.11, 16: 4588.29, 32: 7671.32, 64: 12340.13}
)
RTX_3090_Q4_0 = TrueCosts(  # Llama 8B: 15802 up to 8, 7716 beyond
    _rates(
        {1: 156.56, 2: 279.89, 3: 390.96, 4: 470.48, 5: 509.70, 6: 541.57, 7: 559.30, 8: 583.77,
         16: 914.10, 32: 1197.13}
    ),
    _LLAMA_1B_F16,
)  # fmt: skip
RTX_3090_F16 = TrueCosts(  # Llama 8B: 14262 (bf16) for 1 and 2, 15131 from 8 on
    _rates(
        {1: 58.27, 2: 109.70, 8: 423.63, 9: 450.76, 10: 492.08, 11: 539.89, 12: 585.90,
         13: 625.12, 14: 671.95, 15: 706.71, 16: 764.17}
    ),
    _LLAMA_1B_F16,
)  # fmt: skip
_QWEN3_06B_METAL = _rates(  # 19390, Q4_0
    {1: 325.97, 2: 561.30, 3: 705.36, 4: 881.11, 5: 949.36, 6: 1255.99, 7: 1380.00, 8: 1568.10}
)
METAL_Q8_0 = TrueCosts(  # Qwen2.5 7B: 10581
    _rates({1: 70.41, 2: 126.66, 3: 163.08, 4: 200.40, 5: 207.24, 6: 210.91, 7: 229.20, 8: 260.76}),
    _QWEN3_06B_METAL,
)
METAL_Q4_K = TrueCosts(  # Qwen2.5 32B: 10581
    _rates({1: 25.94, 2: 32.00, 3: 35.34, 4: 42.05, 5: 46.80, 6: 45.84}),
    _QWEN3_06B_METAL,
)
PUBLISHED = {
    "rtx3090-q4_0": RTX_3090_Q4_0,
    "rtx3090-f16": RTX_3090_F16,
    "metal-q8_0": METAL_Q8_0,
    "metal-q4_k": METAL_Q4_K,
}
"""Costs that others measured on GPUs; docs/measurements/gpu.md says what, and where it was published."""
EIGHTH = {
    f"eighth-{name}": TrueCosts(each.target, scaled(each.target, 1 / 8))
    for name, each in (("q4_k_m", Q4_K_M), ("f16", F16))
}
"""What heads of the target may cost: a layer of some twenty, and the last projection."""
TABLES = {"q4_k_m": Q4_K_M, "f16": F16, "four-times": FOUR_TIMES, "gpu": GPU}
