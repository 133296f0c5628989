"""Options of verbs: flags made from the table of options, their help in sections, and the `Settings` that a verb gets in their place."""

import os
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from functools import wraps
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click
from click.core import ParameterSource

from localspec.calls.policy import CallPolicy, policy_of_toml
from localspec.config.keys import KEYS, MODELS, offered
from localspec.config.own import MODEL
from localspec.config.resolve import PREFIX, Level, resolve
from localspec.errors import UsageError, did_you_mean
from localspec.models.entries import HubName
from localspec.models.ledger import IMPORTS
from localspec.models.registry import Registry, load_registry
from localspec.options import (
    GRAMMARS,
    Abilities,
    LaunchOptions,
    Option,
    ReplyOptions,
    SamplingParams,
    abilities,
    changed,
    descriptions,
    options_of,
)
from localspec.options.recording import WORKLOADS
from localspec.options.reply import unusual
from localspec.storage.network import is_network_closed
from localspec.storage.paths import data_dir

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]
Completion = Callable[[click.Context, click.Parameter, str], list[str]]
Callback = Callable[[click.Context, click.Parameter, Any], Any]
_LONGEST_NAME = 200
_HUB = re.compile(r"(https?://)?(hf\.co|huggingface\.co)/")


def _completing(names: Callable[[str], Iterable[str]]) -> Completion:
    def complete(_: click.Context, parameter: click.Parameter, incomplete: str) -> list[str]:
        known = dict.fromkeys(names(parameter.name or ""))
        return [name for name in known if name.startswith(incomplete)]

    return complete


# Modules that only a shell's completion needs are imported there.
def _models(_: str) -> Iterable[str]:
    registry = load_registry()
    return [*registry.pairs, *registry.models, *registry.aliases, *IMPORTS.load(data_dir())]


def _personas(parameter: str) -> Iterable[str]:
    from localspec.session.preferences import read_preferences  # noqa: PLC0415

    preferences = read_preferences()
    return preferences.personas if parameter == "persona" else preferences.templates


def _indexes(_: str) -> Iterable[str]:
    from localspec.session.documents import index_names  # noqa: PLC0415

    return index_names()


complete_models, complete_personas, complete_indexes = map(
    _completing, (_models, _personas, _indexes)
)
complete_keys = _completing(lambda _: [MODEL, *KEYS])


def is_one_word(text: str) -> bool:
    """Return whether a text may be a name."""
    return 0 < len(text) <= _LONGEST_NAME and not any(each.isspace() for each in text)


def is_model(text: str, registry: Registry, *, alone: bool = False) -> bool:
    """Return whether a text names a model: of the registry, imported, on the hub, or a file.

    Args:
        text: a word.
        registry: the known names.
        alone: whether no prompt follows it.
    """
    if not is_one_word(text) or text == "-":
        return False
    if registry.knows(text) or text.lower().endswith(".gguf"):
        return True
    on_hub = HubName.parse(text)
    if on_hub is not None:
        return not alone or on_hub.quant is not None or _HUB.match(text) is not None
    return text in IMPORTS.load(data_dir())


def require_model(word: str) -> str:
    """Return a word that names a model or a file, as it is.

    Raises:
        ModelUnavailable: there is no such model.
    """
    registry = load_registry()
    if not (is_model(word, registry) or Path(word).is_file()):
        registry.require(word)
    return word


# section: (flags that `--help` shows, flags that only `--help-all` shows), by the names of their parameters.
SECTIONS = {
    "Model": (
        ("model", "models", "keep_alive", "pin", "ctx", "offline", "server"),
        ("pair", "target", "mmproj", "kv_type", "prompt_cache", "own", "server_key_file"),
    ),
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
            *("json_", "code", "quiet", "think", "show_thinking"),
        ),
        ("persona", "grammar", "lark", "keep", "raw", "workload", "template_kwargs"),
    ),
    "Files and tools": (
        ("files", "listen", "template", "docs", "tools", "mcp"),
        ("params", "docs_tokens", "tool_rules"),
    ),
    "Machine": (
        ("threads", "gpu_layers"),
        ("device", "split", "tensor_split", "cpu_moe", "kv_offload", "fit", "workers", "debug"),
    ),
}
_WIDEST = 26
_PLACED = {name for names in SECTIONS.values() for each in names for name in each}


