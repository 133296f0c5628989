"""The root of all commands: the verbs, and one line and an exit code for every error."""

# ruff: noqa: PLC0415 - `--help` waits for what stands here, and needs nothing else

import errno
import importlib
import os
import sys
import warnings
from collections.abc import Sequence
from contextlib import suppress

import click

from localspec.cli import INTERRUPTED, STDOUT_CLOSED, leave
from localspec.entry_points import VERBS, EntryPoint, Verb, by_name
from localspec.errors import LocalspecError, UsageError, did_you_mean, for_command_line

# group: {verb: (module, summary)}. The module's attribute of the verb's name is its command. A group without verbs is the place of those
# that plug-ins add to it.
GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Ask": {
        "run": ("localspec.cli.run", "Answer a prompt."),
        "chat": ("localspec.cli.chat", "Chat in the terminal."),
        "batch": ("localspec.cli.batch", "Answer a file of prompts, each exactly once."),
    },
    "Models": {
        "search": ("localspec.cli.models", "List the models that you can download."),
        "recommend": ("localspec.cli.pull", "Recommend models for this machine."),
        "pull": ("localspec.cli.pull", "Download models and verify them."),
        "import": ("localspec.cli.models", "Name a GGUF file, or give a model another name."),
        "list": ("localspec.cli.models", "List the models on this machine."),
        "show": ("localspec.cli.models", "Show details of a model."),
        "check": ("localspec.cli.models", "Check whether one model can draft for another."),
        "rm": ("localspec.cli.models", "Remove models from this machine."),
    },
    "Your conversations and files": {
        "history": (
            "localspec.cli.history",
            "List, show, search, tag, export and remove conversations.",
        ),
        "index": ("localspec.cli.index", "Index your files, to search them and ask about them."),
    },
    "Serve": {},
    "Speed": {"stats": ("localspec.cli.stats", "Show how well drafting works on this machine.")},
    "This machine": {
        "config": ("localspec.cli.config", "Show and change settings."),
        "setup": ("localspec.cli.system", "Build llama.cpp for this machine's GPU."),
        "doctor": ("localspec.cli.system", "Check this machine."),
        "completion": ("localspec.cli.main", "Print the completion script of a shell."),
    },
}
MODULES = {verb: module for group in GROUPS.values() for verb, (module, _) in group.items()}
"""The verbs of the core; see `added` for those of plug-ins."""
# Names that other programs have for verbs, and the closest verbs to others of theirs.
ALIASES = {"ls": "list", "remove": "rm", "logs": "history"}
CLOSEST = {"download": "pull", "install": "pull", "delete": "rm", "models": "list or search"}
MOST_COLUMNS = 100
_USUAL_COLUMNS, _LEAST_COLUMNS = 80, 50


_LONGEST_LINE = 1000
# Every verb has it; `main` looks for it.
_DEBUG = click.Option(
    ["--debug"],
    is_flag=True,
    expose_value=False,
    help="Show a traceback, and llama.cpp's log, when something fails.",
)


def _close_if_offline(
    context: click.Context, _flag: click.Parameter, given: bool | None
) -> bool | None:
    """Close the network if the flag, the variable or the setting says so; return the flag.

    Every verb begins with this, so what its environment has wrong is said here, too.
    """
    if context.resilient_parsing:
        return given
    from localspec.config.resolve import is_offline, misspelt_variables
    from localspec.display import notice
    from localspec.storage.network import close_network
    from localspec.storage.paths import only_read

    notice(*misspelt_variables(os.environ))
    # A verb, or one of a group behind it.
    verb = " ".join(context.command_path.split()[-2:])
    if not _READING.isdisjoint({context.info_name, verb}):
        missing = only_read()
        if missing and verb.removeprefix("localspec ") not in _ELSEWHERE:
            notice(missing)
    if given or is_offline():
        close_network()
    return given


_OFFLINE = click.Option(
    ["--offline"],
    is_flag=True,
    callback=_close_if_offline,
    expose_value=False,
    help="Do not use the network.",
)
_UNSEEN = click.Option(
    ["--offline"], is_flag=True, callback=_close_if_offline, expose_value=False, hidden=True
)
_READING = frozenset(
    [
        *("search", "recommend", "list", "check", "stats"),
        *("localspec show", "history list", "history show", "history search", "history export"),
    ]
)
"""Verbs that make no folder for data."""
_ELSEWHERE = frozenset({"search", "recommend", "check", "show"})
"""Those of them that mostly read something else."""
_ONLINE = frozenset({"check", "show", "setup"})
"""Verbs that may use the network, and load no model."""
_NO_MEMORY = "out of memory: try a smaller model or a smaller --ctx"
# Errors of the linker without memory for a library.
_NO_ROOM = ("failed to map segment", "annot allocate memory")
_NO_THREAD = "can't start new thread"


def _add_offline(command: click.Command, flag: click.Option) -> None:
    """Have a command look at `--offline` before it does anything: every verb takes it, and obeys the setting."""
    own = next((each for each in command.params if each.name == "offline"), None)
    if own is not None:
        own.callback = _close_if_offline
    elif not command.ignore_unknown_options:
        command.params.append(flag)


