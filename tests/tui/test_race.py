from collections.abc import Iterable
from random import Random
from typing import Any

import msgspec
import pytest

from localspec.chat.events import RoundDone
from localspec.decoding.round import StopReason
from localspec.engine.protocol import EngineDied, Failed, Notice, ReplyEvents
from localspec.messages import Message
from localspec.options import ReplyOptions
from localspec.tui.race import Race
from tests.tui.answers import finished, plain, round_of, started, streamed


class Engine:
    """Stands in for the engine's client: keeps the requests."""

    def __init__(self) -> None:
        self.requests: list[tuple[str | None, int | None, bool, int | None]] = []
        self.cancelled: list[int] = []

    def ask(self, _messages: object, options: ReplyOptions, **more: Any) -> int:
        self.requests.append((more["draft"], more["keep"], more["ephemeral"], options.seed))
        return len(self.requests)

    def cancel(self, number: int) -> None:
        self.cancelled.append(number)


@pytest.fixture
def engine() -> Engine:
    return Engine()


@pytest.fixture
def race(engine: Engine) -> Race:
    race = Race(engine, (Message.user("q"),), ReplyOptions(seed=5))  # type: ignore[arg-type]
    race.start()
    return race


def run(race: Race, *texts: str, plain_s: Iterable[float] = (0.05,) * 90) -> str:
    """Run a race, rounds of three tokens with drafting, and rounds that take so long without; return the verdict."""
    lanes = [round_of(3, 2, 0.1)] * 30, [plain(each) for each in plain_s]
    for number, (text, rounds) in enumerate(zip(texts, lanes, strict=True), 1):
        race.take(ReplyEvents(number, tuple(RoundDone(each, ()) for each in rounds)))
        race.take(streamed(number, text))
        race.take(finished(number, text))
    return race.verdict()


def test_both_lanes_have_one_seed_and_start_with_the_same_cache_one_after_the_other(
    race: Race, engine: Engine
) -> None:
    assert engine.requests == [(None, None, True, 5)]
    race.take(started(1, prompt_tokens=50, cached_tokens=40))
    race.take(finished(1))
    assert engine.requests == [(None, None, True, 5), ("off", 40, True, 5)]
    assert not race.done
    race.take(finished(2))
    assert race.done


COUNT = "60 of 90 drafted tokens accepted"


def noisy(seed: int) -> list[float]:
    chance = Random(seed)
    return [chance.gauss(0.1 / 3, 0.004) for _ in range(90)]


@pytest.mark.parametrize(
    ("texts", "plain_s", "verdict"),
    [
        (("a", "a"), [0.05] * 90, f"drafting \u00d7 1.50; {COUNT}; the texts are equal"),
        (("a", "a"), [0.05] * 15, f"too short to tell; {COUNT}; the texts are equal"),
        *(
            (("a", "a"), noisy(seed), f"no clear difference in speed; {COUNT}; the texts are equal")
            for seed in range(20)
        ),
        (("same then this", "same then that"), [0.05] * 90, "the texts differ after 12 characters"),
        (("same", "same and more"), [0.05] * 90, "the texts differ after 4 characters"),
    ],
)
def test_the_verdict_has_a_figure_where_it_is_beyond_noise(
    race: Race, texts: tuple[str, str], plain_s: list[float], verdict: str
) -> None:
    assert verdict in run(race, *texts, plain_s=plain_s)


def test_where_nothing_was_drafted_the_race_shows_why(race: Race) -> None:
    why = "no drafting: would be slower here"
    race.take(msgspec.structs.replace(finished(1, "same"), no_drafting=why))
    race.take(finished(2, "same"))
    assert race.verdict() == f"{why}; the texts are equal"


@pytest.mark.parametrize(
    ("notice", "verdict"),
    [
        (Failed(1, "ContextOverflow", "the prompt is too long"), "the prompt is too long"),
        (finished(1, stop_reason=StopReason.CANCELLED), "stopped: there is nothing to compare"),
        (EngineDied("it was killed"), "it was killed; there is nothing to compare"),
    ],
)
def test_what_ends_the_first_lane_ends_the_race(
    race: Race, engine: Engine, notice: Notice, verdict: str
) -> None:
    race.stop()
    assert engine.cancelled == [1]
    assert race.take(notice) != isinstance(notice, EngineDied), "which concerns others, too"
    assert race.done
    assert race.verdict() == verdict
    race.take(finished(1))
    assert len(engine.requests) == 1, "nothing more is requested"


def test_what_concerns_others_changes_nothing(race: Race) -> None:
    assert not race.take(finished(99))
    verdict = run(race, "same", "same")
    assert not race.take(EngineDied("gone"))
    assert race.verdict() == verdict
