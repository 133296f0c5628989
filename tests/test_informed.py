"""What a kind of text earned before is where a policy starts from, and only for that kind."""

from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import cast

import pytest

from localspec.chat.loaded_models import LoadedModels
from localspec.chat.request import Request
from localspec.decoding.costs import PassCosts
from localspec.decoding.drafters.model import ModelDrafter
from localspec.decoding.drafters.vocab_map import SharedIds
from localspec.decoding.policy import AdaptivePolicy
from localspec.decoding.round import Draft, Round, Spent, Verdict
from localspec.launch.observe import Telemetry
from localspec.messages import Message
from localspec.options import ReplyOptions, SamplingParams
from localspec.options.recording import Switch
from localspec.telemetry import log
from localspec.telemetry.recorder import Recorder
from localspec.telemetry.reply import Pair
from tests.telemetry.talking import PAIR, Talk
from tests.toy import SAMPLED, CachedModel, random_table

CODE = "Write a Python function that reverses a list."
TARGET = PassCosts((1, 2, 4, 8, 16, 32), (0.05, 0.052, 0.055, 0.06, 0.09, 0.15))
DRAFT_MODEL = PassCosts((1, 32), (0.01, 0.05))


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("LOCALSPEC_TELEMETRY", "on")
    return tmp_path / "telemetry"


def _drafter() -> ModelDrafter:
    model = CachedModel(random_table(1, n_vocab=100), 1000)
    return ModelDrafter(model, SharedIds(100), (), DRAFT_MODEL)


def _policy() -> AdaptivePolicy:
    return AdaptivePolicy(TARGET, 31, [_drafter()])


def _told(directory: Path, replies: int) -> None:
    """Record replies that write code, of whose drafts hardly anything was accepted."""
    recorder = Recorder(directory, PAIR, Switch(text=False), lambda _: b"", "code")
    talk = Talk(recorder, Random(1))
    for _ in range(replies):
        talk.reply(10, acceptance=0.02, asked=CODE)
    recorder.close()


def _models(target: str = "a", draft_model: str | None = None) -> LoadedModels:
    tokenizer = SimpleNamespace(piece=lambda _: b"")
    names = {"target_name": target, "draft_model_name": draft_model}
    return cast("LoadedModels", SimpleNamespace(tokenizer=tokenizer, costs=None, **names))


def _request(question: str, temperature: float = 0.8) -> Request:
    options = ReplyOptions(SamplingParams(temperature=temperature))
    return Request(0, (Message.user(question),), options)


def _inform(policy: AdaptivePolicy, *questions: str) -> None:
    models = _models(PAIR.target, PAIR.draft_model)
    (observer,) = Telemetry().observe(models, 1)
    for each in questions:
        observer.begin(_request(each), [1, 2, 3], policy)
    observer.close()


def _stops_at(policy: AdaptivePolicy) -> bool:
    """Return whether a draft goes on after two tokens whose gaps are small."""
    policy.begin(range(50), SAMPLED)
    for n in range(50, 60):
        policy.plan(list(range(n)), 400)
        policy.learn(Round(Draft(), Verdict(0, n), (n,), Spent(verify_s=TARGET.of(1))))
    policy._ledgers["model"].rounds = 9
    worth = policy.plan(list(range(60)), 390).worth()
    assert worth is not None
    drafter = policy.drafters[0]
    assert isinstance(drafter, ModelDrafter)
    return not [worth.add(drafter.chance(gap)) for gap in (1.6, 2.4)][-1]


def test_what_was_rejected_before_is_given_up_sooner_for_that_kind_of_text(
    directory: Path,
) -> None:
    _told(directory, 30)
    fresh, informed, other = _policy(), _policy(), _policy()
    assert not _stops_at(fresh)
    _inform(informed, CODE)
    assert _stops_at(informed)
    _inform(other, CODE, "Write a poem about rain.")
    assert not _stops_at(other)


def test_what_is_learnt_here_counts_beside_it() -> None:
    drafter = _drafter()
    policy = AdaptivePolicy(TARGET, 31, [drafter])
    drafter.expect({3: (0.99, 1000.0)})
    assert not _stops_at(policy)
    assert drafter.chance(1.6) > 0.9
    for _ in range(80):
        draft = Draft((5, 6), (0.5, 0.5), "model", (1.6, 2.4), passes=2)
        policy.learn(Round(draft, Verdict(0, 9), (9,), Spent(draft_s=0.02, verify_s=0.055)))
    drafter.expect({3: (0.99, 1000.0)})
    assert drafter.chance(1.6) < 0.5


def test_greedy_texts_and_others_are_asked_about_apart(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _told(directory, 1)
    asked: list[bool] = []

    def read(*_: object, greedy: bool, **__: object) -> dict[str, object]:
        asked.append(greedy)
        return {}

    monkeypatch.setattr(log, "read_prior", read)
    (observer,) = Telemetry().observe(_models(), 1)
    for temperature in (0.8, 0, 0.8):
        observer.begin(_request(CODE, temperature), [1, 2, 3], _policy())
    observer.close()
    assert asked == [False, True]


def test_what_is_recorded_of_a_pair_is_no_path(directory: Path) -> None:
    _told(directory, 1)
    telemetry = Telemetry()
    telemetry.observe(_models("/home/ada/t.gguf", "d"), 2)
    assert telemetry.recorder is not None
    assert telemetry.recorder.pair == Pair("t.gguf", "d", 2)
    telemetry.close()
