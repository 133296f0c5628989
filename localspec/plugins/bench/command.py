"""`localspec bench`: what drafting, or another setting, is worth on this machine. Figures on stdout, progress on stderr."""

import shutil
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import click

from localspec import api
from localspec.cli import INTERRUPTED
from localspec.cli.interrupt import cancel_on_interrupt, code_of, unwind_on_terminate
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.display import duration_text
from localspec.llama.spare_cores import GIVES_WAY, taken_by_others
from localspec.plugins.bench.arms import mode_arms, parse_arm
from localspec.plugins.bench.bench import Watchers, run_bench
from localspec.plugins.bench.measure import Bench
from localspec.plugins.bench.prompts import bundled, per_workload, read
from localspec.plugins.bench.report import compared, document, table
from localspec.plugins.bench.trial import Trial

_MAX_TOKENS, _TEMPERATURES = 160, "0,0.8"
_MAX_TOKENS_OF_A_PAIR, _PER_WORKLOAD_OF_A_PAIR = 96, 4
_NOTICE_S = 30.0


@dataclass(frozen=True, slots=True)
class BenchFlags:
    """Flags of `bench` alone.

    Args:
        modes: Draft modes to compare: off, auto, lookup[:K], model[:K]. Default: off,auto,lookup, and model with a draft model.
        compare: Compare two settings until the result is clear, and print a verdict.
        pairs: With --compare: pairs of runs, 5 or more. Default: until the result is clear.
        prompts: File of JSON lines with workload and prompt. Default: 60 bundled prompts.
        per_workload: Prompts of each kind. Default: all.
        temperatures: Temperatures to measure at; 0 is greedy. Default: 0,0.8; with --compare as in `run`.
        repeat: Runs of each prompt. Default: 1.
        json_: Print one JSON object instead of a table.
        quiet: Print only errors on stderr.
    """

    modes: str | None = api.flag("LIST")
    compare: tuple[str, str] | None = api.flag("A B", nargs=2)
    pairs: int | None = api.flag("N", type=int)
    prompts: str | None = api.flag("FILE")
    per_workload: int | None = api.flag("N", type=int)
    temperatures: str | None = api.flag("--temperature", "LIST")
    repeat: int | None = api.flag("N", type=int)
    json_: bool = api.switch()
    quiet: bool = api.switch("-q", "--quiet")


@click.command(cls=api.SectionedCommand)
@click.argument("name", metavar="[MODEL]", required=False, shell_complete=api.complete_models)
@api.option_flags(
    *("pair", "target", "draft_model", "max_tokens", "top_k", "top_p", "min_p", "seed"),
    *("exact", "context", "device"),
    max_tokens="Tokens per answer. Default: 160; with --compare 96.",
    seed="Seed of the first run. Default: 1.",
    exact="Give exactly the same text in every mode.",
    fit="Refuse models that do not fit in free memory; --no-fit loads them anyway.",
)
@api.flags(measuring=BenchFlags)
@api.with_settings
def bench(name: str | None, settings: api.Settings, measuring: BenchFlags) -> int:
    """Measure how much drafting speeds up answers of MODEL, or of your default model, on this machine.

    All modes use the same weights, in alternating runs.

    \b
        localspec bench
        localspec bench --compare off auto
        localspec bench --compare target=q4.gguf target=q8.gguf --prompts mine.jsonl

    --compare takes two draft modes (off, auto, lookup:8, model:3), or settings separated by commas: draft, pair,
    target, draft_model, kv_type, threads, ctx, exact. Two settings with the same models share their weights;
    otherwise both have to fit in memory. It runs twelve pairs, and then as many more as it takes to detect a slow-down of 5 %.

    Without flags it takes about an hour on a laptop; `--per-workload 1` takes a tenth of that. Ctrl-C or SIGTERM stops it and
    prints what it has measured so far. Nothing is recorded.
    """  # noqa: D301 - click keeps lines behind a \b
    settings = settings.with_model(name and api.require_model(name))
    request = bench_request(settings, measuring)
    cancel = CancelFlag()
    line = api.ProgressLine(enabled=not measuring.quiet, notice_s=_NOTICE_S, at_once=True)
    begun_s = time.monotonic()

    def show(done: int, planned: int, trial: Trial) -> None:
        nonlocal begun_s
        if done == 1:
            begun_s = time.monotonic() - trial.wall_s
        left_s = (time.monotonic() - begun_s) / done * (planned - done)
        speed = trial.n_tokens / trial.wall_s
        text = f"run {done} of {planned}, {trial.slot.mode} {speed:.1f} tokens/s"
        line.report(f"{text}, {duration_text(left_s)} left", at_once=done == 1)

    def loaded() -> None:
        if line.drawn:  # over the share that was loaded
            line.report("loaded, warming up", at_once=True)

    nothing, signals = "stopped before there was anything to compare", list[int]()
    try:
        with unwind_on_terminate(), line, cancel_on_interrupt(cancel, [signal.SIGTERM]) as signals:
            result = run_bench(request, cancel, Watchers(line.download, line.show, loaded), show)
    except Cancelled:
        api.notice(nothing)
        return code_of(signals[0]) if signals else INTERRUPTED
    code = code_of(signals[0]) if signals else INTERRUPTED
    if not result.trials or (request.verdict and compared(result) is None):
        api.notice(nothing)
        return code
    if not measuring.quiet:
        say_if_busy()
    if measuring.json_:
        api.print_json(document(result), indent=None)
    else:
        click.echo(table(result, shutil.get_terminal_size((80, 24)).columns))
    sys.stdout.flush()
    return 0 if result.is_whole else code


