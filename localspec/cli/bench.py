"""`localspec bench`: what drafting earns on this machine. Figures on stdout, progress on stderr."""

import codecs
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from localspec.bench.bench import Bench, peers, run_bench
from localspec.bench.document import as_json
from localspec.bench.loading import usual_modes
from localspec.bench.modes import PEER_MODES, parse_modes
from localspec.bench.prompts import bundled, per_workload, read
from localspec.bench.table import table
from localspec.cli import INTERRUPTED
from localspec.cli.measuring import (
    measured_reply,
    measuring,
    output_options,
    printed,
)
from localspec.cli.option_flags import launch_options, option_flags
from localspec.cli.settings import configured
from localspec.decoding.cancel import Cancelled
from localspec.errors import UsageError
from localspec.options import SamplingParams

_MAX_TOKENS = 160


@click.command()
@option_flags(
    "pair",
    "target",
    "draft_model",
    draft_model="Draft model: a name, a GGUF file, or `random` for one that knows nothing.",
)
@click.option(
    "--modes",
    metavar="LIST",
    help="Modes to compare: off, auto, lookup[:K], model[:K]; with --against also "
    f"{', '.join(PEER_MODES)}. Default: off,auto,lookup, and model if there is one.",
)
@click.option(
    "--prompts",
    metavar="FILE",
    help="File of JSON lines with workload and prompt. Default: 60 bundled prompts.",
)
@click.option("--per-workload", type=int, metavar="N", help="Prompts of each kind. Default: all.")
@click.option(
    "--temperature",
    "temperatures",
    default="0,0.8",
    metavar="LIST",
    help="Temperatures to measure at; 0 is greedy. Default: 0,0.8.",
)
@option_flags("max_tokens", max_tokens="Tokens per answer. Default: 160.")
@click.option("--repeat", type=int, default=1, metavar="N", help="Runs of each prompt. Default: 1.")
@option_flags("seed", seed="Seed of the first run. Default: 1.")
@click.option(
    "--against",
    metavar="llama-server=PATH",
    help="Compare with llama.cpp's server on the same files, prompts and threads. Needs a checkout.",
)
@click.option(
    "--synthetic",
    type=int,
    metavar="N",
    help="Make the target N times as costly, with the same answers. Needs a checkout.",
)
@option_flags(
    "exact",
    "context",
    "device",
    exact="Give the same bytes whatever is drafted.",
    fit="Refuse what does not fit free memory; --no-fit loads it anyway.",
)
@output_options(json_="Print one JSON object instead of a table.")
def bench(**flags: Any) -> int:
    """Measure how much drafting speeds up answers on this machine: every mode on the same weights, in neighbouring runs.

    Ctrl-C stops it and prints what it has measured so far.
    """
    request = _request(configured(flags))
    try:
        with measuring(quiet=flags["quiet"]) as run:
            found = run_bench(request, run.cancel, run.watchers, run.tell)
    except Cancelled:
        return INTERRUPTED
    if found.n_runs == 0:
        return INTERRUPTED
    if flags["json_"]:
        only_ascii = codecs.lookup(sys.stdout.encoding).name != "utf-8"
        text = as_json(found, only_ascii=only_ascii)
    else:
        text = table(found, shutil.get_terminal_size((80, 24)).columns)
    return printed(text, whole=found.n_runs >= found.n_planned)


def _request(flags: dict[str, Any]) -> Bench:
    peer = None if flags["against"] is None else peers().peer_program(flags["against"])
    prompts = bundled() if flags["prompts"] is None else read(Path(flags["prompts"]))
    if flags["per_workload"] is not None and flags["per_workload"] < 1:
        raise UsageError(f"per_workload is {flags['per_workload']}: it must be 1 or more")
    # What drafts is a matter of the modes, whatever is set elsewhere.
    launch = launch_options({**flags, "draft": "auto", "draft_length": None})
    return Bench(
        launch=launch,
        prompts=per_workload(prompts, flags["per_workload"]),
        prompts_name=flags["prompts"] or "the bundled prompts",
        modes=parse_modes(flags["modes"] or usual_modes(launch, with_peer=peer is not None)),
        temperatures=_temperatures(flags["temperatures"]),
        asked=measured_reply(flags, _MAX_TOKENS),
        repeats=flags["repeat"],
        synthetic=flags["synthetic"],
        peer=peer,
    )


def _temperatures(text: str) -> list[float]:
    found = []
    for each in text.split(","):
        try:
            found.append(SamplingParams(temperature=float(each)).temperature)
        except ValueError:
            raise UsageError(
                f"temperature {each.strip()!r} is not a number: write for example 0,0.8"
            ) from None
    return list(dict.fromkeys(found))
