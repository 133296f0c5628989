"""localspec beside llama.cpp's server on the same files, prompts, sampling and threads, in neighbouring runs.

    python -m lab.peers PATH/llama-server [--server-modes server:none,server:draft] -- [what `localspec bench` takes]

Prints the table of `localspec bench` with the server's modes in it, and each of our modes against the best of these,
chosen in hindsight for each kind of text; with `--json` behind `--`, the JSON of `bench`.
"""

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack

import click

from lab.peers.runs import open_runs
from lab.peers.setting import PEER_FLAGS, peer_program
from localspec.bench.bench import BenchModels, Watchers, run_bench
from localspec.bench.measure import Bench, Result, Runs, prompt_tokens
from localspec.bench.report import ALL, document, figures, table
from localspec.cli.bench import BenchFlags, bench, bench_request
from localspec.cli.options import flags, with_settings
from localspec.decoding.cancel import CancelFlag
from localspec.errors import LocalspecError, UsageError


def beside_server(bench: Bench, program: str, modes: Sequence[str]) -> Result:
    """Measure our arms and the modes of a server.

    Raises:
        UsageError: our models are on workers, which serve one program at a time.
        LocalspecError: something cannot be loaded, started or answered.
    """
    if any(arm.launch.workers for arm in bench.arms):
        raise UsageError("llama-server is not measured beside models on workers")
    path, cancel = peer_program(program), CancelFlag()

    def servers(loaded: BenchModels, stack: ExitStack) -> Mapping[str, Runs]:
        if "server:draft" in modes and loaded.plan.draft_model is None:
            raise UsageError("server:draft needs a draft model: add model to --modes")
        tokens = prompt_tokens(loaded.assistant, bench.prompts)
        runs = open_runs(path, loaded, tokens, bench.reply, lambda: cancel.is_set)
        return dict.fromkeys(modes, stack.enter_context(runs))

    return run_bench(bench, cancel, Watchers(), others=servers)


def against_best(result: Result) -> list[str]:
    """Return a line for each of our modes and kinds of text: its speed over that of the server's best mode."""
    best: dict[tuple[float, str], tuple[float, str]] = {}
    found = figures(result)
    for each in found:
        if each.mode in PEER_FLAGS and each.ratio is not None:
            place = (each.temperature, each.workload)
            best[place] = max(best.get(place, (-math.inf, "")), (each.ratio.mean, each.mode))
    return [
        f"{each.workload} {each.mode}, {each.temperature:g}: {math.exp(ours - theirs):.3f} of {mode}"
        for each in found
        if each.mode not in PEER_FLAGS and each.workload != ALL
        for theirs, mode in [best[each.temperature, each.workload]]
        for ours in [each.ratio.mean if each.ratio is not None else 0.0]
    ]


def main() -> None:
    """Measure, and print what was found."""
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="llama-server")
    parser.add_argument("--server-modes", default="server:none", help=", ".join(PEER_FLAGS))
    asked = parser.parse_args(sys.argv[1:split])
    modes = asked.server_modes.split(",")
    if unknown := set(modes) - {*PEER_FLAGS}:
        raise UsageError(
            f"there is no mode {min(unknown)!r}: choose one of {', '.join(PEER_FLAGS)}"
        )
    context = bench.make_context("bench", sys.argv[split + 1 :])
    with context:
        request = flags(measuring=BenchFlags)(with_settings(bench_request))(**context.params)
    found = beside_server(request, asked.program, modes)
    if context.params["json_"]:
        print(json.dumps(document(found)))
    else:
        print(
            "\n".join(
                [table(found), "", "against the best of the server's modes:", *against_best(found)]
            )
        )


if __name__ == "__main__":
    try:
        main()
    except (LocalspecError, click.ClickException) as error:
        sys.exit(str(error))
