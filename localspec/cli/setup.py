"""`localspec setup`: a build of llama.cpp for this machine's GPU. What it finds and does on stdout, progress on stderr."""

import shlex
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

import click

from localspec.cli.redrawn_line import RedrawnLine
from localspec.errors import UsageError
from localspec.setup.backends import BACKENDS

if TYPE_CHECKING:
    from localspec.setup.plan import SetupPlan


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
    from localspec.llama.build import build  # noqa: PLC0415
    from localspec.llama.chosen import builds_dir, chosen  # noqa: PLC0415
    from localspec.resources import default_threads  # noqa: PLC0415
    from localspec.setup.gpus import find  # noqa: PLC0415
    from localspec.setup.plan import SetupRequest, decide, require_ready  # noqa: PLC0415
    from localspec.setup.steps import steps  # noqa: PLC0415

    used = build()
    request = SetupRequest(backend, rpc, rebuild, wheels)
    plan = decide(find(), used.backends, request, beside=chosen() is not None)
    click.echo(plan.reason)
    if plan.backend is None:
        return 0
    if dry_run and not plan.to_own:
        _print_needs(plan.lacks)
        for step in steps(plan, used.version, builds_dir() / "NEW"):
            click.echo(_shell(step.variables, step.command))
        return 0
    if dry_run:
        return 0
    require_ready(plan)
    if not plan.to_own:
        options = " ".join(plan.options) or "no options"
        how = f"is compiled with {options}: {plan.minutes(default_threads())}"
        click.echo(
            f"llama-cpp-python {used.version} {how if wheels is None else 'is fetched as a wheel'}; "
            "the build in use stays until the new one works"
        )
        _confirm(yes=yes)
    return _do(plan, used.version)


def _do(plan: "SetupPlan", version: str) -> int:
    from localspec.cli.interrupt import unwind_on_terminate  # noqa: PLC0415
    from localspec.setup.steps import back_to_own, install  # noqa: PLC0415

    shown = _Shown()
    with unwind_on_terminate():
        try:
            own = plan.to_own
            trial = back_to_own(plan, shown) if own else install(plan, version, shown)
        finally:
            shown.end()
    on = ", ".join(trial.devices) or "the CPU"
    if trial.answer is None:
        click.echo(f"it loads and finds {on}; `localspec pull demo` gets a model that can answer")
    else:
        click.echo(
            f"it answered in {trial.seconds:.1f} s on {on}: {' '.join(trial.answer.split())}"
        )
    click.echo("localspec uses it from now on")
    needed = [
        f"{name}={value}" for name, value in plan.variables.items() if name.startswith("GGML_")
    ]
    if needed:
        click.echo(
            f"it computes there, and without a crash, only with {' '.join(needed)} in the environment"
        )
    return 0


def _confirm(*, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError("there is nobody to ask: give --yes to go on")
    click.confirm("go on?", abort=True, err=True)


def _print_needs(lacks: tuple[str, ...]) -> None:
    if lacks:
        click.echo(f"first install {' and '.join(lacks)}")


def _shell(variables: Mapping[str, str], command: tuple[str, ...]) -> str:
    told = [f"{name}={shlex.quote(value)}" for name, value in variables.items()]
    return " ".join([*told, shlex.join(command)])


class _Shown:
    """Shows what is being done: on a terminal in one line that is drawn over, elsewhere in a line for each step."""

    def __init__(self) -> None:
        self._line, self._title = RedrawnLine(enabled=True), ""

    def __call__(self, title: str, share: float) -> None:
        """Show how much of a step is done, 0 to 1."""
        if self._line.drawn:
            self._line.draw(f"{title}…  {share:.0%}" if share else f"{title}…")
        elif title != self._title:
            click.echo(f"localspec: {title}", err=True)
        self._title = title

    def end(self) -> None:
        """Leave nothing behind on the terminal."""
        self._line.clear()
