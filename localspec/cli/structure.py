"""What an answer has to look like, from flags: a schema, a grammar or a regular expression, in a file or written out; and what is masked in it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from localspec.errors import UsageError
from localspec.options import GRAMMARS, ReplyOptions, changed

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
