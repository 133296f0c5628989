"""Several requests at once: each has its own events and its own end, whatever becomes of the others."""

from pathlib import Path
from typing import Any

import pytest

from localspec.chat.events import Finished, Prefilling, RoundDone, Started, Text
from localspec.decoding.round import StopReason
from localspec.engine.protocol import (
    Counted,
    Failed,
    LoadCancelled,
    Notice,
    Ready,
    ReplyEvents,
    StateLeft,
    StateRestored,
    StateSaved,
)
from localspec.messages import Message
from localspec.options import LaunchOptions, ReplyOptions, SamplingParams
from tests.engine.client import EngineClient
from tests.engine.double import command
from tests.engine.talking import Heard, double, hear, hear_all, hear_event, hear_of

GREEDY = ReplyOptions(SamplingParams(temperature=0))
RIVERS = {
    "Rhine": "The Rhine is 1233 km long.",
    "Danube": "Die Donau fließt nach Osten. " * 3,
    "Volga": "No.",
}
STORY = "x" * 150
SLOW = {"answers": RIVERS, "pass_s": 0.01}
LONG = {"answers": {**RIVERS, "story": STORY}, "pass_s": 0.01}


def resting(go_on: Path, **more: Any) -> dict[str, Any]:
    """Return a script of long answers that rest after twenty bytes, until a file is there."""
    return {**LONG, "rests": {"at": 20, "until": str(go_on)}, **more}


@pytest.fixture
def go_on(tmp_path: Path) -> Path:
    return tmp_path / "go on"


def asked(engine: EngineClient, *questions: str) -> list[int]:
    """Ask all of them, and return their ids."""
    return [engine.ask([Message.user(each)], GREEDY) for each in questions]


def hear_ends(engine: EngineClient, *requests: int) -> Heard:
    """Collect what the engine says up to the end of all of these requests."""
    left = set(requests)

    def ends(notice: Notice) -> bool:
        if isinstance(notice, Finished | Failed) and notice.id is not None:
            left.discard(notice.id)
        return not left

    return hear(engine, ends)


def whole(heard: Heard, request: int) -> str:
    """Return the text of a reply, and see that its events add up to it, in their order, and end with it."""
    mine = heard.about(request)
    (done,) = mine.of(Finished)
    assert mine[-1] is done, "nothing comes after its end"
    assert mine.of(Failed) == []
    assert [type(each) for each in mine[:-1]] == [ReplyEvents] * (len(mine) - 1)
    events = [event for each in mine.of(ReplyEvents) for event in each.events]
    assert [type(each) for each in events].index(Started) == 0
    assert len(mine.events(Started)) == 1
    assert mine.text == mine.written == done.reply.text == done.message.text
    confirmed = [token for each in mine.events(RoundDone) for token in each.round.confirmed]
    assert len(confirmed) == done.reply.completion_tokens
    assert tuple(confirmed[: len(done.reply.tokens)]) == done.reply.tokens
    return mine.text


@pytest.mark.parametrize("parallel", [1, 2, 3])
@pytest.mark.parametrize("drafts", [0, 3])
def test_each_has_its_own_events_and_its_own_end(parallel: int, drafts: int) -> None:
    with double({"answers": RIVERS, "parallel": parallel, "drafts": drafts}) as engine:
        numbers = asked(engine, *RIVERS, *RIVERS)
        heard = hear_ends(engine, *numbers)
    assert [whole(heard, each) for each in numbers] == [*RIVERS.values()] * 2
    assert {each.id for each in heard.of(ReplyEvents)} == set(numbers)


def test_several_go_on_at_once_and_the_short_one_does_not_wait_for_the_long_one() -> None:
    with double({**LONG, "parallel": 2}) as engine:
        story, volga = asked(engine, "a story", "Volga")
        heard = hear_ends(engine, story, volga)
    assert [each.id for each in heard.of(Finished)] == [volga, story]
    assert whole(heard, story) == STORY
    assert whole(heard, volga) == "No."


def test_where_there_is_one_sequence_they_are_answered_one_after_the_other() -> None:
    with double({"answers": RIVERS, "parallel": 1}) as engine:
        numbers = asked(engine, *RIVERS)
        heard = hear_ends(engine, *numbers)
    told = [each.id for each in heard if isinstance(each, ReplyEvents | Finished)]
    assert told == sorted(told)


