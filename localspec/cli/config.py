"""`localspec config`: shows settings and their origins, and changes them."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import click

from localspec.cli import options as cli
from localspec.cli.progress import print_json
from localspec.config.files import read_settings, user_file
from localspec.config.keys import KEYS, MODELS, Setting, as_written, from_variable
from localspec.config.own import (
    MODEL,
    keep_model,
    overruled,
    set_own,
    unknown_key,
    unset_own,
)
from localspec.config.resolve import resolve, with_recommended
from localspec.display import notice, say
from localspec.entry_points import check_engine
from localspec.errors import UsageError
from localspec.models.registry import load_registry
from localspec.options import LaunchOptions, ReplyOptions, changed
from localspec.options.reply import unusual
from localspec.storage.files import private_directory
from localspec.storage.paths import only_read, shown

T = TypeVar("T")
_ONE = {"pair", "target"}  # are the model
_FILES, _NO_FILES = {"gate", "mmproj", "draft_lora", "server_key_file"}, {"usual", "off"}


@click.group(
    cls=cli.CommandGroup,
    invoke_without_command=True,
    also={**dict.fromkeys(("list", "ls"), "show"), **dict.fromkeys(("remove", "rm"), "unset")},
)
@click.pass_context
def config(context: click.Context) -> None:
    """Show and change settings.

    \b
        localspec config set model qwen3-4b      make this your default model
        localspec config set temperature 0.3
        localspec config unset temperature

    Command-line options override environment variables LOCALSPEC_*, and these override your
    settings file, which `set`, `unset` and `edit` change.
    """  # noqa: D301 - click keeps lines behind a \b
    only_read()  # its folder is another
    if context.invoked_subcommand is None:
        context.invoke(show)


@config.command()
@click.argument("name", required=False, shell_complete=cli.complete_keys)
@cli.json_option
def show(name: str | None, json_: bool) -> None:
    """Print every setting, or NAME alone, its value and its origin."""
    if json_:
        resolved = with_recommended(resolve({}), load_registry())
        document = {
            key: {
                "value": as_written(KEYS[key], each.value),
                "level": each.origin.level.name.lower(),
                "origin": str(each.origin),
            }
            for key, each in resolved.items()
        }
        print_json(_alone(document, name), indent=None)
        return
    in_effect = _alone(_in_effect(), MODEL if name in _ONE else name)
    for key, (value, origin) in in_effect.items():
        text = "-" if value is None else _text(value)
        click.echo(f"{key:19} {text:24} {origin}")


def _alone(settings: dict[str, T], name: str | None) -> dict[str, T]:
    """Return one setting of several; all for None."""
    if name is None:
        return settings
    if name not in settings:
        raise unknown_key(name)
    return {name: settings[name]}


@config.command()
@click.argument("name", shell_complete=cli.complete_keys)
def get(name: str) -> None:
    """Print the value of NAME alone, empty if it has none."""
    settings = _in_effect()
    name = MODEL if name in _ONE else name
    if name not in settings:
        raise unknown_key(name)
    value = settings[name][0]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    click.echo("" if value is None else text)


def _text(value: object) -> str:
    """Return a value as TOML, but for the words of a switch that people type."""
    if isinstance(value, bool):
        return "on" if value else "off"
    return json.dumps(value, ensure_ascii=False)


def _in_effect() -> dict[str, tuple[object, str]]:
    """Return each setting's value, as people write it, and its origin; the model is one of them."""
    registry = load_registry()
    resolved = with_recommended(resolve({}), registry)
    chosen = resolved["pair"].value or resolved["target"].value
    del resolved["pair" if resolved["target"].value else "target"]  # one of them is the model
    settings: dict[str, tuple[object, str]] = {}
    for name, each in resolved.items():
        value, origin = as_written(KEYS[name], each.value), str(each.origin)
        if name == "pair" and not chosen:
            value, origin = registry.default_pair, "default, until you choose a model"
        settings[MODEL if name in _ONE else name] = value, origin
    return settings


@config.command("set", context_settings={"ignore_unknown_options": True})
@click.argument("name", shell_complete=cli.complete_keys)
@click.argument("value")
def set_(name: str, value: str) -> None:
    """Set NAME to VALUE in your settings file.

    NAME is one that `localspec config show` lists, or `model`, your default model.
    """
    if name == MODEL:
        overruled_by = keep_model(load_registry().chosen(cli.require_model(value)))
        say(f"{value} is now your default model, in {shown(user_file())}")
    else:
        # It is read from other folders, too.
        if name in _FILES and value not in _NO_FILES and Path(value).exists():
            value = str(Path(value).absolute())
        notes = _checked(name, value)
        given = set_own(name, value)
        say(f"{name} is {_text(as_written(KEYS[name], given))} in {shown(user_file())}")
        overruled_by = overruled(name)
        notice(*notes)
    if overruled_by:
        notice(overruled_by)


def _checked(name: str, text: str) -> list[str]:
    """Check a setting as what uses it will; return notes on what depends on what will be here by then.

    Raises:
        UsageError: every run would refuse the value.
    """
    key = KEYS.get(name)
    try:
        value = None if key is None else from_variable(key, text)
    except ValueError:
        return []  # `set_own` says why
    if value is None:
        return []
    for options in (LaunchOptions(), ReplyOptions()):
        changed(options, {name: value})
    # What the others bring takes longer to import than all of this command.
    if name in {"server", "workers"}:
        check_engine(name, value)
    elif name in {"device", "draft_device"} and isinstance(value, tuple) and value != ("auto",):
        from localspec.llama.devices import devices, named_devices  # noqa: PLC0415

        try:
            named_devices(value, devices())
        except UsageError as error:
            return [str(error)]
    return [*_missing(name, value), *filter(None, [unusual(name, value)])]


def _missing(name: str, value: Setting) -> Iterator[str]:
    """Yield which files and models of a setting are not here."""
    registry, text = load_registry(), str(value)
    if name == "gate" and text not in _NO_FILES and Path(text).expanduser().exists():
        cli.gate_rules(text, name)
    files = [text] if name in _FILES and text not in _NO_FILES else []
    folders = value if name == "mirrors" and isinstance(value, tuple) else ()
    files += [each for each in folders if not each.startswith(("http://", "https://"))]
    for each in files:
        if not Path(each).expanduser().exists():
            yield f"there is no {shown(Path(each))} here yet: until there is, what needs it fails"
    models = {*MODELS, "vectors"}
    is_name = name in models and text != "off" and "/" not in text
    if is_name and not registry.knows(text) and not Path(text).exists():
        yield f"{registry.unknown(text)}; until there is one, what needs it fails"


@config.command()
@click.argument("name", shell_complete=cli.complete_keys)
def unset(name: str) -> None:
    """Remove NAME from your settings file, which restores the default."""
    was = "is no longer" if unset_own(name) else "was not"
    say(f"{name} {was} set in {shown(user_file())}")


@config.command()
def edit() -> None:
    """Open your settings file in $VISUAL or $EDITOR, then check it."""
    file = user_file()
    private_directory(file.parent)
    click.edit(filename=str(file))
    read_settings(file)


@config.command()
def path() -> None:
    """Print the path of your settings file."""
    click.echo(shown(user_file()))
