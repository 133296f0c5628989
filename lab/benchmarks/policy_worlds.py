"""Every simulated world: a policy's regret, its worst window and its speed, over several seeds.

    python -m lab.benchmarks.policy_worlds [--policy adaptive|naive|plain] [--seeds 6] [--offer NAME ...] [WORLD ...]

Nothing here is timed: the worlds have a clock of their own, and the figures are the same on any
machine. `--offer version`, `misleading` and `heads` let more draft than lookup and a draft model: a store that helps, one
that misleads, heads in place of the draft model (`lab.simulator.catalogue`). `regret` is against the clairvoyant, `gaps` against the one that also sees the draft
model's scores; each from the 300th token on, with the standard error over the seeds. `window` is the worst of any 500 tokens and any seed.
"""

import argparse

from lab.simulator.assessment import assess, mean_and_error
from lab.simulator.catalogue import OFFERS, WORLDS
from lab.simulator.contenders import MovingAverage, adaptive, plain

BOUND, SLOWEST = 0.05, 0.97
POLICIES = {"adaptive": adaptive, "naive": MovingAverage, "plain": plain}


def main() -> None:
    """Print the table; exit 1 if a bound is broken."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--policy", default="adaptive", choices=POLICIES)
    parser.add_argument("--seeds", type=int, default=6)
    parser.add_argument("--offer", action="append", default=[], choices=OFFERS)
    parser.add_argument("worlds", nargs="*", help="names, or beginnings of names; default: all")
    options = parser.parse_args()
    contender = POLICIES[options.policy]
    chosen = [
        "+".join([world, *options.offer])
        for world in WORLDS
        if not options.worlds or world.startswith(tuple(options.worlds))
    ]
    print(f"{'world':40} {'regret %':>14} {'gaps %':>7} {'window':>7} {'speed':>6}")
    broken = 0
    for name in chosen:
        outcomes = [assess(name, seed, contender) for seed in range(options.seeds)]
        regret, error = mean_and_error([o.regret for o in outcomes])
        gaps, _ = mean_and_error([o.gap_regret for o in outcomes])
        speed, _ = mean_and_error([o.speed for o in outcomes])
        window = min(o.window for o in outcomes)
        flags = " ".join(["REGRET"] * (regret > BOUND) + ["WINDOW"] * (window < SLOWEST))
        broken += bool(flags)
        print(
            f"{name:40} {100 * regret:7.2f} ± {100 * error:4.2f} {100 * gaps:7.2f} "
            f"{window:7.3f} {speed:6.2f} {flags}"
        )
    print(f"{broken} of {len(chosen)} worlds break a bound")
    raise SystemExit(broken > 0)


if __name__ == "__main__":
    main()
