import pytest

from localspec.decoding.choose import Chooser
from localspec.decoding.drafters.drafter import NoDrafter, Plan
from localspec.decoding.noise import Noise
from localspec.decoding.round import Draft
from localspec.options import SamplingParams

CHOOSER = Chooser(SamplingParams(), Noise(0))


@pytest.mark.parametrize("draft_length", [0, 1, 100])
def test_no_drafter_proposes_nothing_and_asks_for_no_pass(draft_length: int) -> None:
    with pytest.raises(StopIteration) as finished:
        next(NoDrafter().propose([1, 2, 3], Plan(NoDrafter(), draft_length), CHOOSER))
    assert finished.value.value == Draft((), (), "off")
    assert NoDrafter().name == "off"
