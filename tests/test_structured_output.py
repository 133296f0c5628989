"""Grammars and schemas on real weights: the same text with and without drafting, and JSON that validates."""

import json
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from localspec.chat.assistant import Assistant
from localspec.chat.conversation import Conversation
from localspec.chat.events import Reply
from localspec.decoding.policy import plain_policy
from localspec.decoding.round import StopReason
from localspec.errors import PassFailed, UsageError
from localspec.launch.load import load
from localspec.launch.plan import make_plan
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from tests.grammar.schemas import ASKED, Asked

pytestmark = [pytest.mark.weights, pytest.mark.slow]

ANYTHING = "root ::= [\\x01-\\U0010FFFF]*"


@pytest.fixture(scope="module", params=["model", "lookup"])
def drafting(request: pytest.FixtureRequest, smollm2_path: Path) -> Iterator[Assistant]:
    """SmolLM2, drafted for by itself or from the text, at widths that are safe to the bit."""
    path = str(smollm2_path)
    launch = LaunchOptions(
        target=path,
        draft_model=path if request.param == "model" else None,
        draft=request.param,
        draft_length=3,
        exact=True,
        load=LoadOptions(n_ctx=1024),
    )
    assistant = load(make_plan(launch)).assistant
    yield assistant
    assistant.close()


def answered(
    assistant: Assistant, prompt: str, options: ReplyOptions, *, drafting: bool = True
) -> Reply:
    models = assistant.models
    models.target.truncate(0)
    if models.draft_model is not None:
        models.draft_model.truncate(0)
    return assistant.reply(prompt, options, policy=None if drafting else plain_policy())


def by_name(name: str) -> Asked:
    return next(each for each in ASKED if each.name == name)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("name", ["person", "shapes", "matrix"])
def test_under_a_schema_drafting_changes_no_byte(
    drafting: Assistant, name: str, temperature: float
) -> None:
    asked = by_name(name)
    sampling = SamplingParams(temperature=temperature, repeat_penalty=1.1)
    options = ReplyOptions(sampling, seed=5, max_tokens=90, json_schema=asked.schema)
    drafted = answered(drafting, asked.prompt, options)
    plain = answered(drafting, asked.prompt, options, drafting=False)
    assert drafted.tokens == plain.tokens
    assert drafted.stop_reason is plain.stop_reason
    if drafted.stop_reason is StopReason.EOG:
        jsonschema.validate(json.loads(drafted.text), asked.schema)


def test_most_of_what_is_drafted_under_a_schema_is_accepted(drafting: Assistant) -> None:
    asked = by_name("recipe")
    options = ReplyOptions(SamplingParams(temperature=0), 1, 200, json_schema=asked.schema)
    acceptance = answered(drafting, asked.prompt, options).acceptance
    assert acceptance.accepted > 0
    if drafting.models.draft_model is not None:
        assert acceptance.acceptance_rate is not None
        assert acceptance.acceptance_rate > 0.9  # it is its own draft model, under the same grammar


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_grammar_that_allows_all_changes_no_byte(drafting: Assistant, temperature: float) -> None:
    for seed, prompt in enumerate(("Name three rivers.", "Write 'naïve café' in Greek letters.")):
        free = ReplyOptions(SamplingParams(temperature=temperature), seed, 60)
        bound = ReplyOptions(SamplingParams(temperature=temperature), seed, 60, grammar=ANYTHING)
        texts = {
            answered(drafting, prompt, options, drafting=each).text
            for options in (free, bound)
            for each in (True, False)
        }
        assert len(texts) == 1


def test_an_answer_ends_when_it_is_complete_or_cut(drafting: Assistant) -> None:
    reply = answered(
        drafting, "Is water wet?", ReplyOptions(seed=1, grammar='root ::= "yes" | "no"')
    )
    assert reply.text in {"yes", "no"}
    assert reply.stop_reason is StopReason.EOG
    options = ReplyOptions(seed=1, max_tokens=3, json_schema={})
    assert answered(drafting, "Give JSON.", options).stop_reason is StopReason.LENGTH


def test_a_schema_as_text_means_the_same(drafting: Assistant) -> None:
    schema, texts = by_name("labels").schema, set()
    for each in (schema, json.dumps(schema), json.dumps(schema, indent=2)):
        options = ReplyOptions(seed=2, max_tokens=60, json_schema=each)
        texts.add(answered(drafting, by_name("labels").prompt, options).text)
    assert len(texts) == 1


def test_a_reply_that_was_begun_takes_no_grammar(drafting: Assistant) -> None:
    conversation = Conversation()
    conversation.append_user("Give JSON.")
    conversation.append_reply('{"a":', [])
    with pytest.raises(UsageError, match="has begun this one"):
        drafting.reply(conversation, ReplyOptions(json_schema={}))


def test_a_grammar_without_a_way_on_fails_on_one_line(drafting: Assistant) -> None:
    forbidden = tuple((token, float("-inf")) for token in drafting.models.eog)
    sampling = SamplingParams(logit_bias=forbidden)
    with pytest.raises(PassFailed, match="the grammar lets none"):
        answered(drafting, "Say a.", ReplyOptions(sampling, grammar='root ::= "a"'))
