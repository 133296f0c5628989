from collections.abc import Iterable
from random import Random

import msgspec
import pytest

from localspec.chat.events import RoundDone
from localspec.decoding.round import StopReason
from localspec.engine.protocol import EngineDied, Failed, ReplyEvents
from localspec.messages import Message
from localspec.options import ReplyOptions
from localspec.tui.race import Race
from tests.tui.answers import finished, plain, round_of, started, streamed


class Asked:
    """Stands in for the engine's client: keeps what was asked."""

    def __init__(self) -> None:
        self.requests: list[tuple[str | None, int | None, bool, int | None]] = []
        self.cancelled: list[int | None] = []

    def ask(
        self,
        turns: object,
        options: ReplyOptions,
        *,
        draft: str | None,
        keep: int | None,
        ephemeral: bool,
    ) -> int:
        self.requests.append((draft, keep, ephemeral, options.seed))
        return len(self.requests)

    def cancel(self, id: int | None = None) -> None:  # noqa: A002 - the protocol's word
        self.cancelled.append(id)


@pytest.fixture
def engine() -> Asked:
    return Asked()


@pytest.fixture
def race(engine: Asked) -> Race:
    race = Race(engine, (Message.user("q"),), ReplyOptions(seed=5))  # type: ignore[arg-type]
    race.start()
    return race


def run(race: Race, *texts: str, plain_s: Iterable[float] = (0.05,) * 90) -> None:
    """Run a race: rounds of three tokens with drafting, and rounds that take so long without."""
    lanes = [round_of(3, 2, 0.1)] * 30, [plain(each) for each in plain_s]
    for number, (text, rounds) in enumerate(zip(texts, lanes, strict=True), 1):
        race.take(ReplyEvents(number, tuple(RoundDone(each, ()) for each in rounds)))
        race.take(streamed(number, text))
        race.take(finished(number, text, tokens_per_s=30.0 if number == 1 else 20.0))


def test_both_lanes_have_one_seed_and_start_with_the_same_cache_one_after_the_other(
    race: Race, engine: Asked
) -> None:
    assert engine.requests == [(None, None, True, 5)]
    race.take(started(1, prompt_tokens=50, cached_tokens=40))
    race.take(finished(1))
    assert engine.requests == [(None, None, True, 5), ("off", 40, True, 5)]
    assert not race.done
    race.take(finished(2))
    assert race.done


def test_equal_texts_are_said_to_be_equal(race: Race) -> None:
    run(race, "same", "same")
    assert race.fork() is None
    told = "drafting \u00d7 1.50 (1.50 to 1.50); 60 of 90 drafted tokens accepted"
    assert race.verdict() == f"{told}; the texts are equal"


def test_a_short_race_has_no_figure(race: Race) -> None:
    run(race, "same", "same", plain_s=[0.05] * 15)
    assert race.verdict().startswith("too short to tell; 60 of 90 drafted tokens accepted; ")


def test_a_difference_within_noise_has_no_figure(race: Race) -> None:
    chance = Random(7)
    run(race, "same", "same", plain_s=[chance.expovariate(1 / 0.036) for _ in range(90)])
    told = "no clear difference in speed; 60 of 90 drafted tokens accepted"
    assert race.verdict() == f"{told}; the texts are equal"


@pytest.mark.parametrize("seed", range(20))
def test_two_lanes_of_one_speed_have_no_figure(engine: Asked, seed: int) -> None:
    chance = Random(seed)
    race = Race(engine, (), ReplyOptions(seed=5))  # type: ignore[arg-type]
    race.start()
    run(race, "same", "same", plain_s=[chance.gauss(0.1 / 3, 0.004) for _ in range(90)])
    assert "no clear difference" in race.verdict()


def test_where_nothing_was_drafted_the_race_says_why(race: Race) -> None:
    race.take(
        msgspec.structs.replace(
            finished(1, "same"), no_drafting="no drafting: would be slower here"
        )
    )
    race.take(finished(2, "same"))
    assert race.verdict() == "no drafting: would be slower here; the texts are equal"


def test_a_fork_is_found_where_the_texts_part(race: Race) -> None:
    run(race, "same then this", "same then that")
    assert race.fork() == 12
    assert "differ from character 13 on" in race.verdict()


def test_a_text_that_is_the_beginning_of_the_other_is_no_equal(race: Race) -> None:
    run(race, "same", "same and more")
    assert race.fork() is None
    assert "differ from character 5 on" in race.verdict()


def test_a_stopped_race_compares_nothing(race: Race, engine: Asked) -> None:
    race.stop()
    assert engine.cancelled == [1]
    race.take(finished(1, "", stop_reason=StopReason.CANCELLED))
    assert race.done
    assert len(engine.requests) == 1
    assert race.verdict() == "stopped: there is nothing to compare"


def test_a_failure_ends_the_race_and_is_told(race: Race) -> None:
    race.take(Failed(1, "ContextOverflow", "the prompt is too long"))
    assert race.done
    assert race.verdict() == "the prompt is too long"


def test_an_engine_that_dies_ends_the_race_and_is_told_to_others_as_well(
    race: Race, engine: Asked
) -> None:
    assert not race.take(EngineDied("the engine was killed"))
    assert race.done
    assert race.verdict() == "the engine was killed; there is nothing to compare"
    race.take(finished(1))
    assert len(engine.requests) == 1, "nothing more is asked"


def test_an_engine_that_dies_after_the_race_changes_nothing(race: Race) -> None:
    run(race, "same", "same")
    race.take(EngineDied("gone"))
    assert "the texts are equal" in race.verdict()


def test_messages_of_others_are_left_alone(race: Race) -> None:
    assert not race.take(finished(99))
    assert not race.take(EngineDied("gone"))
