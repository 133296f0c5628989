"""Our own runs: from empty caches, with a fresh policy, every round written down."""

import pytest

from localspec.bench import measure
from localspec.bench.arms import Arm
from localspec.bench.measure import OwnRuns, prompt_tokens, slot_options
from localspec.bench.prompts import BenchPrompt
from localspec.bench.trial import Slot, Trial
from localspec.chat.assistant import Assistant
from localspec.decoding.cancel import Cancelled
from localspec.decoding.drafters.lookup import LookupDrafter
from localspec.decoding.policy import FixedPolicy, Policy, plain_policy
from localspec.errors import ContextOverflow
from localspec.options import ReplyOptions
from tests.chat.test_assistant import END, TEMPLATE, Teller, Tellers, models_of
from tests.chat.toy_tokenizer import spelled
from tests.toy import Stopwatch

SCRIPT = spelled("one two three, one two three, one two three, one two three.")
PROMPTS = [BenchPrompt("chat", "Count."), BenchPrompt("edit", "Count again, please.")]
ASKED = ReplyOptions(seed=5, max_tokens=40)


class Bench:
    """A toy assistant, and which policies were asked for."""

    def __init__(self, n_ctx: int = 4000, cancel_after: int | None = None) -> None:
        self.target = Teller(SCRIPT, n_ctx, cancel_after=cancel_after)
        self.asked: list[str] = []
        self.policies: list[Policy] = []
        models = models_of(Tellers([self.target], most_rows=64), TEMPLATE)
        self.assistant = Assistant(models, [plain_policy()])

    def policy(self, mode: str) -> Policy:
        self.asked.append(mode)
        policy: Policy = plain_policy()
        if mode == "lookup":
            policy = FixedPolicy(LookupDrafter({END}), 8)
        self.policies.append(policy)
        return policy

    def runs(self, asked: ReplyOptions = ASKED) -> OwnRuns:
        return OwnRuns(self.assistant, self.policy, PROMPTS, asked, Stopwatch())


def run(mode: str, limit: int = 40) -> Trial:
    return Bench().runs(ReplyOptions(seed=5, max_tokens=limit)).run(Slot(0, 0.0, 0, mode, 0))


def test_every_run_starts_from_an_empty_cache_with_a_policy_of_its_own() -> None:
    bench, evaluated = Bench(), [0]
    runs = bench.runs()
    for mode in ("off", "off", "lookup"):
        runs.run(Slot(0, 0.0, 0, mode, 0))
        evaluated.append(bench.target.evaluated)
    assert evaluated[2] == 2 * evaluated[1]
    assert bench.asked == ["off", "off", "lookup"]
    assert len({id(policy) for policy in bench.policies}) == 3


def test_a_run_has_the_tokens_of_its_text_and_one_arrival_for_each_round() -> None:
    plain, drafted = run("off"), run("lookup")
    assert plain.tokens == drafted.tokens == tuple(SCRIPT[:40])
    assert [arrival.n_tokens for arrival in plain.arrivals] == list(range(1, 41))
    assert (len(plain.rounds), plain.drafted) == (39, 0)
    assert drafted.accepted > 8
    assert drafted.n_tokens == 1 + sum(len(each.confirmed) for each in drafted.rounds) == 40
    assert len(drafted.arrivals) < 40
    one = run("off", 1)
    assert (one.n_tokens, len(one.arrivals), one.rounds) == (1, 1, ())
    assert one.wall_s == one.first_token_s > 0


@pytest.mark.parametrize("mode", ["off", "lookup"])
def test_the_token_that_ends_the_answer_counts_and_none_behind_it(mode: str) -> None:
    trial = run(mode, 500)
    assert trial.tokens == (*SCRIPT, END)
    assert trial.n_tokens == len(SCRIPT) + 1
    assert sum(len(each.confirmed) for each in trial.rounds) == len(SCRIPT)


def test_repeats_have_seeds_of_their_own_and_modes_have_not() -> None:
    slots = Slot(0, 0.8, 0, "off", 0), Slot(0, 0.8, 1, "auto", 0)
    one, other = (slot_options(ASKED, each) for each in slots)
    assert (one.seed, other.seed) == (5, 6)
    assert one.sampling.temperature == 0.8


def test_what_was_measured_before_a_cancel_is_kept() -> None:
    arms = [Arm(name, name, name) for name in ("off", "lookup")]
    wanted = measure.Bench(arms, PROMPTS, "", [0.0], ASKED, repeats=2)
    seen: list[int] = []

    def on_trial(done: int, planned: int, trial: Trial) -> None:
        seen.append(done)

    runs = dict.fromkeys(wanted.names, Bench(cancel_after=150).runs())
    measured, planned = measure.measure(wanted, runs, on_trial)
    assert 0 < len(measured) < planned == 8
    assert seen == list(range(1, len(measured) + 1))


def test_a_cancelled_run_is_none() -> None:
    bench = Bench(cancel_after=5)
    runs = bench.runs()
    with pytest.raises(Cancelled):
        runs.run(Slot(0, 0.0, 0, "off", 0))


def test_a_prompt_that_is_too_long_is_named_before_anything_is_measured() -> None:
    lengths = [len(tokens) for tokens in prompt_tokens(Bench().assistant, PROMPTS)]
    with pytest.raises(ContextOverflow, match=rf"prompt 2 \(edit\) has {lengths[1]} tokens"):
        prompt_tokens(Bench(n_ctx=lengths[1]).assistant, PROMPTS)
