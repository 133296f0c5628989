import pytest
from localspec.decoding.generate import Limits, StopReason
from localspec.decoding.model_drafter import ModelDrafter
from localspec.decoding.timings import Timings

from localspec.decoding.choose import Chooser
from localspec.decoding.model import LanguageModel, Logits, Role
from localspec.decoding.noise import Noise
from localspec.decoding.policy import FixedPolicy
from localspec.options import SamplingParams
from tests.toy import CachedModel, Countdown, Stopwatch, random_table, run_to_end


class SlowModel(CachedModel):
    """Takes `seconds` for every token that it evaluates."""

    __slots__ = ("seconds", "watch")

    def slowed(self, watch: Stopwatch, seconds: float) -> "SlowModel":
        self.watch, self.seconds = watch, seconds
        return self

    def _decode(self, tokens: list[int], rows: int) -> Logits:  # type: ignore[override]
        self.watch.now_s += self.seconds * len(tokens)
        return super()._decode(tokens, rows)


def slow_pair(watch: Stopwatch) -> dict[Role, LanguageModel]:
    table = random_table(1, n_vocab=8)
    return {
        Role.TARGET: SlowModel(table, 60).slowed(watch, 10.0),
        Role.DRAFT_MODEL: SlowModel(table, 60).slowed(watch, 1.0),
    }


def test_every_stage_is_timed_and_they_add_up() -> None:
    watch = Stopwatch(step_s=0.0)
    timings = Timings(clock=watch)
    policy = FixedPolicy(ModelDrafter(60, 8, ()), 3, uses_draft_model=True)
    chooser = Chooser(SamplingParams(), Noise(0))
    reply = run_to_end([1, 2, 3], slow_pair(watch), policy, chooser, Limits(9, ()), timings)
    assert len(reply.rounds) == 3  # the first token, and two rounds of four
    assert timings.prefill_s == 30
    assert timings.prefill_tokens == 3
    assert timings.draft_prefill_s == 3
    assert timings.verify_s == 80
    assert timings.draft_s == 3 + 4  # in the second round two of its tokens are new at first
    assert timings.sample_s == 0
    assert timings.decode_s == 90
    assert timings.other_s == 0


def test_stages_do_not_overlap_and_leave_nothing_negative() -> None:
    """With a clock that moves at every look, each look falls into one stage or into the rest."""
    watch = Stopwatch(step_s=1.0)
    timings = Timings(clock=watch)
    policy = FixedPolicy(ModelDrafter(60, 8, ()), 2, uses_draft_model=True)
    chooser = Chooser(SamplingParams(), Noise(0))
    run_to_end([1], slow_pair(watch), policy, chooser, Limits(10, ()), timings)
    assert min(timings.sample_s, timings.draft_s, timings.verify_s, timings.other_s) > 0
    assert sum(timings.stages()) + timings.other_s == timings.decode_s


@pytest.mark.parametrize("passes", range(6))
def test_cancelled_reply_has_times_of_what_was_done(passes: int) -> None:
    watch = Stopwatch(step_s=0.0)
    timings = Timings(clock=watch)
    models = slow_pair(watch)
    countdown = Countdown(passes)
    for model in models.values():
        assert isinstance(model, SlowModel)
        model.cancel = countdown
    policy = FixedPolicy(ModelDrafter(60, 8, ()), 2, uses_draft_model=True)
    chooser = Chooser(SamplingParams(), Noise(0))
    reply = run_to_end([1, 2], models, policy, chooser, Limits(9, ()), timings)
    assert reply.stop_reason is StopReason.CANCELLED
    assert timings.prefill_s == 20
    assert timings.draft_prefill_s == (2 if timings.decode_s else 0)  # no round was confirmed
    assert timings.other_s >= 0


def test_reply_of_one_token_has_no_decode_time() -> None:
    watch = Stopwatch(step_s=0.0)
    timings = Timings(clock=watch)
    policy = FixedPolicy(ModelDrafter(60, 8, ()), 2, uses_draft_model=True)
    chooser = Chooser(SamplingParams(), Noise(0))
    run_to_end([1, 2], slow_pair(watch), policy, chooser, Limits(1, ()), timings)
    assert timings.prefill_s == 20
    assert timings.decode_s == timings.draft_prefill_s == 0
