"""RecordingPolicy: another policy, and a note of every round that it planned."""

from collections.abc import Callable, Sequence

from localspec.bench.trial import Arrival, RoundRecord
from localspec.decoding.policy import Plan, Policy
from localspec.decoding.round import Round, Spent


class RecordingPolicy:
    """Plans what `policy` plans, and writes down what came of it and when.

    Args:
        policy: decides.
        clock: seconds, monotonic.
        start: the clock's time of the request.
    """

    def __init__(self, policy: Policy, clock: Callable[[], float], start: float) -> None:
        self._policy = policy
        self._clock = clock
        self._start = start
        self.rounds: list[RoundRecord] = []
        self.arrivals: list[Arrival] = []
        self.tokens: list[int] = []

    @property
    def drafter_name(self) -> str:
        """That of the policy."""
        return self._policy.drafter_name

    @property
    def uses_draft_model(self) -> bool:
        """Whether the policy does."""
        return self._policy.uses_draft_model

    def begin(self, *, greedy: bool) -> None:
        """Note that the first token is there."""
        self.arrivals.append(Arrival(1, self._clock() - self._start))
        self._policy.begin(greedy=greedy)

    def plan(self, tokens: Sequence[int], room: int, lag: int) -> Plan:
        """Let the policy plan."""
        return self._policy.plan(tokens, room, lag)

    def learn(self, done: Round, spent: Spent) -> None:
        """Note a round, and let the policy learn from it."""
        now = self._clock() - self._start
        self._policy.learn(done, spent)
        drafted, accepted = len(done.draft.tokens), done.verdict.accepted
        confirmed = done.confirmed
        self.rounds.append(
            RoundRecord(done.draft.drafter, drafted, accepted, len(confirmed), spent)
        )
        self.arrivals.append(Arrival(self.arrivals[-1].n_tokens + len(confirmed), now))
        self.tokens += confirmed