class CommandGroup(click.Group):
    """A group of commands.

    Args:
        also: further names of commands, by those names.
        given: what click's own takes.
    """

    def __init__(
        self, *args: Any, also: Mapping[str, str] = MappingProxyType({}), **given: Any
    ) -> None:
        super().__init__(*args, **given)
        self._also = also

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command of a name, or None if there is no such command."""
        return super().get_command(ctx, self._also.get(cmd_name, cmd_name))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that a command line begins with.

        Raises:
            UsageError: there is no such command; the message has similar ones, or all.
        """
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            names = self.list_commands(ctx)
            hint = did_you_mean(name, names) or f"choose one of {', '.join(names)}"
            ctx.fail(f"there is no command {ctx.info_name} {name[:40]!r}: {hint}")
        return super().resolve_command(ctx, args)


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
        sections = {"Options": [records[name] for name in records if name not in _PLACED]}
        for section, (usual, rare) in SECTIONS.items():
            rows = [records[name] for name in (*usual, *rare * every) if name in records]
            sections[section] = rows if every else [(flag, _first(text)) for flag, text in rows]
        return {section: rows for section, rows in sections.items() if rows}


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
_MOST_PARALLEL = 64
_WRITTEN_OUT = ("{", "true", "false")
_USUAL, _OFF = "usual", "off"
_LAUNCH, _REPLY = options_of(LaunchOptions), options_of(ReplyOptions)
_FLAGS = [each for each in (*_LAUNCH, *_REPLY) if each.group]
_model_flag = click.option(
    "-m",
    "--model",
    metavar="NAME",
    shell_complete=complete_models,
    help="Model: a name, a GGUF file, or user/repo:QUANT.",
)
gate_option = click.option(
    "--gate",
    metavar="usual|off|FILE",
    help="Mask secrets and personal data in answers. usual masks keys, passwords, addresses and numbers; FILE has rules of your "
    "own, see docs/gates.md. Default: off.",
)
_RULES_HELP = (
    "TOML file of rules: what the model may call, how often and in what order. See docs/tools.md."
)
prediction_option = click.option(
    "--prediction",
    metavar="FILE",
    help="Text file that the answer will be like, such as the one to edit: drafts are looked up in it. The model does not read it.",
)
own_option = click.option(
    "--own", is_flag=True, help="Do not use a running server: load the model in this process."
)
json_option = click.option("--json", "json_", is_flag=True, help="Print JSON.")
workload_option = click.option(
    "--workload",
    type=click.Choice(list(WORKLOADS)),
    metavar="KIND",
    help=f"Kind of text, for `stats`: {', '.join(WORKLOADS)}. Default: guessed. "
    "Loads the model in this process, even if a server is running.",
)


def option_flags(*names: str, **helps: str) -> Decorator:
    """Return a decorator that adds flags to a command, in the order in which its help lists them.

    Args:
        names: of options, or of groups of them.
        helps: help texts where an option means something else to this verb.
    """

    def add(command: Function) -> Function:
        chosen = [each for name in names for each in _FLAGS if name in {each.group, each.name}]
        flags = [_flag(each, helps.get(each.name, each.help)) for each in chosen]
        if any(each.name == "pair" for each in chosen):
            flags.insert(0, _model_flag)
        for flag in reversed(flags):  # click shows first what was added last
            command = flag(command)
        return command

    return add


def _reader(option: Option) -> Callback:
    """Return the callback that reads a flag's text as settings and variables are read."""

    def read(_context: click.Context, _flag: click.Parameter, given: Any) -> Any:
        if given is None:
            return None
        try:
            return option.read([*given]) if option.commas else option.parse(given)
        except ValueError:
            text, takes = given, option.takes
            if option.commas:
                text, takes = " ".join(given)[:80], f"of the form {option.metavar}"
            raise click.BadParameter(f"{text!r} is not {takes}") from None

    return read


