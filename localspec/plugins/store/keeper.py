"""The store of what was said: opened for a vocabulary, how what is said comes into it, and how it leaves; see `Keeper`."""

import zlib
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.api import data_dir
from localspec.plugins.store.token_log import FILE, TokenLog, of_conversation
from localspec.plugins.store.token_log import wipe as wipe_log

if TYPE_CHECKING:
    from localspec.chat.request import Observer
    from localspec.llama.vocabulary import Vocabulary

_SAMPLED = 61


def open_shared(
    vocabulary: "Vocabulary", megabytes: int
) -> tuple[TokenLog, "tuple[Observer, ...]"] | None:
    """Return the store as it is for a vocabulary, and the observer that writes into it; None if it cannot be read.

    Vocabularies differ by a sample of their tokens: two that are taken for one cost drafts, never a text.
    """
    from localspec.plugins.store.said_writer import SaidWriter  # noqa: PLC0415 - who deletes needs no gates

    n_vocab, number = vocabulary.n_vocab, 0
    for token in range(0, n_vocab, _SAMPLED):
        number = zlib.crc32(vocabulary.text(token).encode(), number)
    try:
        log = TokenLog(_path(data_dir()), number + n_vocab, n_vocab, megabytes)
    except OSError:
        return None  # `doctor` says why
    log.give_back()
    return log, (SaidWriter(log, vocabulary.piece),)


def forget(data: Path, conversation: int) -> None:
    """Overwrite what was said in a conversation of the history.

    Raises:
        OSError: the file cannot be written.
    """
    if _path(data).exists():
        TokenLog(_path(data)).forget(of_conversation(conversation))


def wipe(data: Path) -> bool:
    """Overwrite everything; return whether there was anything.

    Raises:
        OSError: the file cannot be written.
    """
    return wipe_log(_path(data))


def amount(data: Path) -> str:
    """Return how much there is, for people; empty if nothing.

    Raises:
        OSError: the file cannot be read.
    """
    tokens, owners = TokenLog(_path(data)).figures()
    return f"{tokens} tokens of {owners} conversation{'' if owners == 1 else 's'}" if owners else ""


def _path(data: Path) -> Path:
    return data / "store" / FILE
