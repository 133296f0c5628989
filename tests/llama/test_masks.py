"""Masks over SmolLM2's tokens: control tokens, texts as the model's own tokenizer cuts them, and what is forced."""

import json

import numpy as np
import pytest

from localspec.decoding.constraint import AnswerConstraint
from localspec.grammar import Grammars
from localspec.llama.model import LlamaModel
from localspec.options import ReplyOptions
from tests.grammar.schemas import ASKED

pytestmark = pytest.mark.weights

OBJECT = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "nationality": {"enum": ["french", "finnish"]}},
    "required": ["name", "nationality"],
    "additionalProperties": False,
}
TEXT = '{"name": "Zoë of 東京 and <b>", "nationality": "french"}'


@pytest.fixture(scope="module")
def grammars(smollm2: LlamaModel) -> Grammars:
    return Grammars(smollm2.vocabulary)


def test_pieces_are_what_each_token_stands_for(smollm2: LlamaModel) -> None:
    vocabulary = smollm2.vocabulary
    pieces = vocabulary.pieces()
    assert pieces == [vocabulary.piece(token) for token in range(vocabulary.n_vocab)]
    assert max(map(len, pieces)) > 32, "some have more bytes than there is room for at first"


@pytest.mark.slow
def test_what_the_mask_lets_through_is_what_the_bytes_let_through(
    smollm2: LlamaModel, grammars: Grammars
) -> None:
    """Every token of the vocabulary, at every place of a text: by the mask, and byte by byte."""
    vocabulary = smollm2.vocabulary
    options = ReplyOptions(json_schema=OBJECT)
    ids = vocabulary.tokenize(TEXT, add_special=False, parse_special=False)
    constraint = AnswerConstraint(grammars(options), 0)
    spelled = {piece: token for token, piece in enumerate(vocabulary.pieces()) if len(piece) == 1}
    everything = np.arange(vocabulary.n_vocab)
    for end in range(len(ids) + 1):
        mask = constraint.allows(ids[:end], everything)
        for token in np.random.default_rng(end).choice(everything, 40):
            piece = vocabulary.piece(int(token))
            if not piece or any(bytes([byte]) not in spelled for byte in piece):
                continue
            other = AnswerConstraint(grammars(options), 0)
            single = [*ids[:end], *(spelled[bytes([byte])] for byte in piece[:-1])]
            last = np.array([spelled[piece[-1:]]])
            alone = bool(other.allows(single, last)[0])
            # Where the text is forced, other cuts of it are masked.
            assert mask[token] == alone or (not mask[token] and mask.sum() == 1)


def test_control_tokens_never_slip_through(smollm2: LlamaModel, grammars: Grammars) -> None:
    vocabulary = smollm2.vocabulary
    constraint = AnswerConstraint(grammars(ReplyOptions(json_schema=OBJECT)), 0)
    begun = vocabulary.tokenize('{"name": "a', add_special=False, parse_special=False)
    control = [
        vocabulary.tokenize(text, add_special=False, parse_special=True)
        for text in vocabulary.special_texts()
    ]
    controls = np.array([ids[0] for ids in control if not vocabulary.piece(ids[0])])
    assert controls.size > 5
    assert not constraint.allows(begun, controls).any()


@pytest.mark.parametrize("excepted", ["\\x85\\u2028", "¾", "\\U0001F600", "a-z\\xe9", "\\]\\x85"])
def test_a_class_without_one_character_has_those_that_begin_with_the_same_byte(
    smollm2: LlamaModel, grammars: Grammars, excepted: str
) -> None:
    vocabulary = smollm2.vocabulary
    constraint = AnswerConstraint(grammars(ReplyOptions(grammar=f'root ::= "x" [^{excepted}]+')), 0)
    begun = vocabulary.tokenize("x", add_special=False, parse_special=False)
    allowed = np.flatnonzero(constraint.allows(begun, np.arange(vocabulary.n_vocab)))
    assert sum(not vocabulary.piece(int(token)).isascii() for token in allowed) > 500


def test_what_is_forced_is_cut_as_the_model_cuts_it(
    smollm2: LlamaModel, grammars: Grammars
) -> None:
    vocabulary = smollm2.vocabulary
    constraint = AnswerConstraint(grammars(ReplyOptions(json_schema=OBJECT)), 0)
    ids = vocabulary.tokenize(TEXT, add_special=False, parse_special=False)
    forced = {tuple(constraint.forced(ids[:end])) for end in range(len(ids))}
    spelled = {b"".join(vocabulary.piece(token) for token in tokens) for tokens in forced}
    assert {b"name", b"nationality"} <= spelled
    place = next(end for end in range(len(ids)) if constraint.forced(ids[:end])[1:])
    tokens = constraint.forced(ids[:place])
    assert list(tokens) == ids[place : place + len(tokens)]


@pytest.mark.parametrize("asked", ASKED, ids=[each.name for each in ASKED])
def test_schemas_of_the_real_world_give_masks_at_once(
    smollm2: LlamaModel, grammars: Grammars, asked: object
) -> None:
    options = ReplyOptions(json_schema=asked.schema)  # type: ignore[attr-defined]
    constraint = AnswerConstraint(grammars(options), 0)
    everything = np.arange(smollm2.vocabulary.n_vocab)
    chance, answer = np.random.default_rng(1), list[int]()
    for _ in range(60):
        allowed = everything[constraint.allows(answer, everything)]
        assert allowed.size
        token = int(chance.choice(allowed))
        if token in smollm2.vocabulary.eog:
            text = b"".join(map(smollm2.vocabulary.piece, answer))
            json.loads(text)
            break
        answer.append(token)
