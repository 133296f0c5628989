"""What an assistant tells its tracer."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from localspec.decoding.generate import Confirmed
from localspec.decoding.timings import Timings

from localspec.chat.conversation import Conversation
from localspec.options import ReplyOptions, SamplingParams
from tests.chat.test_assistant import assistant
from tests.chat.toy_tokenizer import spelled


@dataclass(slots=True, eq=False)
class Notebook:
    """A tracer, and its only trace."""

    asked: list[str] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    greedy: list[bool] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)

    def begin(self, asked: str, tokens: Sequence[int], *, greedy: bool) -> "Notebook":
        self.asked.append(asked)
        self.lengths.append(len(tokens))
        self.greedy.append(greedy)
        return self

    def note(self, confirmed: Confirmed, timings: Timings) -> None:
        assert timings.prefill_tokens > 0
        self.tokens += confirmed.tokens

    def end(self, text: str, timings: Timings) -> None:
        assert timings.decode_s > 0
        self.ended.append(text)


def test_tracer_sees_what_was_asked_every_token_and_the_whole_text() -> None:
    speaker, notebook = assistant("fine"), Notebook()
    speaker.tracer = notebook
    conversation = Conversation("be brief")
    conversation.append_user("hello")
    first = speaker.reply(conversation, ReplyOptions(SamplingParams(temperature=0)))
    assert (notebook.asked, notebook.greedy, notebook.ended) == (["hello"], [True], ["fine"])
    assert notebook.tokens[:-1] == spelled("fine")
    conversation.append_user("and you?")
    second = speaker.reply(conversation)
    assert notebook.asked[1:] == ["and you?"]
    assert notebook.greedy[1:] == [False]
    assert notebook.lengths == [first.prompt_tokens, second.prompt_tokens]


def test_trace_of_a_stream_that_is_left_early_never_ends() -> None:
    speaker, notebook = assistant("a long answer"), Notebook()
    speaker.tracer = notebook
    events = speaker.stream("hello")
    next(events)
    events.close()  # type: ignore[attr-defined]
    assert (len(notebook.tokens), notebook.ended) == (1, [])
