"""The whole line of data on real weights: the same text, turns that reuse their past, the public API.

These are the short forms; `lab.same_text` compares thirty prompts in every mode.
"""

import ast
import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import localspec
from localspec.chat.assistant import Assistant
from localspec.chat.conversation import Conversation
from localspec.chat.events import Reply
from localspec.decoding.policy import plain_policy
from localspec.decoding.round import StopReason
from localspec.launch.load import load
from localspec.launch.plan import make_plan
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from tests.cli.command import localspec as command

PROMPTS = [
    "Write a Python function that reverses a linked list.",
    "Repeat this list, then sort it: pear, apple, fig, plum, apple, fig, pear.",
    "Write a short poem about the sea at night.",
]
LONG = "The bridge has five arches, and the widest of them spans 22 metres. " * 40


def afresh(assistant: Assistant, prompt: str, options: ReplyOptions, *, drafting: bool) -> Reply:
    """Answer with empty caches, with the assistant's own policy or with none."""
    models = assistant.models
    models.target.truncate(0)
    if models.draft_model is not None:
        models.draft_model.truncate(0)
    return assistant.reply(prompt, options, policy=None if drafting else plain_policy())


def assert_same_text(assistant: Assistant, prompt: str, temperature: float) -> None:
    sampling = SamplingParams(temperature=temperature, repeat_penalty=1.1)
    options = ReplyOptions(sampling, seed=3, max_tokens=40)
    drafted = afresh(assistant, prompt, options, drafting=True)
    plain = afresh(assistant, prompt, options, drafting=False)
    assert drafted.tokens == plain.tokens
    assert drafted.text == plain.text
    assert plain.acceptance.drafted == 0


def exact(target: Path, draft_model: Path) -> Iterator[Assistant]:
    options, draft = LoadOptions(n_ctx=2048).exact(), str(draft_model)
    launch = LaunchOptions(target=str(target), draft_model=draft, draft="model", load=options)
    assistant = load(make_plan(launch)).assistant
    yield assistant
    assistant.close()


@pytest.fixture(scope="module")
def exact_smollm2(smollm2_path: Path) -> Iterator[Assistant]:
    """SmolLM2 as its own draft model."""
    yield from exact(smollm2_path, smollm2_path)


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("prompt", [*PROMPTS, LONG + PROMPTS[2]])
def test_drafts_change_no_byte(exact_smollm2: Assistant, prompt: str, temperature: float) -> None:
    assert_same_text(exact_smollm2, prompt, temperature)


@pytest.mark.slow
@pytest.mark.weights
def test_a_model_agrees_with_itself_and_a_second_turn_evaluates_what_is_new(
    exact_smollm2: Assistant,
) -> None:
    options = ReplyOptions(seed=3, max_tokens=60)
    reply = afresh(exact_smollm2, PROMPTS[0], options, drafting=True)
    assert reply.acceptance.acceptance_rate is not None
    # The target's three extra rows may round apart from the draft's single ones; seldom.
    assert reply.acceptance.acceptance_rate > 0.9
    exact_smollm2.models.target.truncate(0)
    conversation = Conversation("You are brief.")
    conversation.append_user("Name a river.")
    options = ReplyOptions(seed=1, max_tokens=30)
    first = exact_smollm2.reply(conversation, options)
    conversation.append_user("Name another one.")
    second = exact_smollm2.reply(conversation, options)
    assert second.cached_tokens == first.prompt_tokens + len(first.tokens) - 1
    assert conversation.messages[-1].text == second.text


REPEATING = "Repeat this sentence five times: " + LONG[:68]


def assert_no_byte_changes(assistant: Assistant, prompts: Sequence[str]) -> None:
    for temperature in (0.0, 0.8):
        for prompt in (*prompts, REPEATING):
            assert_same_text(assistant, prompt, temperature)


@pytest.mark.slow
@pytest.mark.weights
def test_exact_lets_auto_change_no_byte(smollm2_path: Path) -> None:
    launch = LaunchOptions(target=str(smollm2_path), exact=True, load=LoadOptions(n_ctx=1024))
    assistant = load(make_plan(launch)).assistant
    assert any(note.startswith("exact: drafts of up to") for note in assistant.notes)
    assert_no_byte_changes(assistant, PROMPTS)
    assistant.close()


@pytest.mark.weights
@pytest.mark.parametrize("prompts", [[], pytest.param(PROMPTS, marks=pytest.mark.slow)])
def test_lookup_changes_no_byte(smollm2_path: Path, prompts: list[str]) -> None:
    options = LoadOptions(n_ctx=2048).exact()
    launch = LaunchOptions(target=str(smollm2_path), draft="lookup", draft_length=3, load=options)
    assistant = load(make_plan(launch)).assistant
    assert_no_byte_changes(assistant, prompts)
    plain = ReplyOptions(SamplingParams(temperature=0), seed=3, max_tokens=60)
    assert afresh(assistant, REPEATING, plain, drafting=True).acceptance.accepted > 0
    assistant.close()