def added() -> tuple[dict[str, EntryPoint], tuple[str, ...]]:
    """Return the entry points of the verbs of plug-ins by their names, and a line about each that has a name of another."""
    return by_name(VERBS, {*MODULES, *ALIASES, "help"})


def _declared(point: EntryPoint) -> Verb:
    """Return what a plug-in says of its verb.

    Raises:
        UsageError: it cannot be imported, or is no verb.
    """
    verb = point.load()
    if not isinstance(verb, Verb):
        raise UsageError(
            f"{point.value} of the package {point.package} is no localspec.api.Verb: repair or uninstall it"
        )
    return verb


def _command(name: str) -> click.Command | None:
    """Return the command of a verb, or None if there is no such verb.

    Raises:
        UsageError: it is a plug-in's, which is broken.
    """
    if name in MODULES:
        module = importlib.import_module(MODULES[name])
        # Names that Python has taken end in an underscore: `list_`, `import_`.
        command: click.Command = getattr(module, f"{name}_", None) or getattr(module, name)
        return command
    point = added()[0].get(name)
    if point is None:
        return None
    added_command: click.Command = point.load(_declared(point).command)
    return added_command


class LazyGroup(click.Group):
    """A group that imports a verb's module only when that verb is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the verbs."""
        return [*MODULES, *added()[0]]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the command of a verb, or None if there is no such verb."""
        cmd_name = ALIASES.get(cmd_name, cmd_name)
        if cmd_name == "help":
            return _help
        command = _command(cmd_name)
        if command is None:
            return None
        for each in command.commands.values() if isinstance(command, click.Group) else [command]:
            if _DEBUG not in each.params:
                _add_offline(each, _OFFLINE if cmd_name in _ONLINE else _UNSEEN)
                each.params.append(_DEBUG)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that a command line begins with.

        Raises:
            UsageError: there is no such command; the message has similar ones.
        """
        verb = args[0]
        if self.get_command(ctx, verb) is None and not verb.startswith("-"):
            closest = CLOSEST.get(verb)
            names = [*self.list_commands(ctx), *ALIASES]
            hint = f"did you mean {closest}?" if closest else did_you_mean(verb, names)
            if " " in verb:
                hint = "to ask something, use `localspec run`"
            ctx.fail(f"there is no command {verb[:40]!r}{hint and f': {hint}'}")
        return super().resolve_command(ctx, args)

    def get_help(self, ctx: click.Context) -> str:
        """Return the help, as wide as click makes it with `shutil`, whose import takes longer than all else here."""
        columns = os.environ.get("COLUMNS", "")
        width = int(columns) if columns.isdecimal() else 0
        with suppress(OSError, ValueError, AttributeError):  # stdout is closed, or no terminal
            width = width or os.get_terminal_size(sys.__stdout__.fileno()).columns  # type: ignore[union-attr]
        width = max(min(width or _USUAL_COLUMNS, MOST_COLUMNS) - 2, _LEAST_COLUMNS)
        ctx.terminal_width = ctx.terminal_width or width
        return super().get_help(ctx)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the verbs in their groups, and which verbs of plug-ins cannot be used; no verb itself is imported."""
        groups, troubles = _grouped()
        width = max(len(verb) for verbs in groups.values() for verb, _ in verbs)
        for group, verbs in groups.items():
            with formatter.section(group):
                formatter.write_dl([(verb.ljust(width), text) for verb, text in verbs])
        if troubles:
            from localspec.display import printable_line

            with formatter.section("Plug-ins that cannot be used"):
                for each in troubles:
                    formatter.write_text(printable_line(each))


def _grouped() -> tuple[dict[str, list[tuple[str, str]]], list[str]]:
    """Return verbs and their summaries by group, and a line about each of a plug-in that cannot be used."""
    points, refused = added()
    declared, troubles = list[tuple[int, str, Verb]](), list(refused)
    for name, point in points.items():
        try:
            verb = _declared(point)
            declared.append((verb.place, name, verb))
        except UsageError as error:
            troubles.append(str(error))
    groups = {
        group: [(name, text) for name, (_, text) in verbs.items()]
        for group, verbs in GROUPS.items()
    }
    for _, name, verb in sorted(declared, key=lambda each: each[0]):
        groups.setdefault(verb.group, []).append((name, verb.summary))
    return {group: verbs for group, verbs in groups.items() if verbs}, troubles


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": MOST_COLUMNS},
)
@click.version_option(package_name="localspec")
def localspec() -> None:
    """Chat with local models. Fast, offline.

    A small model drafts, the large one verifies: the text is the one that the large model would write on its own, with --exact to
    the last bit. On a terminal, `localspec` alone starts the chat.
    """


@click.command("help")
@click.argument("verb", metavar="[COMMAND]", required=False)
@click.pass_context
def _help(context: click.Context, verb: str | None) -> None:
    """Show this help, or the help of a command."""
    root = context.find_root()
    if verb is None:
        click.echo(root.get_help())
        return
    _, command, _ = root.command.resolve_command(root, [verb])  # type: ignore[attr-defined]
    with click.Context(command, info_name=verb, parent=root) as inner:
        click.echo(command.get_help(inner))


def main(root: click.Command = localspec) -> int:
    """Run the command of `sys.argv`; return the exit code. Every error is one line.

    Args:
        root: of all commands; a program beside this one has its own.
    """
    debug = "--debug" in sys.argv
    if not (debug or sys.warnoptions):
        warnings.simplefilter("ignore")  # a library's advice to programmers
    try:
        return _call(root)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except Exception as error:  # the last net: a traceback is only for --debug
        text, code = _explained(error)
        _complain(text, debug=debug)
        if text is _NO_MEMORY:  # tidying up without any would fill the screen with complaints
            leave(code)
        return code


def _explained(error: Exception) -> tuple[str, int]:
    """Return the message for an error, and the exit code."""
    if isinstance(error, click.ClickException):
        return _advised(error), error.exit_code
    if isinstance(error, LocalspecError):
        return for_command_line(error), error.exit_code
    if isinstance(error, MemoryError) or any(words in str(error) for words in _NO_ROOM):
        return _NO_MEMORY, 1
    if _NO_THREAD in str(error) or (isinstance(error, OSError) and error.errno == errno.EAGAIN):
        reason = "too few processes are allowed (ulimit -u, pids.max), or memory ran out"
        return f"no thread or process could be started: {reason}", 1
    if isinstance(error, OSError):
        return _io_failure(error), 1
    return f"{type(error).__name__}: {error}; this is a bug in localspec, --debug shows where", 1


def _call(root: click.Command) -> int:
    stdout = sys.stdout
    try:
        _require_text(sys.argv[1:])
        implied = _implied() if root is localspec else None
        result = root.main(implied or sys.argv[1:], standalone_mode=False)
    except SystemExit:
        # Where a pipe is closed, click wraps the streams and makes it an exit with code 1.
        if sys.stdout is stdout:
            raise
        return STDOUT_CLOSED
    return result if isinstance(result, int) else 0


def _require_text(arguments: Sequence[str]) -> None:
    """Require that arguments are text; the name of a model's file may be any bytes.

    Raises:
        UsageError: one is not UTF-8.
    """
    for number, each in enumerate(arguments, 1):
        is_text = not any("\udc80" <= letter <= "\udcff" for letter in each)
        if not (is_text or each.endswith(".gguf")):
            from localspec.display import printable_line

            raise UsageError(
                f"argument {number}, {printable_line(each[:40])!r}, is not UTF-8: convert it, or rename the file"
            )


def _implied() -> list[str] | None:
    """Return the command line of a person at a terminal who typed the program's name alone; None for any other."""
    alone = len(sys.argv) == 1 and sys.stdin.isatty() and sys.stdout.isatty()
    return ["chat"] if alone else None


