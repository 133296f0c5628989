"""Flags: how a head is trained, every choice one of its own so that each can be tried alone, and on what."""

from dataclasses import dataclass

from click import FloatRange, IntRange

from localspec.cli.options import flag, switch


@dataclass(frozen=True, slots=True)
class Recipe:
    """How a head is trained.

    Args:
        tokens: Tokens of conversations to train on, which the model writes. Default: 600000.
        ids: Ids that the head can propose, the model's likeliest. Default: 24576.
        depths: Drafted tokens that training unrolls. Default: 5.
        epochs: How often each token is trained on. Default: 7.
        batch: Tokens of a step. Default: 2048.
        rate: Learning rate at its highest. Default: 0.002.
        decay: Weight decay. Default: 0.05.
        hidden: Weight of what is apart from the model's own last rows. Default: 10.
    """

    tokens: int = flag("N", default=600_000, type=IntRange(1))
    ids: int = flag("N", default=24_576, type=IntRange(1))
    depths: int = flag("N", default=5, type=IntRange(1))
    epochs: int = flag("N", default=7, type=IntRange(1))
    batch: int = flag("N", default=2048, type=IntRange(1))
    rate: float = flag("X", default=2e-3, type=FloatRange(0))
    decay: float = flag("X", default=0.05, type=FloatRange(0))
    hidden: float = flag("X", default=10.0, type=FloatRange(0))


@dataclass(frozen=True, slots=True)
class MakeFlags:
    """On what a head is trained and measured, and what becomes of it.

    Args:
        again: Train on from the head that there is, with --tokens more, first of recorded replies in which it was rejected and of replies marked /good.
        history: Also train on your own questions of saved conversations.
        prompts: Also train on prompts of this file: JSON lines with workload and prompt.
        held: Bundled prompts of each kind to measure with, never trained on. Default: 10.
    """

    again: bool = switch()
    history: bool = switch()
    prompts: str | None = flag("FILE")
    held: int = flag("N", default=10, type=IntRange(1))
