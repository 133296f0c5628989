"""The command line: parse, call, print. One file per verb family, imported when it is called."""

import importlib
import os
import sys
import traceback
import warnings
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

import click

from localspec.display import printable_line
from localspec.errors import LocalspecError

# verb: (module, what `--help` says of it). The module's attribute of the verb's name is its command.
_VERBS = {
    "run": ("localspec.cli.run", "Answer a prompt."),
    "chat": ("localspec.cli.chat", "Chat in the terminal."),
    "serve": ("localspec.cli.serve", "Serve a model to other programs over HTTP."),
    "ps": ("localspec.cli.servers", "List running servers."),
    "stop": ("localspec.cli.servers", "Stop a server."),
    "history": ("localspec.cli.history", "List, show, search and export conversations."),
    "batch": ("localspec.cli.batch", "Answer a file of prompts, each exactly once."),
    "bench": ("localspec.cli.bench", "Measure how much drafting speeds up answers."),
    "ab": ("localspec.cli.ab", "Find out which of two settings is faster."),
    "stats": ("localspec.cli.stats", "Show what drafting did on this machine."),
    "telemetry": ("localspec.cli.telemetry", "Show and change what is recorded on this machine."),
    "export-proposals": (
        "localspec.cli.export_proposals",
        "Print recorded drafts as training data.",
    ),
    "search": ("localspec.cli.search", "List the models that you can download."),
    "pull": ("localspec.cli.pull", "Download models and verify them."),
    "list": ("localspec.cli.models", "List the models on this machine."),
    "show": ("localspec.cli.models", "Show what is known about a model."),
    "rm": ("localspec.cli.models", "Remove models from this machine."),
    "import": ("localspec.cli.models", "Name a GGUF file of your own."),
    "alias": ("localspec.cli.alias", "Give a model another name."),
    "recommend": ("localspec.cli.recommend", "Recommend models for this machine."),
    "pair": ("localspec.cli.pair", "Check, list and suggest pairs of models."),
    "config": ("localspec.cli.config", "Show and change settings."),
    "doctor": ("localspec.cli.doctor", "Check this machine."),
    "completion": ("localspec.cli.completion", "Print the completion script of a shell."),
}
# What other programs call these, and what comes closest to what only they have.
_ALIASES = {"ls": "list", "remove": "rm", "logs": "history"}
_CLOSEST = {
    "download": ["pull"],
    "install": ["pull"],
    "delete": ["rm"],
    "models": ["list", "search"],
}
INTERRUPTED = 130
STDOUT_CLOSED = 141
_LONGEST_LINE = 1000
# Every verb has it, and none is told: `_run` looks for it.
_DEBUG = click.Option(
    ["--debug"],
    is_flag=True,
    expose_value=False,
    help="Show a traceback, and llama.cpp's log, when something fails.",
)
_NO_MEMORY = "out of memory: try a smaller model or a smaller --ctx"
# Python's and the linker's words where there is no room for a thread's stack, or for a library.
_NO_ROOM = ("can't start new thread", "failed to map segment", "annot allocate memory")


