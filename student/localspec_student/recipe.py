"""Recipe: how a head is made; every choice is a flag, so that each can be tried alone."""

import hashlib
from dataclasses import dataclass

import msgspec

from localspec.cli.options import flag
from localspec.errors import UsageError


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a head is made.

    Args:
        tokens: Tokens of conversations to train on; the target writes them. Default: 250000.
        ids: Ids that the head can propose, the target's likeliest. Default: 24576.
        depths: Drafted tokens that training unrolls. Default: 5.
        epochs: How often each token is trained on. Default: 4.
        batch: Tokens of a step. Default: 1024.
        rate: Learning rate at its highest. Default: 0.0008.
        decay: Weight decay. Default: 0.05.
        dropout: Share of activations left out in training. Default: 0.1.
        negatives: Unlikely ids that a step compares with, drawn each time; 0 takes all. Default: 4096.
        depth_weight: Weight of each depth in the loss, relative to the one before. Default: 0.8.
        prompt_weight: Weight of a prompt's token in the loss; one of an answer has 1. Default: 0.3.
        warm: Begin with the target's last layer, or at random.
        even: Even out the channels of the target's rows, or take them as they are.
    """

    tokens: int = flag("N", default=250_000, type=int)
    ids: int = flag("N", default=24_576, type=int)
    depths: int = flag("N", default=5, type=int)
    epochs: int = flag("N", default=4, type=int)
    batch: int = flag("N", default=1024, type=int)
    rate: float = flag("X", default=8e-4, type=float)
    decay: float = flag("X", default=0.05, type=float)
    dropout: float = flag("X", default=0.1, type=float)
    negatives: int = flag("N", default=4096, type=int)
    depth_weight: float = flag("X", default=0.8, type=float)
    prompt_weight: float = flag("X", default=0.3, type=float)
    warm: bool = flag("--warm/--no-warm", default=True)
    even: bool = flag("--even/--no-even", default=True)

    def __post_init__(self) -> None:
        for name in ("tokens", "ids", "depths", "epochs", "batch"):
            if getattr(self, name) < 1:
                raise UsageError(f"{name} is {getattr(self, name)}: it must be 1 or more")
        for name in ("rate", "decay", "negatives", "depth_weight", "prompt_weight"):
            if getattr(self, name) < 0:
                raise UsageError(f"{name} is {getattr(self, name)}: it must be 0 or more")
        if not 0 <= self.dropout < 1:
            raise UsageError(f"dropout is {self.dropout}: it must be from 0 to below 1")

    def key(self, *others: str) -> str:
        """Return what tells this recipe, applied to certain data, from others: some letters of a hash."""
        return hashlib.sha256(msgspec.json.encode([self, others])).hexdigest()[:12]
