"""Several sequences on real weights: bit for bit what each gives alone, as far as widths are safe."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from localspec.chat.assistant import Assistant
from localspec.chat.request import Request
from localspec.chat.token_prefix import Conversation
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.model import Pass, Role
from localspec.launch.load import load
from localspec.llama.model import LlamaModel
from localspec.llama.sequence import LlamaContext
from localspec.llama.sequences import LlamaSequences
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from localspec.plan.make import make_plan
from tests.chat.answers import replies

pytestmark = [pytest.mark.weights, pytest.mark.slow]

PROMPTS = [
    "Name three rivers.",
    "Write a short poem about the sea at night.",
    "Repeat this list: pear, apple, fig, plum, apple, fig, pear.",
    "Say hello.",
    "What is a clock? Answer in one sentence.",
    "Count from one to ten.",
]


@pytest.fixture
def sequences(smollm2: LlamaModel) -> Iterator[LlamaSequences]:
    options = replace(smollm2.options, n_ctx=300)
    sequences = LlamaSequences(smollm2, CancelFlag(), options, 4, 8)
    yield sequences
    sequences.close()


def one_pass(place: int, tokens: Sequence[int], rows: int = 1) -> tuple[int, Pass]:
    return place, Pass(Role.TARGET, tokens, rows)


@pytest.mark.parametrize(("widths", "close"), [((1, 1, 1, 1), 0.0), ((3, 2, 1), 0.1)])
def test_rows_are_those_of_a_context_of_ones_own_bit_for_bit_at_one_width(
    sequences: LlamaSequences,
    context: LlamaContext,
    tokens: list[int],
    widths: Sequence[int],
    close: float,
) -> None:
    texts = [tokens[:40], tokens[3:20], tokens[10:77], tokens[1:9]]
    asked = [one_pass(place, texts[place], width) for place, width in enumerate(widths)]
    for place, request in asked:
        sequences.views[place].prefill(request.tokens[: -request.rows])
    for (_, request), rows in zip(
        asked, [each.copy() for each in sequences.together(asked)], strict=True
    ):
        context.truncate(0)
        context.prefill(request.tokens[: -request.rows])
        alone = context.logits(request.tokens, rows=request.rows)
        np.testing.assert_allclose(rows, alone, atol=close, rtol=0, strict=True)


def test_a_copied_prefix_and_neighbours_go_on(sequences: LlamaSequences, tokens: list[int]) -> None:
    shared = tokens[:70]
    sequences.views[2].prefill(shared)
    expected = sequences.views[2].logits([*shared, 5], rows=1)[0].copy()
    assert sequences.views[0].common_prefix([*shared, 6]) == len(shared)
    np.testing.assert_array_equal(sequences.views[0].logits([*shared, 5], rows=1)[0], expected)
    assert sequences.views[2].n_cached == len(shared) + 1
    assert [view.n_ctx for view in sequences.views] == [300] * 4, "each has what it has alone"
    for view in sequences.views[::3]:
        assert view.logits([7 + view.number] * 300, rows=1).shape[0] == 1
    texts, idle = {1: tokens[:40], 3: tokens[7:60]}, tokens[2:50]
    for place, text in {0: idle[:-1], 2: idle, **texts}.items():
        sequences.views[place].prefill(text)
    of_idle = sequences.together([one_pass(2, [*idle, 9])])[0].copy()
    together = sequences.together([one_pass(place, [*texts[place], 9]) for place in (1, 3)])
    before = [rows[0].copy() for rows in together]
    for place, text in texts.items():
        sequences.views[place].truncate(len(text))
    sequences.compact([1, 3])
    numbers = [sequences.views[place].number for place in (1, 3)]
    assert abs(numbers[0] - numbers[1]) == 1
    moved = sequences.together([one_pass(place, [*texts[place], 9]) for place in (1, 3)])
    for row, other in zip(before, moved, strict=True):
        np.testing.assert_array_equal(row, other[0])
    assert set(numbers) == {0, 1}, "who holds less made room"
    assert sequences.views[0].cached == (), "an idle one that makes room forgets"
    assert sequences.views[2].cached == (*idle, 9)
    np.testing.assert_array_equal(sequences.together([one_pass(2, [*idle, 9])])[0], of_idle)


def request(key: int, options: ReplyOptions, repeated: int = 6) -> Request:
    conversation = Conversation("You are a brief and precise assistant. " * repeated)
    conversation.append_user(PROMPTS[key])
    return Request(key, conversation.messages, replace(options, seed=100 + key), deterministic=True)


def loaded(model: Path, count: int, draft: str = "off") -> Assistant:
    path, load_options = str(model), LoadOptions(n_ctx=512)
    small = path if draft == "model" else None
    launch = LaunchOptions(
        target=path, draft_model=small, draft=draft, exact=True, load=load_options
    )
    return load(make_plan(launch, parallel=count)).assistant


def test_the_same_bytes_alone_and_beside_others(six_layers_path: Path) -> None:
    sampling = SamplingParams(temperature=0.8, repeat_penalty=1.1)
    requests = [request(key, ReplyOptions(sampling, max_tokens=24)) for key in range(len(PROMPTS))]
    texts = []
    for count, draft in ((1, "off"), (2, "lookup"), (3, "model")):
        assistant = loaded(six_layers_path, count, draft)
        assert assistant.count == count
        made = replies(assistant, requests)
        texts.append([(made[key].tokens, made[key].stop_reason) for key in range(len(PROMPTS))])
        assistant.close()
    assert texts[0] == texts[1] == texts[2]


def test_whole_chunks_are_kept_under_exact_and_no_bit_depends_on_them(
    six_layers_path: Path,
) -> None:
    options = ReplyOptions(SamplingParams(temperature=0.8), max_tokens=12)
    first, other = (request(key, options, 30) for key in range(2))
    alone = loaded(six_layers_path, 1)
    expected = replies(alone, [other])[1]
    alone.close()
    assistant = loaded(six_layers_path, 2, "lookup")
    replies(assistant, [first])
    reply = replies(assistant, [other])[1]
    assistant.close()
    assert reply.cached_tokens == 128, "of some 240 that are the same"
    assert reply.tokens == expected.tokens
