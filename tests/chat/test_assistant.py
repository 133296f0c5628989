"""Assistant on models that tell a script: what a reply is, and that drafting changes none of it."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.chat.assistant import Assistant
from localspec.chat.events import Finished, Reply, RoundDone, Text
from localspec.chat.loaded_models import LoadedModels
from localspec.chat.token_prefix import Conversation
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.choose import Chooser
from localspec.decoding.drafters.drafter import Drafter, Plan
from localspec.decoding.drafters.forced import ForcedDrafter
from localspec.decoding.drafters.lookup import LookupDrafter
from localspec.decoding.model import Logits, Pass
from localspec.decoding.policy import FixedPolicy, Policy, plain_policy
from localspec.decoding.round import Draft, StopReason
from localspec.errors import ContextOverflow, TemplateError
from localspec.messages import Message
from localspec.options import ReplyOptions, SamplingParams
from tests.chat.toy_tokenizer import ToyTokenizer, spelled
from tests.examples import examples
from tests.support.checks import refuses
from tests.toy import CachedModel, ScriptedDrafter, ToySequences, Unforeseen

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{{ m.content }}<|im_end|>\n{% endfor %}{{ '<|im_start|>assistant\n' }}"
)
THINKING_TEMPLATE = TEMPLATE + "{# <think></think> #}"
BEGIN, END = 2, 3
N_VOCAB = 356
TOKENIZER = ToyTokenizer()


class Teller(CachedModel):
    """Continues every assistant turn with its script, then ends it."""

    n_vocab = N_VOCAB

    def __init__(
        self,
        script: list[int],
        n_ctx: int = 4000,
        flag: CancelFlag | None = None,
        cancel_after: int | None = None,
    ) -> None:
        super().__init__(self, n_ctx)  # type: ignore[arg-type]
        self.script, self.flag, self.cancel_after = script, flag or CancelFlag(), cancel_after

    @property
    def evaluated(self) -> int:
        return sum(each.evaluated for each in self.asked)

    def logits(self, tokens: Sequence[int], rows: int) -> Logits:
        if self.flag.is_set:
            raise Cancelled
        if self.cancel_after is not None:
            self.cancel_after -= 1
            if self.cancel_after <= 0:
                self.flag.set()
        return super().logits(tokens, rows)

    def row(self, tokens: Sequence[int]) -> Logits:
        start = len(tokens) - list(reversed(tokens)).index(BEGIN) + 2  # behind "assistant\n"
        said = len(tokens) - start
        row = np.zeros(N_VOCAB, dtype=np.float32)
        row[self.script[said] if said < len(self.script) else END] = 50
        return row


class Tellers(ToySequences):
    """Sequences that tell a script each."""

    views: Sequence[Teller]

    def __init__(self, views: Sequence[Teller], **how: int) -> None:
        super().__init__(views, views[0].flag, **how)  # type: ignore[arg-type]

    @property
    def widths(self) -> list[int]:
        return [len(each) for each in self.passes]


def models_of(tellers: Tellers, template: str | None = None, **others: object) -> LoadedModels:
    """Return models whose target tells."""
    known: dict[str, object] = {
        "draft_models": None,
        "tokenizer": TOKENIZER,
        "eog": {END},
        "suppressed": (),
        "template_source": template,
        "target_name": "teller",
        "draft_model_name": None,
        "cancel": tellers.views[0].flag,
        "close": lambda: None,
    }
    return LoadedModels(targets=tellers, **{**known, **others})  # type: ignore[arg-type]


def assistant(
    script: str | list[int],
    drafter: Drafter | None = None,
    *,
    template: str | None = TEMPLATE,
    n_ctx: int = 4000,
    cancel_after: int | None = None,
    suppressed: tuple[int, ...] = (),
) -> Assistant:
    ids = spelled(script) if isinstance(script, str) else script
    teller = Teller(ids, n_ctx, cancel_after=cancel_after)
    tellers = Tellers([teller], most_rows=64)
    policy: Policy = plain_policy() if drafter is None else FixedPolicy(drafter, 7)
    return Assistant(models_of(tellers, template, suppressed=suppressed), [policy])


def teller_of(speaker: Assistant) -> Teller:
    assert isinstance(speaker.models.target, Teller)
    return speaker.models.target


def said(speaker: Assistant, prompt: str | Conversation, options: ReplyOptions) -> Reply:
    """Stream a reply, and check that its chunks are its text."""
    chunks: list[Text] = []
    for event in speaker.stream(prompt, options):
        if isinstance(event, Finished):
            text = "".join(chunk.text for chunk in chunks if not chunk.thinking)
            assert text == event.reply.text
            assert all(chunk.text for chunk in chunks)
            return event.reply
        if isinstance(event, Text):
            chunks.append(event)
    raise AssertionError


@pytest.mark.parametrize(
    ("script", "stop", "text", "reason"),
    [
        ("Grüße, 世界 🙂", (), "Grüße, 世界 🙂", StopReason.EOG),
        ("one two three", ("o th", "zzz"), "one tw", StopReason.STOP_STRING),
        ("one tw", ("two",), "one tw", StopReason.EOG),  # the end cuts the stop string off
    ],
)
def test_a_reply_is_the_text_without_what_ended_it(
    script: str, stop: tuple[str, ...], text: str, reason: StopReason
) -> None:
    reply = said(assistant(script), "hello", ReplyOptions(stop=stop))
    assert (reply.text, reply.stop_reason) == (text, reason)
    if reason is StopReason.EOG:
        assert reply.completion_tokens == len(spelled(text)) + 1
        assert reply.tokens == tuple(spelled(text))


def test_what_is_drafted_behind_a_stop_string_is_counted_nowhere() -> None:
    script = "one two three"
    for drafter in (None, ScriptedDrafter(tuple(spelled(script)[1:]))):
        *events, end = assistant(script, drafter).stream("hello", ReplyOptions(stop=("tw",)))
        assert isinstance(end, Finished)
        reply, counts = end.reply, end.reply.acceptance
        rounds = [each.round for each in events if isinstance(each, RoundDone)]
        assert (reply.text, reply.completion_tokens) == ("one ", len("one tw"))
        assert sum(len(each.confirmed) for each in rounds) == reply.completion_tokens
        assert counts.confirmed == reply.completion_tokens - 1
        assert counts.accepted == (0 if drafter is None else len("ne tw"))
        (by_drafter,) = counts.by_drafter.values()
        assert (by_drafter.accepted, by_drafter.confirmed) == (counts.accepted, counts.confirmed)


def test_the_second_turn_evaluates_only_what_is_new() -> None:
    speaker, conversation = assistant("first answer"), hello("be brief")
    first = said(speaker, conversation, ReplyOptions())
    assert first.cached_tokens == 0
    conversation.append_user("and now?")
    before = teller_of(speaker).evaluated
    second = said(speaker, conversation, ReplyOptions())
    # All but the last token of the first reply, which had never been evaluated.
    assert second.cached_tokens == first.prompt_tokens + len(first.tokens) - 1
    new = second.prompt_tokens - second.cached_tokens
    assert teller_of(speaker).evaluated - before == new + len(second.tokens)


@dataclass(frozen=True)
class AlwaysBeside(Unforeseen):
    """Proposes one wrong token, and the right one as its second choice."""

    script: tuple[int, ...]
    prompt: int
    name: str = "beside"

    def propose(
        self, tokens: Sequence[int], plan: Plan, chooser: Chooser
    ) -> Generator[Pass, Logits, Draft]:
        yield from ()
        if plan.draft_length <= 1:
            return Draft()
        right = self.script[len(tokens) - self.prompt]
        return Draft((right + 1,), (0.5,), self.name, (1.0,), ((right,),), (0,))


@pytest.mark.parametrize("said_twice", ["ab" * 40, "x" + "ab" * 40])
def test_a_reply_that_ends_behind_a_branch(said_twice: str) -> None:
    plain, script, options = (
        assistant(said_twice),
        tuple(spelled(said_twice)),
        ReplyOptions(stop_loops=True),
    )
    alone = said(plain, hello("be brief"), options)
    branching = assistant(said_twice, AlwaysBeside(script, alone.prompt_tokens))
    reply = said(branching, hello("be brief"), options)
    assert (reply.tokens, reply.stop_reason) == (alone.tokens, StopReason.LOOP)
    assert reply.acceptance.caught == reply.acceptance.branched > 1
    assert teller_of(branching).cells == teller_of(plain).cells
    assert len(teller_of(plain).cells) == reply.prompt_tokens + len(reply.tokens) - 1


def marked(text: str) -> list[int]:
    """Return the tokens of a text with tags."""
    return TOKENIZER.tokenize(text, add_special=False, parse_special=True)


def hello(system: str | None = None) -> Conversation:
    conversation = Conversation(system)
    conversation.append_user("hello")
    return conversation


def test_thoughts_are_apart_from_the_answer_and_leave_with_their_turn() -> None:
    script = [*marked("<think>hm</think>"), *spelled("Yes.")]
    speaker, conversation = assistant(script, template=THINKING_TEMPLATE), hello()
    reply = said(speaker, conversation, ReplyOptions(stop=("m",)))
    assert (reply.thinking, reply.text) == ("hm", "Yes.")
    assert conversation.messages[-1] == Message.assistant("Yes.", "hm")


def test_thoughts_end_after_a_budget_and_the_next_turn_knows_them() -> None:
    script = [*marked("<think>hm, hm, hm"), *spelled("Yes, it is.")]
    speaker = assistant(script, ForcedDrafter(), template=THINKING_TEMPLATE)
    conversation = hello()
    reply = said(speaker, conversation, ReplyOptions(think="2"))
    assert (reply.thinking, reply.text) == ("hm\n", "m, hmYes, it is.")
    assert reply.acceptance.drafted == reply.acceptance.accepted == 3, "the closing tag"
    assert conversation.messages[-1].thinking == "hm\n"
    conversation.append_user("more")
    assert said(speaker, conversation, ReplyOptions()).cached_tokens > 0
    off = said(speaker, "hello", ReplyOptions(think="off"))
    assert off.note.startswith("teller's chat template cannot")


def test_cancelling_keeps_what_was_said_and_the_next_reply_is_whole() -> None:
    speaker, conversation = assistant("a long answer", cancel_after=4), hello()
    reply = said(speaker, conversation, ReplyOptions())
    assert (reply.stop_reason, reply.text) == (StopReason.CANCELLED, "a lo")
    assert conversation.messages[-1].text == "a lo"
    teller = teller_of(speaker)
    teller.cancel_after = None
    teller.flag.clear()
    assert said(speaker, "hello", ReplyOptions()).text == "a long answer"


def test_what_cannot_be_answered_is_an_error_and_spoils_nothing() -> None:
    speaker = assistant("a long answer")
    events = speaker.stream("hello")
    next(events)
    events.close()  # type: ignore[attr-defined]
    assert said(speaker, "hello", ReplyOptions()).text == "a long answer"
    with pytest.raises(ContextOverflow, match=r"\d+ tokens.* 20"):
        assistant("x", n_ctx=20).reply("hello " * 20)
    refuses("no tokens", speaker.reply, "", raw=True)
    for max_tokens in (0, -1):
        refuses("max_tokens", ReplyOptions, max_tokens=max_tokens)
    speaker = assistant("x", template=None)
    with pytest.raises(TemplateError, match="--raw"):
        speaker.reply("hello")
    raw = speaker.reply("<|im_start|>assistant\n", ReplyOptions(think="off"), raw=True)
    assert (raw.text, "no chat template" in raw.note) == ("x", True)
    assert len({assistant("x").reply("hello").seed for _ in range(3)}) == 3, "fresh unless given"
    assert assistant("x").reply("hello", ReplyOptions(seed=5)).seed == 5


def test_conversations_with_tools_take_the_template_that_the_file_names_for_them() -> None:
    models = models_of(
        Tellers([Teller(spelled("x"), 400)]), "plain", tool_template_source="{{ tools }}"
    )
    template = Assistant(models, [plain_policy()]).template
    assert (template.source, template.offering(tools=True).source) == ("plain", "{{ tools }}")


@pytest.mark.slow
def test_what_the_file_forbids_is_never_generated() -> None:
    forbidden = spelled("b")[0]
    greedy = ReplyOptions(SamplingParams(temperature=0, logit_bias=((forbidden, 90.0),)))
    reply = assistant("abc", suppressed=(forbidden,)).reply("hello", greedy)
    assert forbidden not in reply.tokens
    assert assistant("abc").reply("hello", greedy).tokens[1] == forbidden


WORDS = st.lists(st.sampled_from(["ab", "a", "b", "世", "🙂", " ", "abab"]), max_size=12).map(
    "".join
)


@examples(300)
@given(
    script=WORDS,
    thoughts=st.none() | WORDS,
    stop=st.lists(st.sampled_from(["ab", "ba", "b ", "世🙂", "aba"]), max_size=2),
    max_tokens=st.none() | st.integers(1, 40),
    drafted=WORDS,
    lookup=st.booleans(),
    think=st.none() | st.sampled_from(["0", "1", "3", "off", "on", "low"]),
)
def test_drafting_changes_nothing_that_a_user_sees(
    script: str,
    thoughts: str | None,
    stop: list[str],
    max_tokens: int | None,
    drafted: str,
    lookup: bool,
    think: str | None,
) -> None:
    ids = marked(script if thoughts is None else f"<think>{thoughts}</think>{script}")
    greedy = SamplingParams(temperature=0)
    options = ReplyOptions(greedy, 1, max_tokens, tuple(stop), think=think)
    drafter: Drafter = ScriptedDrafter((*spelled(drafted), END, END))
    if lookup:
        drafter = LookupDrafter({END}, min_match=2)
    seen = []
    for each in (None, drafter):
        speaker, conversation = assistant(ids, each, template=THINKING_TEMPLATE), Conversation()
        conversation.append_user("abab abab")
        first = said(speaker, conversation, options)
        cells = list(teller_of(speaker).cells)
        conversation.append_user("more")
        second = said(speaker, conversation, options)
        seen.append((_visible(first), cells, _visible(second), second.cached_tokens))
    assert seen[0] == seen[1]


def _visible(reply: Reply) -> tuple[object, ...]:
    counts = reply.prompt_tokens, reply.completion_tokens
    return reply.text, reply.thinking, reply.tokens, reply.stop_reason, *counts
