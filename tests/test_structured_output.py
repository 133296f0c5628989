"""Grammars and schemas on real weights: the same text with and without drafting, and JSON that validates."""

import json
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import jsonschema
import pytest

from localspec.chat.assistant import Assistant
from localspec.chat.token_prefix import Conversation
from localspec.decoding.round import StopReason
from localspec.errors import PassFailed, UsageError
from localspec.options import ReplyOptions, SamplingParams
from tests.grammar.schemas import ASKED
from tests.support.speaking import afresh, opened

pytestmark = [pytest.mark.weights, pytest.mark.slow]

BY_NAME = {each.name: each for each in ASKED}
ANYTHING = "root ::= [\\x01-\\U0010FFFF]*"


@pytest.fixture(scope="module", params=["model", "lookup"])
def assistant(request: pytest.FixtureRequest, six_layers_path: Path) -> Iterator[Assistant]:
    """SmolLM2, drafted for by itself or from the text, at widths that are safe to the bit."""
    with closing(opened(six_layers_path, request.param, exact=True, draft_length=3)) as assistant:
        yield assistant


@pytest.mark.parametrize(("name", "temperature"), [("person", 0.0), ("shapes", 0.8)])
def test_under_a_schema_drafting_changes_no_byte(
    assistant: Assistant, name: str, temperature: float
) -> None:
    asked = BY_NAME[name]
    sampling = SamplingParams(temperature=temperature, repeat_penalty=1.1)
    options = ReplyOptions(sampling, seed=5, max_tokens=90, json_schema=asked.schema)
    drafted, plain = (
        afresh(assistant, asked.prompt, options, drafting=each) for each in (True, False)
    )
    assert (drafted.tokens, drafted.stop_reason) == (plain.tokens, plain.stop_reason)
    if drafted.stop_reason is StopReason.EOG:
        jsonschema.validate(json.loads(drafted.text), asked.schema)


def test_most_of_what_is_drafted_under_a_schema_is_accepted(assistant: Assistant) -> None:
    asked = BY_NAME["recipe"]
    options = ReplyOptions(SamplingParams(temperature=0), 1, 120, json_schema=asked.schema)
    acceptance = afresh(assistant, asked.prompt, options).acceptance
    assert acceptance.accepted > 0
    if assistant.models.draft_model is not None:
        # It is its own draft model, under the same grammar.
        assert (acceptance.acceptance_rate or 0.0) > 0.9


def test_a_grammar_that_allows_all_changes_no_byte(assistant: Assistant) -> None:
    free = ReplyOptions(SamplingParams(temperature=0.8), 1, 40)
    bound = ReplyOptions(SamplingParams(temperature=0.8), 1, 40, grammar=ANYTHING)
    prompt = "Write 'naïve café' in Greek letters."
    texts = {
        afresh(assistant, prompt, options, drafting=each).text
        for options in (free, bound)
        for each in (True, False)
    }
    assert len(texts) == 1


def test_an_answer_ends_when_it_is_complete_or_cut_and_a_schema_may_be_a_text(
    assistant: Assistant,
) -> None:
    options = ReplyOptions(seed=1, grammar='root ::= "yes" | "no"')
    reply = afresh(assistant, "Is water wet?", options)
    assert (reply.text in {"yes", "no"}, reply.stop_reason) == (True, StopReason.EOG)
    options = ReplyOptions(seed=1, max_tokens=3, json_schema={})
    assert afresh(assistant, "Give JSON.", options).stop_reason is StopReason.LENGTH
    asked, texts = BY_NAME["labels"], set()
    for each in (asked.schema, json.dumps(asked.schema, indent=2)):
        options = ReplyOptions(seed=2, max_tokens=40, json_schema=each)
        texts.add(afresh(assistant, asked.prompt, options).text)
    assert len(texts) == 1


def test_what_no_grammar_can_begin_or_go_on_fails_on_one_line(assistant: Assistant) -> None:
    conversation = Conversation()
    conversation.append_user("Give JSON.")
    conversation.append_reply('{"a":', [])
    with pytest.raises(UsageError, match="cannot continue a partly written"):
        assistant.reply(conversation, ReplyOptions(json_schema={}))
    forbidden = tuple((token, float("-inf")) for token in assistant.models.eog)
    options = ReplyOptions(SamplingParams(logit_bias=forbidden), grammar='root ::= "a"')
    with pytest.raises(PassFailed, match="the grammar lets none"):
        afresh(assistant, "Say a.", options)
