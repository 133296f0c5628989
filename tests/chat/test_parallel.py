"""Parallel: many requests at once, each as it would be alone; what is wrong with one is its own affair."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
from localspec.chat.parallel import Parallel
from localspec.decoding.generate import StopReason

from localspec.chat.assistant import Assistant
from localspec.chat.requests import Answered, OneAtATime, Request
from localspec.decoding.model import Logits, Pass
from localspec.errors import ContextOverflow, PassFailed, TemplateError
from localspec.options import ReplyOptions
from tests.chat.test_assistant import Teller, assistant, teller_of


@dataclass(slots=True, eq=False)
class Tellers:
    """Sequences that tell a script each; passes of several are counted."""

    views: Sequence[Teller]
    most_rows: int = 8
    widths: list[int] = field(default_factory=list)

    def ready(self, place: int, request: Pass) -> bool:
        cached = self.views[place].common_prefix(request.tokens)
        return len(request.tokens) - cached <= request.rows

    def together(self, asked: Sequence[tuple[int, Pass]]) -> list[Logits]:
        self.widths.append(len(asked))
        return [self.views[place].logits(each.tokens, each.rows) for place, each in asked]

    def close_ranks(self, running: Collection[int]) -> None:
        assert set(running) <= set(range(len(self.views)))


def parallel(
    count: int, script: str = "Yes, indeed.", *, afresh: bool = False, template: str | None = ""
) -> tuple[Parallel, Tellers]:
    one = assistant(script) if template == "" else assistant(script, template=template)
    tellers = [Teller(teller_of(one).script, cancel=one.models.cancel) for _ in range(count)]
    speakers = [Assistant(replace(one.models, target=each), one.policy) for each in tellers]
    sequences = Tellers(tellers)
    return Parallel(speakers, sequences, afresh=afresh), sequences


@dataclass(slots=True)
class Taken:
    """Requests, and how many of them were taken."""

    prompts: Sequence[str]
    options: Sequence[ReplyOptions] = ()
    count: int = 0

    def requests(self) -> Iterator[Request]:
        for key, prompt in enumerate(self.prompts):
            self.count += 1
            options = self.options[key] if self.options else ReplyOptions(seed=key)
            yield Request(key, prompt, options)


def by_key(answered: Sequence[Answered]) -> dict[int, Answered]:
    keyed = {each.key: each for each in answered}
    assert len(keyed) == len(answered), "each is answered once"
    return keyed


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_request_is_answered_once_and_as_it_would_be_alone(count: int) -> None:
    prompts = [f"Question {number}?" for number in range(7)]
    limits = [ReplyOptions(seed=n, max_tokens=1 + n % 3 if n % 2 else None) for n in range(7)]
    limits[4] = ReplyOptions(seed=4, stop=("inde",))
    alone = by_key(
        list(OneAtATime(assistant("Yes, indeed.")).answer(Taken(prompts, limits).requests()))
    )
    answerer, sequences = parallel(count)
    together = by_key(list(answerer.answer(Taken(prompts, limits).requests())))
    assert together.keys() == alone.keys()
    for key, each in together.items():
        mine, other = each.reply, alone[key].reply
        assert mine is not None
        assert other is not None
        assert (mine.text, mine.tokens, mine.stop_reason) == (
            other.text,
            other.tokens,
            other.stop_reason,
        )
        assert (mine.seed, mine.prompt_tokens, mine.completion_tokens) == (
            other.seed,
            other.prompt_tokens,
            other.completion_tokens,
        )
    assert max(sequences.widths, default=1) in ({1}, {2}, {3}, {5, 6, 7})[min(count, 4) - 1]


def test_a_request_is_taken_only_when_a_sequence_is_free() -> None:
    taken = Taken([f"Question {number}?" for number in range(5)])
    answering = parallel(2)[0].answer(taken.requests())
    next(answering)
    assert taken.count == 2
    assert len(list(answering)) == 4
    assert taken.count == 5


def test_who_is_under_way_does_not_wait_for_a_request_that_has_not_come() -> None:
    taken = Taken(["One?", "Two?"])
    answering = parallel(2)[0].answer(taken.requests(), lambda: False)
    assert next(answering).key == 0
    assert taken.count == 1


def test_who_has_nothing_to_do_waits_for_the_next_request() -> None:
    taken = Taken(["One?", "Two?", "Three?"])
    answered = list(parallel(2)[0].answer(taken.requests(), lambda: False))
    assert [each.key for each in answered] == [0, 1, 2], "one after the other"


def test_what_is_wrong_with_one_disturbs_no_other() -> None:
    taken = Taken(["One?", "x" * 5000, "Three?"])
    answered = by_key(list(parallel(2)[0].answer(taken.requests())))
    assert isinstance(answered[1].error, ContextOverflow)
    assert answered[1].reply is None
    for key in (0, 2):
        assert answered[key].reply is not None


def test_a_missing_template_is_every_requests_own_error() -> None:
    answered = list(parallel(2, template=None)[0].answer(Taken(["One?", "Two?"]).requests()))
    assert [type(each.error) for each in answered] == [TemplateError, TemplateError]


def test_a_sequence_whose_passes_fail_has_an_error_and_the_others_a_reply() -> None:
    answerer, sequences = parallel(3)
    sequences.views = [
        sequences.views[0],
        BrokenTeller(sequences.views[1].script),
        sequences.views[2],
    ]
    answered = by_key(list(answerer.answer(Taken(["One?", "Two?", "Three?"]).requests())))
    assert isinstance(answered[1].error, PassFailed)
    assert answered[0].reply is not None
    assert answered[2].reply is not None


class BrokenTeller(Teller):
    """Fails after its prompt."""

    def logits(self, tokens: Sequence[int], rows: int) -> Logits:
        if self.cells:
            raise PassFailed("broken")
        return super().logits(tokens, rows)


def test_one_flag_stops_all_and_nothing_more_is_taken() -> None:
    answerer, sequences = parallel(2, "Yes, and a great deal more of it.")
    sequences.views[1].cancel_after = 6
    taken = Taken([f"Question {number}?" for number in range(5)])
    answered = list(answerer.answer(taken.requests()))
    reasons = [each.reply.stop_reason for each in answered if each.reply]
    assert reasons == [StopReason.CANCELLED] * 2
    assert taken.count == 2


def test_what_was_done_before_the_flag_is_whole() -> None:
    answerer, sequences = parallel(2, "Yes, and a great deal more of it.")
    sequences.views[1].cancel_after = 6
    taken = Taken(["One?", "Two?"], [ReplyOptions(max_tokens=2), ReplyOptions()])
    answered = by_key(list(answerer.answer(taken.requests())))
    first, second = answered[0].reply, answered[1].reply
    assert first is not None
    assert first.stop_reason is StopReason.LENGTH
    assert second is not None
    assert second.stop_reason is StopReason.CANCELLED


def test_afresh_reuses_nothing_of_an_earlier_request() -> None:
    for afresh in (False, True):
        answerer, _ = parallel(1, afresh=afresh)
        answered = list(answerer.answer(Taken(["Same?", "Same?"]).requests()))
        cached = [each.reply.cached_tokens for each in answered if each.reply]
        assert (cached[1] == 0) is afresh


def test_a_consumer_who_leaves_leaves_nothing_behind() -> None:
    answerer, _ = parallel(2)
    answering = answerer.answer(Taken([f"Question {n}?" for n in range(6)]).requests())
    next(answering)
    answering.close()  # type: ignore[attr-defined]
    assert len(list(answerer.answer(Taken(["Again?"]).requests()))) == 1
