"""Several requests at once: each has its own events and its own end, whatever becomes of the others."""

from pathlib import Path
from typing import Any

import pytest

from localspec.chat.events import Finished, Prefilling, RoundDone, Started, Text
from localspec.decoding.round import StopReason
from localspec.engine.protocol import Counted, Failed, LoadCancelled, Notice, Ready, ReplyEvents
from localspec.messages import Message
from localspec.options import LaunchOptions
from tests.engine.talking import Heard, Talker, double, hear, hear_all, hear_event, hear_of

pytestmark = pytest.mark.slow

RIVERS = {
    "Rhine": "The Rhine is 1233 km long.",
    "Danube": "Die Donau fließt nach Osten. " * 3,
    "Volga": "No.",
}
STORY = "x" * 150
LONG = {"answers": {**RIVERS, "story": STORY}, "pass_s": 0.003}


@pytest.fixture
def go_on(tmp_path: Path) -> Path:
    return tmp_path / "go on"


def resting(go_on: Path, **more: Any) -> dict[str, Any]:
    """Return a script of long answers that rest after twenty bytes, until a file is there."""
    return {**LONG, "rests": {"at": 20, "until": str(go_on)}, **more}


def asked(engine: Talker, *questions: str) -> list[int]:
    return [engine.ask(each) for each in questions]


def hear_ends(engine: Talker, *requests: int) -> Heard:
    left = set(requests)

    def ends(notice: Notice) -> bool:
        if isinstance(notice, Finished | Failed) and notice.id is not None:
            left.discard(notice.id)
        return not left

    return hear(engine, ends)


def whole(heard: Heard, request: int) -> str:
    """Return the text of a reply, and see that its events add up to it, in their order, and end with it."""
    mine = heard.about(request)
    done = mine.done
    assert [type(each) for each in mine[:-1]] == [ReplyEvents] * (len(mine) - 1)
    events = [event for each in mine.of(ReplyEvents) for event in each.events]
    assert [isinstance(each, Started) for each in events] == [True, *[False] * (len(events) - 1)]
    assert mine.text == mine.written == done.reply.text == done.message.text
    confirmed = [token for each in mine.events(RoundDone) for token in each.round.confirmed]
    assert len(confirmed) == done.reply.completion_tokens
    assert tuple(confirmed[: len(done.reply.tokens)]) == done.reply.tokens
    return mine.text


def order(heard: Heard, *kinds: type[Notice]) -> list[str]:
    return [type(each).__name__ for each in heard if isinstance(each, kinds)]


@pytest.mark.parametrize(("parallel", "drafts"), [(1, 3), (3, 0), (3, 3)])
def test_each_has_its_own_events_and_its_own_end(parallel: int, drafts: int) -> None:
    with double({"answers": RIVERS, "parallel": parallel, "drafts": drafts}) as engine:
        numbers = asked(engine, *RIVERS, *RIVERS)
        heard = hear_ends(engine, *numbers)
    assert [whole(heard, each) for each in numbers] == [*RIVERS.values()] * 2
    ids = [each.id for each in heard if isinstance(each, ReplyEvents | Finished)]
    assert set(ids) == set(numbers)
    # With several sequences they may be as well: a short answer can end before the next request comes.
    assert parallel > 1 or ids == sorted(ids), "with one sequence, one after the other"


def test_the_short_one_does_not_wait_for_the_long_one() -> None:
    with double({**LONG, "parallel": 2}) as engine:
        story, volga = asked(engine, "a story", "Volga")
        heard = hear_ends(engine, story, volga)
    assert [each.id for each in heard.of(Finished)] == [volga, story]
    assert (whole(heard, story), whole(heard, volga)) == (STORY, "No.")


@pytest.mark.first(1)
@pytest.mark.parametrize(("parallel", "which"), [(1, 2), (3, 0), (3, 1)])
def test_a_cancel_ends_one_and_leaves_the_others(parallel: int, which: int, go_on: Path) -> None:
    with double(resting(go_on, parallel=parallel)) as engine:
        numbers = asked(engine, "story 1", "story 2", "story 3")
        hear_event(engine, Text)
        engine.cancel(numbers[which])
        go_on.touch()
        heard = hear_ends(engine, *numbers)
    for each in heard.of(Finished):
        ended = each.id == numbers[which]
        assert each.reply.stop_reason is (StopReason.CANCELLED if ended else StopReason.EOG)
        assert STORY.startswith(each.message.text)
        assert (each.message.text == STORY) is not ended


