"""Several requests at once, each as it would be alone; what is wrong with one is its own affair."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from operator import attrgetter
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from localspec.chat.assistant import Assistant
from localspec.chat.events import Event, Finished, RequestFailed, RoundDone, Started
from localspec.chat.request import Request, RequestOutcome
from localspec.chat.token_prefix import Conversation
from localspec.decoding.model import Logits
from localspec.decoding.policy import Policy, plain_policy
from localspec.decoding.round import StopReason
from localspec.errors import ContextOverflow, PassFailed, TemplateError
from localspec.messages import Message
from localspec.options import ReplyOptions, SamplingParams
from tests.chat.answers import answers
from tests.chat.test_assistant import TEMPLATE, TOKENIZER, Teller, Tellers, assistant, models_of
from tests.chat.test_gated import KEY
from tests.chat.toy_tokenizer import spelled


def parallel(
    count: int, script: str = "Yes, indeed.", *, template: str | None = TEMPLATE
) -> tuple[Assistant, Tellers]:
    first = Teller(spelled(script))
    others = [Teller(spelled(script), flag=first.flag) for _ in range(count - 1)]
    sequences = Tellers([first, *others])
    policies = [plain_policy() for _ in range(count)]
    return Assistant(models_of(sequences, template), policies), sequences


def ask(number: int, text: str, options: ReplyOptions | None = None, **more: Any) -> Request:
    return Request(number, (Message.user(text),), options or ReplyOptions(), ephemeral=True, **more)


@dataclass(slots=True)
class Taken:
    """Requests, and how many of them were taken."""

    prompts: Sequence[str]
    options: Sequence[ReplyOptions] = ()
    deterministic: bool = False
    count: int = 0

    def __iter__(self) -> Iterator[Request]:
        for key, prompt in enumerate(self.prompts):
            self.count += 1
            options = self.options[key] if self.options else ReplyOptions(seed=key)
            yield ask(key, prompt, options, deterministic=self.deterministic)


def by_key(answered: Sequence[RequestOutcome]) -> dict[int, RequestOutcome]:
    keyed = {each.key: each for each in answered}
    assert len(keyed) == len(answered), "each is answered once"
    return keyed


def finish(answerer: Assistant) -> list[tuple[int, object]]:
    """Go on until nothing is left; return the events, each with its request's number."""
    events: list[tuple[int, object]] = []
    while answerer.busy:
        answerer.step()
        events += answerer.take()
    return events


def texts_of(answerer: Assistant, *questions: str, first: int = 0) -> dict[int, str]:
    """Have questions answered, and what waits; return the texts of the replies by key."""
    for key, question in enumerate(questions, first):
        answerer.submit(ask(key, question))
    return {k: each.reply.text for k, each in finish(answerer) if isinstance(each, Finished)}


SEEN = attrgetter("text", "tokens", "stop_reason", "seed", "prompt_tokens", "completion_tokens")


def reads(**how: Callable[..., object]) -> SimpleNamespace:
    """Return what makes sequences ready, and does nothing but what is given."""
    usual = dict.fromkeys(("keep", "ready", "passed", "withhold", "close"), lambda *_: None)
    return SimpleNamespace(needs_points=False, **{**usual, **how})


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_every_request_is_answered_once_and_as_it_would_be_alone(count: int) -> None:
    prompts = [f"Question {number}?" for number in range(7)]
    limits = [ReplyOptions(seed=n, max_tokens=1 + n % 3 if n % 2 else None) for n in range(7)]
    limits[4] = ReplyOptions(seed=4, stop=("inde",))
    answerer, sequences = parallel(count)
    seen = []
    for each in (assistant("Yes, indeed."), answerer):
        keyed = by_key(list(answers(each, iter(Taken(prompts, limits)))))
        seen.append({key: SEEN(one.reply) for key, one in keyed.items()})
    assert seen[0] == seen[1]
    assert max(answerer.widths, default=1) >= min(count, 2)
    assert max(sequences.widths, default=1) in ({1}, {2}, {3}, {5, 6, 7})[min(count, 4) - 1]


