"""What the benchmark scripts share: the machine's name, and models that are loaded.

The scripts measure what `docs/measurements/` and the README claim; run them on a machine that
does nothing else. They import localspec as any program would.
"""

import argparse
import os
import platform
from collections.abc import Sequence
from pathlib import Path

from localspec.errors import UsageError
from localspec.launch.load import Runtime, load
from localspec.options import LaunchOptions, changed, options_of
from localspec.plan.make import make_plan


def machine() -> str:
    """Return one line that names the machine."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":")[1].strip() if names else model
    system, version = platform.system(), platform.python_version()
    return f"{model}, {os.cpu_count()} cores, {system}, Python {version}"


def opened(
    request: LaunchOptions, *, parallel: int | None = 1, hold_up_s: float | None = None
) -> Runtime:
    """Fetch and load what is asked for; see `localspec.launch.load.load`."""
    return load(make_plan(request, parallel=parallel), hold_up_s=hold_up_s)


def forget(runtime: Runtime) -> None:
    """Empty every cache."""
    models = runtime.assistant.models
    for family in (models.targets, models.draft_models):
        for view in family.views if family is not None else ():
            view.truncate(0)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """Let a script take any option of loading; see `with_settings`."""
    parser.add_argument(
        "--set", action="append", default=[], metavar="NAME=VALUE", help="as in gpu_layers=0"
    )


def with_settings(request: LaunchOptions, settings: Sequence[str]) -> LaunchOptions:
    """Return a request with other options.

    Args:
        request: what stays where nothing is said.
        settings: each NAME=VALUE, by the names that settings files have.

    Raises:
        UsageError: there is no such option, or it takes no such value.
    """
    known, values = {each.name: each for each in options_of(LaunchOptions)}, {}
    for setting in settings:
        name, _, value = setting.partition("=")
        if name not in known:
            raise UsageError(f"there is no option {name!r}: choose one of {', '.join(known)}")
        try:
            values[name] = known[name].parse(value)
        except ValueError:
            raise UsageError(f"{name} is {value!r}: it takes {known[name].takes}") from None
    return changed(request, values)
