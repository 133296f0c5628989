"""llama.cpp's grammar as an automaton: exact, blind to control tokens, and never the end of the process."""

import json
import random
from random import Random

import jsonschema
import numpy as np
import pytest

from localspec.decoding.constraint import AnswerConstraint
from localspec.errors import LocalspecError, UsageError
from localspec.llama.grammar import Grammars, GrammarState, NativeGrammar
from localspec.llama.model import LlamaModel
from localspec.options import LoadOptions
from localspec.structured.answer_grammar import schema_grammar, sound_grammar
from tests.decoding.planting import plant
from tests.structured.grammars import GRAMMARS
from tests.structured.schemas import ASKED

pytestmark = pytest.mark.weights

OBJECT = schema_grammar(
    json.dumps(
        {
            "type": "object",
            "properties": {"name": {"type": "string"}, "size": {"type": "integer"}},
            "required": ["name"],
            "additionalProperties": False,
        }
    )
)
TEXT = '{"name": "Zoë of 東京 \\u00e9 and <b>", "size": -31}'


@pytest.fixture(scope="module")
def grammars(smollm2: LlamaModel) -> Grammars:
    return Grammars(smollm2)


def ids_of(smollm2: LlamaModel, text: str) -> list[int]:
    return smollm2.vocabulary.tokenize(text, add_special=False, parse_special=False)


def after(grammar: NativeGrammar, ids: list[int]) -> GrammarState:
    state = grammar.start()
    for token in ids:
        assert grammar.allows(state, np.array([token])).all(), f"{token} is refused"
        state = grammar.step(state, token)
    return state


def test_asking_for_all_ids_finds_those_that_each_alone_may_follow(
    smollm2: LlamaModel, grammars: Grammars
) -> None:
    """All at once, first and second bytes tell most apart; in small groups, llama.cpp tells all."""
    grammar, ids = grammars(OBJECT), ids_of(smollm2, TEXT)
    everything = np.arange(smollm2.vocabulary.n_vocab)
    for end in range(len(ids) + 1):
        state = after(grammar, ids[:end])
        few = [grammar.allows(state, part) for part in np.array_split(everything, 200)]
        assert np.array_equal(grammar.allows(state, everything), np.concatenate(few))


@pytest.mark.parametrize("excepted", ["\\x85\\u2028", "¾", "\\U0001F600", "a-z\\xe9", "\\]\\x85"])
def test_a_class_without_one_character_has_those_that_begin_with_the_same_byte(
    smollm2: LlamaModel, grammars: Grammars, excepted: str
) -> None:
    """Asked for few ids and for many: of their first byte alone, llama.cpp itself says no."""
    grammar = grammars(sound_grammar(f'root ::= "x" [^{excepted}]+'))
    everything = np.arange(smollm2.vocabulary.n_vocab)
    state = after(grammar, ids_of(smollm2, "x"))
    few = [grammar.allows(state, part) for part in np.array_split(everything, 400)]
    allowed = grammar.allows(state, everything)
    assert np.array_equal(allowed, np.concatenate(few))
    beyond = [i for i in np.flatnonzero(allowed) if not smollm2.vocabulary.piece(int(i)).isascii()]
    assert len(beyond) > 500


def test_eog_may_follow_exactly_where_the_grammar_may_end(
    smollm2: LlamaModel, grammars: Grammars
) -> None:
    eog = np.array(sorted(smollm2.vocabulary.eog))
    grammar, ids = grammars(OBJECT), ids_of(smollm2, TEXT)
    everything = np.arange(smollm2.vocabulary.n_vocab)
    for end in range(len(ids)):
        assert not grammar.allows(after(grammar, ids[:end]), eog).any()
    state = after(grammar, ids)
    assert np.array_equal(np.flatnonzero(grammar.allows(state, everything)), eog)
    ended = grammar.step(state, int(eog[0]))
    assert grammar.allows(grammar.step(ended, 5), everything).all(), "what follows an end is cut"


