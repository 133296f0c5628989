"""Is the text with a draft the text without one, byte for byte, on real weights?

    python -m lab.benchmarks.same_text [--pair qwen2.5-coder-1.5b] [--prompts 50] [--default-kernels]

With exact kernels and passes of at most 4 tokens every text has to be equal. Half of the prompts
follow a long text, so that their answers lie beyond a depth of 512 tokens. With --default-kernels
the text may fork where two tokens are nearly tied; then the position of the first fork and the
gap between the two best scores there are reported.
"""

import argparse
import time

import numpy as np

from lab.benchmarks.workbench import Bench, machine, open_bench, prompts
from localspec.decoding.choose import Chooser
from localspec.decoding.noise import Noise
from localspec.options import LoadOptions, SamplingParams

DRAFT_LENGTH = 3


def score_gap(bench: Bench, before: list[int], sampling: SamplingParams, seed: int) -> float:
    """Return the gap between the two best perturbed scores after `before`, as plain decoding sees it."""
    row = bench.pair.target.logits([*bench.prompt, *before], rows=1)[0]
    chooser = Chooser(sampling, Noise(seed))
    position = len(bench.prompt) + len(before)
    if sampling.temperature == 0:
        best = np.sort(row)[-2:]
    else:
        kept = chooser.candidates(row, [*bench.prompt, *before])
        best = np.sort(kept.log_weights + chooser.noise.gumbel(position, kept.ids))[-2:]
    return float(best[-1] - best[0]) if len(best) == 2 else float("inf")


def main() -> None:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pair", default="qwen2.5-coder-1.5b")
    parser.add_argument("--prompts", type=int, default=50)
    parser.add_argument("--max-tokens", type=int, default=60)
    parser.add_argument("--default-kernels", action="store_true")
    parser.add_argument("--threads", type=int)
    args = parser.parse_args()
    options = LoadOptions(max_rows=DRAFT_LENGTH + 1, threads=args.threads)
    bench = open_bench(args.pair, options if args.default_kernels else options.exact())
    chosen = prompts()
    # Three are about 1400 tokens; all ten would not fit into a context of 4096.
    filler = "\n\n".join([p.prompt for p in chosen if p.workload == "summarise"][:3])
    print(f"{machine()}; {args.pair}, {'default' if args.default_kernels else 'exact'} kernels")
    compared = equal = 0
    start = time.monotonic()
    for index in range(args.prompts):
        text = chosen[index * len(chosen) // args.prompts].prompt
        deep = index % 2 == 1
        bench.prime(f"Some notes first:\n\n{filler}\n\nNow to the task. {text}" if deep else text)
        for temperature in (0.0, 0.8):
            sampling, seed = SamplingParams(temperature=temperature), 1000 + index
            plain = bench.generate("off", 0, sampling, seed, args.max_tokens)
            for mode in ("model", "lookup"):
                run = bench.generate(mode, DRAFT_LENGTH, sampling, seed, args.max_tokens)
                compared += 1
                if run.tokens == plain.tokens:
                    equal += 1
                    continue
                pairs = zip(plain.tokens, run.tokens, strict=False)
                fork = next(i for i, (a, b) in enumerate(pairs) if a != b)
                gap = score_gap(bench, plain.tokens[:fork], sampling, seed)
                print(
                    f"prompt {index} (depth {len(bench.prompt)}), temperature {temperature}, {mode}: "
                    f"fork at token {fork}, score gap {gap:.4f}"
                )
        done = f"{index + 1}/{args.prompts} prompts, depth {len(bench.prompt)}"
        print(f"{done}: {equal} of {compared} equal, {time.monotonic() - start:.0f} s", flush=True)
    print(f"RESULT {equal} of {compared} texts of up to {args.max_tokens} tokens are equal")


if __name__ == "__main__":
    main()
