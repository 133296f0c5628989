"""Schedule: which run follows which, so that what is compared runs side by side.

Machines drift: they heat up, and others use them. So every run is a neighbour of a run of `off`,
and only neighbours are compared: two modes share the `off` between them. Which modes share one
is drawn for each prompt and repeat; they take turns in going first, so that of ten prompts each
of two modes begins five.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from localspec.bench.modes import OFF
from localspec.bench.prompts import BenchPrompt


@dataclass(frozen=True, slots=True)
class Slot:
    """One run.

    Args:
        prompt: its index.
        temperature: of the sampling.
        repeat: which repeat.
        mode: what runs.
        group: runs of one number are neighbours, one of them is `off`; counted in each repeat.
    """

    prompt: int
    temperature: float
    repeat: int
    mode: str
    group: int


def schedule(
    prompts: Sequence[BenchPrompt],
    modes: Sequence[str],
    temperatures: Sequence[float],
    repeats: int,
    seed: int = 0,
) -> list[Slot]:
    """Return every run in order; what is interrupted has seen every prompt before a second repeat.

    Args:
        prompts: to be answered.
        modes: to be compared, `off` among them.
        temperatures: at which.
        repeats: how often each.
        seed: the same one gives the same order.
    """
    rng = Random(seed)  # noqa: S311 - an order, no secret
    others, start = [mode for mode in modes if mode != OFF], rng.randrange(2)
    slots = []
    for repeat in range(repeats):
        for temperature in temperatures:
            for prompt in range(len(prompts)):
                turn = 1 if (start + prompt + repeat) % 2 else -1
                for group, neighbours in enumerate(_groups(others, rng)):
                    slots += [
                        Slot(prompt, temperature, repeat, mode, group)
                        for mode in neighbours[::turn]
                    ]
    return slots


def _groups(others: Sequence[str], rng: Random) -> Iterator[list[str]]:
    shuffled = rng.sample(others, len(others))
    if not shuffled:
        yield [OFF]
    for at in range(0, len(shuffled), 2):
        first, *second = shuffled[at : at + 2]
        yield [first, OFF, *second]