class LazyGroup(click.Group):
    """A group that imports a verb's module only when that verb is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the verbs."""
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the command of a verb, or None if there is no such verb."""
        cmd_name = _ALIASES.get(cmd_name, cmd_name)
        if cmd_name == "help":
            return _help
        if cmd_name not in _VERBS:
            return None
        module = importlib.import_module(_VERBS[cmd_name][0])
        # Names that Python has taken end in an underscore: `list_`, `import_`.
        name = cmd_name.replace("-", "_")
        command: click.Command = getattr(module, f"{name}_", None) or getattr(module, name)
        for each in command.commands.values() if isinstance(command, click.Group) else [command]:
            if _DEBUG not in each.params:
                each.params.append(_DEBUG)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that a command line begins with.

        Raises:
            UsageError: there is none of this name; the message names those that are like it.
        """
        verb = args[0]
        if self.get_command(ctx, verb) is None and not verb.startswith("-"):
            import difflib  # noqa: PLC0415 - only who mistypes waits for it

            like = _CLOSEST.get(verb) or difflib.get_close_matches(verb, [*_VERBS, *_ALIASES])
            meant = f": did you mean {' or '.join(like)}?" if like else ""
            if " " in verb:
                meant = ": to ask something, use `localspec run`"
            ctx.fail(f"there is no command {verb[:40]!r}{meant}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """Write the verbs without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl([(verb, text) for verb, (_, text) in _VERBS.items()])


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="localspec")
def localspec() -> None:
    """Run language models on this machine. A small model guesses ahead, a large one checks.

    The text is exactly what the large model would write on its own. On a terminal, `localspec` alone
    starts the chat.
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


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    if sys.stdout is None:  # closed by whoever started us: there is nobody to answer
        sys.exit(STDOUT_CLOSED)
    _use_unbreakable_streams()
    code = _run()
    try:
        sys.stdout.flush()
    except OSError as error:
        closed = isinstance(error, BrokenPipeError)
        code = STDOUT_CLOSED if closed else code or _complain(_io_failure(error), 1, debug=False)
        # What is still in Python's buffer goes nowhere: it would be tried again at the end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if code == INTERRUPTED:
        # Where Ctrl-C met an exec(), which makes every dataclass, Python ends itself by SIGINT, though it was caught.
        _leave(code)
    sys.exit(code)


def _run() -> int:  # noqa: PLR0911 - one return for each way to end
    debug = "--debug" in sys.argv
    if not (debug or sys.warnoptions):
        warnings.simplefilter("ignore")  # a library's advice to programmers
    try:
        return _call()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        return _complain(_advised(error), error.exit_code, debug)
    except LocalspecError as error:
        return _complain(str(error), error.exit_code, debug)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except OSError as error:
        return _complain(_io_failure(error), 1, debug)
    except MemoryError:
        return _give_up(debug)
    except Exception as error:  # the last net: a user is never shown a traceback unasked
        if any(words in str(error) for words in _NO_ROOM):
            return _give_up(debug)
        text = f"{type(error).__name__}: {error}; this is a bug in localspec, --debug shows where"
        return _complain(text, 1, debug)


def _give_up(debug: bool) -> NoReturn:
    """End for want of memory, at once: an interpreter that tidies up without any fills the screen with complaints."""
    _leave(_complain(_NO_MEMORY, 1, debug))


def _leave(code: int) -> NoReturn:
    """End without the interpreter's own end."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, MemoryError):
            stream.flush()
    os._exit(code)


def _call() -> int:
    stdout = sys.stdout
    try:
        result = localspec.main(_implied(), standalone_mode=False)
    except SystemExit:
        # Where a pipe is closed, click wraps the streams and makes it an exit with code 1.
        if sys.stdout is stdout:
            raise
        return STDOUT_CLOSED
    return result if isinstance(result, int) else 0


def _implied() -> list[str] | None:
    """Return the command line of somebody at a terminal who typed the program's name alone; None for any other."""
    alone = len(sys.argv) == 1 and sys.stdin.isatty() and sys.stdout.isatty()
    return ["chat"] if alone else None


def _advised(error: click.ClickException) -> str:
    """Return what click says of a wrong command line, and where the right ones are described."""
    text = error.format_message().rstrip(".")
    context = error.ctx if isinstance(error, click.UsageError) else None
    return text if context is None else f"{text}; see `{context.command_path} --help`"


def _io_failure(error: OSError) -> str:
    reason = error.strerror or str(error)
    if error.filename:
        return f"{error.filename}: {reason}"
    return f"reading or writing failed ({reason}): check the disk and the output"


def _complain(text: str, code: int, debug: bool) -> int:
    """Write one line that a terminal shows and does not obey; return the code."""
    line = printable_line(text)
    with suppress(OSError):  # where even stderr fails, the code still tells
        if debug:
            traceback.print_exc()
            _show_native_log()
        click.echo(f"localspec: {line[:_LONGEST_LINE]}", err=True)
    return code


def _show_native_log() -> None:
    """Write what llama.cpp had to say, where it was loaded at all."""
    backend = sys.modules.get("localspec.llama.backend")
    for line in backend.log_lines() if backend is not None else ():
        click.echo(line, err=True)


def _use_unbreakable_streams() -> None:
    """Open what was closed onto nothing, and let a stream replace characters that it has not.

    A closed stderr is no reason to give no answer; and were its number left free, the next
    file to be opened would get it, and the messages of native code with it.
    """
    if sys.stdin is None:
        sys.stdin = Path(os.devnull).open(encoding="utf-8")  # noqa: SIM115 - open to the end
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - likewise
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
