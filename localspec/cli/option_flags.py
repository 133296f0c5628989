"""Flags made from options, and the options that flags ask for.

Imports nothing slow: the start of the chat waits for this module.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.cli.completions import complete_models
from localspec.cli.structure import read_text, structured
from localspec.config.keys import MODELS, offered
from localspec.options import GRAMMARS, LaunchOptions, Option, ReplyOptions, changed, options_of

if TYPE_CHECKING:
    from localspec.calls.policy import CallPolicy

Function = Callable[..., Any]

_FLAGS = [each for kind in (LaunchOptions, ReplyOptions) for each in options_of(kind) if each.group]
_model_flag = click.option(
    "-m",
    "--model",
    metavar="NAME",
    shell_complete=complete_models,
    help="Model: a name, a GGUF file, or user/repo:QUANT.",
)
_MOST_AT_ONCE = 64
_TYPES = {"whole": int, "number": float, "text": str, "texts": str}


def own_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the flag that asks no server."""
    return click.option(
        "--own",
        is_flag=True,
        help="Load the model here, even if a running server has it in memory.",
    )(command)


def option_flags(*names: str, **helps: str) -> Callable[[Function], Function]:
    """Return what adds flags to a command's function, in the order in which its help shows them.

    Args:
        names: of options, or of groups of them.
        helps: what help says where a verb means something of its own by an option.
    """

    def add(command: Function) -> Function:
        found = [each for name in names for each in _named(name)]
        flags = [_flag(each, helps.get(each.name)) for each in found]
        if any(each.name == "pair" for each in found):
            flags.insert(0, _model_flag)
        for flag in reversed(flags):  # click shows first what was added last
            command = flag(command)
        return command

    return add


def launch_options(flags: Mapping[str, Any]) -> LaunchOptions:
    """Return what to load, and how.

    Raises:
        UsageError: the flags contradict each other, or one is out of its range.
    """
    return changed(LaunchOptions(), flags)


def reply_options(flags: Mapping[str, Any]) -> ReplyOptions:
    """Return how to answer; files that the flags name are read.

    Raises:
        UsageError: a flag is out of its range, or what the answer has to look like cannot be kept.
    """
    return structured(changed(ReplyOptions(), {**flags, **dict.fromkeys(GRAMMARS)}), flags)


def _named(name: str) -> Iterator[Option]:
    found = [each for each in _FLAGS if name in {each.group, each.name}]
    assert found, name  # noqa: S101 - verbs name what is declared
    yield from found


def _flag(option: Option, text: str | None) -> Callable[[Function], Function]:
    flag = f"--{option.name.replace('_', '-')}"
    short = [f"-{option.short}"] if option.short else []
    text = option.help if text is None else text
    if option.kind == "switch":
        if option.default:
            flag = f"{flag}/--no-{flag.removeprefix('--')}"
        return click.option(flag, is_flag=True, default=option.default, help=text)
    if option.default not in {None, ()} and "Default:" not in text:
        shown = option.default if option.kind == "choice" else f"{option.default:g}"
        text = f"{text} Default: {shown}."
    if option.kind == "choice":
        choice = click.Choice(offered(option).choices)
        return click.option(
            flag, type=choice, metavar=option.metavar, default=option.default, help=text
        )
    if option.unset:
        return click.option(
            flag, metavar=option.metavar, default=option.unset, callback=_unless(option), help=text
        )
    return click.option(
        *short,
        flag,
        type=_TYPES.get(option.kind, str),
        metavar=option.metavar,
        default=None if option.kind == "texts" else option.default,
        multiple=option.kind == "texts",
        callback=_listed(option) if option.commas else None,
        shell_complete=complete_models if option.name in MODELS else None,
        help=text,
    )


def _listed(option: Option) -> Callable[[click.Context, click.Parameter, Sequence[str]], Any]:
    """Return what reads texts with commas between."""

    def read(context: click.Context, flag: click.Parameter, given: Sequence[str]) -> Any:
        try:
            return option.read(list(given))
        except ValueError:
            problem = (
                f"{' '.join(given)[:80]!r} names none: it takes {option.metavar}, or '' for none"
            )
            raise click.BadParameter(problem, context, flag) from None

    return read


def _unless(option: Option) -> Callable[[click.Context, click.Parameter, str], int | None]:
    """Return what reads a number, or the word for None."""

    def read(context: click.Context, flag: click.Parameter, text: str) -> int | None:
        if text == option.unset:
            return None
        if not text.isdecimal():
            what = option.takes.removeprefix("a ").replace(" or ", " nor ")
            raise click.BadParameter(f"{text!r} is neither a {what}", context, flag)
        return int(text)

    return read


def _rules(ctx: click.Context, param: click.Parameter, file: str | None) -> "CallPolicy":  # noqa: ARG001
    # Few verbs call anything.
    from localspec.calls.policy import CallPolicy, policy_of_toml  # noqa: PLC0415

    option = "--tool-rules"
    return (
        policy_of_toml(read_text(Path(file), option), f"{option} {file}") if file else CallPolicy()
    )


tool_rules_option = click.option(
    "--tool-rules",
    callback=_rules,
    metavar="FILE",
    help="Rules for what the model may call, how often and in what order: TOML, see docs/tools.md.",
)


def parallel_count(ctx: click.Context, param: click.Parameter, value: str) -> int | None:
    """Return what `--parallel` says: the number of requests at a time; None, for `auto`, leaves it to the program."""
    if value == "auto":
        return None
    if not value.isdecimal() or not 1 <= int(value) <= _MOST_AT_ONCE:
        raise click.BadParameter(
            f"{value!r} is neither a number from 1 to {_MOST_AT_ONCE} nor 'auto'", ctx, param
        )
    return int(value)
