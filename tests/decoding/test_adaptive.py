"""What the adaptive policy plans; `test_adaptive_worlds` shows what comes of it."""

import numpy as np
import pytest

from localspec.decoding.choose import Chooser
from localspec.decoding.costs import PassCosts
from localspec.decoding.drafters.drafter import Drafter, Plan
from localspec.decoding.drafters.lookup import LookupDrafter
from localspec.decoding.drafters.model import ModelDrafter
from localspec.decoding.drafters.spelling import SharedIds
from localspec.decoding.noise import Noise
from localspec.decoding.policy import AdaptivePolicy
from localspec.decoding.round import Draft, Round, Spent, Verdict
from localspec.decoding.stats import could_win
from localspec.options import SamplingParams
from tests.decoding.test_model_drafter import propose
from tests.toy import CachedModel, Table

WIDTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 32)
Q4_K_M = PassCosts(
    WIDTHS,
    (0.0227, 0.0415, 0.0558, 0.0685, 0.0837, 0.0984, 0.1149, 0.1434, 0.1377, 0.2503),
)
GPU = PassCosts(WIDTHS, (0.01, 0.01, 0.01, 0.011, 0.011, 0.011, 0.012, 0.014, 0.015, 0.02))
CHEAP = PassCosts((1, 32), (0.001, 0.002))
COPIED = [*range(100, 140), 7, *range(100, 120)]
N_VOCAB = 1500
GREEDY = Chooser(SamplingParams(temperature=0), Noise(0))


class Counts(Table):
    """Says that a number is followed by the next, and is sure of it."""

    def __init__(self) -> None:
        super().__init__(np.zeros((1, N_VOCAB), dtype=np.float32), 1)

    def row(self, context):  # type: ignore[no-untyped-def]
        row = np.zeros(N_VOCAB, dtype=np.float32)
        row[(context[-1] + 1) % N_VOCAB] = 5.0
        return row


class Writing:
    """A reply that a policy plans, its rounds made by hand.

    Args:
        target: costs of its passes.
        draft_model: of the draft model's, which counts; None without one.
        prompt: what is there already, the first token included.
    """

    def __init__(self, target: PassCosts, draft_model: PassCosts | None, prompt: list[int]) -> None:
        self.target, self.draft_model, self.text = target, draft_model, list(prompt)
        self.model = CachedModel(Counts(), 4000)
        drafters: list[Drafter] = [LookupDrafter(())]
        if draft_model is not None:
            drafters.append(ModelDrafter(self.model, SharedIds(N_VOCAB), (), draft_model))
        self.policy = AdaptivePolicy(target, 31, drafters)
        self.policy.begin(self.text, GREEDY)

    def plan(self, room: int = 500) -> Plan:
        return self.policy.plan(self.text, room)

    def round(self, *comes: int, plain: bool = False) -> tuple[Draft, float]:
        """Make a round as planned, or a plain one; what comes is what the target says."""
        plan, text = self.plan(), self.text
        draft = Draft()
        if not plain:
            asking = plan.drafter.propose(text, plan, GREEDY)
            if plan.drafter.shares_passes:
                assert isinstance(plan.drafter, ModelDrafter)
                draft = propose(
                    plan.drafter, self.model, text, plan.draft_length, GREEDY, plan.stopping
                )
            else:
                with pytest.raises(StopIteration) as finished:
                    next(asking)
                draft = finished.value.value
        accepted = 0
        while accepted < min(len(draft.tokens), len(comes) - 1):
            if draft.tokens[accepted] != comes[accepted]:
                break
            accepted += 1
        confirmed = comes[: accepted + 1]
        draft_s = 0.0
        if draft.drafter == "model" and self.draft_model is not None:
            draft_s = plan.drafter.foreseen_s()
        spent = Spent(draft_s=draft_s, verify_s=self.target.of(len(draft.tokens) + 1))
        self.policy.learn(Round(draft, Verdict(accepted, confirmed[-1]), confirmed, spent))
        self.text += confirmed
        return draft, spent.round_s

    def plainly(self, *tokens: int) -> "Writing":
        """Let tokens be confirmed one by one, whatever is planned."""
        for token in tokens:
            self.round(token, plain=True)
        return self


def counted(target: PassCosts = GPU, draft_model: PassCosts = CHEAP) -> Writing:
    """Return a reply that counts, of which eight tokens were said plainly."""
    return Writing(target, draft_model, [500, 501]).plainly(*range(502, 510))


def test_a_text_without_repetition_is_decoded_plainly() -> None:
    plan = Writing(Q4_K_M, None, list(range(100))).plan()
    assert plan.draft_length == 0
    assert plan.drafter.name == "off"


def test_a_long_match_is_copied_as_far_as_its_record_says_that_it_pays() -> None:
    writing = Writing(Q4_K_M, None, COPIED[:-8]).plainly(*COPIED[-8:])
    plan = writing.plan()
    assert plan.drafter.name == "lookup"
    assert plan.draft_length >= 3
    draft, _ = writing.round(*range(120, 140))
    assert draft.tokens == tuple(range(120, 120 + plan.draft_length))
    assert writing.plan().draft_length >= 7, "it has gained"


