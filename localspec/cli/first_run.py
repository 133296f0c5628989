"""The first run: a person who has no default model chooses one."""

import os
import socket
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import click

from localspec.config.own import keep_model
from localspec.config.resolve import is_offline
from localspec.display import columns_of, notice, say, shortened, wrapped
from localspec.errors import LocalspecError, UsageError
from localspec.models.entries import HubSource
from localspec.models.registry import Registry, load_registry
from localspec.models.store import Store
from localspec.session.model_lines import hint, line
from localspec.session.model_list import ModelRow, measured_choices
from localspec.storage.paths import data_dir, shown

# Of the blocks for documentation: a socket for datagrams only looks up the route, and sends nothing.
_ELSEWHERE = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8::1"))
_OTHER_WAYS = {"HF_ENDPOINT", "HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy"}
_FEW = 9
_NONE = (
    "no model chosen: name one with -m, or set one with `localspec config set model NAME`; "
    "`localspec recommend` suggests some"
)


def default_notice() -> str:
    """Return a line that names the default model, since none was chosen."""
    newest = _newest()
    better = (
        "`localspec recommend` suggests better ones"
        if newest is None
        else f"to use {newest} instead, run `localspec config set model {newest}`"
    )
    demo = load_registry().default_pair
    return f"no model chosen: using {demo}, a tiny demo model that makes things up; {better}"


def _newest() -> str | None:
    """Return the model that was downloaded last; None if there is none but the demo."""
    registry, store = load_registry(), Store(data_dir())
    times = []
    for pair in registry.pairs.values():
        target = registry.find(pair.target)
        path = store.path_of(target) if target is not None and target.is_known else None
        if path is not None and pair.name != registry.default_pair:
            times.append((path.stat().st_mtime, pair.name))
    return max(times, key=lambda each: each[0], default=(0.0, None))[1]


def _is_had(name: str, rows: Sequence[ModelRow]) -> bool:
    """Download a model where it is not here; return whether it is now, and say why it is not."""
    if any(each.name == name and each.here for each in rows):
        return True
    from localspec.cli.pull import download  # noqa: PLC0415 - it is slow to import

    try:
        download(name)
    except LocalspecError as error:
        notice(f"{error}; choose another, or n for none")
        return False
    return True


def take_model() -> str:
    """Return the model that a person at the terminal chooses, and make it the default once it is here.

    Raises:
        UsageError: the person chooses none.
    """
    every, registry = measured_choices(), load_registry()
    owned = [each for each in every if each.own or each.here]
    demo = [] if owned else [each for each in every if each.name == registry.default_pair]
    proposed = [each for each in every if each.recommended and each not in [*owned, *demo]]
    listed = [*owned, *proposed, *demo] or every
    what = "These are on this machine, or suit it best" if owned else "These suit this machine best"
    if why_not := "" if owned else _why_no_hub():
        listed = _other_sources_first(listed)
        what = f"The hub cannot be reached ({why_not}), but a .gguf file can be chosen by its path"
    say(f"You have not chosen a model yet. {what}:")
    _print(listed)
    from localspec.cli.pull import say_if_busy  # noqa: PLC0415 - it is slow to import

    say_if_busy()
    while True:
        answer = _ask().strip()
        if answer.lower() in {"n", "q"}:
            raise UsageError(_NONE)
        if answer.lower() == "a":
            listed = every
            _print_all(every)
            continue
        if answer == "" or (answer.isdecimal() and 1 <= int(answer) <= len(listed)):
            answer = listed[int(answer or 1) - 1].name
        try:
            file = _file(answer, registry)
        except LocalspecError as error:
            beyond = f"there is no number {answer}: type one from 1 to {len(listed)}"
            say(beyond if answer.isdecimal() else str(error))
            continue
        if file is not None or _is_had(answer, every):
            return _keep(file or answer)
        if not owned and (others := _other_sources_first(listed[:_FEW])) != listed[:_FEW]:
            listed = others
            _print(listed)


def _keep(name: str) -> str:
    """Make a model, or a file, the default; return it."""
    change = "change it with `localspec config set model NAME`"
    overruled = keep_model(load_registry().chosen(name))
    notice(overruled or f"{shown(name)} is now your default model; {change}")
    return name


def _file(text: str, registry: Registry) -> str | None:
    """Return the whole path of the model's file that a text means, as -m has it; None where it is a name.

    Raises:
        LocalspecError: it means nothing, or a file that holds no model.
    """
    from localspec.models.gguf import read_header  # noqa: PLC0415 - it is slow to import
    from localspec.models.names import is_name, resolve  # noqa: PLC0415 - so is this

    if is_name(text, registry):
        return None
    is_path = os.sep in text or text.startswith("~") or text.lower().endswith(".gguf")
    if not is_path and not Path(text).exists():
        registry.require(text)  # which knows what else may be meant
    meant = resolve(text, registry)
    if not isinstance(meant, Path):
        return None
    read_header(meant)  # what cannot be loaded is to be no default
    return str(meant.resolve())


def _print_all(every: Sequence[ModelRow]) -> None:
    columns = max(len(each.name) for each in every)
    for number, each in reversed([*enumerate(every, 1)]):  # the best stay on the screen
        text = f"{number:>3} {line(each, columns)}"
        click.echo(shortened(text, columns_of(sys.stderr)), err=True)


def _ask() -> str:
    question = "Enter for 1, or type a number or a name (a: list all, n: none):"
    try:
        text = wrapped(question, sys.stderr)
        return str(click.prompt(text, "", show_default=False, prompt_suffix=" ", err=True))
    except click.Abort as error:
        click.echo(err=True)
        if isinstance(error.__context__, KeyboardInterrupt):
            raise  # Ctrl-C ends the command as it does elsewhere; the end of stdin is a no
        return "n"


def _print(listed: Sequence[ModelRow]) -> None:
    from localspec.cli.pull import bytes_of_download  # noqa: PLC0415 - it is slow to import

    for number, each in enumerate(listed, 1):
        size = None if each.here else bytes_of_download(each.name)
        text = f"{number}  {each.name}: {hint(each, size)}"
        click.echo(click.wrap_text(text, columns_of(sys.stderr), "  ", " " * 5), err=True)


def _other_sources_first(rows: Sequence[ModelRow]) -> list[ModelRow]:
    """Return models with those first that come from elsewhere than the hub, too."""
    registry = load_registry()

    def is_on_hub_alone(row: ModelRow) -> bool:
        target = None if row.pair is None else registry.find(row.pair.target)
        return target is None or all(isinstance(each, HubSource) for each in target.sources)

    return sorted(rows, key=is_on_hub_alone)


def _why_no_hub() -> str:
    """Return why the hub cannot be reached, as far as that is known without asking it; empty if nothing is."""
    from localspec.models.hub import closed_by  # noqa: PLC0415 - it is slow to import

    if is_offline():
        return "localspec is offline"
    return closed_by() or ("" if _has_route() else "this machine has no network")


def _has_route() -> bool:
    """Return whether this machine has a route to others, or the environment names another way to the hub."""
    if any(map(os.environ.get, _OTHER_WAYS)):
        return True
    for family, address in _ELSEWHERE:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((address, 9))
            return True
    return False
