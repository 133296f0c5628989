"""How much of what a target says do some of its own layers foretell: the first ones, and those that a search leaves?

    python -m lab.benchmarks.early_layers [--model qwen2.5-coder-1.5b] [--per-workload 1] [--counts 14,21]
        [--before 64] [--tokens 32] [--again 4] [--no-search] [--threads 1] [--answers FILE] [--json FILE]

Prints by number of layers the share of greedy tokens that they foretell, by teacher forcing on the first tokens of the target's own
answers behind the last ones of their prompts, and the mean probability that they give to these, which the search goes by. The answers
are kept in a file, if one is named. Layers are left out in a copy of the file, in a
temporary folder, by zeros in place of what they write; so that costs what it always does, and nothing is said of speed here.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path

from localspec.bench.prompts import bundled, per_workload
from localspec.decoding.cancel import CancelFlag
from localspec.launch.load import load
from localspec.launch.plan import make_plan
from localspec.llama.model import LlamaModel
from localspec.models.gguf import read_header
from localspec.models.gguf_layout import read_layout
from localspec.models.layers import Switchable, separable_layers
from localspec.options import LaunchOptions, LoadOptions
from localspec.tailor.measure import RecordedAnswer, answers, foretold, likelihood
from localspec.tailor.search import dispensable


class Trials:
    """A target without some of its layers, loaded for each question."""

    def __init__(self, file: Path, texts: Sequence[RecordedAnswer], threads: int | None) -> None:
        self._options = LoadOptions(repack=False, load_mode="mmap", threads=threads)
        self._layers = Switchable(file, read_layout(file))
        self._texts = texts
        self.asked = 0

    def _loaded(self, left_out: Sequence[int]) -> LlamaModel:
        self._layers.leave_out(left_out)
        self.asked += 1
        return LlamaModel(self._layers.path, self._options)

    def likelihood(self, left_out: tuple[int, ...]) -> float:
        """Return the mean probability of what was said."""
        model = self._loaded(left_out)
        found = likelihood(model, self._texts, model.n_vocab, CancelFlag())
        model.close()
        return found

    def agrees(self, left_out: Sequence[int]) -> float:
        """Return the share of tokens that are foretold."""
        model = self._loaded(left_out)
        hits = foretold(model, self._texts, model.n_vocab, CancelFlag())
        model.close()
        every = [hit for of_kind in hits.values() for each in of_kind for hit in each]
        return sum(every) / len(every)


def recorded(target: Path, args: argparse.Namespace) -> list[RecordedAnswer]:
    """Return parts of a target's own answers."""
    kept: Path | None = args.answers
    if kept is None or not kept.exists():
        whole = answered(target, args)
        if kept is not None:
            kept.write_text(json.dumps([asdict(each) for each in whole]))
    else:
        whole = [RecordedAnswer(**each) for each in json.loads(kept.read_text())]
    kinds = Counter[str]()
    found = []
    for each in whole:
        kinds[each.kind] += 1
        if kinds[each.kind] <= args.per_workload:
            prompt, answer = each.prompt[-args.before :], each.answer[: args.tokens]
            found.append(replace(each, prompt=prompt, answer=answer))
    return found


def answered(target: Path, args: argparse.Namespace) -> list[RecordedAnswer]:
    """Return a target's own answers."""
    load_options = LoadOptions(threads=args.threads)
    request = LaunchOptions(target=str(target), draft="off", load=load_options)
    runtime = load(make_plan(request))
    found = answers(runtime.assistant, per_workload(bundled(), args.per_workload), lambda _: None)
    runtime.assistant.close()
    return found


def main() -> None:
    """Ask, and print as it is known."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m", help="name of a pair, or a GGUF file")
    parser.add_argument("--per-workload", type=int, default=1)
    parser.add_argument("--before", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--again", type=int, default=4)
    parser.add_argument("--counts")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--answers", type=Path)
    parser.add_argument("--search", action=argparse.BooleanOptionalAction, default=True)
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    plan = make_plan(
        LaunchOptions(target=args.model, draft="off")
        if args.model.endswith(".gguf")
        else LaunchOptions(pair=args.model, draft="off")
    )
    n_layers = separable_layers(read_header(plan.target))
    assert n_layers, f"{args.model} has no layers that can be left out"
    texts, start_s = recorded(plan.target, args), time.perf_counter()
    print(f"{len(texts)} texts, {sum(len(each.answer) for each in texts)} tokens", flush=True)
    rows: list[dict[str, object]] = []
    with tempfile.TemporaryDirectory() as folder:
        file = Path(shutil.copyfile(plan.target, Path(folder) / "layers.gguf"))
        trials = Trials(file, texts, args.threads)
        eighths = {round(share * n_layers / 8) for share in range(1, 9)}
        counts = sorted({int(each) for each in args.counts.split(",")} if args.counts else eighths)

        def told(how: str, left_out: tuple[int, ...]) -> None:
            row = {
                "how": how,
                "layers": n_layers - len(left_out),
                "agrees": trials.agrees(left_out),
                "likelihood": trials.likelihood(left_out),
                "left_out": list(left_out),
            }
            rows.append(row)
            print(
                f"{how} {row['layers']} of {n_layers}: {row['agrees']:.1%}, p {row['likelihood']:.3f},"
                f" without {left_out}; {trials.asked} asked, {time.perf_counter() - start_s:.0f} s",
                flush=True,
            )

        for count in counts:
            told("first", tuple(range(count, n_layers)))
        if args.search:
            most = n_layers - counts[0]
            for left_out, _ in dispensable(n_layers, most, trials.likelihood, args.again):
                if n_layers - len(left_out) in counts:
                    told("found", left_out)
    if args.json:
        args.json.write_text(json.dumps({"model": args.model, "layers": n_layers, "rows": rows}))


if __name__ == "__main__":
    main()
