"""The first run: a person who has no default model chooses one."""

import shutil
from collections.abc import Sequence

import click

from localspec.config.own import keep_model
from localspec.display import notice
from localspec.errors import LocalspecError, UsageError
from localspec.launch.rows import ModelRow, measured_choices
from localspec.models.registry import load_registry
from localspec.models.store import Store
from localspec.storage.paths import data_dir

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
    every = measured_choices()
    registry, width = load_registry(), shutil.get_terminal_size().columns
    owned = [each for each in every if each.own or each.here]
    listed = [*owned, *(each for each in every if each.recommended and each not in owned)] or every
    what = "These are on this machine, or suit it best" if owned else "These suit this machine best"
    click.echo(f"You have not chosen a model yet. {what}:", err=True)
    for number, each in enumerate(listed, 1):
        text = f"{number}  {each.name}: {each.hint}"
        click.echo(click.wrap_text(text, width, "  ", " " * 5), err=True)
    while True:
        question = "Enter for 1, or type a number or a name (a: list all, n: none)"
        try:
            answer = click.prompt(question, default="", show_default=False, err=True)
        except click.Abort:
            click.echo(err=True)
            answer = "n"
        answer = answer.strip().lower()
        if answer in {"n", "q"}:
            raise UsageError(_NONE)
        if answer == "a":
            listed = every
            columns = max(len(each.name) for each in every)
            for number, each in enumerate(every, 1):
                click.echo(f"{number:>3} {each.line(columns)}", err=True)
            continue
        if answer == "" or (answer.isdecimal() and 1 <= int(answer) <= len(listed)):
            answer = listed[int(answer or 1) - 1].name
        elif not registry.knows(answer):
            click.echo(
                f"{answer[:40]!r} is neither a number in the list nor the name of a model", err=True
            )
            continue
        if not _is_had(answer, every):
            continue
        change = "change it with `localspec config set model NAME`"
        notice(
            keep_model(registry.chosen(answer)) or f"{answer} is now your default model; {change}"
        )
        return answer
