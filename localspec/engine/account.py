"""What a reply tells while it is made: where each token came from, and where each round's time went."""

import time
from collections.abc import Callable, Collection, Sequence

from localspec.chat.detokenize import Detokenizer
from localspec.chat.events import Reply
from localspec.chat.tokenizer import Tokenizer
from localspec.decoding.generate import Confirmed
from localspec.decoding.round import Round
from localspec.decoding.timings import Timings
from localspec.engine.forecast import Forecast
from localspec.engine.protocol import DrafterFigures, Finished, LensToken, RoundFigures
from localspec.messages import Message


class Account:
    """Keeps account of one reply; `note` sees every round.

    Args:
        tokenizer: turns ids into bytes.
        pieces: bytes of control tokens that are text all the same, by id.
        eog: ids that end a reply, and are no text.
        begun: ids of what the reply says already, where it goes on.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        tokenizer: Tokenizer,
        pieces: dict[int, bytes],
        eog: Collection[int],
        begun: Sequence[int] = (),
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._tokenizer = tokenizer
        self._pieces = pieces
        self._eog = eog
        self._clock = clock
        self._detokenizer = Detokenizer()
        for token in begun:
            self._detokenizer.feed(self._piece(token))
        self._tokens: list[LensToken] = []
        self._rounds: list[RoundFigures] = []
        self._taken = 0
        self._before = (0.0, 0.0, 0.0)

    def note(self, confirmed: Confirmed, timings: Timings) -> None:
        """Take in what a round confirmed."""
        origins = _origins(confirmed.round, len(confirmed.tokens))
        for token, origin in zip(confirmed.tokens, origins, strict=True):
            if token not in self._eog:
                text = self._detokenizer.feed(self._piece(token))
                self._tokens.append(LensToken(text, origin))
        now = self._clock(), timings.draft_prefill_s + timings.draft_s, timings.verify_s
        if confirmed.round is not None:
            elapsed_s, draft_s, verify_s = (
                after - before for after, before in zip(now, self._before, strict=True)
            )
            draft = confirmed.round.draft
            self._rounds.append(
                RoundFigures(
                    drafter=draft.drafter,
                    drafted=len(draft.tokens),
                    accepted=min(confirmed.round.verdict.accepted, len(confirmed.tokens)),
                    confirmed=len(confirmed.tokens),
                    draft_s=draft_s,
                    verify_s=verify_s,
                    other_s=max(0.0, elapsed_s - draft_s - verify_s),
                )
            )
        self._before = now

    @property
    def rounds(self) -> tuple[RoundFigures, ...]:
        """All rounds of the reply."""
        return tuple(self._rounds)

    def taken(self) -> tuple[tuple[LensToken, ...], tuple[RoundFigures, ...]]:
        """Return what was noted since the last call."""
        tokens, rounds = tuple(self._tokens), tuple(self._rounds[self._taken :])
        self._tokens.clear()
        self._taken = len(self._rounds)
        return tokens, rounds

    def _piece(self, token: int) -> bytes:
        piece = self._pieces.get(token)
        return self._tokenizer.piece(token) if piece is None else piece


def _origins(done: Round | None, length: int) -> list[str]:
    """Return for each of `length` tokens that a round handed out where it came from."""
    if done is None:
        return ["first"] * length
    drafted, accepted = len(done.draft.tokens), done.verdict.accepted
    at_end = "bonus" if accepted == drafted else "correction"
    last = at_end if drafted else "plain"
    return [*[done.draft.drafter] * accepted, last][:length]


def finished(
    request_id: int, reply: Reply, message: Message, looked_back: Forecast | None
) -> Finished:
    """Return the figures of a whole reply, with the message that it is part of."""
    timings = reply.timings
    by_drafter = reply.acceptance.by_drafter.items()
    return Finished(
        id=request_id,
        message=message,
        stop_reason=reply.stop_reason.value,
        seed=reply.seed,
        prompt_tokens=reply.prompt_tokens,
        cached_tokens=reply.cached_tokens,
        completion_tokens=reply.completion_tokens,
        first_token_s=reply.first_token_s,
        prefill_s=timings.prefill_s,
        draft_prefill_s=timings.draft_prefill_s,
        decode_s=timings.decode_s,
        draft_s=timings.draft_s,
        verify_s=timings.verify_s,
        other_s=max(
            0.0,
            timings.decode_s - timings.draft_prefill_s - timings.draft_s - timings.verify_s,
        ),
        tokens_per_s=reply.tokens_per_s,
        drafter=reply.drafter,
        drafters=tuple(
            DrafterFigures(name, each.rounds, each.drafted, each.accepted, each.confirmed)
            for name, each in by_drafter
        ),
        predicted_speed_up=None if looked_back is None else looked_back.predicted,
        measured_speed_up=None if looked_back is None else looked_back.measured,
        note="" if looked_back is None else looked_back.note,
    )
