"""Calls over SmolLM2's tokens: free before the trigger, nothing but valid calls behind it, no trace of rejected drafts."""

import json
from collections.abc import Sequence
from itertools import count
from random import Random
from typing import Any

import jsonschema
import numpy as np
import pytest

from localspec.calls import CallFormat, Tool
from localspec.calls.policy import CallOffer
from localspec.chat.call_parser import CallParser
from localspec.chat.events import CallDone, Text
from localspec.decoding.constraint import AnswerConstraint
from localspec.grammar import Grammars
from localspec.llama.model import LlamaModel
from tests.chat.test_calls import HERMES_FORM, XML_FORM

pytestmark = pytest.mark.weights

TOOLS = [
    Tool(
        "get_weather",
        {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 8},
                "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
                "days": {"type": "integer", "minimum": 1, "maximum": 7},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    ),
    Tool("now", {"type": "object", "properties": {}, "additionalProperties": False}),
]
ONE_CALL = CallOffer(("get_weather", "now"), single=True)


@pytest.fixture(scope="module")
def grammars(smollm2: LlamaModel) -> Grammars:
    return Grammars(smollm2.vocabulary)


@pytest.fixture(scope="module")
def pieces(smollm2: LlamaModel) -> list[bytes]:
    return smollm2.vocabulary.pieces()


def lazy(form: CallFormat, grammars: Grammars) -> AnswerConstraint[Any]:
    return AnswerConstraint(grammars.of_answers(form, TOOLS, ONE_CALL, {}), 0)


def ids_of(smollm2: LlamaModel, text: str) -> list[int]:
    return smollm2.vocabulary.tokenize(text, add_special=False, parse_special=False)


def walk(
    constraint: AnswerConstraint[Any], answer: list[int], eog: Sequence[int], seed: int
) -> list[int]:
    """Go on with random tokens until one ends the answer."""
    random = Random(seed)
    everything = np.arange(49152)
    while True:
        token = random.choice(everything[constraint.allows(answer, everything)].tolist())
        if token in eog:
            return answer
        answer.append(token)
        assert len(answer) < 400


def test_before_the_trigger_all_but_what_runs_past_it_may_follow(
    smollm2: LlamaModel, grammars: Grammars, pieces: list[bytes]
) -> None:
    constraint = lazy(HERMES_FORM, grammars)
    answer = ids_of(smollm2, "The weather: <tool_call")
    everything = np.arange(len(pieces))
    for end in range(len(answer) + 1):
        text = b"".join(pieces[token] for token in answer[:end])
        refused = everything[~constraint.allows(answer[:end], everything)]
        past = [
            token for token, piece in enumerate(pieces) if b"<tool_call>" in (text + piece)[:-1]
        ]
        assert refused.tolist() == past
        assert constraint.forced(answer[:end]) == ()
    assert past, 'such as ">\\n" behind "<tool_call"'


@pytest.mark.parametrize("form", [HERMES_FORM, XML_FORM])
@pytest.mark.parametrize("required", [False, True])
def test_nothing_but_valid_calls_follows(
    smollm2: LlamaModel, grammars: Grammars, pieces: list[bytes], form: CallFormat, required: bool
) -> None:
    whole = grammars.of_calls(form, TOOLS, ONE_CALL, {})
    for seed in range(8):
        if required:
            constraint: AnswerConstraint[Any] = AnswerConstraint(whole, 0)
            said = ""
        else:
            constraint, said = lazy(form, grammars), "Let me see. "
        begun = [] if required else [*ids_of(smollm2, said), *ids_of(smollm2, form.trigger)]
        answer = walk(constraint, begun, sorted(smollm2.vocabulary.eog), seed)
        text = b"".join(pieces[token] for token in answer).decode()
        ids = count()
        parser = CallParser(form, TOOLS, lambda: str(next(ids)))  # noqa: B023
        told = [*parser.feed(text), *parser.flush()]
        assert "".join(each.text for each in told if isinstance(each, Text)) == said
        (call,) = (each.call for each in told if isinstance(each, CallDone))
        (tool,) = (each for each in TOOLS if each.name == call.name)
        jsonschema.validate(json.loads(call.arguments), dict(tool.parameters))


def test_rejected_drafts_leave_no_trace(
    smollm2: LlamaModel, grammars: Grammars, pieces: list[bytes]
) -> None:
    text = 'Well. <tool_call>\n{"name": "get_weather", "arguments": {"city": "Rio"}}\n</tool_call>'
    answer = [token for part in (text[:17], text[17:]) for token in ids_of(smollm2, part)]
    everything = np.arange(len(pieces))
    asked, random = lazy(HERMES_FORM, grammars), Random(7)
    fresh = lazy(HERMES_FORM, grammars)
    for end in range(len(answer)):
        # A draft that goes elsewhere, over and into the trigger, and is rejected.
        begun = random.randrange(end + 1)
        draft = [*answer[:begun], *ids_of(smollm2, random.choice(["<tool_call>", "\n{", "x <"]))]
        asked.allows(draft, everything[:50])
        mask = asked.allows(answer[:end], everything)
        assert (mask == fresh.allows(answer[:end], everything)).all()
        assert mask[answer[end]]
        assert asked.forced(answer[:end]) == fresh.forced(answer[:end])
    assert asked.forced(answer[: len(ids_of(smollm2, text[:17]))]), (
        "the rest of the head is certain"
    )
