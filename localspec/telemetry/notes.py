"""What a trace notes while a reply is made, and how it becomes rows. The noting is on the hot path, the rest is not."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from localspec.decoding.generate import Confirmed
from localspec.telemetry.rows import RoundRow, shares, sixteenths


class Times(NamedTuple):
    """Seconds so far: of the whole, of its stages, and of removing from the caches of target and draft model."""

    decode: float
    draft_prefill: float
    draft: float
    verify: float
    sample: float
    truncate_target: float
    truncate_draft: float


class Noted(NamedTuple):
    """A round that is to be written down."""

    confirmed: Confirmed
    times: Times


class Ended(NamedTuple):
    """The end of a reply."""

    text: str
    wall_s: float
    prefill_s: float
    decode_s: float


class Pieces(NamedTuple):
    """Bytes of ids that were not met before; where text is wanted."""

    of: dict[int, bytes]


class Said(NamedTuple):
    """A round's ids; where text is wanted. `n` is 0 for the token that the prompt gives."""

    n: int
    draft: tuple[int, ...]
    confirmed: tuple[int, ...]
    next_token: int


Event = Noted | Ended | Pieces


@dataclass(slots=True, eq=False)
class ReplyNotes:
    """One reply, as far as it has been noted, and what of it is not written yet.

    Attributes:
        id: in the database; None before it is there.
        started_s: seconds since 1970.
        asked: what the user said last, until the text is tagged.
        prompt: ids of the whole prompt; empty unless text is wanted.
        n_prompt: how many they are.
        greedy: whether the temperature is 0.
        workload: what kind of text it is taken for.
        by_user: whether the user said so.
        rows: not written yet.
        said: likewise; empty unless text is wanted.
        pieces: likewise.
        ended: the end, once it was noted.
        unsettled: rounds that are written, and not in the sums yet.
        unsettled_next: the same, once what is being written is written.
    """

    started_s: float
    asked: str
    prompt: tuple[int, ...]
    n_prompt: int
    greedy: bool
    workload: str | None
    by_user: bool
    keeps_text: bool
    id: int | None = None
    rows: list[RoundRow] = field(default_factory=list)
    said: list[Said] = field(default_factory=list)
    pieces: dict[int, bytes] = field(default_factory=dict)
    ended: Ended | None = None
    unsettled: int = 0
    unsettled_next: int = 0
    tokens: int = 0
    _n: int = 0
    _before: Times | None = None
    _final: str | None = None

    def take(self, event: Event) -> None:
        """Take in an event; in their order."""
        if self.workload is None:
            self.workload = _workload_of(self.asked)
        if isinstance(event, Noted):
            self._take_round(event)
        elif isinstance(event, Pieces):
            self.pieces.update(event.of)
        else:
            self.ended = event

    def final_workload(self) -> str:
        """Return what kind of text it is, as far as the text is there."""
        assert self.workload is not None  # noqa: S101 - an end is an event
        if self.by_user or self.ended is None:
            return self.workload
        if self._final is None:
            self._final = _workload_of(self.asked, self.ended.text)
            self.asked, self.ended = "", self.ended._replace(text="")
        return self._final

    def written(self, number: int) -> None:
        """Take in that all of it is in the database, where the reply has this id."""
        self.id = number
        self.workload = self.final_workload()
        self.unsettled = self.unsettled_next
        self.rows.clear()
        self.said.clear()
        self.pieces.clear()
        self.prompt = ()

    def dropped(self) -> None:
        """Take in that what is not written will not be."""
        self.rows.clear()
        self.said.clear()

    def _take_round(self, noted: Noted) -> None:
        confirmed, times = noted
        done = confirmed.round
        if done is not None:
            self._n += 1
            self.rows.append(self._row(confirmed, times))
        if self.keeps_text:
            draft = () if done is None else done.draft.tokens
            following = confirmed.tokens[-1] if done is None else done.verdict.next_token
            self.said.append(Said(self._n, draft, confirmed.tokens, following))
        self.tokens += len(confirmed.tokens)
        self._before = times

    def _row(self, confirmed: Confirmed, times: Times) -> RoundRow:
        done, before = confirmed.round, self._before or times
        assert done is not None  # noqa: S101 - asked before
        took = [now - earlier for now, earlier in zip(times, before, strict=True)]
        decode_s, draft_prefill_s, draft_s, verify_s, sample_s, of_target_s, of_draft_s = took
        other_s = decode_s - draft_prefill_s - draft_s - verify_s - sample_s
        # What the draft model removed, it did before its first pass: be that prefill or draft.
        of_prefill_s = max(0.0, of_draft_s - draft_s)
        stages = (
            draft_prefill_s - of_prefill_s,
            draft_s - of_draft_s + of_prefill_s,
            verify_s - of_target_s,
            sample_s,
            of_target_s + of_draft_s,
            other_s,
        )
        draft = done.draft
        took_us = tuple(max(0, round(1e6 * stage)) for stage in stages)
        return RoundRow(
            0,
            self._n,
            draft.drafter,
            len(draft.tokens),
            done.verdict.accepted,
            len(confirmed.tokens),
            done.correction_rank,
            len(draft.tokens) + 1,
            self.n_prompt + self.tokens,
            took_us[0],
            took_us[1],
            took_us[2],
            took_us[3],
            took_us[4],
            took_us[5],
            shares(draft.confidences[: len(draft.tokens)]),
            sixteenths(draft.gaps[: len(draft.tokens)]),
        )


def _workload_of(asked: str, reply: str = "") -> str:
    # Its patterns take a while to be compiled, which no answer has to wait for.
    from localspec.telemetry.workload import workload_of  # noqa: PLC0415

    return workload_of(asked, reply)


def packed(tokens: Sequence[int]) -> bytes:
    """Return ids as bytes, four for each, the least first."""
    return b"".join(token.to_bytes(4, "little") for token in tokens)


def unpacked(raw: bytes) -> tuple[int, ...]:
    """Return what was packed."""
    return tuple(int.from_bytes(raw[at : at + 4], "little") for at in range(0, len(raw), 4))
