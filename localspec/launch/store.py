"""The store of what was said: where it is, whether it is on, and how what is said comes into it."""

import codecs
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from localspec.chat.events import Event, Finished, RoundDone
from localspec.chat.request import Observer, Request
from localspec.decoding.policy import Policy
from localspec.gates.gate import usual_gate
from localspec.gates.ledger import Decided, Ledger
from localspec.launch.recording import store_megabytes
from localspec.llama.vocabulary import Vocabulary
from localspec.storage.paths import data_dir
from localspec.storage.token_log import FILE, USUAL_MEGABYTES, TokenLog, of_conversation

_FLUSH_S = 0.5
_SAMPLED = 61


def store_dir() -> Path:
    """Return where the store is, made or not."""
    return data_dir() / "store"


def store_for(vocabulary: Vocabulary) -> TokenLog:
    """Return the store as it is for a vocabulary.

    Vocabularies are told apart by a sample of their tokens: two that are taken for one cost drafts, never a text.

    Raises:
        OSError: it cannot be read.
    """
    n_vocab, number = vocabulary.n_vocab, 0
    for token in range(0, n_vocab, _SAMPLED):
        number = zlib.crc32(vocabulary.text(token).encode(), number)
    megabytes = store_megabytes() or USUAL_MEGABYTES
    return TokenLog(store_dir() / FILE, number + n_vocab, n_vocab, megabytes)


def opened_store(vocabulary: Vocabulary) -> tuple[TokenLog | None, tuple[Observer, ...]]:
    """Return the store, and who writes into it what is said; nothing where it cannot be read."""
    try:
        log = store_for(vocabulary)
    except OSError:
        return None, ()  # `doctor` tells why
    return log, (SaidWriter(log, vocabulary.piece),)


class SaidWriter:
    """Has what is said in conversations that the history keeps written into the store, twice a second; see `Observer`.

    What a gate finds is left out, and a text ends there: nothing in the store leads across the gap.

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
        self._log = log
        self._spell = spell
        self._clock = clock
        self._failed = False

    def begin(
        self,
        request: Request,
        tokens: Sequence[int],  # noqa: ARG002 - the protocol's signature
        policy: Policy,  # noqa: ARG002
    ) -> Callable[[Event], None]:
        """Take in a reply; see `Observer`."""
        if request.conversation is None:
            return lambda _: None
        growing = _Growing(
            of_conversation(request.conversation), self._clock(), SeenTokens(self._spell)
        )

        def take(event: Event) -> None:
            if isinstance(event, RoundDone):
                growing.texts += growing.seen.feed(event.round.confirmed)
                if self._clock() - growing.written_s >= _FLUSH_S:
                    self._write(growing)
            elif isinstance(event, Finished):
                growing.texts += growing.seen.flush()
                self._write(growing)

        return take

    def close(self) -> None:
        """Do nothing: a reply that has ended is written."""

    def _write(self, growing: "_Growing") -> None:
        texts, growing.texts = growing.texts, []
        try:
            for goes_on, tokens in () if self._failed else texts:
                after = growing.after if goes_on else None
                growing.after = self._log.append(growing.owner, tokens, after)
        except OSError:  # a full disk: the answer goes on, and what was said before is still of use
            self._failed = True
        growing.written_s = self._clock()


class SeenTokens:
    """Leaves the tokens of one text that a gate finds something in out of it.

    Args:
        spell: returns the bytes of a token.
    """

    def __init__(self, spell: Callable[[int], bytes]) -> None:
        self._spell = spell
        self._gate = usual_gate().text()
        self._waiting = Ledger[int]()
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._goes_on = False

    def feed(self, tokens: Sequence[int]) -> list[tuple[bool, list[int]]]:
        """Take tokens; return stretches that may be kept, and whether each goes on where the one before ended."""
        text = ""
        for token in tokens:
            more = self._decoder.decode(self._spell(token))
            self._waiting.add(token, len(more))
            text += more
        return self._stretches(self._waiting.decide(self._gate.feed(text)))

    def flush(self) -> list[tuple[bool, list[int]]]:
        """Return the rest, at the end of the text; what has only begun to be found is left out, too."""
        decided = self._waiting.decide(self._gate.flush(cut=True))
        return self._stretches([*decided, *self._waiting.flush()])

    def _stretches(self, decided: Sequence[Decided[int]]) -> list[tuple[bool, list[int]]]:
        found: list[tuple[bool, list[int]]] = []
        open_ = False
        for each in decided:
            if each.hidden:
                self._goes_on = open_ = False
                continue
            if not open_:
                found.append((self._goes_on, []))
            self._goes_on = open_ = True
            found[-1][1].append(each.unit)
        return found


@dataclass(slots=True)
class _Growing:
    """A reply that is being made: what of it is not written yet, and where the rest ends."""

    owner: str
    written_s: float
    seen: SeenTokens
    texts: list[tuple[bool, list[int]]] = field(default_factory=list)
    after: int | None = None
