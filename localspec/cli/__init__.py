"""The command line: parse, call, print. One file per verb family, imported when it is called."""

import importlib
import os
import sys
import traceback
from typing import NoReturn

import click

from localspec.errors import LocalspecError

# verb: (module, what `--help` says of it). The module's attribute of the verb's name is its command.
_VERBS = {
    "run": ("localspec.cli.run", "Answer a prompt."),
    "pull": ("localspec.cli.pull", "Fetch a pair or a model, and verify it."),
}
INTERRUPTED = 130
STDOUT_CLOSED = 141


class LazyGroup(click.Group):
    """A group that imports a verb's module only when that verb is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002 - click's signature
        """Return the verbs."""
        return list(_VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """Return the command of a verb, or None where there is no such verb."""
        if cmd_name not in _VERBS:
            return None
        command: click.Command = getattr(importlib.import_module(_VERBS[cmd_name][0]), cmd_name)
        return command

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
    """Answer with two models: a small one guesses ahead, a large one checks.

    The text is the one that the large model alone would give for the same seed.
    """


def main() -> NoReturn:
    """Run the command line and exit with its code."""
    _use_unbreakable_streams()
    code = _run()
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        code = STDOUT_CLOSED
    if code == STDOUT_CLOSED:
        # Python would flush once more at its end, and complain there.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _run() -> int:  # noqa: PLR0911 - one return for each way to end
    debug = "--debug" in sys.argv
    try:
        result = localspec.main(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return error.exit_code
    except click.ClickException as error:
        return _complain(error.format_message(), error.exit_code, debug)
    except LocalspecError as error:
        return _complain(str(error), error.exit_code, debug)
    except (KeyboardInterrupt, click.Abort):
        return INTERRUPTED
    except BrokenPipeError:
        return STDOUT_CLOSED
    except OSError as error:
        what = f"{error.filename}: " if error.filename else ""
        return _complain(f"{what}{error.strerror or error}", 1, debug)
    except Exception as error:  # the last net: a user is never shown a traceback unasked
        text = f"{type(error).__name__}: {error}; a fault of localspec, --debug shows where"
        return _complain(text, 1, debug)
    return result if isinstance(result, int) else 0


def _complain(text: str, code: int, debug: bool) -> int:
    if debug:
        traceback.print_exc()
    click.echo(f"localspec: {' '.join(text.split())}", err=True)
    return code


def _use_unbreakable_streams() -> None:
    """Let a stream whose encoding lacks a character replace it, instead of ending the program."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
