"""The first run: where nobody chose a model yet and a person sits there, one is proposed; what they take is kept."""

import shutil
import sys
from collections.abc import Mapping
from typing import Any

import click

from localspec.cli.settings import configured
from localspec.display import notice
from localspec.errors import UsageError
from localspec.models.registry import load_registry

_NONE = (
    "no model chosen: name one with -m, or set one with `localspec config set model NAME`; "
    "`localspec recommend` suggests some"
)


def with_model(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags as `configured` does; where they name no model, with the one that a person takes.

    Where nobody can be asked, `unasked` says on one line what is taken; whoever runs tells it when nothing else is wrong.

    Raises:
        UsageError: the person takes none.
    """
    found = configured(flags)
    if not {"pair", "target"} <= set(found["unset"]):
        return {**found, "unasked": ""}
    if flags["quiet"] or flags.get("json_"):  # which names the model that answered
        return {**found, "unasked": ""}
    if sys.stdin.isatty() and sys.stderr.isatty():
        return {**configured({**flags, "model": _taken()}), "unasked": ""}
    here = _last_fetched()
    better = (
        "`localspec recommend` suggests better ones"
        if here is None
        else f"`localspec config set model {here}` makes the one that you have your default"
    )
    demo = load_registry().default_pair
    told = f"no model chosen: using {demo}, a tiny demo model that makes things up; {better}"
    return {**found, "unasked": told}


def _last_fetched() -> str | None:
    """Return the model of this machine that came last; None where there is none but the demo."""
    from localspec.models.store import Store  # noqa: PLC0415 - few have not chosen
    from localspec.storage.paths import data_dir  # noqa: PLC0415

    registry, store = load_registry(), Store(data_dir())
    found = []
    for pair in registry.pairs.values():
        target = registry.find(pair.target)
        path = store.path_of(target) if target is not None and target.is_known else None
        if path is not None and pair.name != registry.default_pair:
            found.append((path.stat().st_mtime, pair.name))
    return max(found, key=lambda each: each[0], default=(0.0, None))[1]


def _taken() -> str:
    """Return the model that a person takes, which is kept as their usual one."""
    # llama.cpp comes with it, to say which devices there are.
    from localspec.config.own import keep_model  # noqa: PLC0415
    from localspec.launch.rows import measured_choices  # noqa: PLC0415

    every = measured_choices()
    registry = load_registry()
    owned = [each for each in every if each.own]
    shown = [*owned, *(each for each in every if each.recommended and each not in owned)] or every
    what = "You have these, and others suit" if owned else "These suit"
    click.echo(f"You have not chosen a model yet. {what} this machine best:", err=True)
    for number, each in enumerate(shown, 1):
        text = f"{number}  {each.name}: {each.hint}"
        width = shutil.get_terminal_size().columns
        click.echo(click.wrap_text(text, width, "  ", " " * 5), err=True)
    while True:
        question = "Enter for 1, or type a number or a name (a: list all, n: cancel)"
        try:
            answer = (
                click.prompt(question, default="", show_default=False, err=True).strip().lower()
            )
        except click.Abort:
            click.echo(err=True)
            answer = "n"
        if answer in {"n", "q"}:
            raise UsageError(_NONE)
        if answer == "a":
            shown = every
            width = max(len(each.name) for each in every)
            for number, each in enumerate(every, 1):
                click.echo(f"{number:>3} {each.line(width)}", err=True)
            continue
        if answer == "" or (answer.isdecimal() and 1 <= int(answer) <= len(shown)):
            name = shown[int(answer or 1) - 1].name
        elif registry.knows(answer):
            name = answer
        else:
            click.echo(
                f"{answer[:40]!r} is neither a number in the list nor the name of a model", err=True
            )
            continue
        overruled = keep_model(registry.chosen(name))
        said = (
            overruled
            or f"{name} is now your default model; `localspec config set model NAME` changes it"
        )
        notice(said)
        return name
