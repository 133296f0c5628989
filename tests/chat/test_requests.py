"""OneAtATime: requests in order, and one that fails does not take the others along."""

from collections.abc import Iterator

from localspec.decoding.generate import StopReason

from localspec.chat.requests import OneAtATime, Request
from localspec.errors import ContextOverflow
from localspec.options import ReplyOptions
from tests.chat.test_assistant import assistant, teller_of


def _requests(*prompts: str) -> Iterator[Request]:
    for key, prompt in enumerate(prompts):
        yield Request(key, prompt, ReplyOptions(seed=1))


def test_every_request_is_answered_in_order() -> None:
    answered = list(OneAtATime(assistant("Yes.")).answer(_requests("One?", "Two?")))
    assert [each.key for each in answered] == [0, 1]
    assert [each.reply.text for each in answered if each.reply] == ["Yes.", "Yes."]


def test_a_request_that_cannot_be_answered_says_why_and_the_next_goes_on() -> None:
    answered = list(OneAtATime(assistant("Yes.")).answer(_requests("x" * 5000, "Two?")))
    assert isinstance(answered[0].error, ContextOverflow)
    assert answered[0].reply is None
    assert answered[1].reply is not None


def test_nothing_is_taken_after_a_reply_that_was_cancelled() -> None:
    speaker = assistant("Yes, and more of it.")
    teller_of(speaker).cancel_after = 3
    requests = _requests("One?", "Two?")
    answered = list(OneAtATime(speaker).answer(requests))
    assert [each.reply.stop_reason for each in answered if each.reply] == [StopReason.CANCELLED]
    assert next(requests).key == 1
