"""ReplyNotes: what a trace notes while a reply is made, until it is spooled."""

import random
from collections.abc import Sequence
from typing import NamedTuple

from localspec.decoding.round import Round
from localspec.telemetry.pair import Pair
from localspec.telemetry.stretch import Ended, Head, NotedRound, Said, Stretch

_KEY_BITS = 62
_KEYS = random.SystemRandom()


class NotedEnd(NamedTuple):
    """The end of a reply, in seconds."""

    text: str
    prefill_s: float
    decode_s: float
    wall_s: float


class Pieces(NamedTuple):
    """Bytes of ids that were not met before; where text is wanted."""

    of: dict[int, bytes]


Event = Round | NotedEnd | Pieces


class ReplyNotes:
    """One reply, as far as it has been noted.

    Args:
        pair: what answers.
        started_s: seconds since 1970.
        asked: what the user said last; forgotten once the text is tagged.
        prompt: ids of the whole prompt.
        greedy: whether the temperature is 0.
        workload: what the user says the text is; None guesses.
        keeps_text: whether text is wanted.

    Attributes:
        key: tells the reply from all others.
        workload: what kind of text it is; None as long as nobody has looked.
        ended: its end, once that was noted.
    """

    def __init__(
        self,
        pair: Pair,
        started_s: float,
        asked: str,
        prompt: Sequence[int],
        *,
        greedy: bool,
        workload: str | None,
        keeps_text: bool,
    ) -> None:
        self.key = _KEYS.getrandbits(_KEY_BITS)
        self.workload = workload
        self.keeps_text = keeps_text
        self.ended: Ended | None = None
        self._asked = asked
        fields = (pair.target, pair.draft_model, pair.plain_s, pair.at_once)
        by_user = workload is not None
        self._head = Head(self.key, fields, started_s, len(prompt), greedy, by_user)
        self._prompt = tuple(prompt) if keeps_text else ()
        self._n, self._tokens = 0, 0
        self._spooled = (0, 0)
        self._rounds: list[NotedRound] = []
        self._said: list[Said] = []
        self._pieces: list[tuple[int, str]] = []

    def take(self, event: Event) -> None:
        """Take in an event; in their order."""
        if isinstance(event, Round):
            self._take_round(event)
        elif isinstance(event, Pieces):
            self._pieces += [(token, piece.hex()) for token, piece in event.of.items()]
        else:
            self.ended = Ended(self._tokens, *event[1:])
            self.tag(event.text)
            self._asked = ""

    def tag(self, text: str = "") -> None:
        """Guess what kind of text it is by what of it is there, unless the user said so."""
        # Its patterns take a while to be compiled, which no answer has to wait for.
        from localspec.telemetry.workload import workload_of  # noqa: PLC0415

        if not self._head.by_user:
            self.workload = workload_of(self._asked, text)

    def stretch(self) -> Stretch:
        """Return what was noted since the last one."""
        news = Stretch(
            self._head,
            self.workload,
            *self._spooled,
            self._rounds,
            self.ended,
            self._prompt,
            self._said,
            self._pieces,
        )
        self._spooled = (self._n, self._tokens)
        self._rounds, self._said, self._pieces, self._prompt = [], [], [], ()
        return news

    def _take_round(self, done: Round) -> None:
        draft, tokens = done.draft, done.confirmed
        self._tokens += len(tokens)
        if self.keeps_text:
            said = Said(
                self._n + (not done.is_first), draft.tokens, tokens, done.verdict.next_token
            )
            self._said.append(said)
        if done.is_first:
            self._spooled = (0, self._tokens)  # what the prompt took is no round's
            return
        self._n += 1
        spent = done.spent
        self._rounds.append(
            NotedRound(
                draft.drafter,
                done.drafted,
                done.verdict.accepted,
                len(tokens),
                done.correction_rank,
                draft.confidences,
                draft.gaps,
                (
                    spent.draft_prefill_s,
                    spent.draft_s,
                    spent.verify_s,
                    spent.sample_s,
                    spent.truncate_s,
                    spent.other_s,
                ),
            )
        )


def packed(tokens: Sequence[int]) -> bytes:
    """Return ids as bytes, four for each, the least first."""
    return b"".join(token.to_bytes(4, "little") for token in tokens)


def unpacked(raw: bytes) -> tuple[int, ...]:
    """Return what was packed."""
    return tuple(int.from_bytes(raw[at : at + 4], "little") for at in range(0, len(raw), 4))
