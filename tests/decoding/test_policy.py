import pytest
from localspec.decoding.drafter import NoDrafter
from localspec.decoding.lookup_drafter import LookupDrafter
from localspec.decoding.model_drafter import ModelDrafter

from localspec.decoding.policy import FixedPolicy, Plan


@pytest.mark.parametrize(("n_past", "room"), [(1, 100), (50, 1), (4000, 7)])
def test_fixed_policy_always_plans_the_same(n_past: int, room: int) -> None:
    drafter = LookupDrafter(())
    assert FixedPolicy(drafter, 5).plan([0] * n_past, room, 0) == Plan(drafter, 5)


@pytest.mark.parametrize(("lag", "prefill"), [(0, False), (2, False), (3, True)])
def test_fixed_policy_lets_the_draft_model_catch_up(lag: int, prefill: bool) -> None:
    drafter = ModelDrafter(60, 8, ())
    plan = FixedPolicy(drafter, 5, uses_draft_model=True).plan([0] * 5, 10, lag)
    assert plan.draft_prefill is prefill


def test_fixed_policy_bears_the_name_of_its_drafter() -> None:
    assert FixedPolicy(NoDrafter(), 0).drafter_name == "off"
    assert FixedPolicy(LookupDrafter(()), 3).drafter_name == "lookup"
    assert not FixedPolicy(NoDrafter(), 0).uses_draft_model