def test_a_request_is_taken_only_when_a_sequence_is_free_or_needs_one() -> None:
    taken = Taken("12345")
    answering = answers(parallel(2)[0], iter(taken))
    next(answering)
    assert taken.count == 2
    assert (len(list(answering)), taken.count) == (4, 5)
    # The first does not wait for a second that has not come, and then there is nothing else to do.
    taken = Taken("123")
    answering = answers(parallel(2)[0], iter(taken), lambda: False)
    assert (next(answering).key, taken.count) == (0, 1)
    assert [each.key for each in answering] == [1, 2], "one after the other"
    # A consumer who leaves leaves nothing behind.
    answering = answers(answerer := parallel(2)[0], iter(Taken("123")))
    next(answering)
    answering.close()  # type: ignore[attr-defined]
    assert len(list(answers(answerer, iter(Taken("4"))))) == 1


@pytest.mark.parametrize("count", [1, 2, 3])
def test_who_asks_again_goes_on_where_the_reading_of_a_cancelled_prompt_stopped(count: int) -> None:
    answerer, sequences = parallel(count)
    sequences.at_once = sequences.n_batch = 16
    kept, took = [0], 0
    for key in range(4):
        answerer.submit(ask(key, "word " * 40, ReplyOptions(seed=1)))
        started = None
        for _ in range(4):  # it begins, and three chunks
            answerer.step()
            started = next((e for _, e in answerer.take(key) if isinstance(e, Started)), started)
        assert started is not None
        took = started.prompt_tokens
        assert started.cached_tokens == kept[-1]
        answerer.cancel(key)
        finish(answerer)
        kept.append(max(each.n_cached for each in sequences.views))
    assert kept == [0, 48, 96, 144, 192]
    assert kept[-1] < took


class Failing(Teller):
    """Gives what is no logit after a prompt that says Two."""

    def logits(self, tokens: Sequence[int], rows: int) -> Logits:
        computed, two = super().logits(tokens, rows), spelled("Two")
        says = any(list(tokens[at : at + 3]) == two for at in range(len(tokens)))
        return computed * np.float32(np.nan) if says else computed


def test_what_is_wrong_with_one_disturbs_no_other() -> None:
    answerer, sequences = parallel(2)
    sequences.views = [Failing(each.script, flag=each.flag) for each in sequences.views]
    for key, question in enumerate(("One?", "x" * 5000, "Two?", "Three?")):
        answerer.submit(ask(key, question))
    answerer.submit(ask(4, "Four?"), policy=[].__getitem__)
    events = finish(answerer)
    ends = {key: each for key, each in events if isinstance(each, Finished | RequestFailed)}
    errors = [type(getattr(ends[key], "error", None)) for key in range(5)]
    assert errors == [type(None), ContextOverflow, PassFailed, type(None), IndexError]
    assert [type(each) for key, each in events if key == 1] == [RequestFailed]
    assert any(isinstance(each, RoundDone) for key, each in events if key == 3)
    without = answers(parallel(2, template=None)[0], iter(Taken(["One?", "Two?"])))
    assert [type(each.error) for each in without] == [TemplateError, TemplateError]


@pytest.mark.parametrize("first", [None, 2])
def test_one_flag_stops_all(first: int | None) -> None:
    answerer, sequences = parallel(2, "Yes, and a great deal more of it.")
    sequences.views[1].cancel_after = 6
    options = [ReplyOptions(max_tokens=most) for most in (first, *[None] * 4)]
    taken = Taken(["One?", "Two?", *["More?"] * 3][: 5 if first is None else 2], options)
    answered = by_key(list(answers(answerer, iter(taken))))
    reasons = [each.reply and each.reply.stop_reason for each in (answered[0], answered[1])]
    # What was done before is whole.
    whole = StopReason.CANCELLED if first is None else StopReason.LENGTH
    assert (reasons, taken.count) == ([whole, StopReason.CANCELLED], 2)


@pytest.mark.parametrize(("count", "deterministic"), [*product((1, 2), (False, True))])
def test_deterministic_reuses_nothing(count: int, deterministic: bool) -> None:
    taken = Taken(["Same?"] * 2 * count, deterministic=deterministic)
    answered = answers(parallel(count)[0], iter(taken))
    cached = [each.reply.cached_tokens for each in answered if each.reply]
    assert [each == 0 for each in cached] == [True] * count + [deterministic] * count


