"""A memory of this machine, as models see it: its size, how much of it one may take, and how fast passes read it. Cheap to import."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from localspec.decoding.costs import PassCosts

MOST_OF_RAM = 0.5
"""The system and other programs want memory, too, and so does a longer context."""
MOST_OF_GPU = 0.85
"""Of a memory that nothing but a GPU uses."""

ON_A_CPU = PassCosts(
    (1, 2, 4, 8, 16, 24, 32), (0.0278, 0.0486, 0.0792, 0.1288, 0.1625, 0.2422, 0.287)
)
"""Qwen2.5-Coder 1.5B on two cores (docs/measurements/pass-costs.md). Machines with more cores make cheaper passes."""
ON_A_GPU = PassCosts((1, 3, 6), (1.0, 1.36, 1.91))
"""Qwen3.6-27B on a V100, in passes of one token: from speeds and accepted shares at two lengths (bradrlaw/ai-server#12)."""


@dataclass(frozen=True, slots=True)
class Memory:
    """A memory that a model can be in.

    Args:
        name: `RAM`, or a device's name.
        total_bytes: its size.
        bytes_per_s: how fast passes read it; None where it was not measured.
        most: the share of it that a model may take.
        free_bytes: what is free at the moment; None where that is not known.
        passes: costs of models that were measured in it on a quiet machine, by sha256.
        usual: what passes of other models cost by width, in any unit; None where they may be of any kind.
        is_usual_measured: whether those were measured in it, too.
    """

    name: str
    total_bytes: int
    bytes_per_s: float | None
    most: float = MOST_OF_RAM
    free_bytes: int | None = None
    passes: Mapping[str, PassCosts] = field(default_factory=dict)
    usual: PassCosts | None = None
    is_usual_measured: bool = False