def _flag(option: Option, text: str) -> Decorator:
    flag = f"--{option.name.replace('_', '-')}"
    if option.kind == "switch":
        flag = f"{flag}/--no-{flag.removeprefix('--')}" if option.default else flag
        return click.option(flag, is_flag=True, default=option.default, help=text)
    if option.default not in {None, ()} and "Default:" not in text:
        usual = option.default if option.kind == "choice" else f"{option.default:g}"
        text = f"{text} Default: {usual}."
    words = offered(option).choices
    parsed = option.unset or option.commas or option.numbers or option.kind in {"whole", "number"}
    listed = option.kind == "choice" and not option.numbers
    return click.option(
        *([f"-{option.short}"] if option.short else []),
        flag,
        type=click.Choice(words) if listed else str,
        metavar=option.metavar,
        multiple=option.kind == "texts",
        callback=_reader(option) if parsed else _READERS.get(option.name),
        shell_complete=complete_models
        if option.name in MODELS
        else _completing(lambda _: words)
        if words and not listed
        else None,
        help=text,
    )


def flag_words(values: Mapping[str, Any]) -> list[str]:
    """Return the words of a command line that give flags these values; None is written as the word for it."""
    words = []
    for name, value in values.items():
        flag = name.replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{flag}" if value else f"--no-{flag}")
            continue
        texts = (
            value if isinstance(value, tuple) else (KEYS[name].unset if value is None else value,)
        )
        for text in texts:
            words += [f"--{flag}", str(text)]
    return words


def read_grammar(name: str, value: str | None) -> str | None:
    """Return the form of an answer: a flag's value if it is written out, or the content of the file of that name.

    Args:
        name: of `GRAMMARS`.
        value: as a user writes it.

    Raises:
        UsageError: there is no such file, or it is wrong.
    """
    if value is None:
        return None
    # Most answers are free, and the start waits for none of it.
    from localspec.grammar import require_sound  # noqa: PLC0415

    written_out = name == "json_schema" and value.lstrip().startswith(_WRITTEN_OUT)
    is_text = name == "regex" or written_out
    text = value if is_text else read_text(Path(value), f"--{name.replace('_', '-')}")
    try:
        require_sound(changed(ReplyOptions(), {name: text}))
    except UsageError as error:
        raise UsageError(str(error) if is_text else f"{value}: {error}") from None
    return text


def _read_draft(_context: click.Context, _flag: click.Parameter, value: str | None) -> str | None:
    """Return a draft mode, with or without a length; a wrong one is refused before anything is loaded."""
    if value is not None:
        from localspec.decoding.draft_mode import draft_mode  # noqa: PLC0415 - most do not give it

        try:
            draft_mode(value)
        except UsageError as error:
            raise click.BadParameter(str(error)) from None
    return value


_READERS: dict[str, Callback] = {
    **dict.fromkeys(GRAMMARS, lambda _, flag, value: read_grammar(str(flag.name), value)),
    "draft": _read_draft,
}