def say_if_busy() -> None:
    """Print that other programs were busy while it was measured; nothing if none was."""
    others = taken_by_others()
    if others is not None and others[0] >= GIVES_WAY:
        busy = f"other programs used {others[0]:.1f} of {others[1]} cores meanwhile"
        api.notice(f"{busy}: no ratio says what it would be on an idle machine")


def bench_request(settings: api.Settings, measuring: BenchFlags) -> Bench:
    """Return what flags want to have measured.

    Raises:
        UsageError: a flag is unusable, or does not go with another.
    """
    compared = measuring.compare
    for other in ("modes", "repeat"):
        if compared and getattr(measuring, other) is not None:
            raise api.UsageError(f"--compare and --{other} cannot be combined: give one of them")
    if measuring.pairs is not None and not compared:
        raise api.UsageError(
            "--pairs needs --compare: add two settings, such as --compare off auto"
        )
    prompts = bundled() if measuring.prompts is None else read(Path(measuring.prompts))
    most = measuring.per_workload
    if most is not None and most < 1:
        raise api.UsageError(f"per_workload is {most}: it must be 1 or more")
    if most is None and compared and measuring.prompts is None:
        most = _PER_WORKLOAD_OF_A_PAIR
    # What drafts is a matter of the arms, whatever is set elsewhere.
    launch = api.changed(settings.launch, {"draft": "auto", "draft_length": None})
    reply = settings.reply_as_set
    if reply.max_tokens is None:
        tokens = _MAX_TOKENS_OF_A_PAIR if compared else _MAX_TOKENS
        reply = api.changed(reply, {"max_tokens": tokens})
    if reply.seed is None:
        reply = api.changed(reply, {"seed": 1})
    temperatures = measuring.temperatures
    if temperatures is None and not compared:
        temperatures = _TEMPERATURES
    return Bench(
        arms=[parse_arm(name, text, launch) for name, text in zip("ab", compared, strict=True)]
        if compared
        else mode_arms(measuring.modes, launch),
        prompts=per_workload(prompts, most),
        prompts_name=measuring.prompts or "the bundled prompts",
        temperatures=[reply.sampling.temperature]
        if temperatures is None
        else _temperatures(temperatures),
        reply=reply,
        repeats=1 if measuring.repeat is None else measuring.repeat,
        verdict=bool(compared),
        pairs=measuring.pairs,
    )


def _temperatures(text: str) -> list[float]:
    temperatures = []
    for each in text.split(","):
        try:
            temperatures.append(api.SamplingParams(temperature=float(each)).temperature)
        except ValueError:
            raise api.UsageError(
                f"temperature {each.strip()!r} is not a number: write for example 0,0.8"
            ) from None
    return list(dict.fromkeys(temperatures))