@pytest.mark.weights
def test_the_public_api_answers_and_a_full_context_ends_the_answer(smollm2_path: Path) -> None:
    options = localspec.LoadOptions(n_ctx=256)
    assistant = localspec.load(target=str(smollm2_path), options=options)
    greedy = localspec.ReplyOptions(localspec.SamplingParams(temperature=0), max_tokens=12)
    reply = assistant.reply("The capital of France is", greedy, raw=True)
    assert "Paris" in reply.text
    assert reply.stop_reason is StopReason.LENGTH
    reply = assistant.reply("One, two, three, four," * 30, raw=True)
    assert reply.stop_reason is StopReason.CONTEXT_FULL
    assert reply.prompt_tokens + reply.completion_tokens == assistant.models.target.n_ctx
    assistant.close()


@pytest.fixture(scope="module", params=["its own", "another vocabulary"])
def exact_pair(request: pytest.FixtureRequest) -> Iterator[Assistant]:
    """Qwen2.5-Coder with its own draft model, and with SmolLM2, which has another vocabulary."""
    target, draft_model = request.getfixturevalue("qwen_paths")
    across = request.param == "another vocabulary"
    yield from exact(target, request.getfixturevalue("smollm2_path") if across else draft_model)


@pytest.mark.pair
def test_a_draft_model_changes_no_byte_whatever_its_vocabulary(
    exact_pair: Assistant, request: pytest.FixtureRequest
) -> None:
    for prompt in (*PROMPTS, LONG + PROMPTS[1]):
        for temperature in (0.0, 0.8):
            assert_same_text(exact_pair, prompt, temperature)
    options = ReplyOptions(SamplingParams(temperature=0), seed=3, max_tokens=80)
    reply = afresh(exact_pair, PROMPTS[0], options, drafting=True)
    assert reply.acceptance.acceptance_rate is not None
    assert reply.acceptance.acceptance_rate > 0.3
    notes = " ".join(exact_pair.notes)
    across = "another vocabulary" in request.node.name
    assert ("79.8 % of its tokens are the target's" in notes) == across


@pytest.mark.pair
def test_the_pair_reverses_a_linked_list(qwen_paths: tuple[Path, Path]) -> None:
    target, draft_model = map(str, qwen_paths)
    assistant = load(
        make_plan(LaunchOptions(target=target, draft_model=draft_model, draft="model"))
    ).assistant
    options = ReplyOptions(SamplingParams(temperature=0), max_tokens=400)
    reply = assistant.reply(PROMPTS[0], options)
    (code, *_) = re.findall(r"```python\n(.*?)```", reply.text, re.DOTALL)
    names = [node.name for node in ast.walk(ast.parse(code)) if isinstance(node, ast.FunctionDef)]
    assert any("reverse" in name for name in names)
    assert ".next" in code
    assert reply.acceptance.acceptance_rate is not None
    # Measured: 84 to 88 percent, see docs/measurements/decoding.md.
    assert reply.acceptance.acceptance_rate > 0.75
    assistant.close()


LINES = [
    *PROMPTS,
    "Say hello.",
    "Count from one to ten.",
    "Repeat this: the quick brown fox, the quick brown fox, the quick brown fox.",
    "Write a Python function that adds two numbers.",
    "What is a clock? Answer in one sentence.",
]


def batch_answers(
    folder: Path, temperature: float, *flags: str, lines: Sequence[str] = LINES
) -> list[tuple[object, ...]]:
    """Return text, token count and seed of every line of an exact batch."""
    source, output = folder / "in.jsonl", folder / "out.jsonl"
    source.write_text("".join(f"{json.dumps({'prompt': line})}\n" for line in lines))
    output.unlink(missing_ok=True)
    done = command(
        "batch", "--exact", "--ctx", "512", "--seed", "7", "--max-tokens", "32",
        "--temperature", str(temperature), *flags, str(source), "-o", str(output), timeout_s=900,
    )  # fmt: skip
    assert done.code == 0, done.err
    records = [json.loads(line) for line in output.read_text().splitlines()]
    return [
        (each["line"], each["text"], each["usage"]["completion_tokens"], each["seed"])
        for each in records
    ]


@pytest.mark.slow
@pytest.mark.weights
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_a_batch_changes_no_byte(smollm2_path: Path, tmp_path: Path, temperature: float) -> None:
    target = ("--target", str(smollm2_path))
    alone = batch_answers(tmp_path, temperature, *target, "--draft", "off")
    drafting = ("--draft", "model", "--draft-model", str(smollm2_path))
    assert len(alone) == len(LINES)
    assert batch_answers(tmp_path, temperature, *target, *drafting, "--parallel", "4") == alone


@pytest.mark.pair
@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("across", [False, True])
def test_several_lines_at_once_with_a_pair_change_no_byte(
    qwen_paths: tuple[Path, Path],
    smollm2_path: Path,
    tmp_path: Path,
    temperature: float,
    across: bool,
) -> None:
    target = ("--target", str(qwen_paths[0]))
    lines = LINES[-4:] if across else LINES
    alone = batch_answers(tmp_path, temperature, *target, "--draft", "off", lines=lines)
    draft_model = str(smollm2_path if across else qwen_paths[1])
    drafting = ("--draft", "model", "--draft-model", draft_model, "--parallel", "4")
    assert len(alone) == len(lines)
    assert batch_answers(tmp_path, temperature, *target, *drafting, lines=lines) == alone
