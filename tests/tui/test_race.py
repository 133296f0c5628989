import asyncio
from collections.abc import AsyncGenerator, Callable, Iterable
from random import Random
from typing import Any

from localspec.chat.events import Event, Finished, RoundDone, Started, Text
from localspec.chat.request import Request
from localspec.decoding.round import Round, StopReason
from localspec.engine.engine import EngineGone
from localspec.errors import ContextOverflow, LocalspecError
from localspec.messages import Message
from localspec.options import ReplyOptions
from localspec.tui.race import Race
from tests.tui.answers import finished, plain, round_of

Lane = tuple[Iterable[Round], str, Finished | LocalspecError]


class Lanes:
    """Answers each request with the next lane; keeps the requests."""

    def __init__(self, *lanes: Lane) -> None:
        self.lanes, self.requests = list(lanes), list[Request]()
        self.cancelled: list[int] = []

    async def stream(self, request: Request, began: Callable[[int], None]) -> AsyncGenerator[Event]:
        self.requests.append(request)
        began(len(self.requests))
        rounds, text, end = self.lanes.pop(0)
        yield Started(50, 40)
        for each in rounds:
            yield RoundDone(each, ())
        yield Text(text)
        if isinstance(end, LocalspecError):
            raise end
        yield end

    def cancel(self, number: int) -> None:
        self.cancelled.append(number)


def run(*lanes: Lane) -> tuple[Race, Lanes]:
    engine = Lanes(*lanes)
    race = Race(engine, Request(0, (Message.user("q"),), ReplyOptions(seed=5)))  # type: ignore[arg-type]
    assert "first, then" in race.verdict()
    asyncio.run(race.run())
    assert race.done
    return race, engine


def test_both_lanes_have_one_seed_and_a_cache_and_why_nothing_was_drafted_is_shown() -> None:
    _, engine = run(([], "a", finished()), ([], "a", finished()))
    seen = [(each.draft, each.keep, each.ephemeral, each.options.seed) for each in engine.requests]
    assert seen == [(None, None, True, 5), ("off", 40, True, 5)]
    why = "no drafting: would be slower here"
    race, _ = run(([], "same", finished(no_drafting=why)), ([], "same", finished()))
    assert race.verdict() == f"{why}; the texts are equal"


COUNT = "60 of 90 drafted tokens accepted"


def noisy(seed: int) -> list[float]:
    chance = Random(seed)
    return [chance.gauss(0.1 / 3, 0.004) for _ in range(90)]


def test_the_verdict_has_a_figure_where_it_is_beyond_noise() -> None:
    for texts, plain_s, verdict in [
        (("a", "a"), [0.05] * 90, f"drafting \u00d71.50; {COUNT}; the texts are equal"),
        (("a", "a"), [0.05] * 15, f"too short to tell; {COUNT}; the texts are equal"),
        *((("a", "a"), noisy(seed), f"no clear difference in speed; {COUNT}; the texts are equal") for seed in range(20)),
        (("same then this", "same then that"), [0.05] * 90, "the texts differ after 12 characters"),
        (("same", "same and more"), [0.05] * 90, "the texts differ after 4 characters"),
    ]:  # fmt: skip
        drafted = [round_of(3, 2, 0.1)] * 30, texts[0], finished()
        race, _ = run(drafted, ([plain(each) for each in plain_s], texts[1], finished()))
        assert verdict in race.verdict()


def test_what_ends_the_first_lane_ends_the_race() -> None:
    rows: list[tuple[Any, ...]] = [
        (ContextOverflow("the prompt is too long"), "the prompt is too long"),
        (finished(stop_reason=StopReason.CANCELLED), "stopped: there is nothing to compare"),
        (EngineGone("it was killed"), "it was killed; there is nothing to compare"),
    ]
    for end, verdict in rows:
        race, engine = run(([], "a", end))
        assert race.verdict() == verdict
        assert len(engine.requests) == 1, "nothing more is requested"
        race.stop()
        assert engine.cancelled == []