@pytest.mark.first(1)
@pytest.mark.parametrize("parallel", [1, 3])
@pytest.mark.parametrize("which", [0, 1, 2])
def test_a_cancel_ends_one_and_leaves_the_others(parallel: int, which: int, go_on: Path) -> None:
    with double(resting(go_on, parallel=parallel)) as engine:
        numbers = asked(engine, "story 1", "story 2", "story 3")
        hear_event(engine, Text)
        engine.cancel(numbers[which])
        go_on.touch()
        heard = hear_ends(engine, *numbers)
    reasons = {each.id: each.reply.stop_reason for each in heard.of(Finished)}
    expected = dict.fromkeys(numbers, StopReason.EOG) | {numbers[which]: StopReason.CANCELLED}
    assert reasons == expected
    for each in heard.of(Finished):
        assert each.message.text == "x" * (
            len(each.message.text) if each.id == numbers[which] else len(STORY)
        )
    assert len(next(e for e in heard.of(Finished) if e.id == numbers[which]).message.text) < len(
        STORY
    )


def test_a_prompt_that_is_cancelled_leaves_the_one_that_is_written(go_on: Path) -> None:
    rests = {"at": 192, "until": str(go_on)}  # of the prompt, and for good: the story is shorter
    with double({**LONG, "parallel": 2, "rests": rests}) as engine:
        story, long = asked(engine, "a story", "x" * 3000)
        hear(engine, lambda each: bool(Heard([each]).about(long).events(Prefilling)))
        engine.cancel(long)
        heard = hear_ends(engine, long, story)
    ends = {each.id: (each.reply.stop_reason, each.message.text) for each in heard.of(Finished)}
    assert ends == {long: (StopReason.CANCELLED, ""), story: (StopReason.EOG, STORY)}


@pytest.mark.slow
def test_one_that_was_cancelled_goes_on_from_what_it_has(go_on: Path) -> None:
    with double(resting(go_on, parallel=2)) as engine:
        numbers = asked(engine, "story 1", "story 2")
        hear(engine, lambda each: bool(Heard([each]).about(numbers[0]).events(Text)))
        engine.cancel(numbers[0])
        go_on.touch()
        heard = hear_ends(engine, *numbers)
        cut = next(each for each in heard.of(Finished) if each.id == numbers[0])
        talk = [Message.user("story 1"), cut.message]
        rest = hear_all(engine, engine.ask(talk, GREEDY))
    assert cut.message.text + rest.text == STORY
    assert rest.started.cached_tokens == rest.started.prompt_tokens - 1


def order(heard: Heard, *kinds: type[Notice]) -> list[str]:
    return [type(each).__name__ for each in heard if isinstance(each, kinds)]


def test_a_load_waits_until_no_answer_is_under_way() -> None:
    with double({**LONG, "parallel": 2}) as engine:
        asked(engine, "a story", "another story")
        engine.load(LaunchOptions(target="another"))
        (last,) = asked(engine, "Volga")
        heard = hear_all(engine, last)
    assert order(heard, Finished, Ready) == ["Finished", "Finished", "Ready", "Finished"]
    assert [each.message.text for each in heard.of(Finished)] == [STORY, STORY, "No."]
    assert heard.of(Ready)[0].target == "another"


def test_a_load_that_is_cancelled_while_it_waits_costs_no_answer(go_on: Path) -> None:
    with double(resting(go_on, parallel=2)) as engine:
        numbers = asked(engine, "a story", "another story")
        hear_event(engine, Text)
        engine.load(LaunchOptions(target="another"))
        engine.cancel()
        go_on.touch()
        heard = hear_of(engine, LoadCancelled)
        assert heard[-1] == LoadCancelled("a-pair")
        assert [each.id for each in heard.of(Finished)] == numbers
        assert [each.message.text for each in heard.of(Finished)] == [STORY] * 2