def read_text(path: Path, option: str) -> str:
    """Return the text of a file that an option names.

    Raises:
        UsageError: it cannot be read, is not text, or is too large.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(_MOST_BYTES + 1)
        text = raw.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{option} {path} cannot be read: {error.strerror}") from None
    except ValueError:  # also of a name with a NUL in it
        raise UsageError(
            f"{option} {str(path)!r} is not UTF-8 text: convert it, for example with iconv"
        ) from None
    if len(raw) > _MOST_BYTES:
        raise UsageError(f"{option} {path} has more than {_MOST_BYTES >> 20} MB: shorten it")
    return text


def gate_rules(name: str | None, option: str = "--gate") -> str:
    """Return the rules that an option names, as `Request` has them.

    Raises:
        UsageError: a file cannot be read, or has unknown rules.
    """
    if name in {None, _OFF, _USUAL}:
        return _USUAL if name == _USUAL else ""
    from localspec.chat.gated import gate_of  # noqa: PLC0415 - few have one

    if not Path(str(name)).exists():
        raise UsageError(f"{option} {name} is no file: give {_USUAL}, {_OFF} or a file of rules")
    rules = read_text(Path(str(name)), option)
    gate_of(rules, f"{option} {name}")
    return rules


def _rules(ctx: click.Context, param: click.Parameter, file: str | None) -> CallPolicy:  # noqa: ARG001
    if not file:
        return CallPolicy()
    return policy_of_toml(read_text(Path(file), "--tool-rules"), f"--tool-rules {file}")


def tool_rules() -> Any:
    """Return the field that is `--tool-rules`."""
    how = {"callback": _rules, "help": _RULES_HELP}
    return field(default=CallPolicy(), metadata={"flag": (("FILE",), how)})


def parallel_count(ctx: click.Context, param: click.Parameter, value: str) -> int | None:  # noqa: ARG001
    """Return the number of `--parallel`; None for `auto`, which leaves it to the program."""
    if value == "auto":
        return None
    if not value.isdecimal() or not 1 <= int(value) <= _MOST_PARALLEL:
        raise click.BadParameter(
            f"{value!r} is neither a number from 1 to {_MOST_PARALLEL} nor 'auto'"
        )
    return int(value)


def flag(*words: str, default: Any = None, **how: Any) -> Any:
    """Return a dataclass field that is a flag, see `flags`; its line of the docstring is its help.

    Args:
        words: its names, unless that of the field will do, and its metavar.
        default: its value if it is not given.
        how: further arguments of `click.option`.
    """
    return field(default=default, metadata={"flag": (words, {"default": default, **how})})


def switch(*words: str) -> Any:
    """Return a field that is a flag without a value."""
    return flag(*words, default=False, is_flag=True)


def several(*words: str, **how: Any) -> Any:
    """Return a field that is a repeatable flag."""
    return flag(*words, default=(), multiple=True, **how)


def flags(**kinds: type) -> Decorator:
    """Return a decorator that adds the flags of dataclasses to a command, which gets an object of each by its name here."""

    def add(command: Function) -> Function:
        @wraps(command)
        def call(**given: Any) -> Any:
            made = {
                name: kind(**{each.name: given.pop(each.name) for each in fields(kind)})
                for name, kind in kinds.items()
            }
            return command(**made, **given)

        decorated: Function = call
        for kind in reversed(kinds.values()):
            helps = descriptions(kind)
            for each in reversed(fields(kind)):
                words, how = each.metadata["flag"]
                names = [word for word in words if word.startswith("-")]
                metavar = next((word for word in words if not word.startswith("-")), None)
                names = names or [f"--{each.name.strip('_').replace('_', '-')}"]
                how = {"metavar": metavar, "help": helps.get(each.name), **how}
                decorated = click.option(*names, each.name, **how)(decorated)
        return decorated

    return add


@dataclass(frozen=True, slots=True)
class Settings:
    """All options and keys: flags come before the environment, then the user's file, then the model's recommended sampling.

    Args:
        values: by the names that users know.
        unset: keys with their default values.
        given: values of flags.
    """

    values: Mapping[str, Any]
    unset: frozenset[str]
    given: Mapping[str, Any]

    @property
    def launch(self) -> LaunchOptions:
        """What to load, and how.

        Raises:
            UsageError: two values cannot be combined, or one is out of range.
        """
        return changed(LaunchOptions(), self.values)

    @property
    def reply(self) -> ReplyOptions:
        """How to answer; sampling that is not set is the recommended one."""
        return self.reply_of(None)

    @property
    def reply_as_set(self) -> ReplyOptions:
        """How to answer, without recommended sampling."""
        return changed(ReplyOptions(), self.values)

    def reply_of(self, model: str | None) -> ReplyOptions:
        """Return how a model answers; None is the one that is loaded.

        Raises:
            UsageError: a value is out of range.
        """
        registry, values = load_registry(), self.values
        if not self.can.local_files:  # a server's own sampling holds
            return changed(ReplyOptions(), values)
        name = model or values["target"] or values["pair"] or registry.default_pair
        from localspec.models.sampling import recommended  # noqa: PLC0415 - reads headers

        sampling, _ = recommended(str(name), registry, offline=bool(values["offline"]))
        unset = {k: v for k, v in sampling.items() if k in self.unset or k not in KEYS}
        return changed(ReplyOptions(), {**values, **unset})

    @property
    def gate(self) -> str:
        """Rules of what is masked in answers; see `gate_rules`."""
        return gate_rules(self.values["gate"])

    @property
    def system(self) -> str | None:
        """The system prompt that is set for `run` and `chat`."""
        return self.values["system"]  # type: ignore[no-any-return]  # so it is declared

    @property
    def own(self) -> bool:
        """Whether running servers are left alone."""
        return bool(self.values["own"])

    @property
    def named_model(self) -> str | None:
        """The model that a flag names; None if none does."""
        return next(filter(None, map(self.given.get, ("model", "pair", "target"))), None)

    @property
    def can(self) -> Abilities:
        """What the engine can do that answers."""
        server: str | None = self.values["server"]
        return abilities(server)

    @property
    def given_sampling(self) -> tuple[str, ...]:
        """The names of sampling options that were set where a server's own hold besides, to whatever value."""
        if self.can.local_files:
            return ()
        names = (each.name for each in options_of(SamplingParams))
        return tuple(each for each in names if each in KEYS and each not in self.unset)

    @property
    def unusual(self) -> list[str]:
        """What comes of flags whose values hardly anybody can mean."""
        return [*filter(None, map(unusual, self.given, self.given.values()))]

    def with_model(self, name: str | None) -> "Settings":
        """Return these settings for the model of a name; for None, as they are.

        Raises:
            UsageError: a flag names a model, too.
        """
        if name and (other := self.given.get("model")):
            raise UsageError(
                f"model {name} and --model {other} cannot be combined: give one of them"
            )
        return settings_of({**self.given, "model": name}) if name else self


