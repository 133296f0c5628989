"""What a kind of text earned before is where a policy starts from, and only for that kind."""

from pathlib import Path
from random import Random

from localspec.decoding.adaptive import AdaptivePolicy, adaptive_policy
from localspec.decoding.drafter import Draft
from localspec.decoding.model_drafter import ModelDrafter
from localspec.decoding.verify import Verdict
from localspec.informed import Informed

from localspec.decoding.costs import PassCosts
from localspec.decoding.round import Round, Spent
from localspec.telemetry.recorder import Recorder
from localspec.telemetry.switch import Switch
from localspec.telemetry.taking_in import collect
from tests.telemetry.talking import PAIR, Talk

CODE = "Write a Python function that reverses a list."
TARGET = PassCosts((1, 2, 4, 8, 16, 32), (0.05, 0.052, 0.055, 0.06, 0.09, 0.15))
DRAFT_MODEL = PassCosts((1, 32), (0.01, 0.05))


def _policy() -> AdaptivePolicy:
    drafter = ModelDrafter(1000, 1000, ())
    return adaptive_policy(TARGET, (), 31, drafter, DRAFT_MODEL)


def _recorder(directory: Path, workload: str | None = None) -> Recorder:
    return Recorder(
        directory, PAIR, Switch(on=True, text=False), lambda: (0.0, 0.0), lambda _: b"", workload
    )


def _stops_at(policy: AdaptivePolicy) -> bool:
    """Return whether a draft goes on after two tokens whose gaps are small."""
    policy.begin(greedy=False)
    # The reply's first token is known; what it has still to show is looked for in the first few.
    for n in range(50, 60):
        policy.plan(list(range(n)), 400, n)
        policy.learn(Round(Draft(), Verdict(0, n)), Spent(0.0, 0.0, TARGET.of(1), 0.0))
    stopping = policy.plan(list(range(60)), 390, 60).drafter.stopping  # type: ignore[attr-defined]
    return not stopping.goes_on([1.6, 2.4])


def test_what_was_rejected_before_is_given_up_sooner(tmp_path: Path) -> None:
    told = _recorder(tmp_path, "code")
    talk = Talk(told, Random(1))
    for _ in range(30):
        talk.reply(10, acceptance=0.02, asked=CODE)
    told.close()
    collect(tmp_path)
    fresh, informed = _policy(), _policy()
    assert not _stops_at(fresh)
    after = _recorder(tmp_path)
    Informed(after, informed, tmp_path, PAIR).begin(CODE, [1, 2, 3], greedy=False)
    after.close()
    assert _stops_at(informed)


def test_another_kind_of_text_starts_afresh(tmp_path: Path) -> None:
    told = _recorder(tmp_path, "code")
    talk = Talk(told, Random(1))
    for _ in range(30):
        talk.reply(10, acceptance=0.02, asked=CODE)
    told.close()
    collect(tmp_path)
    informed = _policy()
    after = _recorder(tmp_path)
    tracer = Informed(after, informed, tmp_path, PAIR)
    tracer.begin(CODE, [1, 2, 3], greedy=False)
    tracer.begin("Write a poem about rain.", [1, 2, 3], greedy=False)
    after.close()
    assert not _stops_at(informed)


def test_what_is_learnt_here_counts_beside_it() -> None:
    policy = _policy()
    policy.expect({3: (0.99, 1000.0)}, greedy=False)
    assert not _stops_at(policy)
    for _ in range(80):
        draft = Draft((5, 6), (0.5, 0.5), "model", (1.6, 2.4))
        policy.learn(Round(draft, Verdict(0, 9)), Spent(0.0, 0.02, 0.055, 0.0))
    policy.expect({3: (0.99, 1000.0)}, greedy=False)
    chance = policy._model._chance(1.6)  # type: ignore[union-attr]
    assert chance < 0.5


def test_answer_does_not_wait_for_what_others_have_only_spooled(tmp_path: Path) -> None:
    told = _recorder(tmp_path, "code")
    Talk(told).reply(10, asked=CODE)
    told.close()
    spools = list(tmp_path.glob("*.spool"))
    after = _recorder(tmp_path)
    Informed(after, _policy(), tmp_path, PAIR).begin(CODE, [1, 2, 3], greedy=False)
    after.close()
    assert spools
    assert list(tmp_path.iterdir()) == spools
