"""Where a prompt comes from: the command line, stdin, or both."""

import codecs
import os
import stat
import sys

import click

from localspec.errors import LocalspecError, UsageError

_MOST_BYTES = 64 << 20  # of stdin, which may have no end


def read_prompt(argument: str | None) -> str:
    """Return the prompt: the argument, what stdin brings, or the argument about what stdin brings.

    An argument `-`, or none, reads stdin. With an argument, stdin is read only where it is a pipe
    or a file: it is context for the prompt.

    Raises:
        UsageError: there is no prompt.
        LocalspecError: stdin is not UTF-8.
    """
    if argument is None or argument == "-":
        if sys.stdin.isatty():
            click.echo("Type the prompt, then press Ctrl-D on an empty line.", err=True)
        text = _read_stdin()
        if not text.strip():
            raise UsageError("stdin is empty: give a prompt on stdin or as an argument")
        return text
    if not argument.strip():
        raise UsageError("the prompt is empty: write something, or leave it out to read stdin")
    context = _read_stdin() if _stdin_has_context() else ""
    return f"{argument}\n\n{context}" if context.strip() else argument


def _stdin_has_context() -> bool:
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except (AttributeError, OSError, ValueError):  # closed, or replaced by something unreal
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode)


def _read_stdin() -> str:
    try:
        raw = sys.stdin.buffer.read(_MOST_BYTES + 1)
    except OSError as error:
        raise LocalspecError(
            f"stdin cannot be read ({error.strerror}): give the prompt as an argument"
        ) from None
    if len(raw) > _MOST_BYTES:
        raise LocalspecError(
            f"stdin has more than {_MOST_BYTES >> 20} MB, more than any context holds: shorten it"
        )
    raw = raw.removeprefix(codecs.BOM_UTF8)
    try:
        text = raw.decode()
    except UnicodeDecodeError as error:
        raise LocalspecError(
            f"stdin is not UTF-8 text (byte {raw[error.start]:#04x} at offset {error.start}): "
            "convert it, for example with iconv"
        ) from None
    return text.rstrip("\n")