def settings_of(given: Mapping[str, Any]) -> Settings:
    """Return the settings of a verb; `model` sets pair or target.

    Mirrors are put into their variable, where downloads look for them.

    Args:
        given: values of flags, by the names of options and keys.

    Raises:
        UsageError: a file or a variable has an unknown key or a wrong value, or two flags name a model.
    """
    chosen: Mapping[str, str] = {}
    if name := given.get("model"):
        if other := next(filter(given.get, ("pair", "target")), None):
            raise UsageError(
                f"model {name} and --{other} {given[other]} cannot be combined: give one of them"
            )
        chosen = load_registry().chosen(name)
    resolved = resolve({**{name: given[name] for name in given if name in KEYS}, **chosen})
    values = {name: each.value for name, each in resolved.items()}
    values["offline"] = values["offline"] or is_network_closed()
    server = values["server"]
    assert server is None or isinstance(server, str)  # noqa: S101 - so it is declared
    values |= _without_abilities(abilities(server), given)
    if server is not None and values["draft"] != "off":  # said of models of this machine
        unsaid = {each.name: each.default for each in _FLAGS if each.name not in given}
        values |= {name: unsaid[name] for name in _PROPOSING if name in unsaid}
    if mirrors := values["mirrors"]:
        assert isinstance(mirrors, tuple)  # noqa: S101 - so it is declared
        os.environ[f"{PREFIX}MIRRORS"] = shlex.join(mirrors)
    unset = (name for name, each in resolved.items() if each.origin.level is Level.DEFAULT)
    others = {name: value for name, value in given.items() if name not in KEYS}
    return Settings({**values, **others}, frozenset(unset), given)


def _without_abilities(can: Abilities, given: Mapping[str, Any]) -> dict[str, Any]:
    """Return what other values options have where an engine lacks what they need: their defaults.

    Raises:
        UsageError: flags say something of these; settings are meant for other times.
    """
    if given.get("own") and can.at:
        raise UsageError(f"--own and --server {can.at} cannot be combined: give one of them")
    lacking = {each.name: each.default for each in _FLAGS if not can.has(each.needs or "")}
    for name in filter(lacking.__contains__, given):
        can.require("local_files", f"--{name.replace('_', '-')}", ": remove it, or use --own")
    named = given.get("model") if lacking else None
    return {**lacking, **({"pair": None, "target": named} if named else {})}


_PROPOSING = ("draft", "draft_model")
"""Options of what proposes for a server, too."""
# `system` is a flag of some verbs and a setting of others: these get both.
_SETTABLE = {each.name for each in _FLAGS} | KEYS.keys() - {"system"} | {MODEL}


def is_typed(name: str) -> bool:
    """Return whether a flag stands in the command line, instead of in a setting."""
    source = click.get_current_context().get_parameter_source(name)
    return source is ParameterSource.COMMANDLINE


def with_settings(command: Function) -> Function:
    """Pass a verb its `settings` in place of all flags of options and keys."""

    @wraps(command)
    def call(**given: Any) -> Any:
        taken = {name: given.pop(name) for name in [*given] if name in _SETTABLE}
        typed = {name: value for name, value in taken.items() if is_typed(name)}
        return command(settings=settings_of(typed), **given)

    return call
