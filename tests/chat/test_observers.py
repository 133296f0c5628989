"""What an assistant's observers see."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from localspec.chat.assistant import Assistant
from localspec.chat.conversation import Conversation
from localspec.chat.events import Event, Finished, RoundDone, Started, Text
from localspec.chat.request import Request
from localspec.decoding.policy import Policy, plain_policy
from localspec.options import ReplyOptions, SamplingParams
from tests.chat.test_assistant import TEMPLATE, Teller, Tellers, models_of
from tests.chat.toy_tokenizer import spelled


@dataclass(slots=True, eq=False)
class Notebook:
    """An observer that writes everything down."""

    asked: list[str] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    policies: list[Policy] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    closed: int = 0

    def begin(
        self, request: Request, tokens: Sequence[int], policy: Policy
    ) -> Callable[[Event], None]:
        self.asked.append(request.question)
        self.lengths.append(len(tokens))
        self.policies.append(policy)
        return self.events.append

    def close(self) -> None:
        self.closed += 1


def observed(script: str) -> tuple[Assistant, Notebook]:
    notebook = Notebook()
    models = models_of(Tellers([Teller(spelled(script))]), TEMPLATE)
    return Assistant(models, [plain_policy()], observers=[notebook]), notebook


def test_an_observer_sees_what_was_asked_every_token_and_the_whole_reply() -> None:
    speaker, notebook = observed("fine")
    conversation = Conversation("be brief")
    conversation.append_user("hello")
    first = speaker.reply(conversation, ReplyOptions(SamplingParams(temperature=0)))
    assert (notebook.asked, notebook.policies) == (["hello"], [speaker.policy])
    rounds = [each for each in notebook.events if isinstance(each, RoundDone)]
    assert [t for each in rounds for t in each.round.confirmed][:-1] == spelled("fine")
    assert "".join(text for each in rounds for text in each.texts) == "fine"
    assert [each.round.is_first for each in rounds] == [True] + [False] * (len(rounds) - 1)
    assert isinstance(notebook.events[0], Started)
    assert notebook.events[-1] == Finished(first, conversation.messages[-1])
    conversation.append_user("and you?")
    second = speaker.reply(conversation)
    assert notebook.asked[1:] == ["and you?"]
    assert notebook.lengths == [first.prompt_tokens, second.prompt_tokens]


def test_what_the_caller_streams_is_what_observers_see() -> None:
    speaker, notebook = observed("one two")
    events = list(speaker.stream("hello"))
    assert events == notebook.events
    assert "".join(each.text for each in events if isinstance(each, Text)) == "one two"


def test_a_stream_that_is_left_early_has_no_end_and_frees_its_slot() -> None:
    speaker, notebook = observed("a long answer")
    events = speaker.stream("hello")
    next(events)
    events.close()  # type: ignore[attr-defined]
    assert not any(isinstance(each, Finished) for each in notebook.events)
    assert not speaker.busy
    assert speaker.reply("hello").text == "a long answer"


def test_observers_are_told_that_the_models_are_closed() -> None:
    speaker, notebook = observed("x")
    speaker.close()
    assert notebook.closed == 1