@pytest.mark.parametrize("keep", [None, 5])
def test_each_sequence_has_a_cache_of_its_own(keep: int | None) -> None:
    answerer, sequences = parallel(3, "Yes, indeed.")
    prompts = ["One?", "Another, longer question?", "A third one?"]
    for again in (False, True):
        for key, prompt in enumerate(prompts):
            options = ReplyOptions(stop=("inde", "deed", "ed.")[key : key + 1])
            answerer.submit(ask(key, prompt, options, most_cached=keep if again else None))
        events = [event for _, event in finish(answerer)]
        replies = [event.reply for event in events if isinstance(event, Finished)]
        held = {each.prompt_tokens + len(each.tokens) - 1 for each in replies}
        for event in events:
            if isinstance(event, Started):
                known = (keep or event.prompt_tokens - 1) if again else 0
                assert event.cached_tokens == known
        assert {view.n_cached for view in sequences.views} == held
        assert len(held) == len(prompts)


def test_one_that_is_cancelled_keeps_what_it_has_and_no_other_loses_anything() -> None:
    answerer, _ = parallel(3, "Yes, and a great deal more of it.")
    for key in range(3):
        answerer.submit(ask(key, f"Question {key}?"))
    for _ in range(8):
        answerer.step()
    answerer.cancel(1)
    texts = texts_of(answerer)
    assert texts[0] == texts[2] == "Yes, and a great deal more of it."
    assert texts[0].startswith(texts[1])
    assert 0 < len(texts[1]) < len(texts[0])
    # One is cancelled while it waits.
    prepared: list[int] = []
    noted = reads(
        keep=lambda _slot, tokens: prepared.append(len(tokens)),
        ready=lambda _slot, tokens, *_: prepared.append(len(tokens)),
    )
    models = models_of(Tellers([Teller(spelled("Yes, indeed."))]), TEMPLATE)
    answerer = Assistant(models, [plain_policy()], reads=noted)
    for key in range(3):
        answerer.submit(ask(key, f"Question {key}?"))
    answerer.step()
    answerer.cancel(1)
    assert texts_of(answerer) == {0: "Yes, indeed.", 1: "", 2: "Yes, indeed."}
    assert len(prepared) == 4, "those that are answered"


def test_what_is_masked_is_withheld_of_the_request_that_the_sequence_was_made_ready_for() -> None:
    """Also where that may use nothing that is cached, or the text before it would say how much of it is kept."""
    seen: list[tuple[str, int]] = []
    noted = reads(
        ready=lambda _slot, _tokens, request, _points: seen.append(("ready", request.id)),
        withhold=lambda _slot: seen.append(("withhold", seen[-1][1])),
    )
    models = models_of(Tellers([Teller(spelled(f"Use {KEY} here."))]), TEMPLATE)
    answerer = Assistant(models, [plain_policy()], reads=noted)
    for each in (ask(0, "Question 0?"), ask(1, "Question 1?", most_cached=0, gate="usual")):
        answerer.submit(each)
        texts_of(answerer)
    assert seen == [("ready", 0), ("ready", 1), ("withhold", 1)]


