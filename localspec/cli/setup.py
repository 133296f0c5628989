"""`localspec setup`: a build of llama.cpp for this machine's GPU. Results on stdout, progress on stderr."""

import sys

import click

from localspec.cli.interrupt import unwind_on_terminate
from localspec.cli.output import RedrawnLine
from localspec.errors import LocalspecError, UsageError
from localspec.llama.build import build
from localspec.llama.chosen import builds_dir, chosen
from localspec.resources import default_threads
from localspec.setup.gpus import BACKENDS, find_gpus
from localspec.setup.plan import SetupPlan, decide
from localspec.setup.steps import carry_out, steps


@click.command()
@click.option(
    "--for", "backend", type=click.Choice(list(BACKENDS)), help="Build for this. Default: the GPU."
)
@click.option("--rpc", is_flag=True, help="Also use devices of other machines (llama.cpp's RPC).")
@click.option(
    "--wheels",
    metavar="URL",
    help="Index of prebuilt wheels to take the build from, instead of compiling.",
)
@click.option("--rebuild", is_flag=True, help="Build even what is there already.")
@click.option("--dry-run", is_flag=True, help="Print the commands, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
def setup(
    backend: str | None, rpc: bool, wheels: str | None, rebuild: bool, dry_run: bool, yes: bool
) -> int:
    """Build llama.cpp for this machine's GPU, and use it once it has answered a question.

    Until then, and if anything goes wrong, localspec keeps using the build that works. `localspec setup --for cpu` goes
    back to the one that localspec was installed with.
    """
    # It loads llama.cpp, which --help does without.

    used = build()
    plan = decide(
        find_gpus(),
        used.backends,
        beside=chosen() is not None,
        backend=backend,
        rpc=rpc,
        rebuild=rebuild,
        wheels=wheels,
    )
    click.echo(plan.reason)
    if plan.backend is None:
        return 0
    if dry_run:
        if plan.lacks:
            click.echo(f"first install {', '.join(plan.lacks)}")
        for step in steps(plan, used.version, builds_dir() / "NEW"):
            click.echo(str(step))
        return 0
    if plan.lacks:
        missing = ", ".join(plan.lacks)
        raise LocalspecError(f"{plan.reason}: install {missing}, then run localspec setup again")
    if not plan.to_own:
        options = " ".join(plan.options) or "no options"
        compiled = f"is compiled with {options}: {plan.minutes(default_threads())}"
        click.echo(
            f"llama-cpp-python {used.version} {'is fetched as a wheel' if wheels else compiled}; "
            "the build in use stays until the new one works"
        )
        if not yes and not sys.stdin.isatty():
            raise UsageError("stdin is not a terminal: pass --yes to go on")
        if not yes:
            click.confirm("go on?", abort=True, err=True)
    _carry_out(plan, used.version)
    return 0


def _carry_out(plan: "SetupPlan", version: str) -> None:

    line = RedrawnLine(enabled=True)

    def show(title: str, share: float) -> None:
        if line.drawn:
            line.draw(f"{title}…  {share:.0%}" if share else f"{title}…")
        elif not share:
            click.echo(f"localspec: {title}", err=True)

    with unwind_on_terminate():
        try:
            trial = carry_out(plan, version, show)
        finally:
            line.clear()
    on = ", ".join(trial.devices) or "the CPU"
    if trial.answer is None:
        click.echo(f"it loads and finds {on}; `localspec pull demo` gets a model that can answer")
    else:
        answer = " ".join(trial.answer.split())
        click.echo(f"it answered in {trial.seconds:.1f} s on {on}: {answer}")
    click.echo("localspec uses it from now on")
    needed = " ".join(f"{k}={v}" for k, v in plan.variables.items() if k.startswith("GGML_"))
    if needed:
        click.echo(f"set {needed} in the environment: without, it crashes, or the CPU computes")
