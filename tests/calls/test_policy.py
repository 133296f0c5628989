"""Policies of calls: no run leaves one, whoever wants to call what; and files that say them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.calls import Tool
from localspec.calls.policy import CallOffer, CallPolicy, Made, policy_of_toml
from localspec.chat.assistant import Assistant
from localspec.chat.conversation import Conversation
from localspec.decoding.model import Logits
from localspec.decoding.policy import plain_policy
from localspec.errors import UsageError
from localspec.messages import Message, ToolResult
from localspec.options import ReplyOptions, SamplingParams
from tests.chat.test_assistant import Teller, Tellers, models_of
from tests.chat.toy_calls import END, GRAMMARS, N_VOCAB
from tests.chat.toy_tokenizer import spelled
from tests.examples import examples

NAMES = ("a", "b", "c", "run")
PATTERNS = st.sampled_from([*NAMES, "*"])
SOME = st.lists(PATTERNS, max_size=2).map(tuple)
POLICIES = st.builds(
    CallPolicy,
    allow=st.none() | SOME,
    deny=st.lists(st.sampled_from(NAMES), max_size=1).map(tuple),
    require=SOME,
    at_most=st.lists(st.tuples(PATTERNS, st.integers(0, 3)), max_size=2).map(tuple),
    after=st.lists(
        st.tuples(st.sampled_from(NAMES), st.sampled_from([("a",), ("b", "c"), ("ok",)])),
        max_size=2,
    ).map(tuple),
    done=st.sampled_from([(), ("ok",)]),
    choice=st.sampled_from(["auto", "none", "required"]),
    parallel=st.booleans(),
)


def broken(policy: CallPolicy, made: Sequence[Made], answer: Sequence[str]) -> set[str]:
    """Return the rules that the calls of an answer break, read rule by rule."""
    found: set[str] = set()
    results = {*policy.done, *(each.name for each in made if each.done)}
    before = [each.name for each in made]
    if policy.choice == "none" and answer:
        found.add("none")
    if len(answer) > 1 and not policy.parallel:
        found.add("parallel")
    for name in answer:
        if policy.allow is not None and not any(fnmatchcase(name, each) for each in policy.allow):
            found.add("allow")
        if any(fnmatchcase(name, each) for each in policy.deny):
            found.add("deny")
        for pattern, needed in policy.after:
            met = all(any(fnmatchcase(each, one) for each in results) for one in needed)
            if fnmatchcase(name, pattern) and not met:
                found.add("after")
        for pattern, most in policy.at_most:
            if (
                fnmatchcase(name, pattern)
                and sum(fnmatchcase(each, pattern) for each in before) >= most
            ):
                found.add("at_most")
        before.append(name)
    return found


@examples(500)
@given(POLICIES, st.integers(0, 10**6))
def test_no_answer_that_is_offered_breaks_a_rule(policy: CallPolicy, seed: int) -> None:
    walk(policy, seed)


@pytest.mark.slow
def test_ten_thousand_random_walks_break_no_rule() -> None:
    random = Random(19)
    for seed in range(10_000):
        walk(random_policy(random), seed)


def walk(policy: CallPolicy, seed: int) -> None:
    """Call at random what may be called, for three answers."""
    random, made = Random(seed), list[Made]()
    for _ in range(3):
        try:
            found = policy.offer(NAMES, made)
        except UsageError:
            return
        most = 12 if found.most is None else min(found.most, 12)
        count = random.randint(1, most) if found.names and most else 0
        answer = [random.choice(found.names) for _ in range(count)]
        assert found.allowed([*answer, "none"]) == len(answer)
        assert broken(policy, made, answer) == set()
        assert answer or not found.required
        made += [Made(name, random.random() < 0.7) for name in answer]


@examples(250)
@given(POLICIES)
def test_what_no_rule_forbids_may_be_called(policy: CallPolicy) -> None:
    try:
        first = policy.offer(NAMES, []).names
    except UsageError:
        return
    allowed = {name for name in NAMES if not broken(policy, [], [name])}
    wanted = {name for name in allowed if any(fnmatchcase(name, each) for each in policy.require)}
    assert set(first) == (wanted or allowed)


@examples(250)
@given(POLICIES, POLICIES)
def test_two_policies_together_let_nothing_come_that_one_forbids(
    own: CallPolicy, rules: CallPolicy
) -> None:
    if own.allow is not None:  # as a request names functions
        own = replace(own, allow=tuple(each for each in own.allow if each in NAMES))
    try:
        first = own.under(rules).offer(NAMES, []).names
    except UsageError:
        return
    apart = [replace(each, done=own.done, choice=own.choice) for each in (own, rules)]
    assert all(not broken(each, [], [name]) for each in apart for name in first)


def test_an_answer_has_no_more_calls_than_any_bound_lets_come() -> None:
    policy = CallPolicy(at_most=(("a", 1), ("*", 5)))
    assert policy.offer(("a", "b"), []).most == 1
    assert policy.offer(("a", "b"), []).allowed(["b", "a", "b", "a", "b"]) == 3
    assert policy.offer(("a", "b"), [Made("a")]) == CallOffer(("b",), bounds=(("*", 4),))
    assert policy.offer(("a", "b"), [Made("a")]).allowed(["b", "b", "a", "b"]) == 2
    assert CallPolicy().offer(("a", "b"), []).most is None


def test_an_answer_calls_what_is_required_first() -> None:
    policy = CallPolicy(require=("b",), after=(("b", ("a",)),))
    assert policy.offer(NAMES, []).required
    assert set(policy.offer(NAMES, []).names) == {"a", "c", "run"}, "b may not come yet"
    assert set(policy.offer(NAMES, [Made("a", done=True)]).names) == {"b"}
    assert not policy.offer(NAMES, [Made("a", done=True), Made("b")]).required


def test_a_call_that_is_required_and_forbidden_is_an_error_of_one_line() -> None:
    with pytest.raises(UsageError, match=r"a call of b is required.*allow none now"):
        CallPolicy(require=("b",), at_most=(("*", 0),)).offer(NAMES, [])


BRIEF = """{% for tool in tools or [] %}{{ tool.function.name }}{% endfor %}
{%- for message in messages %}<|im_start|>{{ message.role }}
{{ message.content }}{% for call in message.tool_calls or [] %}<{{ call.function.name }} {{ call.function.arguments | tojson }}>
{%- endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""Calls of six tokens and prompts of a hundred: a toy's time goes into looking through its prompt."""


ANYTHING = SamplingParams(temperature=1, top_k=0, top_p=1, min_p=0)


class Caller(Teller):
    """Begins a call, and then writes whatever it may: names at random, and another call before any end."""

    def _row(self, tokens: Sequence[int]) -> Logits:
        row = super()._row(tokens)
        if row.argmax() == END:
            random = np.random.default_rng(hash(tuple(tokens)) % 2**32)
            row = random.normal(0, 4, N_VOCAB).astype(np.float32)
            row[END] = -50
        return row


@dataclass(frozen=True, slots=True)
class _Run:
    """A conversation of a few answers and results, drawn at random."""

    policy: CallPolicy
    seed: int

    def go(self, speaker: Assistant) -> int:
        """Converse; return how many calls were made."""
        random = Random(self.seed)
        schema = {"type": "object", "properties": {}}
        conversation = Conversation(
            tools=[Tool(name, schema) for name in NAMES], call_policy=self.policy
        )
        conversation.append_user("hello")
        made: list[Made] = []
        for number in range(3):
            options = ReplyOptions(ANYTHING, self.seed + number, 60)
            try:
                reply = speaker.reply(conversation, options)
            except UsageError:
                break
            assert broken(self.policy, made, [each.name for each in reply.calls]) == set()
            for call in reply.calls:
                failed = random.random() < 0.3
                result = ToolResult(call.id, "x", is_error=failed)
                conversation.append(Message("tool", (result,)))
                made.append(Made(call.name, not failed))
            if not reply.calls:
                conversation.append_user("Go on.")
        return len(made)


def caller() -> Assistant:
    tellers = Tellers([Caller(spelled(" <"))], most_rows=64)
    models = models_of(tellers, BRIEF, grammar=GRAMMARS, suppressed=tuple(range(14, 100)))
    return Assistant(models, [plain_policy()])


def random_policy(random: Random) -> CallPolicy:
    def some(most: int) -> tuple[str, ...]:
        return tuple(random.sample((*NAMES, "*"), random.randrange(most + 1)))

    return CallPolicy(
        random.choice([None, some(3)]),
        some(1),
        some(1),
        tuple((name, random.randrange(3)) for name in some(2)),
        tuple((name, some(1)) for name in some(2)),
        choice=random.choice(["auto", "auto", "none", "required"]),
        parallel=random.random() < 0.7,
    )


@pytest.mark.parametrize(
    "runs", [25, pytest.param(1000, marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_a_model_that_wants_to_call_everything_calls_what_it_may(runs: int) -> None:
    speaker, random = caller(), Random(19)
    made = sum(_Run(random_policy(random), seed).go(speaker) for seed in range(runs))
    assert made > runs


FILE = """
allow = ["read_*", "write_file", "run"]
deny = "read_secret"
require = ["read_file"]
at_most = { "*" = 10, run = 2 }
parallel = false

[after]
write_file = ["read_file"]
run = "approval"
"""


def test_a_file_says_all_rules() -> None:
    assert policy_of_toml(FILE, "rules.toml") == CallPolicy(
        ("read_*", "write_file", "run"),
        ("read_secret",),
        ("read_file",),
        (("*", 10), ("run", 2)),
        (("write_file", ("read_file",)), ("run", ("approval",))),
        parallel=False,
    )
    assert policy_of_toml("at_most = 3", "x").at_most == (("*", 3),)
    assert policy_of_toml("", "x") == CallPolicy()


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("alow = []", "alow is not a known key"),
        ("allow = 3", "allow must be text or a list"),
        ("deny = [1]", "deny.1. must be text"),
        ("at_most = -1", "at_most must be at least 0"),
        ("at_most = { a = true }", "a value in at_most must be a whole number"),
        ("after = []", "after must be a table"),
        ("after = { a = 3 }", "a value in after must be text or a list"),
        ('parallel = "no"', "true or false"),
        ("allow = [", "is not TOML"),
    ],
)
def test_what_a_file_gets_wrong_is_said_in_one_line(text: str, word: str) -> None:
    with pytest.raises(UsageError, match=word) as why:
        policy_of_toml(text, "rules.toml")
    assert "rules.toml" in str(why.value)
    assert "\n" not in str(why.value)
