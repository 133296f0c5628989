"""Budgets of thoughts on real weights, under a made template that opens them: exactly so many, and the same text however it is drafted."""

import json
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from localspec.chat.assistant import Assistant
from localspec.chat.events import Reply, Text
from localspec.chat.request import Request
from localspec.decoding.round import StopReason
from localspec.messages import Message
from localspec.options import ReplyOptions, SamplingParams
from tests.chat.answers import answers
from tests.support.speaking import heard, opened

pytestmark = pytest.mark.slow

TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.reasoning_content %}<think>\n{{ m.reasoning_content }}\n</think>\n\n{% endif %}"
    "{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n{% endif %}"
)
QUESTIONS = ("How many legs have three cats?", "Name two rivers of France.", "What is 7 times 8?")
SCHEMA = {
    "type": "object",
    "properties": {"answer": {"type": "string", "maxLength": 20}, "sure": {"type": "boolean"}},
    "required": ["answer", "sure"],
    "additionalProperties": False,
}


def thinking(target: Path, mode: str, **more: Any) -> Assistant:
    """Load under the made template, at widths that are safe to the bit."""
    made = opened(target, mode, exact=True, **more)
    made.models = replace(made.models, template_source=TEMPLATE)
    return made


MODES = ("model", "lookup", "forced", "auto")
with_pair = pytest.mark.parametrize(
    "assistant", [*MODES, pytest.param("pair", marks=pytest.mark.pair)], indirect=True
)


@pytest.fixture(scope="module", params=MODES)
def assistant(request: pytest.FixtureRequest, six_layers_path: Path) -> Iterator[Assistant]:
    """A part of SmolLM2 in every mode, and the Qwen pair."""
    mode, target, draft_model = request.param, six_layers_path, None
    if mode == "pair":
        mode, (target, draft_model) = "model", request.getfixturevalue("qwen_paths")
    if mode == "auto":
        draft_model = six_layers_path
    with closing(thinking(target, mode, draft_model=draft_model)) as made:
        yield made


def both(assistant: Assistant, number: int, options: ReplyOptions, **more: Any) -> list[Reply]:
    """Return the replies to a question with and without drafting."""
    request = Request(1, (Message.user(QUESTIONS[number]),), options, **more)
    return [heard(assistant, request, drafting=each)[0] for each in (True, False)]


def tokens_of(assistant: Assistant, text: str, *, special: bool = False) -> list[int]:
    return assistant.models.tokenizer.tokenize(text, add_special=False, parse_special=special)


def end_of(assistant: Assistant) -> list[int]:
    return tokens_of(assistant, "\n</think>\n\n", special=True)


@pytest.mark.parametrize(
    ("think", "temperature", "seed"), [("0", 0.0, 0), ("16", 0.8, 1), (None, 0.8, 0)]
)
def test_thoughts_end_after_their_budget_and_drafting_changes_no_token(
    assistant: Assistant, think: str | None, temperature: float, seed: int
) -> None:
    end = end_of(assistant)
    options = ReplyOptions(SamplingParams(temperature=temperature), seed, 40, think=think)
    drafted, plain = both(assistant, seed, options)
    assert drafted.tokens == plain.tokens
    assert (drafted.text, drafted.thinking) == (plain.text, plain.thinking)
    if think is None:
        return
    ended = list(plain.tokens)
    assert think == "16" or (not plain.thinking and ended[: len(end)] == end)
    assert "</think>" not in plain.text
    assert len(tokens_of(assistant, plain.thinking)) <= int(think) + 2


def test_thoughts_begin_as_without_a_budget(assistant: Assistant) -> None:
    end = end_of(assistant)
    for seed in (1, 0, 2):  # which thoughts are long enough depends on the model
        options = ReplyOptions(SamplingParams(temperature=0.8), seed, 20, think="16")
        cut, _ = both(assistant, seed, options)
        if [*cut.tokens[16:]] == end[:4]:
            break
    assert [*cut.tokens[16:]] == end[:4]
    free, _ = both(assistant, seed, replace(options, think="on", max_tokens=16))
    assert free.tokens == cut.tokens[:16]


@with_pair
@pytest.mark.parametrize(("think", "temperature"), [("0", 0.8), ("16", 0.0)])
def test_a_schema_begins_behind_the_budget(
    assistant: Assistant, think: str, temperature: float
) -> None:
    sampling = SamplingParams(temperature=temperature)
    options = ReplyOptions(sampling, 3, 90, json_schema=SCHEMA, think=think)
    drafted, plain = both(assistant, 1, options)
    assert (drafted.tokens, drafted.thinking) == (plain.tokens, plain.thinking)
    assert plain.stop_reason is StopReason.EOG
    jsonschema.validate(json.loads(plain.text), SCHEMA)


@with_pair
def test_what_a_gate_masks_is_the_same_with_drafts_and_every_token_has_a_logprob(
    assistant: Assistant,
) -> None:
    options = ReplyOptions(SamplingParams(temperature=0.8), 4, 50, think="16")
    rules = 'use = []\n[[pattern]]\nname = "vowels"\npattern = "a[a-z]"\nwhole = false\n'
    one, other = both(assistant, 0, options, gate=rules)
    assert (one.text, one.thinking) == (other.text, other.thinking)
    options = ReplyOptions(SamplingParams(temperature=0), 1, 40, think="16")
    request = Request(1, (Message.user(QUESTIONS[1]),), options, logprobs=2)
    reply, events = heard(assistant, request)
    logprobs = [each.logprob for text in events if isinstance(text, Text) for each in text.logprobs]
    assert reply.thinking
    assert reply.text
    assert all(each is not None and each <= 0 for each in logprobs)
    assert len(logprobs) == len(reply.tokens)


def test_what_is_forced_is_drafted_and_accepted(six_layers_path: Path) -> None:
    options = ReplyOptions(SamplingParams(temperature=0), 1, 40, think="16")
    with closing(thinking(six_layers_path, "forced")) as made:
        reply, _ = both(made, 1, options)
        end = end_of(made)
    assert list(reply.tokens[16 : 16 + len(end)]) == end
    assert reply.acceptance.drafted == reply.acceptance.accepted == len(end)


def test_several_at_once_answer_as_each_would_alone(six_layers_path: Path) -> None:
    made = thinking(six_layers_path, "lookup", parallel=3)
    requests = [
        Request(
            number,
            (Message.user(question),),
            ReplyOptions(SamplingParams(temperature=0.8), number, 40, think=think),
            deterministic=True,
        )
        for number, (question, think) in enumerate(zip(QUESTIONS, ("0", "9", "16"), strict=True))
    ]
    replies = {each.key: each.reply for each in answers(made, iter(requests))}
    for each in requests:
        alone, beside = heard(made, each)[0], replies[each.id]
        assert beside is not None
        assert (alone.tokens, alone.thinking) == (beside.tokens, beside.thinking)
    made.close()


def test_a_model_without_tags_says_so(six_layers_path: Path) -> None:
    options = ReplyOptions(SamplingParams(temperature=0), 1, 8)
    with closing(opened(six_layers_path)) as assistant:
        usual = assistant.reply(QUESTIONS[0], options)
        for think in ("off", "low", "16"):
            reply = assistant.reply(QUESTIONS[0], replace(options, think=think))
            assert reply.tokens == usual.tokens
            assert reply.note.endswith(f"knows no thinking, so think {think} changes nothing")
        assert not usual.note
