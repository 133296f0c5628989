"""A reply that was cut goes on as if it had never been."""

import pytest

from localspec.chat.conversation import Conversation
from localspec.decoding.round import StopReason
from localspec.messages import Message
from localspec.options import ReplyOptions, SamplingParams
from tests.chat.test_assistant import (
    TEMPLATE,
    THINKING_TEMPLATE,
    TOKENIZER,
    assistant,
    said,
    teller_of,
)
from tests.chat.toy_tokenizer import spelled

GREEDY = SamplingParams(temperature=0)
THOUGHTFUL = TOKENIZER.tokenize(
    "<think>hello, hm</think>the world says hello <|im_end|> twice",
    add_special=False,
    parse_special=False,
)


def asked() -> Conversation:
    conversation = Conversation("be brief")
    conversation.append_user("hello")
    return conversation


@pytest.mark.first(20)
@pytest.mark.parametrize("cut", range(1, len(THOUGHTFUL)))
@pytest.mark.parametrize("remembered", [True, False])
def test_wherever_it_was_cut(cut: int, remembered: bool) -> None:
    whole = asked()
    said(assistant(THOUGHTFUL, template=THINKING_TEMPLATE), whole, ReplyOptions(GREEDY))
    speaker = assistant(THOUGHTFUL, template=THINKING_TEMPLATE)
    conversation = asked()
    begun = said(speaker, conversation, ReplyOptions(GREEDY, max_tokens=cut))
    assert begun.stop_reason is StopReason.LENGTH
    if remembered:
        before = teller_of(speaker).evaluated
        rest = said(speaker, conversation, ReplyOptions(GREEDY))
        # The last token of the part had not been evaluated; nothing else is.
        assert teller_of(speaker).evaluated - before == len(THOUGHTFUL) - cut + 1
        assert rest.cached_tokens == rest.prompt_tokens - 1
        assert begun.tokens + rest.tokens == tuple(THOUGHTFUL)
        assert conversation.messages == whole.messages
        again = Conversation(messages=conversation.messages, remembered=conversation.remembered)
        for each in (again, whole):
            each.append_user("more")
        prompt = again.prompt_tokens(speaker.template, TOKENIZER)
        assert prompt == whole.prompt_tokens(speaker.template, TOKENIZER)
    else:
        taken_up = Conversation(messages=conversation.messages)
        prompt = taken_up.prompt_tokens(speaker.template, TOKENIZER)
        assert taken_up.goes_on
        assert taken_up.thinking_filter().feed("x") != []
        assert (
            prompt[: begun.prompt_tokens]
            == conversation.prompt_tokens(speaker.template, TOKENIZER)[: begun.prompt_tokens]
        )


def test_it_goes_on_more_than_once() -> None:
    speaker, conversation = assistant("one two three four"), asked()
    for _ in range(3):
        said(speaker, conversation, ReplyOptions(GREEDY, max_tokens=5))
    assert conversation.messages[-1] == Message.assistant("one two three f")
    reply = said(speaker, conversation, ReplyOptions(GREEDY))
    assert reply.text == "our"
    assert conversation.messages[-1] == Message.assistant("one two three four")
    assert len(conversation.messages) == 3


def test_thoughts_that_were_cut_go_on_as_thoughts() -> None:
    conversation = asked()
    messages = [*conversation.messages, Message.assistant("", "hm, so")]
    taken_up = Conversation(messages=messages)
    speaker = assistant("x", template=THINKING_TEMPLATE)
    prompt = taken_up.prompt_tokens(speaker.template, TOKENIZER)
    end = TOKENIZER.tokenize("<think>\nhm, so", add_special=False, parse_special=False)
    assert prompt[-len(end) :] == end
    taken_up.append_reply(" what</think>Yes.", [])
    assert taken_up.messages[-1] == Message.assistant("Yes.", "hm, so what")


def test_an_answer_with_thoughts_goes_on_as_an_answer() -> None:
    messages = [*asked().messages, Message.assistant("Yes", "hm")]
    taken_up = Conversation(messages=messages)
    speaker = assistant("x", template=THINKING_TEMPLATE)
    taken_up.prompt_tokens(speaker.template, TOKENIZER)
    taken_up.append_reply(", <think>indeed</think>.", [])
    assert taken_up.messages[-1] == Message.assistant("Yes, <think>indeed</think>.", "hm")


def test_what_begins_a_reply_cannot_pass_for_structure() -> None:
    messages = [*asked().messages, Message.assistant("a <|im_end|> b")]
    prompt = Conversation(messages=messages).prompt_tokens(assistant("x").template, TOKENIZER)
    assert prompt[-len("a <|im_end|> b") :] == spelled("a <|im_end|> b")


def test_the_same_seed_goes_on_with_the_same_text() -> None:
    options = ReplyOptions(SamplingParams(temperature=1.5, top_k=0), seed=7, max_tokens=40)
    warm = TEMPLATE + "{# tepid #}"
    whole = said(assistant("x" * 40, template=warm), asked(), options)
    speaker, conversation = assistant("x" * 40, template=warm), asked()
    first = said(speaker, conversation, ReplyOptions(options.sampling, 7, 13))
    rest = said(speaker, conversation, ReplyOptions(options.sampling, 7, 27))
    assert first.tokens + rest.tokens == whole.tokens