def test_eog_that_is_allowed_too_early_is_caught(
    smollm2: LlamaModel, grammars: Grammars, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(
        monkeypatch,
        NativeGrammar.allows,
        "if state.pending:\n        for",
        "allowed |= texts.eog[ids]\n    if state.pending:\n        for",
    )
    with pytest.raises(AssertionError):
        test_eog_may_follow_exactly_where_the_grammar_may_end(smollm2, grammars)


def test_control_tokens_never_slip_through(smollm2: LlamaModel, grammars: Grammars) -> None:
    """llama.cpp's own grammar takes `<|im_start|>` for text, and would let it into any string."""
    grammar = grammars(OBJECT)
    state = after(grammar, ids_of(smollm2, '{"name": "a'))
    vocabulary = smollm2.vocabulary
    control = [
        vocabulary.tokenize(text, add_special=False, parse_special=True)
        for text in vocabulary.special_texts()
    ]
    controls = np.array([ids[0] for ids in control if not vocabulary.piece(ids[0])])
    assert controls.size > 5
    assert not grammar.allows(state, controls).any()
    for ids in (controls, np.arange(vocabulary.n_vocab)):
        assert not grammar.allows(state, ids)[np.isin(ids, controls)].any()


@pytest.mark.parametrize(
    ("begun", "after_it", "may"),
    [
        (b"\xe6", b"\x9d", True),
        (b"\xe6\x9d", b"\xb1", True),
        (b"\xe6", b"a", False),
        (b"\xe0", b"\x80", False),  # a longer spelling than need be
        (b"\xed", b"\xa0", False),  # half of a pair of surrogates
        (b"\xf4", b"\x90", False),  # beyond Unicode
        (b"", b"\x9d", False),
    ],
)
def test_characters_that_several_tokens_spell_are_valid_utf_8(
    smollm2: LlamaModel, grammars: Grammars, begun: bytes, after_it: bytes, may: bool
) -> None:
    grammar, spelled = grammars('root ::= "x" .*'), byte_ids(smollm2)
    state = after(grammar, [spelled[b"x"], *(spelled[bytes([byte])] for byte in begun)])
    assert grammar.allows(state, np.array([spelled[after_it]]))[0] == may
    if begun:
        eog = np.array(sorted(smollm2.vocabulary.eog))
        assert not grammar.allows(state, eog).any(), "half a character is no end"


def byte_ids(model: LlamaModel) -> dict[bytes, int]:
    vocabulary = model.vocabulary
    return {
        piece: token
        for token in range(vocabulary.n_vocab)
        if len(piece := vocabulary.piece(token)) == 1
    }


def random_answer(
    model: LlamaModel, grammar: NativeGrammar, chance: Random, *, most: int
) -> bytes | None:
    """Return a text that the grammar lets through byte by byte; it hurries to an end after `most` bytes."""
    spelled = byte_ids(model)
    ids = np.array([*spelled.values(), min(model.vocabulary.eog)])
    pieces = [*spelled, b""]
    state, text = grammar.start(), b""
    while len(text) < 20 * most:
        places = np.flatnonzero(grammar.allows(state, ids)).tolist()
        assert places, f"nothing may follow {text!r}"
        if len(text) > most:
            closing = [i for end in (b"", b"}", b"]", b'"') for i in places if pieces[i] == end]
            place = (closing or places)[0] if closing else chance.choice(places)
        else:
            place = chance.choices(places, [_liking(pieces[i]) for i in places])[0]
        if pieces[place] == b"":
            return text
        text += pieces[place]
        state = grammar.step(state, int(ids[place]))
    return None


def _liking(piece: bytes) -> float:
    if piece in {b"", b'"', b",", b"]", b"}"}:
        return 4
    return 1 if piece.isascii() and not piece.isspace() else 0.2


@pytest.mark.parametrize("asked", ASKED, ids=[each.name for each in ASKED])
def test_whatever_the_grammar_of_a_schema_lets_through_is_valid(
    smollm2: LlamaModel, grammars: Grammars, asked: object
) -> None:
    schema = asked.schema  # type: ignore[attr-defined]
    validator = jsonschema.Draft202012Validator(schema, format_checker=jsonschema.FormatChecker())
    grammar = grammars(schema_grammar(json.dumps(schema)))
    whole = 0
    for seed in range(12):
        text = random_answer(smollm2, grammar, Random(seed), most=200)
        if text is not None:
            validator.validate(json.loads(text))
            whole += 1
    assert whole > 5


def test_every_text_of_a_range_of_numbers_lies_in_it(
    smollm2: LlamaModel, grammars: Grammars
) -> None:
    chance = Random(8)
    for _ in range(60):
        low, high = sorted(round(chance.uniform(-120, 120), chance.randrange(4)) for _ in range(2))
        schema: dict[str, object] = {"type": chance.choice(("number", "integer"))}
        schema[chance.choice(("minimum", "exclusiveMinimum"))] = low
        if chance.random() < 0.7:
            schema[chance.choice(("maximum", "exclusiveMaximum"))] = high
        try:
            grammar = grammars(schema_grammar(json.dumps(schema)))
        except UsageError as error:
            assert "leave no number" in str(error)  # noqa: PT017 - only some of them do
            continue
        for _ in range(10):
            text = random_answer(smollm2, grammar, chance, most=12)
            assert text is not None
            jsonschema.validate(json.loads(text), schema)


def test_what_our_reader_takes_llama_cpp_takes_too(
    smollm2: LlamaModel, grammars: Grammars, capfd: pytest.CaptureFixture[str]
) -> None:
    """And says nothing, where it would print the whole grammar past us."""
    chance, taken = Random(5), 0
    for _ in range(3_000):
        text = list(chance.choice(GRAMMARS))
        for _ in range(chance.randrange(4)):
            at = chance.randrange(len(text))
            text[at : at + chance.randrange(2)] = chance.choice(['"', "(", ")", "|", "*", "?", "[", "]", "{2}", "a", "\n", " ", ""])  # fmt: skip
        try:
            gbnf = sound_grammar("".join(text))
        except UsageError as error:
            assert "\n" not in str(error)  # noqa: PT017 - only some of them are wrong
            continue
        grammars(gbnf)
        taken += 1
    assert taken > 500
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(
    "gbnf",
    [
        'root ::= ("ab"{20}){20}',
        "root ::= [a-z]{2000}",
        'root ::= "x"{0,2000} "y"',
        "root ::= " + "(" * 90 + '"a"' + ")" * 90,
        'root ::= r0\nr1500 ::= "a"\n' + "\n".join(f"r{i} ::= r{i + 1}" for i in range(1500)),
    ],
)
def test_large_grammars_are_taken_and_followed(
    smollm2: LlamaModel, grammars: Grammars, gbnf: str
) -> None:
    grammar = grammars(sound_grammar(gbnf))
    answer = AnswerConstraint(grammar, 0)
    everything = np.arange(smollm2.vocabulary.n_vocab)
    text: list[int] = []
    for _ in range(5):
        allowed = np.flatnonzero(answer.allows(text, everything))
        assert allowed.size
        text.append(int(allowed[0]))


def test_a_model_that_was_closed_is_told_not_to_crash(smollm2: LlamaModel) -> None:
    model = LlamaModel(smollm2.path, LoadOptions(n_ctx=64))
    grammar = Grammars(model)(OBJECT)
    state = grammar.start()
    model.close()
    with pytest.raises(LocalspecError):
        grammar.allows(state, np.arange(5))
    with pytest.raises(LocalspecError):
        grammar.step(state, 5)


def test_states_do_not_change_when_others_are_made_of_them(
    smollm2: LlamaModel, grammars: Grammars
) -> None:
    grammar, ids = grammars(OBJECT), ids_of(smollm2, TEXT)
    everything = np.arange(smollm2.vocabulary.n_vocab)
    state = after(grammar, ids[:6])
    before = grammar.allows(state, everything)
    for token in random.Random(3).sample(np.flatnonzero(before).tolist(), 20):
        grammar.step(state, token)
    assert np.array_equal(grammar.allows(state, everything), before)
