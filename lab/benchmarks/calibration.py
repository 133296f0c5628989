"""What does calibration find, how long does it take, and can it be relied on?

    python -m lab.benchmarks.calibration costs [--models qwen2.5-coder-1.5b,...] [--repeats 5]
    python -m lab.benchmarks.calibration depths [--models ...] [--depths 100,1000,3000]
    python -m lab.benchmarks.calibration safe [--models ...] [--default-kernels]

`costs` calibrates several times in a row, and prints of every width the lowest cost found and how
far the others are from it. `depths` measures the growth of a pass with what is in the cache.
`safe` prints which widths change no bit, and by how much the others do.
"""

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from lab.benchmarks.workbench import machine
from localspec.llama.calibrate import OF_DRAFT_MODEL, OF_TARGET, measure_pass_costs
from localspec.llama.context import LlamaContext
from localspec.llama.model import LlamaModel
from localspec.llama.safe_widths import DEPTHS, safe_widths
from localspec.llama.timed_passes import Measured
from localspec.models.pull import pull
from localspec.options import LoadOptions

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32, 64)


@contextmanager
def opened(name: str, options: LoadOptions) -> Iterator[LlamaModel]:
    """Load a model by the name of its pair, or of its file."""
    path = Path(name) if name.endswith(".gguf") else pull(name)[0]
    model = LlamaModel(path, options)
    yield model
    model.close()


def costs(args: argparse.Namespace) -> None:
    """Calibrate several times, in both roles."""
    for name in args.models:
        with opened(name, LoadOptions(threads=args.threads)) as model:
            for role, schedule in (("target", OF_TARGET), ("draft model", OF_DRAFT_MODEL)):
                found, took = [], []
                for _ in range(args.repeats):
                    took.append(-time.perf_counter())
                    found.append(measure_pass_costs(model, model.options, schedule))
                    took[-1] += time.perf_counter()
                print(f"\n{name} as {role}: {', '.join(f'{s:.1f}' for s in took)} s")
                print_spread(found)


def print_spread(found: Sequence[Measured]) -> None:
    """Print the lowest cost of each width, and how far above it each calibration was."""
    print("  spread within each: " + ", ".join(f"{m.spread or 0:.3f}" for m in found))
    worst = 0.0
    for width in sorted(set[int]().union(*(m.costs.widths for m in found))):
        seen = [m.costs.of(width) for m in found if width in m.costs.widths]
        above = [seconds / min(seen) - 1 for seconds in seen]
        worst = max(worst, *above)
        shares = " ".join(f"{share:+6.1%}" for share in above)
        print(f"  width {width:3}: {1e3 * min(seen):8.2f} ms  {shares}")
    print(f"  farthest apart: {worst:.1%}")


def depths(args: argparse.Namespace) -> None:
    """Measure passes at several depths, interleaved by width and depth."""
    for name in args.models:
        with opened(name, LoadOptions(threads=args.threads)) as model:
            print_by_depth(name, costs_by_depth(filled(model, args.depths)))


def filled(
    model: LlamaModel, wanted: Sequence[int], widths: Sequence[int] = WIDTHS
) -> dict[int, LlamaContext]:
    """Return a context with that many tokens in its cache for each depth, and room for the widest pass."""
    contexts = {}
    for depth in wanted:
        options = replace(model.options, n_ctx=depth + widths[-1], max_rows=widths[-1])
        contexts[depth] = LlamaContext(model, options=options)
        contexts[depth].prefill([100] * depth)
    return contexts


def costs_by_depth(
    contexts: dict[int, LlamaContext], sweeps: int = 3, widths: Sequence[int] = WIDTHS
) -> dict[int, dict[int, float]]:
    """Return the fastest of a few passes by depth and width."""
    found = {depth: dict.fromkeys(widths, float("inf")) for depth in contexts}
    for _ in range(sweeps):
        for width in widths:
            for depth, context in contexts.items():
                context.truncate(depth)
                start = time.perf_counter()
                context.logits([100] * (depth + width), rows=width)
                took = time.perf_counter() - start
                found[depth][width] = min(found[depth][width], took)
    return found


def print_by_depth(name: str, found: dict[int, dict[int, float]]) -> None:
    """Print a pass's cost at the first depth, and what each token costs more at the others."""
    shallow, *others = found
    print(f"\n{name}: width, cost at {shallow}; more for each token, and times, at {others}")
    for width, base in found[shallow].items():
        cells = (found[depth][width] for depth in others)
        more = (f"{1e3 * (s - base) / width:+7.2f} ms (x {s / base:.2f})" for s in cells)
        print(f"  {width:3}: {1e3 * base:7.1f} ms  " + "  ".join(more))


def safe(args: argparse.Namespace) -> None:
    """Find the safe widths at each depth."""
    for name in args.models:
        options = LoadOptions(threads=args.threads)
        options = options if args.default_kernels else options.exact()
        print(f"\n{name}, {'default' if args.default_kernels else 'exact'} kernels")
        with opened(name, options) as model:
            for depths in [DEPTHS, *((depth,) for depth in args.depths or ())]:
                start = time.perf_counter()
                found = safe_widths(model, options, depths=depths)
                took = time.perf_counter() - start
                gaps = ", ".join(f"{w}: {gap:.2g}" for w, gap in found.differences.items())
                print(f"  depths {depths}, {took:.1f} s: safe {found.widths}")
                print(f"    the others differ by {gaps or 'nothing'}", flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["costs", "depths", "safe"])
    parser.add_argument("--models", type=lambda text: text.split(","), default=["smollm2-135m"])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--depths", type=lambda text: [int(d) for d in text.split(",")])
    parser.add_argument("--default-kernels", action="store_true")
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    print(machine())
    if args.what == "depths" and not args.depths:
        args.depths = [100, 1000, 3000]
    {"costs": costs, "depths": depths, "safe": safe}[args.what](args)


if __name__ == "__main__":
    main()