def test_a_goodbye_waits_for_no_answer_and_keeps_the_state_all_the_same(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    state = tmp_path_factory.mktemp("history") / "7"
    with double({"otherwise": ["x" * 3000], "pass_s": 0.1}) as engine:
        asked(engine, "a story", "another story")
        engine.save_state(str(state))
        hear_event(engine, Text)
        engine.close(wait_s=120)  # all of it would take ten minutes
    assert (state / "cells.json").exists()


@pytest.mark.slow
def test_the_state_is_kept_and_put_back_between_answers(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    state = str(tmp_path_factory.mktemp("history") / "7")
    with double(LONG) as engine:
        asked(engine, "a story", "another story")
        engine.save_state(state)
        asked(engine, "Volga")
        engine.restore_state(state)
        (last,) = asked(engine, "a third story")
        heard = hear_all(engine, last)
    told = order(heard, Finished, StateSaved, StateRestored, StateLeft)
    assert told == [
        "Finished",
        "Finished",
        "StateSaved",
        "Finished",
        "StateRestored",
        "Finished",
    ]
    saved, restored = heard.of(StateSaved)[0], heard.of(StateRestored)[0]
    second = heard.of(Finished)[1].reply
    # All but the last token, which nothing has followed yet.
    assert saved.tokens == restored.tokens == second.prompt_tokens + len(second.tokens) - 1


def test_a_count_is_answered_beside_a_running_answer(go_on: Path) -> None:
    with double(resting(go_on)) as engine:
        (story,) = asked(engine, "a story")
        hear_event(engine, Text)
        count = engine.ask_count([Message.user("hello")])
        go_on.touch()
        heard = hear_all(engine, story)
    (counted,) = heard.of(Counted)
    assert (counted.id, counted.n_ctx) == (count, 4000)
    assert heard.index(counted) < len(heard) - 1
    assert heard.events(Text)[-1:] != [], "and the answer goes on behind it"


def test_a_count_that_fails_costs_no_answer() -> None:
    with double(LONG) as engine:
        (story,) = asked(engine, "a story")
        hear_event(engine, Text)
        count = engine.ask_count([])
        heard = hear_all(engine, story)
    assert [(each.id, each.kind) for each in heard.of(Failed)] == [(count, "UsageError")]
    assert heard.of(Finished)[0].message.text == STORY


@pytest.mark.parametrize(
    ("where", "kind", "told"),
    [
        ("pass", "PassFailed", "llama_decode returned -3"),
        ("draft", "Fault", "RuntimeError: a drafter out of its mind"),
    ],
)
@pytest.mark.parametrize("parallel", [1, 3])
def test_a_fault_in_one_is_its_own_affair(where: str, kind: str, told: str, parallel: int) -> None:
    script = {
        "answers": RIVERS, "parallel": parallel, "drafts": 2, "fails": {"Danube": [where, 9]}
    }  # fmt: skip
    with double(script) as engine:
        rhine, danube, volga = asked(engine, *RIVERS)
        heard = hear_ends(engine, rhine, danube, volga)
        again = asked(engine, "Rhine")
        assert whole(hear_ends(engine, *again), *again) == RIVERS["Rhine"]
    assert whole(heard, rhine) == RIVERS["Rhine"]
    assert whole(heard, volga) == RIVERS["Volga"]
    (failed,) = heard.of(Failed)
    assert (failed.id, failed.kind) == (danube, kind)
    assert told in failed.reason
    assert "\n" not in failed.reason
    assert heard.about(danube)[-1] is failed, "what was written before stays, and nothing follows"
    assert RIVERS["Danube"].startswith(heard.about(danube).text)


def test_one_that_is_too_long_is_refused_and_the_others_go_on() -> None:
    with double({**SLOW, "parallel": 2, "n_ctx": 500}) as engine:
        rhine, long, volga = asked(engine, "Rhine", "x" * 600, "Volga")
        heard = hear_ends(engine, rhine, long, volga)
    assert [(each.id, each.kind) for each in heard.of(Failed)] == [(long, "ContextOverflow")]
    assert whole(heard, rhine) == RIVERS["Rhine"]
    assert whole(heard, volga) == RIVERS["Volga"]


def test_a_fault_that_nobody_foresaw_ends_what_runs_and_not_the_models() -> None:
    script = {"answers": RIVERS, "parallel": 3, "fails": {"Danube": ["model", 9]}}
    with double(script) as engine:
        numbers = asked(engine, "Rhine", "Danube", "Rhine", "Rhine")
        heard = hear_ends(engine, *numbers)
        failed = [each.id for each in heard.of(Failed)]
        # The first may have been done before the second was heard.
        assert failed in (numbers, numbers[1:])
        assert {each.kind for each in heard.of(Failed)} == {"Fault"}
        assert "a model out of its mind" in heard.of(Failed)[0].reason
        after = asked(engine, "Rhine", "Volga")
        heard = hear_ends(engine, *after)
    assert [whole(heard, each) for each in after] == [RIVERS["Rhine"], RIVERS["Volga"]]


def test_a_conversation_that_is_asked_twice_at_once_is_answered_twice() -> None:
    with double({**SLOW, "parallel": 2}) as engine:
        numbers = [engine.ask([Message.user("Rhine")], GREEDY, ephemeral=bool(i)) for i in range(2)]
        heard = hear_ends(engine, *numbers)
    assert [whole(heard, each) for each in numbers] == [RIVERS["Rhine"]] * 2


def test_nothing_is_written_of_what_a_gate_has_masked(tmp_path: Path) -> None:
    script = {"answers": {"mail": "It is ann@example.org.", "river": "The Rhine."}}
    engine = EngineClient(command(script), gate="usual")
    engine.start()
    engine.load(LaunchOptions(pair="toy"))
    try:
        for asks, kind in (("the mail?", StateLeft), ("a river?", StateSaved)):
            engine.ask([Message.user(asks)])
            hear_of(engine, Finished)
            engine.save_state(str(tmp_path / "7"))
            told = hear_of(engine, StateLeft, StateSaved)[-1]
            assert isinstance(told, kind)
    finally:
        engine.close()
