import pytest

from localspec.decoding.drafters.drafter import Plan
from localspec.decoding.drafters.lookup import LookupDrafter
from localspec.decoding.policy import FixedPolicy, plain_policy
from localspec.decoding.round import Draft, Round, Spent, Verdict
from tests.toy import GREEDY, Unforeseen


@pytest.mark.parametrize(("n_past", "room"), [(1, 100), (50, 1), (4000, 7)])
def test_fixed_policy_always_plans_the_same(n_past: int, room: int) -> None:
    drafter = LookupDrafter(())
    assert FixedPolicy(drafter, 5).plan([0] * n_past, room) == Plan(drafter, 5)


def test_fixed_policy_bears_the_name_of_its_drafter() -> None:
    assert FixedPolicy(LookupDrafter(()), 3).name == "lookup"
    assert plain_policy().name == "off"
    assert plain_policy().plan([1], 9).draft_length == 0


def test_drafter_of_a_fixed_policy_follows_the_text() -> None:
    told: list[object] = []

    class Listening(Unforeseen):
        name = "listening"

        def begin(self, tokens, chooser):  # type: ignore[no-untyped-def]
            told.append((list(tokens), chooser.greedy))

        def propose(self, tokens, plan, chooser):  # type: ignore[no-untyped-def]
            raise AssertionError("nothing is proposed here")

        def learn(self, done: Round, steps: float) -> None:
            told.append(done.confirmed)

    policy = FixedPolicy(Listening(), 3)
    policy.begin([1, 2, 3], GREEDY)
    policy.learn(Round(Draft(), Verdict(0, 4), (4,), Spent(verify_s=1.0)))
    policy.end()
    assert told == [([1, 2, 3], True), (4,)]
