"""The store of what was said: opened for a vocabulary, how what is said comes into it, and how it leaves; see `Keeper`."""

import codecs
import time
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.api import Event, Finished, Request, RoundDone, data_dir
from localspec.chat.request import Observer
from localspec.gates.gate import usual_gate
from localspec.gates.ledger import Decided, Ledger
from localspec.plugins.store.token_log import FILE, TokenLog, of_conversation
from localspec.plugins.store.token_log import wipe as wipe_log

if TYPE_CHECKING:
    from localspec.decoding.policy import Policy
    from localspec.llama.vocabulary import Vocabulary

_FLUSH_S = 0.5
_WAIT_S, _WAIT_AT_END_S = 0.05, 1.0
"""How long another program that writes is waited for, while an answer is made and when it has ended."""
_SAMPLED = 61


def open_shared(
    vocabulary: "Vocabulary", megabytes: int
) -> tuple[TokenLog, tuple[Observer, ...]] | None:
    """Return the store as it is for a vocabulary, and the observer that writes into it; None if it cannot be read.

    Vocabularies differ by a sample of their tokens: two that are taken for one cost drafts, never a text.
    """
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
    return f"{tokens} tokens of {owners} conversations" if owners else ""


def _path(data: Path) -> Path:
    return data / "store" / FILE


class SaidWriter:
    """Writes replies of conversations that the history keeps into the store, twice a second; see `Observer`.

    Args:
        log: the store.
        spell: returns the bytes of a token.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        log: TokenLog,
        spell: Callable[[int], bytes],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.log, self.spell, self.clock = log, spell, clock
        self.failed = False

    def begin(
        self,
        request: Request,
        tokens: Sequence[int],  # noqa: ARG002 - the protocol's signature
        policy: "Policy",  # noqa: ARG002
    ) -> Callable[[Event], None]:
        """Take in a reply; see `Observer`."""
        if request.conversation is None:
            return lambda _: None
        return _ReplyWriter(self, of_conversation(request.conversation)).take

    def close(self) -> None:
        """Do nothing: a reply that has ended is written."""


class _ReplyWriter:
    """Writes one reply. What a gate hides is left out, and a text ends there: nothing in the store leads across the gap."""

    def __init__(self, writer: SaidWriter, owner: str) -> None:
        self._writer, self._owner = writer, owner
        self._gate, self._ledger = usual_gate().text(), Ledger[int]()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._texts: list[list[int]] = [
            []
        ]  # the first goes on where the last that was written ends
        self._after: int | None = None
        self._written_s = writer.clock()

    def take(self, event: Event) -> None:
        """Take in what happens."""
        if isinstance(event, RoundDone):
            text = ""
            for token in event.round.confirmed:
                more = self._decoder.decode(self._writer.spell(token))
                self._ledger.add(token, len(more))
                text += more
            self._divide(self._ledger.decide(self._gate.feed(text)))
            if self._writer.clock() - self._written_s >= _FLUSH_S:
                self._write(_WAIT_S)
        elif isinstance(event, Finished):
            # What has only begun to match at the end is left out, too.
            self._divide([*self._ledger.decide(self._gate.flush(cut=True)), *self._ledger.flush()])
            self._write(_WAIT_AT_END_S)

    def _divide(self, decided: Sequence[Decided[int]]) -> None:
        for each in decided:
            if each.hidden:
                self._texts.append([])
            else:
                self._texts[-1].append(each.unit)

    def _write(self, wait_s: float) -> None:
        texts, self._texts = self._texts, [[]]
        for at, tokens in enumerate(texts):
            after = None if at else self._after
            try:
                if tokens and not self._writer.failed:
                    after = self._writer.log.append(self._owner, tokens, after, wait_s)
                self._after = after
            except BlockingIOError:  # another program writes: the next time
                self._after, self._texts = after, texts[at:]
                break
            except (
                OSError
            ):  # a full disk: the answer goes on, and what was said before is still of use
                self._writer.failed = True
        self._written_s = self._writer.clock()
