"""SaidWriter: writes what is said into the store, without what a gate hides."""

import codecs
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from localspec.api import Event, Finished, Request, RoundDone
from localspec.gates.gate import usual_gate
from localspec.gates.ledger import Decided, Ledger
from localspec.plugins.store.token_log import TokenLog, of_conversation

if TYPE_CHECKING:
    from localspec.decoding.policy import Policy

_FLUSH_S = 0.5
_WAIT_S, _WAIT_AT_END_S = 0.05, 1.0
"""How long another program that writes is waited for, while an answer is made and when it has ended."""


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
        # The first goes on where the last that was written ends.
        self._texts: list[list[int]] = [[]]
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