def test_a_prompt_that_is_cancelled_leaves_the_one_that_is_written(go_on: Path) -> None:
    rests = {"at": 192, "until": str(go_on)}  # of the prompt, and for good: the story is shorter
    with double({**LONG, "parallel": 2, "rests": rests}) as engine:
        story, long = asked(engine, "a story", "x" * 3000)
        hear(engine, lambda each: bool(Heard([each]).about(long).events(Prefilling)))
        engine.cancel(long)
        heard = hear_ends(engine, long, story)
    ends = {each.id: (each.reply.stop_reason, each.message.text) for each in heard.of(Finished)}
    assert ends == {long: (StopReason.CANCELLED, ""), story: (StopReason.EOG, STORY)}


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
    ends = {each.id: each.message.text for each in heard.of(Finished)}
    assert ends == dict.fromkeys(numbers, STORY)


def test_a_count_is_answered_beside_a_running_answer_and_costs_it_nothing(go_on: Path) -> None:
    with double(resting(go_on)) as engine:
        (story,) = asked(engine, "a story")
        hear_event(engine, Text)
        count, wrong = engine.count_of(Message.user("hello")), engine.count_of()
        go_on.touch()
        heard = hear_all(engine, story)
    (counted,) = heard.of(Counted)
    assert (counted.id, counted.n_ctx) == (count, 4000)
    assert [(each.id, each.kind) for each in heard.of(Failed)] == [(wrong, "UsageError")]
    assert heard.events(Text)[-1:] != [], "and the answer goes on behind it"
    assert heard.done.message.text == STORY


@pytest.mark.parametrize(
    ("where", "parallel", "kind", "words"),
    [
        ("pass", 1, "PassFailed", "llama_decode returned -3"),
        ("pass", 3, "PassFailed", "llama_decode returned -3"),
        ("draft", 3, "Fault", "RuntimeError: a drafter out of its mind"),
    ],
)
def test_a_fault_in_one_is_its_own_affair(where: str, parallel: int, kind: str, words: str) -> None:
    fails = {"Danube": [where, 9]}
    script = {"answers": RIVERS, "parallel": parallel, "drafts": 2, "fails": fails}
    with double(script) as engine:
        rhine, danube, volga = asked(engine, *RIVERS)
        heard = hear_ends(engine, rhine, danube, volga)
        assert engine.reply("Rhine").text == RIVERS["Rhine"]
    assert (whole(heard, rhine), whole(heard, volga)) == (RIVERS["Rhine"], RIVERS["Volga"])
    (failed,) = heard.of(Failed)
    assert (failed.id, failed.kind) == (danube, kind)
    assert words in failed.reason
    assert "\n" not in failed.reason
    assert heard.about(danube)[-1] is failed, "what was written before stays, and nothing follows"
    assert RIVERS["Danube"].startswith(heard.about(danube).text)


def test_an_unforeseen_fault_ends_what_runs_and_not_the_models() -> None:
    fails = {"Danube": ["model", 9]}
    # Slow enough that all four are asked before it fails.
    script = {"answers": RIVERS, "parallel": 3, "fails": fails, "pass_s": 0.05}
    with double(script) as engine:
        numbers = asked(engine, "Rhine", "Danube", "Rhine", "Rhine")
        failed = hear_ends(engine, *numbers).of(Failed)
        # The first may have been done before the second was heard.
        assert [each.id for each in failed] in (numbers, numbers[1:])
        assert {each.kind for each in failed} == {"Fault"}
        assert "a model out of its mind" in failed[0].reason
        after = asked(engine, "Rhine", "Volga")
        heard = hear_ends(engine, *after)
    assert [whole(heard, each) for each in after] == [RIVERS["Rhine"], RIVERS["Volga"]]
