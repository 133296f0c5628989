"""Policies of calls: no run leaves one, whatever a model wants to call; and files of them."""

from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.calls import Tool
from localspec.calls.policy import CallOffer, CallPolicy, Made, policy_of_toml
from localspec.chat.assistant import Assistant
from localspec.chat.token_prefix import Conversation
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


def random_policy(random: Random) -> CallPolicy:
    def some(most: int) -> tuple[str, ...]:
        return tuple(random.sample((*NAMES, "*"), random.randrange(most + 1)))

    return CallPolicy(
        random.choice([None, some(3)]),
        some(1),
        some(1),
        tuple((name, random.randrange(4)) for name in some(2)),
        tuple((name, random.choice([some(2), ("ok",)])) for name in some(2)),
        random.choice([(), ("ok",)]),
        random.choice(["auto", "auto", "none", "required"]),
        random.random() < 0.7,
    )


POLICIES = st.randoms(use_true_random=False).map(random_policy)


def broken(policy: CallPolicy, made: Sequence[Made], answer: Sequence[str]) -> set[str]:
    """Return the rules that the calls of an answer break, read rule by rule."""
    rules, before = set[str](), [each.name for each in made]
    results = {*policy.done, *(each.name for each in made if each.done)}
    if policy.choice == "none" and answer:
        rules.add("none")
    if len(answer) > 1 and not policy.parallel:
        rules.add("parallel")
    for name in answer:
        if policy.allow is not None and not any(fnmatchcase(name, each) for each in policy.allow):
            rules.add("allow")
        if any(fnmatchcase(name, each) for each in policy.deny):
            rules.add("deny")
        for pattern, needed in policy.after:
            met = all(any(fnmatchcase(each, one) for each in results) for one in needed)
            if fnmatchcase(name, pattern) and not met:
                rules.add("after")
        for pattern, most in policy.at_most:
            count = sum(fnmatchcase(each, pattern) for each in before)
            if fnmatchcase(name, pattern) and count >= most:
                rules.add("at_most")
        before.append(name)
    return rules


def walk(policy: CallPolicy, seed: int) -> None:
    """Call at random what may be called, for three answers."""
    random, made = Random(seed), list[Made]()
    for _ in range(3):
        try:
            offer = policy.offer(NAMES, made)
        except UsageError:
            return
        most = 12 if offer.most is None else min(offer.most, 12)
        count = random.randint(1, most) if offer.names and most else 0
        answer = [random.choice(offer.names) for _ in range(count)]
        assert offer.allowed([*answer, "none"]) == len(answer)
        assert broken(policy, made, answer) == set()
        assert answer or not offer.required
        made += [Made(name, random.random() < 0.7) for name in answer]


@pytest.mark.parametrize("walks", [100, pytest.param(10_000, marks=pytest.mark.slow)])
def test_random_walks_break_no_rule(walks: int) -> None:
    random = Random(19)
    for seed in range(walks):
        walk(random_policy(random), seed)


@examples(250)
@given(POLICIES, POLICIES)
def test_what_neither_policy_forbids_is_offered(own: CallPolicy, rules: CallPolicy) -> None:
    try:
        first = own.offer(NAMES, []).names
    except UsageError:
        return
    allowed = {name for name in NAMES if not broken(own, [], [name])}
    wanted = {name for name in allowed if any(fnmatchcase(name, each) for each in own.require)}
    assert set(first) == (wanted or allowed)
    if own.allow is not None:  # as a request names functions
        own = replace(own, allow=tuple(each for each in own.allow if each in NAMES))
    try:
        both = own.under(rules).offer(NAMES, []).names
    except UsageError:
        return
    apart = [replace(each, done=own.done, choice=own.choice) for each in (own, rules)]
    assert all(not broken(each, [], [name]) for each in apart for name in both)


def test_bounds_and_required_calls() -> None:
    bounded, names = CallPolicy(at_most=(("a", 1), ("*", 5))), ("a", "b")
    assert bounded.offer(names, []).most == 1
    assert bounded.offer(names, []).allowed(["b", "a", "b", "a", "b"]) == 3
    assert bounded.offer(names, [Made("a")]) == CallOffer(("b",), bounds=(("*", 4),))
    assert bounded.offer(names, [Made("a")]).allowed(["b", "b", "a", "b"]) == 2
    assert CallPolicy().offer(names, []).most is None
    ordered = CallPolicy(require=("b",), after=(("b", ("a",)),))
    assert ordered.offer(NAMES, []).required
    assert set(ordered.offer(NAMES, []).names) == {"a", "c", "run"}, "b may not come yet"
    assert set(ordered.offer(NAMES, [Made("a", done=True)]).names) == {"b"}
    assert not ordered.offer(NAMES, [Made("a", done=True), Made("b")]).required
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
TOOLS = [Tool(name, {"type": "object", "properties": {}}) for name in NAMES]


class Caller(Teller):
    """Begins a call, and then writes whatever it may: names at random, and another call before any end."""

    def row(self, tokens: Sequence[int]) -> Logits:
        row = super().row(tokens)
        if row.argmax() == END:
            random = np.random.default_rng(hash(tuple(tokens)) % 2**32)
            row = random.normal(0, 4, N_VOCAB).astype(np.float32)
            row[END] = -50
        return row


def converse(speaker: Assistant, policy: CallPolicy, seed: int) -> int:
    """Have a conversation of a few answers and results, drawn at random; return how many calls were made."""
    random, made = Random(seed), list[Made]()
    conversation = Conversation(tools=TOOLS, call_policy=policy)
    conversation.append_user("hello")
    for number in range(3):
        try:
            reply = speaker.reply(conversation, ReplyOptions(ANYTHING, seed + number, 60))
        except UsageError:
            break
        assert broken(policy, made, [each.name for each in reply.calls]) == set()
        for call in reply.calls:
            failed = random.random() < 0.3
            conversation.append(Message("tool", (ToolResult(call.id, "x", is_error=failed),)))
            made.append(Made(call.name, not failed))
        if not reply.calls:
            conversation.append_user("Go on.")
    return len(made)


@pytest.mark.parametrize(
    "runs", [25, pytest.param(150, marks=pytest.mark.slow)], ids=["some", "many"]
)
def test_a_model_that_wants_to_call_everything_calls_what_it_may(runs: int) -> None:
    tellers, random = Tellers([Caller(spelled(" <"))], most_rows=64), Random(19)
    models = models_of(tellers, BRIEF, grammar=GRAMMARS, suppressed=tuple(range(14, 100)))
    speaker = Assistant(models, [plain_policy()])
    made = sum(converse(speaker, random_policy(random), seed) for seed in range(runs))
    assert made > runs * 0.8


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


def test_a_file_has_all_rules() -> None:
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
        ("alow = []", "alow is not a known key"), ("allow = 3", "allow must be text or a list"),
        ("deny = [1]", "deny.1. must be text"), ("at_most = -1", "at_most must be at least 0"),
        ("at_most = { a = true }", "a value in at_most must be a whole number"), ("after = []", "after must be a table"),
        ("after = { a = 3 }", "a value in after must be text or a list"), ('parallel = "no"', "true or false"),
        ("allow = [", "is not TOML"),
    ],
)  # fmt: skip
def test_what_a_file_gets_wrong_is_one_line(text: str, word: str) -> None:
    with pytest.raises(UsageError, match=word) as why:
        policy_of_toml(text, "rules.toml")
    assert "rules.toml" in str(why.value)
    assert "\n" not in str(why.value)