def test_no_more_is_planned_than_there_is_room_for() -> None:
    writing = Writing(GPU, None, COPIED)
    assert writing.plan(room=4).draft_length == 3
    assert writing.plan(room=1).draft_length == 0


def test_planning_has_no_side_effects() -> None:
    writing = counted()
    writing.plainly(*COPIED)
    assert writing.plan() == writing.plan()
    assert writing.plan(room=3).draft_length <= 2
    usual = writing.plan()
    assert (usual.draft_length, usual.rate) == (writing.plan().draft_length, writing.plan().rate)


def test_what_the_text_shows_is_learnt_without_drafting() -> None:
    """A source that is wrong again and again is no longer believed, though it cost nothing."""
    writing, rates = Writing(GPU, None, list(range(100, 140))), []
    for wrong in range(500, 512):  # eight tokens of the source, and then another one
        for token in (*range(100, 108), wrong):
            writing.plainly(token)
            rates.append(writing.plan().rate)
    assert 0 < rates[-2] < 0.9 * rates[16], "after the eighth token"


def test_a_draft_model_that_is_wrong_is_asked_rarely() -> None:
    assert could_win(GPU, CHEAP, 31)
    writing = Writing(GPU, CHEAP, [500])
    asked = []
    for n in range(1800):
        passes = len(writing.model.asked)
        writing.round((7 * n * n + 3) % N_VOCAB)
        asked.append(len(writing.model.asked) > passes)
    assert 0 < sum(asked) < 60
    assert sum(asked[1200:]) < 30


def test_a_draft_model_that_is_right_is_asked_every_round() -> None:
    writing = counted()
    for _ in range(25):
        comes = range(writing.text[-1] + 1, writing.text[-1] + 40)
        draft, _ = writing.round(*comes)
        assert draft.drafter == "model"
        assert len(draft.tokens) > 0


def test_a_draft_model_is_first_compared_with_what_the_target_said() -> None:
    writing = Writing(GPU, CHEAP, [500, 501])
    assert writing.plan().draft_length == 0
    writing.plainly(*range(502, 510))
    plan = writing.plan()
    assert plan.drafter.name == "model"
    assert plan.stopping is not None
    assert len(plan.stopping.compared) == 9  # the reply's first token comes from the prompt
    writing.round(*range(510, 550))
    plan = writing.plan()
    assert plan.stopping is not None
    assert plan.stopping.compared == ()
    writing.policy.begin(writing.text, GREEDY)
    assert writing.plan().drafter.name == "model", "it has shown what it is good for"


@pytest.mark.parametrize(("right", "rests"), [(0, 64), (2, 8)])
def test_a_draft_model_that_was_right_about_little_rests(right: int, rests: int) -> None:
    """The longer, the less it was right about; what it would propose then is not looked at."""
    said = [*range(900, 870, -1), *range(872, 872 + right)]
    writing = Writing(Q4_K_M, CHEAP, said[:20]).plainly(*said[20:])
    assert writing.plan().drafter.name == "model"
    draft, _ = writing.round(1400)
    assert draft == Draft(drafter="model")
    rested = 0
    while writing.plan().drafter.name != "model":
        writing.plainly(1399 - rested)
        rested += 1
        assert rested < 1000
    assert rested == rests


def test_what_was_copied_does_not_speak_for_a_draft_model() -> None:
    writing = Writing(GPU, CHEAP, [*range(500, 700), 7, 500, 501])
    for _ in range(9):
        draft, _ = writing.round(*range(writing.text[-1] + 1, writing.text[-1] + 12))
        assert draft.drafter == "lookup"
    writing.text = list(range(1000, 1100))  # nothing to copy here
    writing.policy.drafters[0].begin(writing.text, GREEDY)
    assert writing.plan().draft_length == 0


def test_what_the_budget_does_not_cover_is_not_tried() -> None:
    dear = PassCosts((1, 16, 32), (0.001, 0.002, 0.3))  # catching up takes 60 plain steps
    long = Writing(GPU, dear, list(range(500, 554))).plainly(*range(554, 564))
    assert long.plan().draft_length == 0
    short = Writing(GPU, dear, [550, 551]).plainly(*range(552, 562))
    assert short.plan().draft_length > 0


def test_no_text_makes_it_spend_more_than_its_budget() -> None:
    writing, plain_s = Writing(GPU, CHEAP, COPIED), GPU.of(1)
    spent = 0.0
    for n in range(500):
        # Now and then the beginning of what was said before, and whatever is drafted is wrong.
        if n % 7 == 0:
            writing.plainly(*range(100, 106))
            spent += 6 * plain_s
        spent += writing.round(1000 + n)[1]
    tokens = len(writing.text) - len(COPIED)
    assert spent <= tokens / 0.97 * plain_s


def test_an_empty_draft_of_whoever_asks_for_no_pass_is_a_plain_round() -> None:
    """As where a constraint lets nothing of a copy follow: the budget is for drafts."""
    writing = Writing(Q4_K_M, None, COPIED)
    for _ in range(40):
        done = Round(Draft(drafter="lookup"), Verdict(0, 1), (1,), Spent(verify_s=0.03))
        writing.policy.learn(done)
    assert writing.policy._budget.steps == 14.5
