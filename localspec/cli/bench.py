"""`localspec bench`: what drafting, or another setting, is worth on this machine. Figures on stdout, progress on stderr."""

import codecs
import json
import shutil
import sys
import time
from pathlib import Path
from typing import Any

import click

from localspec.bench.arms import mode_arms, parse_arm
from localspec.bench.bench import Watchers, run_bench
from localspec.bench.measure import Bench, Result
from localspec.bench.prompts import bundled, per_workload, read
from localspec.bench.report import compared, document, table
from localspec.bench.trial import Trial
from localspec.cli import INTERRUPTED
from localspec.cli.interrupt import cancel_on_interrupt, unwind_on_terminate
from localspec.cli.options import (
    SectionedCommand,
    configured,
    launch_options,
    option_flags,
    reply_options,
)
from localspec.cli.output import ProgressLine, RedrawnLine
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.display import duration_text, notice
from localspec.errors import UsageError
from localspec.options import SamplingParams

_MAX_TOKENS, _TEMPERATURES = 160, "0,0.8"
_MAX_TOKENS_OF_A_PAIR, _PER_WORKLOAD_OF_A_PAIR = 96, 4
_SHOWN_EVERY_S = 30.0


@click.command(cls=SectionedCommand)
@option_flags("pair", "target", "draft_model")
@click.option(
    "--modes",
    metavar="LIST",
    help="Draft modes to compare: off, auto, lookup[:K], model[:K]. Default: off,auto,lookup, and model if there is one.",
)
@click.option(
    "--compare",
    nargs=2,
    metavar="A B",
    help="Compare two settings until the result is clear, and print a verdict.",
)
@click.option(
    "--pairs",
    type=int,
    metavar="N",
    help="With --compare: pairs of runs, 5 or more. Default: until the result is clear.",
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
    metavar="LIST",
    help="Temperatures to measure at; 0 is greedy. Default: 0,0.8; with --compare as in `run`.",
)
@option_flags(
    "max_tokens",
    "top_k",
    "top_p",
    "min_p",
    max_tokens="Tokens per answer. Default: 160; with --compare 96.",
)
@click.option("--repeat", type=int, metavar="N", help="Runs of each prompt. Default: 1.")
@option_flags("seed", seed="Seed of the first run. Default: 1.")
@option_flags(
    "exact",
    "context",
    "device",
    exact="Give the same bytes whatever is drafted.",
    fit="Refuse what does not fit free memory; --no-fit loads it anyway.",
)
@click.option("--json", "json_", is_flag=True, help="Print one JSON object instead of a table.")
@click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr.")
def bench(**flags: Any) -> int:
    """Measure how much drafting speeds up answers on this machine: every mode on the same weights, in neighbouring runs.

    \b
        localspec bench
        localspec bench --compare off auto
        localspec bench --compare target=q4.gguf target=q8.gguf --prompts mine.jsonl

    --compare takes two draft modes (off, auto, lookup:8, model:3), or settings separated by commas: draft, pair,
    target, draft_model, kv_type, threads, ctx, exact. Two settings with the same models share their weights;
    otherwise memory has to hold both. After twelve pairs, the noise decides how many more are needed to detect a
    slow-down of 5 %.

    Without flags it takes about an hour on a laptop; `--per-workload 1` takes a tenth of that. Ctrl-C stops it and
    prints what it has measured so far. Nothing is recorded.
    """  # noqa: D301 - click keeps lines behind a \b
    request = bench_request(configured(flags))
    cancel, progress = CancelFlag(), _Progress(enabled=not flags["quiet"])
    try:
        with (
            unwind_on_terminate(),
            ProgressLine(enabled=not flags["quiet"]) as line,
            cancel_on_interrupt(cancel),
        ):
            try:
                watchers = Watchers(line.download, line.load, line.measure)
                found = run_bench(request, cancel, watchers, progress.show)
            finally:
                progress.end()
    except Cancelled:
        return INTERRUPTED
    if not found.trials or (request.verdict and compared(found) is None):
        return INTERRUPTED
    click.echo(_printed(found, as_document=flags["json_"]))
    sys.stdout.flush()
    return 0 if found.is_whole else INTERRUPTED


def _printed(found: Result, *, as_document: bool) -> str:
    if as_document:
        only_ascii = codecs.lookup(sys.stdout.encoding).name != "utf-8"
        return json.dumps(document(found), ensure_ascii=only_ascii)
    return table(found, shutil.get_terminal_size((80, 24)).columns)


def bench_request(flags: dict[str, Any]) -> Bench:
    """Return what configured flags want to have measured.

    Raises:
        UsageError: a flag is unusable, or does not go with another.
    """
    compared = flags["compare"]
    for other in ("modes", "repeat"):
        if compared and flags[other] is not None:
            raise UsageError(f"--compare and --{other} cannot be combined: give one of them")
    if flags["pairs"] is not None and not compared:
        raise UsageError("--pairs needs --compare: add two settings, such as --compare off auto")
    prompts = bundled() if flags["prompts"] is None else read(Path(flags["prompts"]))
    most = flags["per_workload"]
    if most is not None and most < 1:
        raise UsageError(f"per_workload is {most}: it must be 1 or more")
    if most is None and compared and flags["prompts"] is None:
        most = _PER_WORKLOAD_OF_A_PAIR
    # What drafts is a matter of the arms, whatever is set elsewhere.
    launch = launch_options({**flags, "draft": "auto", "draft_length": None})
    usual = {"max_tokens": _MAX_TOKENS_OF_A_PAIR if compared else _MAX_TOKENS, "seed": 1}
    reply = reply_options({**flags, **{key: usual[key] for key in usual if flags[key] is None}})
    temperatures = flags["temperatures"]
    if temperatures is None and not compared:
        temperatures = _TEMPERATURES
    return Bench(
        arms=[parse_arm(name, text, launch) for name, text in zip("ab", compared, strict=True)]
        if compared
        else mode_arms(flags["modes"], launch),
        prompts=per_workload(prompts, most),
        prompts_name=flags["prompts"] or "the bundled prompts",
        temperatures=[reply.sampling.temperature]
        if temperatures is None
        else _temperatures(temperatures),
        reply=reply,
        repeats=1 if flags["repeat"] is None else flags["repeat"],
        verdict=bool(compared),
        pairs=flags["pairs"],
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


class _Progress:
    """Shows which run is done: on a terminal in one line, elsewhere now and then; nothing at all unless enabled."""

    def __init__(self, *, enabled: bool) -> None:
        self._enabled = enabled
        self._line = RedrawnLine(enabled=enabled)
        self._start, self._shown = time.monotonic(), -_SHOWN_EVERY_S

    def show(self, done: int, planned: int, trial: Trial) -> None:
        """Take in that a run is done."""
        now = time.monotonic()
        if done == 1:
            self._start = now - trial.wall_s
        if not self._enabled or (not self._line.drawn and now - self._shown < _SHOWN_EVERY_S):
            return
        self._shown = now
        left_s = (now - self._start) / done * (planned - done)
        speed = trial.n_tokens / trial.wall_s
        text = f"run {done} of {planned}, {trial.slot.mode} {speed:.1f} tokens/s, {duration_text(left_s)} left"
        if self._line.drawn:
            self._line.draw(text)
        else:
            notice(text)

    def end(self) -> None:
        """Clear the line."""
        self._line.clear()
