"""What a rule leaves no choice about is drafted without a model, and none of it is ever rejected."""

from collections.abc import Sequence

import numpy as np
import pytest
from numpy.typing import NDArray

from localspec.decoding.choose import Chooser
from localspec.decoding.costs import PairCosts, PassCosts
from localspec.decoding.drafters.forced import ForcedDrafter
from localspec.decoding.generation import Limits
from localspec.decoding.model import Role
from localspec.decoding.noise import Noise
from localspec.launch.drafting import Drafting
from localspec.options import SamplingParams
from tests.toy import GREEDY, CachedModel, random_table, run_to_end

N_VOCAB = 12
STARTS, CYCLE = {0, 2, 3, 5, 9}, (4, 7, 1)


class Cycle:
    """After some tokens 4, 7 and 1 have to follow; elsewhere anything may."""

    def allows(self, prefix: Sequence[int], ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        left = self.forced(prefix)
        return np.ones(ids.size, dtype=np.bool_) if not left else ids == left[0]

    def forced(self, prefix: Sequence[int]) -> tuple[int, ...]:
        for said in range(min(len(CYCLE), len(prefix))):
            start, *since = prefix[len(prefix) - said - 1 :]
            if start in STARTS and tuple(since) == CYCLE[:said]:
                return CYCLE[said:]
        return ()


def chooser(temperature: float) -> Chooser:
    """Return one whose choices the cycle binds."""
    return Chooser(SamplingParams(temperature=temperature), Noise(5), Cycle())


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("mode", ["auto", "forced", "forced:2"])
def test_what_must_follow_is_drafted_and_never_rejected(mode: str, temperature: float) -> None:
    model, chosen = random_table(3, N_VOCAB), chooser(temperature)
    costs = PairCosts(PassCosts((1, 32), (1.0, 1.5)))
    replies = []
    for each in ("off", mode):
        policy = Drafting(1, None, None, (), costs, longest=31).policy(each)
        target = CachedModel(model, 90)
        replies.append(run_to_end([3, 9, 2], {Role.TARGET: target}, policy, chosen, Limits(80, ())))
    plain, drafted = replies
    assert drafted.tokens == plain.tokens
    forced = [done for done in drafted.rounds if done.draft.drafter == "forced" and done.drafted]
    assert forced
    for done in forced:
        assert done.verdict.accepted == done.drafted


def test_what_must_follow_is_certain_and_nothing_is_forecast_where_a_choice_is_left() -> None:
    drafter = ForcedDrafter()
    drafter.begin([3], chooser(0.0))
    forecast = drafter.forecast([3, 9])
    assert forecast is not None
    assert set(forecast.chances) == {1.0}
    assert drafter.forecast([3, 9, 4, 7, 1]) is None
    drafter.begin([3, 9], GREEDY)
    assert drafter.forecast([3, 9]) is None, "without a constraint nothing is certain"
