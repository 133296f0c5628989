"""What `run` and `chat` are given on the command line and on stdin: the name of a model, a conversation, a prompt."""

import codecs
import os
import re
import stat
import sys
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from localspec.errors import LocalspecError, UsageError
from localspec.models.entries import HubName
from localspec.models.ledger import IMPORTS
from localspec.models.registry import Registry, load_registry
from localspec.storage.paths import data_dir

if TYPE_CHECKING:
    from localspec.history.records import StoredConversation


_LONGEST = 200
_HUB = re.compile(r"(https?://)?(hf\.co|huggingface\.co)/")
# A shorter word may begin any sentence.
_LEAST_FAMILY = 4


def model_and_prompt(
    words: Sequence[str], *, chosen: bool = False
) -> tuple[str | None, str | None]:
    """Return the model and the prompt that words are; None for each that they are not.

    The first word is the model where it is the name of one; alone, or in front of the prompt. `user/repo` may be two
    words with a slash, so alone it is a model only with its host, its quantisation, or where it was pulled before.

    Args:
        words: what stands on the command line.
        chosen: whether an option names the model, so that all words are the prompt.

    Raises:
        UsageError: the first of several words is no model, or one alone looks very much like one.
    """
    if chosen or not words:
        return None, " ".join(words) if words else None
    first, rest = words[0], words[1:]
    registry = load_registry()
    if is_model(first, registry, alone=not rest):
        return first, " ".join(rest) if rest else None
    likely = registry.like(first) if _is_one_word(first) else []
    meant = f" (did you mean {', '.join(likely)}?)" if likely else ""
    if rest and first.startswith("@"):
        raise UsageError(
            f"{first[:80]!r} stands outside of the quotes: put it inside them, or use -f {first[1:80]}"
        )
    if rest:
        raise UsageError(
            f"{first[:80]!r} is not a model{meant}: put quotes around a prompt of several words"
        )
    if likely and (_is_family(first, likely) or any(each.isdigit() for each in first)):
        raise UsageError(
            f"{first!r} is not a model{meant}; if it is your prompt, name the model with -m"
        )
    return None, first


def is_model(text: str, registry: Registry, *, alone: bool = False) -> bool:
    """Return whether a text names a model: of the registry, imported, on the hub, or a file.

    Args:
        text: what was written.
        registry: the known names.
        alone: whether nothing else says what it is.
    """
    if not _is_one_word(text) or text == "-":
        return False
    if registry.knows(text) or text.lower().endswith(".gguf"):
        return True
    on_hub = HubName.parse(text)
    if on_hub is not None:
        return not alone or on_hub.quant is not None or _HUB.match(text) is not None
    return text in IMPORTS.load(data_dir())


def require_model(word: str) -> str:
    """Return a word that names a model, or its file.

    Raises:
        ModelUnavailable: it names none.
    """
    registry = load_registry()
    if not (is_model(word, registry) or Path(word).is_file()):
        registry.require(word)
    return word


def named(flags: Mapping[str, Any]) -> str | None:
    """Return the model that flags name, if they do, by whichever option."""
    return flags["model"] or flags["pair"] or flags["target"]  # type: ignore[no-any-return]


def _is_family(text: str, names: Sequence[str]) -> bool:
    start = text.lower().partition(":")[0]
    return len(start) >= _LEAST_FAMILY and any(name.startswith(start) for name in names)


def _is_one_word(text: str) -> bool:
    return 0 < len(text) <= _LONGEST and not any(each.isspace() for each in text)


def conversation_and_words(
    name: str, words: tuple[str, ...]
) -> "tuple[StoredConversation, tuple[str, ...]]":
    """Return the conversation that `run --continue` means, and the words that are left for model and prompt.

    A number is always a conversation. Without a prompt among the words, the name is the prompt; else it is a model or a title.

    Args:
        name: what stands behind `--continue`; empty if nothing does.
        words: the others on the command line.

    Raises:
        LocalspecError: there is no such conversation, or none at all.
    """
    if not name or name.removeprefix("#").isdecimal():
        return stored_conversation(name), words
    registry = load_registry()
    if len(words) == (is_model(words[0], registry) if words else 0):
        return stored_conversation(""), (*words, name)
    if is_model(name, registry):
        return stored_conversation(""), (name, *words)
    try:
        return stored_conversation(name), words
    except UsageError as error:
        raise UsageError(f"{error}; put quotes around a prompt of several words") from None


def stored_conversation(name: str) -> "StoredConversation":
    """Return the conversation of a number or a title; of an empty name, the last one.

    Raises:
        LocalspecError: there is no such conversation, or none at all.
    """
    from localspec.history.archive import History  # noqa: PLC0415 - few continue one

    with closing(History(data_dir() / "history")) as history:
        latest = history.latest()
        if latest is None:
            raise UsageError("no conversation to continue yet: ask without -c (--continue)")
        return history.named(name or str(latest))


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
