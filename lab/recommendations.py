"""What `localspec recommend` proposes on ten made-up machines, and which heads the registry knows, as Markdown tables.

    python -m lab.recommendations

The proposals come from the function that ships; the machines are invented, with the share of their memory's
nominal speed that passes usually reach: two thirds, on a GPU three quarters.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from localspec.models.entries import HEADS, Purpose
from localspec.models.registry import Registry, load_registry
from localspec.plan.recommend import (
    ENOUGH_PER_S,
    MOST_OF_GPU,
    MOST_OF_RAM,
    ON_A_CPU,
    ON_A_GPU,
    Memory,
    Recommendation,
    Suits,
    best,
    recommend,
)
from localspec.session.model_lines import outlook, rounded

GB = 1e9


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine that nobody has, with memories as `localspec.session.memories` finds them on a real one."""

    text: str
    memories: tuple[Memory, ...]


def _ram(total_gb: float, gb_per_s: float) -> Memory:
    return Memory("RAM", round(total_gb * GB), gb_per_s * GB, usual=ON_A_CPU)


def _gpu(total_gb: float, gb_per_s: float, most: float = MOST_OF_GPU) -> Memory:
    usual = ON_A_GPU if most == MOST_OF_GPU else None  # of one that shares the RAM it is not known
    return Memory("GPU", round(total_gb * GB), gb_per_s * GB, most, usual=usual)


# As a system counts them: a few per cent more bytes than the gigabytes that were bought.
MACHINES = (
    Machine("single-board computer, 2 GB", (_ram(2.1, 9),)),
    Machine("old laptop, 4 GB, DDR3", (_ram(4.1, 13),)),
    Machine("laptop, 8 GB, one channel of DDR4", (_ram(8.3, 15),)),
    Machine("laptop, 16 GB, two channels of DDR4", (_ram(16.7, 30),)),
    Machine("desktop, 32 GB, two channels of DDR5", (_ram(33.6, 55),)),
    Machine("workstation, 128 GB, eight channels of DDR5", (_ram(135, 200),)),
    Machine("desktop, 16 GB, GPU with 8 GB", (_gpu(8.5, 200), _ram(16.7, 30))),
    Machine("desktop, 64 GB, GPU with 24 GB", (_gpu(25.4, 700), _ram(67.3, 55))),
    Machine("Apple M2, 8 GB", (_gpu(8.6, 70, MOST_OF_RAM), _ram(8.6, 60))),
    Machine("Apple M4 Pro, 48 GB", (_gpu(51, 190, MOST_OF_RAM), _ram(51, 150))),
)


def table(registry: Registry) -> Iterator[str]:
    """Yield the lines of the table, without spaces beside the bars: those would count as words."""
    yield "|machine|memory, read at|chat|code|why not the next larger for chat|"
    yield "|---|---|---|---|---|"
    for machine in MACHINES:
        sizes = "; ".join(
            f"{each.name} {each.total_bytes / GB:.3g} GB, {(each.bytes_per_s or 0) / GB:.0f} GB/s"
            for each in machine.memories
        )
        chat, code = (_named(recommend(registry, machine.memories, x)) for x in ("chat", "code"))
        yield f"|{machine.text}|{sizes}|{chat}|{code}|{_why(machine, registry, 'chat')}|"


def _named(proposals: tuple[Recommendation, ...]) -> str:
    return "<br>".join(map(_told, proposals)) or "nothing fits: the demo model"


def _told(proposal: Recommendation) -> str:
    note = {Suits.WELL: "", Suits.SLOW: ", slow", Suits.TIGHT: ", tight"}[proposal.suits]
    where = f"{proposal.needed_bytes / GB:.1f} GB {proposal.memory.name}"
    # That heads may make it faster is true of most, and said above the table.
    heads = "" if proposal.with_heads is None else outlook(proposal)
    speed = f"≈{rounded(proposal.tokens_per_s or 0)}/s{heads}"
    return f"`{proposal.pair}` {speed}, {where}{note}"


def _why(machine: Machine, registry: Registry, purpose: Purpose) -> str:
    """Return why the smallest model that is larger than the first proposal is not proposed in its place."""
    chosen = recommend(registry, machine.memories, purpose)
    least = chosen[0].target.size_bytes if chosen else 0
    larger = sorted(
        (target.size_bytes, pair.name, target)
        for pair in registry.pairs.values()
        if pair.suits(purpose)
        and (target := registry.find(pair.target)) is not None
        and target.size_bytes > least
    )
    if not larger:
        return "there is none"
    _, name, model = larger[0]
    found = best(name, model, machine.memories)
    if found is None:
        return f"`{name}` does not fit"
    if found.suits is Suits.TIGHT:
        share, most = found.needed_bytes / found.memory.total_bytes, found.memory.most
        return f"`{name}` takes {share:.0%} of {found.memory.name}, more than {most:.0%}"
    speed = f"≈{rounded(found.tokens_per_s or 0)}/s"
    if found.suits is Suits.WELL:
        return f"`{name}` is hardly larger, and much slower: {speed}"
    return f"`{name}` {speed}, less than {ENOUGH_PER_S:.0f}"


def heads_table(registry: Registry) -> Iterator[str]:
    """Yield the lines of the table of heads."""
    yield "|model|heads|published acceptance|"
    yield "|---|---|---|"
    for entry in registry.models.values():
        if heads := entry.heads:
            target = registry.find(heads.target) if heads.target else entry
            name = target.name if target else heads.target
            yield f"|`{name}`|{HEADS[heads.kind]}|{heads.published or '?'}|"


if __name__ == "__main__":
    print("\n".join([*table(load_registry()), "", *heads_table(load_registry())]))
