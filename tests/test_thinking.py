"""Budgets of thoughts on real weights, under a made template that opens them: exactly so many, and the same text however it is drafted."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from localspec.chat.assistant import Assistant
from localspec.chat.events import Finished, RequestFailed, Text
from localspec.chat.request import Request
from localspec.decoding.policy import plain_policy
from localspec.decoding.round import StopReason
from localspec.launch.load import load
from localspec.launch.plan import make_plan
from localspec.messages import Message
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams

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
BUDGETS = ["0", "16", None]


def drafted_by(mode: str, target: Path, draft_model: Path, parallel: int = 1) -> Assistant:
    """Load under the made template, at widths that are safe to the bit."""
    launch = LaunchOptions(
        target=str(target),
        draft_model=str(draft_model) if mode in {"model", "auto"} else None,
        draft=mode,
        exact=True,
        load=LoadOptions(n_ctx=1024),
    )
    assistant = load(make_plan(launch, parallel=parallel), parallel=parallel).assistant
    assistant.models = replace(assistant.models, template_source=TEMPLATE)
    return assistant


@pytest.fixture(
    scope="module",
    params=[
        *("model", "lookup", "forced", "auto"),
        pytest.param("pair", marks=pytest.mark.pair),
    ],
)
def assistant(request: pytest.FixtureRequest, smollm2_path: Path) -> Iterator[Assistant]:
    """SmolLM2 in every mode, and the Qwen pair."""
    if request.param == "pair":
        made = drafted_by("model", *request.getfixturevalue("qwen_paths"))
    else:
        made = drafted_by(request.param, smollm2_path, smollm2_path)
    yield made
    made.close()


def replied(
    assistant: Assistant,
    question: str,
    options: ReplyOptions,
    *,
    drafting: bool = True,
    **more: Any,
) -> tuple[Finished, list[Text]]:
    models = assistant.models
    for each in (models.target, models.draft_model):
        if each is not None:
            each.truncate(0)
    policy = None if drafting else lambda _slot: plain_policy()
    assistant.submit(Request(1, (Message.user(question),), options, **more), policy=policy)
    texts = list[Text]()
    while True:
        assistant.step()
        for _, event in assistant.take():
            if isinstance(event, RequestFailed):
                raise event.error
            if isinstance(event, Text):
                texts.append(event)
            if isinstance(event, Finished):
                return event, texts


def closing(assistant: Assistant) -> list[int]:
    return assistant.models.tokenizer.tokenize(
        "\n</think>\n\n", add_special=False, parse_special=True
    )


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("think", BUDGETS)
def test_thoughts_end_after_their_budget_and_drafting_changes_no_token(
    assistant: Assistant, think: str | None, temperature: float
) -> None:
    end = closing(assistant)
    for seed, question in enumerate(QUESTIONS):
        options = ReplyOptions(SamplingParams(temperature=temperature), seed, 60, think=think)
        drafted, plain = (
            replied(assistant, question, options, drafting=each)[0].reply for each in (True, False)
        )
        assert drafted.tokens == plain.tokens
        assert (drafted.text, drafted.thinking) == (plain.text, plain.thinking)
        if think is None:
            continue
        ended = list(plain.tokens)
        if think == "16" and ended[16 : 16 + len(end)] == end:
            free = replied(assistant, question, replace(options, think="on"))[0].reply
            assert free.tokens[:16] == plain.tokens[:16]
        assert think == "16" or (not plain.thinking and ended[: len(end)] == end)
        assert "</think>" not in plain.text
        length = len(
            assistant.models.tokenizer.tokenize(
                plain.thinking, add_special=False, parse_special=False
            )
        )
        assert length <= int(think) + 2


def test_what_is_forced_is_drafted_and_accepted(smollm2_path: Path) -> None:
    made = drafted_by("forced", smollm2_path, smollm2_path)
    options = ReplyOptions(SamplingParams(temperature=0), 1, 40, think="16")
    reply = replied(made, QUESTIONS[1], options)[0].reply
    end = closing(made)
    assert list(reply.tokens[16 : 16 + len(end)]) == end
    assert reply.acceptance.drafted == reply.acceptance.accepted == len(end)
    made.close()


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("think", ["0", "16"])
def test_a_schema_begins_behind_the_budget(
    assistant: Assistant, think: str, temperature: float
) -> None:
    sampling = SamplingParams(temperature=temperature)
    options = ReplyOptions(sampling, 3, 90, json_schema=SCHEMA, think=think)
    drafted, plain = (
        replied(assistant, QUESTIONS[1], options, drafting=each)[0].reply for each in (True, False)
    )
    assert (drafted.tokens, drafted.thinking) == (plain.tokens, plain.thinking)
    assert plain.stop_reason is StopReason.EOG
    jsonschema.validate(json.loads(plain.text), SCHEMA)


def test_every_token_of_text_has_a_logprob(assistant: Assistant) -> None:
    options = ReplyOptions(SamplingParams(temperature=0), 1, 40, think="16")
    done, texts = replied(assistant, QUESTIONS[1], options, logprobs=2)
    logprobs = [each.logprob for text in texts for each in text.logprobs]
    assert done.reply.thinking
    assert done.reply.text
    assert all(each is not None and each <= 0 for each in logprobs)
    assert len(logprobs) == len(done.reply.tokens)


def test_a_stretch_that_a_gate_masks_is_the_same_with_and_without_drafting(
    assistant: Assistant,
) -> None:
    options = ReplyOptions(SamplingParams(temperature=0.8), 4, 50, think="16")
    rules = 'use = []\n[[pattern]]\nname = "vowels"\npattern = "a[a-z]"\nwhole = false\n'
    one, other = (
        replied(assistant, QUESTIONS[0], options, drafting=each, gate=rules)[0].reply
        for each in (True, False)
    )
    assert (one.text, one.thinking) == (other.text, other.thinking)


def test_several_at_once_answer_as_each_would_alone(smollm2_path: Path) -> None:
    made = drafted_by("lookup", smollm2_path, smollm2_path, parallel=3)
    requests = [
        Request(
            number,
            (Message.user(question),),
            ReplyOptions(SamplingParams(temperature=0.8), number, 40, think=think),
            deterministic=True,
        )
        for number, (question, think) in enumerate(zip(QUESTIONS, ("0", "9", "16"), strict=True))
    ]
    replies = dict[int, Finished]()
    for each in requests:
        made.submit(each)
    while len(replies) < len(requests):
        made.step()
        replies |= {n: event for n, event in made.take() if isinstance(event, Finished)}
    for each in requests:
        alone = [event for event in made.events(each) if isinstance(event, Finished)]
        assert alone[0].reply.tokens == replies[each.id].reply.tokens
        assert alone[0].reply.thinking == replies[each.id].reply.thinking
    made.close()


def test_a_model_without_tags_says_so(smollm2_path: Path) -> None:
    assistant = load(make_plan(LaunchOptions(target=str(smollm2_path), draft="off"))).assistant
    options = ReplyOptions(SamplingParams(temperature=0), 1, 8)
    usual = assistant.reply(QUESTIONS[0], options)
    for think in ("off", "low", "16"):
        reply = assistant.reply(QUESTIONS[0], replace(options, think=think))
        assert reply.tokens == usual.tokens
        assert reply.note.endswith(f"knows no thinking, so think {think} changes nothing")
    assert not usual.note
    assistant.close()