def _advised(error: click.ClickException) -> str:
    """Return click's message for a wrong command line, and a hint."""
    text = error.format_message().rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, click.NoSuchOption):
        known = [] if context is None else context.command.get_params(context)
        hint = did_you_mean(error.option_name, [flag for each in known for flag in each.opts])
        text = f"there is no option {error.option_name}{hint and f': {hint}'}"
    if context is None:
        return text
    return f"{text}{' See' if text.endswith('?') else '; see'} `{context.command_path} --help`"


def io_failed(error: OSError) -> int:
    """Print that reading or writing failed; return the code."""
    _complain(_io_failure(error))
    return 1


def _io_failure(error: OSError) -> str:
    reason = error.strerror or str(error)
    if error.filename:
        return f"{error.filename}: {reason}; check it, its permissions and its disk"
    return f"reading or writing failed ({reason}): check the disk and the output"


def _complain(text: str, *, debug: bool = False) -> None:
    """Write one line that cannot command the terminal; with `debug`, a traceback and llama.cpp's log before it."""
    from localspec.display import notice, printable_line

    with suppress(OSError):  # if even stderr fails, the code still tells
        if debug:
            import traceback

            traceback.print_exc()
            backend = sys.modules.get("localspec.llama.backend")
            for line in backend.log_lines() if backend is not None else ():
                click.echo(line, err=True)
        notice(printable_line(text)[:_LONGEST_LINE])


_VARIABLE = "_LOCALSPEC_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
def completion(shell: str) -> None:
    """Print the completion script of SHELL. It completes commands, options and model names.

    \b
        eval "$(localspec completion bash)"           in ~/.bashrc
        eval "$(localspec completion zsh)"            in ~/.zshrc
        localspec completion fish | source            in ~/.config/fish/config.fish
    """  # noqa: D301 - click keeps lines behind a \b
    from click.shell_completion import get_completion_class

    root = click.get_current_context().find_root().command
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - one of ours
    click.echo(kind(root, {}, "localspec", _VARIABLE).source())
