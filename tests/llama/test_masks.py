"""Masks over SmolLM2's tokens: control tokens, texts as its own tokenizer cuts them, what is forced, and valid calls alone."""

import json
from itertools import count
from random import Random
from typing import Any

import jsonschema
import numpy as np
import pytest

from localspec.calls import CallFormat, Tool
from localspec.calls.policy import CallOffer, OfferedCalls
from localspec.chat.call_parser import CallParser
from localspec.chat.events import CallDone, Text
from localspec.decoding.constraint import AnswerConstraint
from localspec.grammar import Grammars
from localspec.llama.model import LlamaModel
from localspec.llama.vocabulary import Vocabulary
from localspec.options import ReplyOptions
from tests.chat.test_calls import HERMES_FORM, XML_FORM

pytestmark = pytest.mark.weights

Masks = AnswerConstraint[Any]
OBJECT = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "nationality": {"enum": ["french", "finnish"]}},
    "required": ["name", "nationality"],
    "additionalProperties": False,
}
TEXT = '{"name": "Zoë of 東京 and <b>", "nationality": "french"}'
WEATHER = {
    "city": {"type": "string", "maxLength": 8},
    "unit": {"type": "string", "enum": ["celsius", "fahrenheit"]},
    "days": {"type": "integer", "minimum": 1, "maximum": 7},
}
STRICT = {"type": "object", "additionalProperties": False}
TOOLS = [
    Tool("get_weather", STRICT | {"properties": WEATHER, "required": ["city"]}),
    Tool("now", STRICT | {"properties": {}}),
]
ONE_CALL = CallOffer(("get_weather", "now"), single=True)


@pytest.fixture(scope="module")
def vocabulary(smollm2: LlamaModel) -> Vocabulary:
    return smollm2.vocabulary


def ids_of(vocabulary: Vocabulary, text: str) -> list[int]:
    return vocabulary.tokenize(text, add_special=False, parse_special=False)


def allowed(masks: Masks, answer: list[int], vocabulary: Vocabulary) -> Any:
    """Say of every token whether it may follow."""
    return masks.allows(answer, np.arange(vocabulary.n_vocab))


@pytest.fixture(scope="module")
def grammars(vocabulary: Vocabulary) -> Grammars:
    return Grammars(vocabulary)


def masks_of(grammars: Grammars, options: ReplyOptions) -> Masks:
    return AnswerConstraint(grammars(options), 0)


def test_pieces_and_tokens_of_control(vocabulary: Vocabulary, grammars: Grammars) -> None:
    pieces = vocabulary.pieces()
    assert pieces == [vocabulary.piece(token) for token in range(vocabulary.n_vocab)]
    assert max(map(len, pieces)) > 32, "some have more bytes than there is room for at first"
    masks = masks_of(grammars, ReplyOptions(json_schema=OBJECT))
    special = [
        vocabulary.tokenize(text, add_special=False, parse_special=True)[0]
        for text in vocabulary.special_texts()
    ]
    controls = np.array([token for token in special if not vocabulary.piece(token)])
    assert controls.size > 5
    assert not masks.allows(ids_of(vocabulary, '{"name": "a'), controls).any()


@pytest.mark.slow
def test_the_mask_lets_through_what_bytes_do(vocabulary: Vocabulary, grammars: Grammars) -> None:
    """Tokens at every place of a text: by the mask, and byte by byte."""
    options, ids, pieces = (
        ReplyOptions(json_schema=OBJECT),
        ids_of(vocabulary, TEXT),
        vocabulary.pieces(),
    )
    masks = masks_of(grammars, options)
    spelled = {piece: token for token, piece in enumerate(pieces) if len(piece) == 1}
    for end in range(len(ids) + 1):
        mask = allowed(masks, ids[:end], vocabulary)
        for token in np.random.default_rng(end).choice(vocabulary.n_vocab, 20):
            piece = [spelled.get(bytes([byte]), -1) for byte in pieces[token]]
            if piece and -1 not in piece:
                single = [*ids[:end], *piece[:-1]]
                alone = masks_of(grammars, options).allows(single, np.array(piece[-1:]))[0]
                # Where the text is forced, other cuts of it are masked.
                assert mask[token] == alone or (not mask[token] and mask.sum() == 1)


@pytest.mark.parametrize("excepted", ["\\x85\\u2028", "¾", "\\U0001F600", "a-z\\xe9", "\\]\\x85"])
def test_a_class_but_one_letter(vocabulary: Vocabulary, grammars: Grammars, excepted: str) -> None:
    masks = masks_of(grammars, ReplyOptions(grammar=f'root ::= "x" [^{excepted}]+'))
    tokens = np.flatnonzero(allowed(masks, ids_of(vocabulary, "x"), vocabulary))
    assert sum(not vocabulary.piece(int(token)).isascii() for token in tokens) > 500


def test_forced_text_is_cut_as_the_model_does(vocabulary: Vocabulary, grammars: Grammars) -> None:
    masks = masks_of(grammars, ReplyOptions(json_schema=OBJECT))
    ids = ids_of(vocabulary, TEXT)
    forced = [tuple(masks.forced(ids[:end])) for end in range(len(ids))]
    spelled = {b"".join(map(vocabulary.piece, tokens)) for tokens in forced}
    assert {b"name", b"nationality"} <= spelled
    place = next(end for end in range(len(ids)) if forced[end][1:])
    assert list(forced[place]) == ids[place : place + len(forced[place])]


@pytest.mark.parametrize("form", [HERMES_FORM, XML_FORM])
def test_nothing_but_calls(vocabulary: Vocabulary, grammars: Grammars, form: CallFormat) -> None:
    before = "Let me see. "
    for seed in range(5):
        masks = AnswerConstraint(grammars.of_answers(OfferedCalls(form, TOOLS, ONE_CALL)), 0)
        random = Random(seed)
        answer = [*ids_of(vocabulary, before), *ids_of(vocabulary, form.trigger)]
        while answer[-1] not in vocabulary.eog:
            answer.append(
                random.choice(np.flatnonzero(allowed(masks, answer, vocabulary)).tolist())
            )
            assert len(answer) < 400
        parser = CallParser(form, TOOLS, map(str, count()).__next__)
        text = b"".join(map(vocabulary.piece, answer[:-1])).decode()
        events = [*parser.feed(text), *parser.flush()]
        assert "".join(each.text for each in events if isinstance(each, Text)) == before
        (call,) = (each.call for each in events if isinstance(each, CallDone))
        (tool,) = (each for each in TOOLS if each.name == call.name)
        jsonschema.validate(json.loads(call.arguments), dict(tool.parameters))