@pytest.mark.parametrize("how", ["fails", "dropped", "closed"])
@pytest.mark.parametrize("gate", ["", "usual"])
def test_nothing_is_kept_of_a_reply_behind_a_gate_that_breaks_off(
    how: str, gate: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    noted = reads(
        withhold=lambda _slot: seen.append("withhold"), close=lambda: seen.append("close")
    )
    teller = Teller(spelled(f"Use {KEY} here."))
    answerer = Assistant(models_of(Tellers([teller]), TEMPLATE), [plain_policy()], reads=noted)
    answerer.submit(ask(1, "Question?", gate=gate))
    for _ in range(30):
        answerer.step()
    if how == "fails":
        monkeypatch.setattr(teller, "logits", fails)
        answerer.step()
        assert isinstance(answerer.take()[-1][1], RequestFailed)
    elif how == "dropped":
        answerer.drop(1)
    answerer.settle()
    assert seen == ["withhold"] * bool(gate) + ["close"]


def fails(*_: object) -> Logits:
    raise PassFailed("a fault")


@pytest.mark.parametrize("known", [0, 1])
def test_the_sequence_that_knows_most_of_a_prompt_is_taken(known: int) -> None:
    prompts = ["A long question about rivers, and many more of them. " * 3, "Something different?"]
    for turn in (prompts, prompts[::-1]):  # the one that is known may be the longer or the shorter
        answerer, sequences = parallel(2)
        texts_of(answerer, *turn)
        before = [view.evaluated for view in sequences.views]
        texts_of(answerer, turn[known], first=2)
        new = [view.evaluated - b for view, b in zip(sequences.views, before, strict=True)]
        assert new[1 - known] == 0
        assert 0 < new[known] < 20


def test_a_conversation_finds_its_sequence_or_a_free_one() -> None:
    answerer, sequences = parallel(3)
    talks = [Conversation(f"You are number {n}. Be brief.") for n in range(3)]
    for turn in range(3):
        for key, talk in enumerate(talks):
            talk.append_user(f"Turn {turn} of {key}?")
            before = sum(view.evaluated for view in sequences.views)
            answerer.submit(Request(10 * turn + key, talk.messages), talk)
            texts_of(answerer)
            new = sum(view.evaluated for view in sequences.views) - before
            assert new < 70, f"turn {turn} of {key} evaluated {new} tokens"
    answerer, sequences = parallel(3)
    for key, text in enumerate(("First " * 20, "Second " * 20)):
        texts_of(answerer, text, first=key)
    cells = [list(view.cells) for view in sequences.views]
    assert [bool(each) for each in cells] == [True, True, False]
    texts_of(answerer, "A new one?", first=2)
    assert [list(view.cells) for view in sequences.views][:2] == cells[:2]
    for key, text in enumerate(("First " * 20, "Third " * 20), 3):
        texts_of(answerer, text, first=key)
    texts = [b"".join(TOKENIZER.piece(t) for t in view.cells) for view in sequences.views]
    assert [b"First" in texts[0], b"Third" in texts[1], b"new" in texts[2]] == [True, True, True]


@pytest.mark.parametrize(
    ("count", "clients", "order"),
    [
        (2, "aaaaabac", [0, 5, 7, 1, 2, 3, 4, 6]),  # fewest under way
        (1, "aaabbc", [0, 3, 5, 1, 4, 2]),  # one at a time: in turns
        (2, "aaaaa", [0, 1, 2, 3, 4]),  # one client: as they came
    ],
)
def test_the_least_busy_client_goes_first(count: int, clients: str, order: list[int]) -> None:
    answerer, _ = parallel(count)
    for key, client in enumerate(clients):
        answerer.submit(ask(key, f"Question {key}?", client=client))
    assert [key for key, each in finish(answerer) if isinstance(each, Started)] == order


@dataclass(slots=True, eq=False)
class Notebook:
    """An observer that writes everything down."""

    questions: list[str] = field(default_factory=list)
    lengths: list[int] = field(default_factory=list)
    policies: list[Policy] = field(default_factory=list)
    events: list[Event] = field(default_factory=list)
    closed: int = 0

    def begin(
        self, request: Request, tokens: Sequence[int], policy: Policy
    ) -> Callable[[Event], None]:
        self.questions.append(request.question)
        self.lengths.append(len(tokens))
        self.policies.append(policy)
        return self.events.append

    def close(self) -> None:
        self.closed += 1


def test_an_observer_has_every_question_token_and_reply_and_the_events() -> None:
    notebook = Notebook()
    models = models_of(Tellers([Teller(spelled("fine"))]), TEMPLATE)
    speaker = Assistant(models, [plain_policy()], observers=[notebook])
    conversation = Conversation("be brief")
    conversation.append_user("hello")
    first = speaker.reply(conversation, ReplyOptions(SamplingParams(temperature=0)))
    assert (notebook.questions, notebook.policies) == (["hello"], [speaker.policy])
    rounds = [each for each in notebook.events if isinstance(each, RoundDone)]
    assert [t for each in rounds for t in each.round.confirmed][:-1] == spelled("fine")
    assert "".join(text for each in rounds for text in each.texts) == "fine"
    assert [each.round.is_first for each in rounds] == [True] + [False] * (len(rounds) - 1)
    assert isinstance(notebook.events[0], Started)
    assert notebook.events[-1] == Finished(first, conversation.messages[-1])
    notebook.events.clear()
    assert list(speaker.stream("and you?")) == notebook.events
    assert notebook.questions[1:] == ["and you?"]
    assert notebook.lengths[0] == first.prompt_tokens
    # One that is left early has no end, and frees its slot.
    notebook.events.clear()
    left = speaker.stream("hello")
    next(left)
    left.close()  # type: ignore[attr-defined]
    assert not any(isinstance(each, Finished) for each in notebook.events)
    assert not speaker.busy
    assert speaker.reply("hello").text == "fine"
    speaker.close()
    assert notebook.closed == 1
