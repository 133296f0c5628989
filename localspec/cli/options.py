"""Options of verbs: their flags, made from what options there are, the sections of help, names that a shell completes, and what flags, environment and settings say together."""

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from localspec.calls.policy import CallPolicy, policy_of_toml
from localspec.config.keys import KEYS, MODELS, offered
from localspec.config.own import MODEL, adopt_switches
from localspec.config.resolve import PREFIX, Level, resolve
from localspec.display import notice
from localspec.errors import UsageError
from localspec.models.ledger import IMPORTS
from localspec.models.registry import load_registry
from localspec.options import GRAMMARS, LaunchOptions, Option, ReplyOptions, changed, options_of
from localspec.storage.paths import data_dir


def _completing(
    names: Callable[[str], Iterable[str]],
) -> Callable[[click.Context, click.Parameter, str], list[str]]:
    def complete(_: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        known = dict.fromkeys(names(parameter.name or ""))
        return [name for name in known if name.startswith(incomplete)]

    return complete


def _models(_: str) -> Iterable[str]:
    registry = load_registry()
    return [*registry.pairs, *registry.models, *registry.aliases, *IMPORTS.load(data_dir())]


def _keys(_: str) -> Iterable[str]:
    return [MODEL, *KEYS]


def _personas(parameter: str) -> Iterable[str]:
    from localspec.session.preferences import read_preferences  # noqa: PLC0415

    preferences = read_preferences()
    return preferences.personas if parameter == "persona" else preferences.templates


def _indexes(_: str) -> Iterable[str]:
    from localspec.retrieval.index import index_names  # noqa: PLC0415

    return index_names()


complete_models, complete_keys, complete_personas, complete_indexes = map(
    _completing, (_models, _keys, _personas, _indexes)
)


# section: (flags that `--help` shows, flags that only `--help-all` shows), by the names of their parameters.
SECTIONS = {
    "Model": (("model", "ctx", "offline"), ("pair", "target", "kv_type", "own")),
    "Drafting": (
        ("draft", "draft_model", "exact"),
        ("draft_length", "draft_lora", "draft_device", "draft_gpu_layers"),
    ),
    "Sampling": (
        ("temperature", "max_tokens", "seed"),
        ("top_k", "top_p", "min_p", "repeat_penalty", "stop_loops"),
    ),
    "Answer": (
        (
            *("system", "go_on", "stop", "json_schema", "regex", "gate"),
            *("json_", "code", "quiet", "show_thinking"),
        ),
        ("persona", "grammar", "lark", "keep", "raw", "workload"),
    ),
    "Files and tools": (
        ("files", "template", "docs", "tools", "mcp"),
        ("params", "docs_tokens", "tool_rules"),
    ),
    "Machine": (
        ("threads", "gpu_layers"),
        ("device", "split", "tensor_split", "cpu_moe", "kv_offload", "fit", "workers", "debug"),
    ),
}
_WIDEST = 26
_PLACED = {name for names in SECTIONS.values() for each in names for name in each}


class SectionedCommand(click.Command):
    """A command with so many flags that its help has sections, the flags of that verb alone first."""

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """Return the parameters, with `--help-all` last."""
        return [*super().get_params(ctx), _HELP_ALL]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the sections; of shared flags only the first sentence, unless all flags are wanted."""
        sections = self._sections(ctx, every=_EVERY in ctx.meta)
        short = [
            len(flag) for rows in sections.values() for flag, _ in rows if len(flag) <= _WIDEST
        ]
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl([(flag.ljust(max(short)), text) for flag, text in rows], _WIDEST)

    def _sections(self, ctx: click.Context, *, every: bool) -> dict[str, list[tuple[str, str]]]:
        """Return flags and what they do, by section; sections without flags are left out."""
        records = {
            param.name or "": record
            for param in self.get_params(ctx)
            if isinstance(param, click.Option) and (record := param.get_help_record(ctx))
        }
        found = {"Options": [records[name] for name in records if name not in _PLACED]}
        for section, (usual, rare) in SECTIONS.items():
            rows = [records[name] for name in (*usual, *rare * every) if name in records]
            found[section] = rows if every else [(flag, _first(text)) for flag, text in rows]
        return {section: rows for section, rows in found.items() if rows}


def _first(text: str) -> str:
    """Return the first sentence of a text."""
    sentence, dot, _ = text.partition(". ")
    return sentence + dot.rstrip()


def _show_all(ctx: click.Context, param: click.Parameter, value: bool) -> None:  # noqa: ARG001
    if value and not ctx.resilient_parsing:
        ctx.meta[_EVERY] = True
        click.echo(ctx.get_help())
        ctx.exit()


_EVERY = "localspec.help-all"
_HELP_ALL = click.Option(
    ["--help-all"],
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_show_all,
    help="Show all options, in full.",
)


_MOST_BYTES = 4 << 20
_WRITTEN_OUT = ("{", "true", "false")
_USUAL, _OFF = "usual", "off"
_GATE_HELP = (
    "Mask secrets and personal data in answers. usual masks keys, passwords, addresses and numbers; a FILE has rules: "
    "docs/gates.md. Default: off."
)


def gate_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--gate` to a command."""
    return click.option("--gate", default=_OFF, metavar="usual|off|FILE", help=_GATE_HELP)(command)


def gate_rules(name: str | None, option: str = "--gate") -> str:
    """Return the rules that an option names, as a request has them; see `Request`.

    Raises:
        UsageError: it is a file that cannot be read, or says what is not known.
    """
    if name in {None, _OFF, _USUAL}:
        return _USUAL if name == _USUAL else ""
    from localspec.chat.gated import gate_of  # noqa: PLC0415 - few have one

    rules = read_text(Path(str(name)), option)
    gate_of(rules, f"{option} {name}")
    return rules


def structured(options: ReplyOptions, flags: Mapping[str, Any]) -> ReplyOptions:
    """Return options with what the flags say of the answer's look.

    Raises:
        UsageError: there is no such file, it is wrong, or more than one of them are given.
    """
    given = {name: flags[name] for name in GRAMMARS if flags.get(name) is not None}
    if not given:
        return options
    # Most answers are free, and the start waits for none of it.
    from localspec.grammar import require_sound  # noqa: PLC0415

    texts = {name: _text(name, value) for name, value in given.items()}
    found = changed(options, texts)
    try:
        require_sound(found)
    except UsageError as error:
        ((name, value),) = given.items()
        raise UsageError(str(error) if value == texts[name] else f"{value}: {error}") from None
    return found


def _text(name: str, value: str) -> str:
    """Return what a flag says: the value itself where it is written out, or else what is in the file of that name."""
    if name == "regex" or (name == "json_schema" and value.lstrip().startswith(_WRITTEN_OUT)):
        return value
    return read_text(Path(value), f"--{name.replace('_', '-')}")


def read_text(path: Path, option: str) -> str:
    """Return what is in the file that an option names.

    Raises:
        UsageError: it cannot be read, is no text, or too large.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{option} {path} cannot be read: {error.strerror}") from None
    except ValueError:  # of a name with a NUL in it, too
        raise UsageError(
            f"{option} {str(path)!r} is not UTF-8 text: convert it, for example with iconv"
        ) from None
    if len(raw) > _MOST_BYTES:
        raise UsageError(f"{option} {path} has more than {_MOST_BYTES >> 20} MB: shorten it")
    return text


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


def own_option(command: Function) -> Function:
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


def _rules(ctx: click.Context, param: click.Parameter, file: str | None) -> CallPolicy:  # noqa: ARG001
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


def configured(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Return the flags of the verb that is running, with every key as it is set; `model` sets pair or target.

    `unset` are the keys that nobody set.
    `system` stays what the flag says; what holds in `run` and `chat` without one is `usual_system`.

    Mirrors are handed on by their variable, which is where downloads look for them.

    Raises:
        UsageError: a file or a variable sets what is unknown or unusable, or two flags name the model.
    """
    context = click.get_current_context()
    given = {
        name: value
        for name, value in flags.items()
        if name in KEYS and context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    }
    given |= _chosen(flags)
    adopt_switches()
    found = resolve(given)
    resolved = {name: each.value for name, each in found.items()}
    unset = [name for name, each in found.items() if each.origin.level is Level.DEFAULT]
    mirrors = resolved.pop("mirrors")
    if isinstance(mirrors, tuple) and mirrors:
        os.environ[f"{PREFIX}MIRRORS"] = shlex.join(mirrors)
    return {**flags, "usual_system": resolved.pop("system"), "unset": unset, **resolved}


def with_own(flags: Mapping[str, Any], name: str | None = None) -> dict[str, Any]:
    """Return configured flags as they suit a model, where nobody set them: as its makers recommend.

    Args:
        flags: as `configured` returns them.
        name: of a pair or a model; None takes the one that they load.
    """
    registry = load_registry()
    own = registry.sampling(name or flags["target"] or flags["pair"] or registry.default_pair)
    return {**flags, **{each: own[each] for each in own if each in flags["unset"]}}


def _chosen(flags: Mapping[str, Any]) -> dict[str, str]:
    """Return the pair or the target that `--model`, or a word, chose."""
    name = flags.get("model")
    if not name:
        return {}
    for other in ("pair", "target"):
        if flags[other]:
            raise UsageError(
                f"model {name} and --{other} {flags[other]} cannot be combined: give one of them"
            )
    return load_registry().chosen(name)


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
