"""Exchange: one request and what has come back for it so far. No screen, no pipe."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from localspec.engine.protocol import (
    Failed,
    Finished,
    LensToken,
    Notice,
    Prefilling,
    RoundFigures,
    Started,
    Streamed,
)
from localspec.messages import Message


@dataclass(slots=True)
class Exchange:
    """One request to the engine, filled by its notices.

    Args:
        id: what its notices bear.
        messages: the conversation that was sent.

    Attributes:
        answer: text of the answer, the part that a continued one had before not included.
        thoughts: likewise.
        tokens: every confirmed token and its origin.
        rounds: every round.
        started: figures of the prompt, once the engine works on it.
        prefilled: share of the prompt that is evaluated, 0 to 1.
        finished: the end, once it is there.
        failure: why it could not be done; empty while it can.
    """

    id: int
    messages: tuple[Message, ...]
    answer: str = ""
    thoughts: str = ""
    tokens: list[LensToken] = field(default_factory=list)
    rounds: list[RoundFigures] = field(default_factory=list)
    started: Started | None = None
    prefilled: float = 0.0
    finished: Finished | None = None
    failure: Failed | None = None
    # Sums over the rounds, since the status line is asked for them all the time.
    _seconds: float = 0.0
    _confirmed: int = 0
    _drafted: int = 0
    _accepted: int = 0

    def __post_init__(self) -> None:
        rounds, self.rounds = self.rounds, []
        self._count(rounds)

    @property
    def done(self) -> bool:
        """Whether nothing more will come."""
        return self.finished is not None or self.failure is not None

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens after the first, per second of decoding; None before there are any."""
        if self.finished is not None:
            return self.finished.tokens_per_s
        return self._confirmed / self._seconds if self._seconds > 0 else None

    @property
    def acceptance(self) -> float | None:
        """Accepted over drafted tokens; None when nothing was drafted."""
        return self._accepted / self._drafted if self._drafted else None

    @property
    def context_tokens(self) -> int:
        """Tokens of context in use; what was refused uses none."""
        if self.failure is not None:
            return 0
        prompt = 0 if self.started is None else self.started.prompt_tokens
        return prompt + len(self.tokens)

    def take(self, notice: Notice) -> bool:
        """Take a notice; return whether it was for this request."""
        if getattr(notice, "id", None) != self.id:
            return False
        match notice:
            case Started():
                self.started = notice
            case Prefilling():
                self.prefilled = notice.done_tokens / max(notice.total_tokens, 1)
            case Streamed():
                self.answer += "".join(each.text for each in notice.spans if not each.thinking)
                self.thoughts += "".join(each.text for each in notice.spans if each.thinking)
                self.tokens += notice.tokens
                self._count(notice.rounds)
            case Finished():
                self.finished = notice
            case Failed():
                self.failure = notice
            case _:
                return False
        return True

    def _count(self, rounds: Sequence[RoundFigures]) -> None:
        self.rounds += rounds
        for each in rounds:
            self._seconds += each.draft_s + each.verify_s + each.other_s
            self._confirmed += each.confirmed
            self._drafted += each.drafted
            self._accepted += each.accepted
