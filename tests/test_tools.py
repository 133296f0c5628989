"""Tools on real weights: calls valid by construction, rules that hold, and the same text however it is drafted."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import jsonschema
import pytest

from localspec.calls import Tool
from localspec.calls.policy import CallPolicy
from localspec.chat.assistant import Assistant
from localspec.chat.events import Reply
from localspec.chat.token_prefix import Conversation
from localspec.decoding.drafters.forced import ForcedDrafter
from localspec.decoding.policy import FixedPolicy, Policy, plain_policy
from localspec.decoding.round import StopReason
from localspec.errors import UsageError
from localspec.messages import Message, ToolCall, ToolResult
from localspec.options import LoadOptions, ReplyOptions, SamplingParams
from tests.chat.toy_calls import HERMES
from tests.support.speaking import forget, opened
from tests.vocabularies import real_templates

pytestmark = [pytest.mark.weights]

CITY = {"type": "string", "maxLength": 12}
TOOLS = [
    Tool("weather", {"type": "object", "properties": {"city": CITY, "days": {"enum": [1, 7]}}, "required": ["city", "days"]}),
    Tool("flight", {"type": "object", "properties": {"to": CITY}, "required": ["to"]}),
    Tool("now", {"type": "object", "properties": {}}),
]  # fmt: skip
BY_NAME = {each.name: each for each in TOOLS}


@pytest.fixture(scope="module")
def speaker(smollm2_path: Path) -> Iterator[Assistant]:
    """SmolLM2 at widths that are safe to the bit, with a template that has calls: its own has none."""
    yield from speaking(smollm2_path)


@pytest.fixture(scope="module")
def small(six_layers_path: Path) -> Iterator[Assistant]:
    """The same of six layers, whose safe widths are found sooner."""
    yield from speaking(six_layers_path)


def speaking(path: Path) -> Iterator[Assistant]:
    options = LoadOptions(n_ctx=1024, threads=1, threads_batch=1)
    with closing(opened(path, "lookup", exact=True, options=options)) as own:
        yield Assistant(replace(own.models, template_source=HERMES), own.policies)


def answered(
    speaker: Assistant, policy: CallPolicy, seed: int, drafting: Policy | None = None
) -> Reply:
    forget(speaker)
    conversation = Conversation(tools=TOOLS, call_policy=policy)
    conversation.append_user("The weather in Lima?")
    options = ReplyOptions(SamplingParams(temperature=0.8), seed, 90)
    return speaker.reply(conversation, options, policy=drafting or plain_policy())


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_drafting_changes_no_byte_of_a_call(speaker: Assistant, seed: int) -> None:
    policy = CallPolicy(choice="required", parallel=False)
    plain = answered(speaker, policy, seed)
    forced = answered(speaker, policy, seed, FixedPolicy(ForcedDrafter(), 5))
    copied = answered(speaker, policy, seed, speaker.policy)
    assert forced.tokens == copied.tokens == plain.tokens
    assert forced.calls == copied.calls == plain.calls
    assert forced.acceptance.accepted == forced.acceptance.drafted > 3
    assert forced.acceptance.rounds < plain.acceptance.rounds


@pytest.mark.slow
def test_what_is_denied_is_never_called_however_often_it_is_tried(speaker: Assistant) -> None:
    policy = CallPolicy(deny=("wea*",), choice="required", at_most=(("now", 1),))
    called, usual = set[str](), {"flight", "now"}
    for seed in range(40):
        if seed >= 8 and called == usual:  # how soon both come depends on how a machine rounds
            break
        reply = answered(speaker, policy, seed)
        names = [each.name for each in reply.calls]
        assert names.count("now") <= 1
        assert names or reply.stop_reason is StopReason.LENGTH
        for call in reply.calls:
            jsonschema.validate(json.loads(call.arguments), dict(BY_NAME[call.name].parameters))
        called |= {*names}
    assert called == usual


def test_a_template_without_tools_cannot_call(small: Assistant) -> None:
    source = (
        "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    )
    plain = replace(small.models, template_source=source)
    with pytest.raises(UsageError, match="cannot call tools"):
        answered(Assistant(plain, small.policies), CallPolicy(), 1)


@pytest.mark.first(2)
@pytest.mark.parametrize(
    "name",
    ["Qwen-Qwen2.5-7B-Instruct", "Mistral-Small-3.2-24B-Instruct-2506", "Qwen3.5-4B"],
)
def test_swapped_results_give_the_answer_that_ordered_ones_give(
    small: Assistant, name: str
) -> None:
    source = real_templates()[name].read_text()
    other = Assistant(replace(small.models, template_source=source), small.policies)
    calls = tuple(ToolCall(f"call_{at}", "flight", f'{{"to": "{at}"}}') for at in ("Rome", "Oslo"))
    results = [Message("tool", (ToolResult(f"call_{at}", f"to {at}"),)) for at in ("Rome", "Oslo")]
    replies = []
    for order in (results, results[::-1]):
        forget(other)
        said = [Message.user("Flights?"), Message("assistant", calls), *order]
        conversation = Conversation(messages=said, tools=TOOLS)
        options = ReplyOptions(SamplingParams(temperature=0.8), 7, 24)
        replies.append(other.reply(conversation, options))
    ordered, swapped = replies
    assert ordered.tokens == swapped.tokens
    assert ordered.prompt_tokens == swapped.prompt_tokens > 20
