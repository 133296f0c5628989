"""Branches over real cells: each row is what its own text gives alone, and the memory is as if there had been none."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from localspec.chat.events import Reply
from localspec.chat.token_prefix import Conversation
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.model import Logits, Pass, Role
from localspec.decoding.policy import FixedPolicy, Policy
from localspec.errors import PassFailed
from localspec.launch.load import Runtime, load
from localspec.llama.batch import Batch
from localspec.llama.model import LlamaModel
from localspec.llama.native_context import NativeContext
from localspec.llama.sequence import LlamaContext
from localspec.llama.sequences import LlamaSequences
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from localspec.plan.make import make_plan
from tests.llama import tiny_llama, tiny_mamba
from tests.llama.conftest import OPTIONS
from tests.support.planting import Bug, plant, table_of
from tests.toy import Branching, Oracle

pytestmark = pytest.mark.slow

WIDEST = 6
"""Of the widths that are safe on any CPU."""

Same = Callable[[Logits, Logits], bool]


def same_bits(row: Logits, other: Logits) -> bool:
    return bool(np.array_equal(row.view(np.uint32), other.view(np.uint32)))


def is_close(row: Logits, other: Logits) -> bool:
    """Return whether rows differ by roundings alone: wide passes of F32 weights add up in another order."""
    return bool(np.allclose(row, other, atol=1e-3))


def branched(tokens: Sequence[int], drafted: Sequence[int], others: dict[int, int]) -> Pass:
    """Return the pass that verifies a draft and, beside some of its places, other tokens."""
    places = sorted(others, reverse=True)
    request = [*tokens, *drafted, *(others[at] for at in places)]
    branches = tuple(len(tokens) + at for at in places)
    return Pass(Role.TARGET, request, 1 + len(drafted) + len(others), branches=branches)


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LlamaModel]:
    path = tiny_llama.write(tmp_path_factory.mktemp("tiny") / "llama.gguf")
    model = LlamaModel(path, replace(OPTIONS, n_ctx=700, threads=1))
    yield model
    model.close()


def of_branches(model: LlamaModel, count: int = 1) -> LlamaSequences:
    return LlamaSequences(model, CancelFlag(), model.options, count, 8, branches=4)


def what_differs(model: LlamaModel, depth: int, rounds: int, same: Same = is_close) -> str | None:
    """Draft at random, with branches; return what differs from passes of one token, if anything does."""
    sequences, context = of_branches(model), LlamaContext(model)
    of_both = (sequences, context)
    found = difference(*of_both, depth, rounds, same) or difference(*of_both, depth // 2, 3, same)
    sequences.close()
    context.close()
    return found


def difference(
    sequences: LlamaSequences, context: LlamaContext, depth: int, rounds: int, same: Same
) -> str | None:
    random, view = Random(7), sequences.views[0]

    def some(count: int) -> list[int]:
        return [random.randrange(view.n_vocab) for _ in range(count)]

    text, again = some(depth), 0
    context.truncate(0)
    view.prefill(text[:-1])  # of a longer text, the beginning
    for _ in range(rounds):
        k = random.randint(1, 3)
        drafted = some(k)
        count = random.randint(1, min(k, WIDEST - 1 - k - again))
        others = dict(zip(random.sample(range(k), count), some(count), strict=True))
        try:
            (rows,) = sequences.together([(0, branched(text, drafted, others))])
        except PassFailed as error:
            return str(error)
        if view.cached != (*text, *drafted):
            return "more or less is cached than the chain"
        places = sorted(others, reverse=True)
        texts = [[*text, *drafted[:at]] for at in range(k + 1)]
        texts += [[*text, *drafted[:at], others[at]] for at in places]
        if len(rows) != len(texts):
            return "rows are missing"
        for row, each in zip(rows.copy(), texts, strict=True):
            if not same(row, context.logits(each, rows=1)[0]):
                return f"a row of {len(each)} tokens"
        ended = random.choice([*places, None])
        again = int(ended is not None)
        text += drafted if ended is None else [*drafted[:ended], others[ended]]
        text += some(1)
    alone = context.logits(text, rows=1)[0]
    return None if same(alone, view.logits(text, rows=1)[0]) else "what follows"


@pytest.mark.parametrize("depth", [40, 250, 505])
def test_rows_are_those_of_passes_of_one_token(tiny: LlamaModel, depth: int) -> None:
    assert what_differs(tiny, depth, rounds=12) is None


@pytest.mark.weights
def test_rows_of_real_weights_are_so_bit_for_bit(smollm2: LlamaModel) -> None:
    assert what_differs(smollm2, 250, rounds=6, same=same_bits) is None


BUGS = table_of(
    __file__, "branches",
    *(NativeContext._join, NativeContext.remove, Batch._share, LlamaSequences._part),
)  # fmt: skip


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_bug_is_caught(bug: Bug, tiny: LlamaModel, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch, bug)
    assert what_differs(tiny, 40, rounds=12) is not None


def test_only_a_lone_cuttable_sequence_has_branches(tiny: LlamaModel, tmp_path: Path) -> None:
    recurrent = LlamaModel(tiny_mamba.write(tmp_path / "mamba.gguf"), tiny.options)
    for model, count, most in ((tiny, 1, 4), (tiny, 2, 0), (recurrent, 1, 0)):
        sequences = of_branches(model, count)
        assert sequences.native.most_branches == most
        sequences.close()
    recurrent.close()


def test_what_was_branched_is_saved_and_put_back_as_it_was(tiny: LlamaModel) -> None:
    sequences, context = of_branches(tiny), LlamaContext(tiny)
    view, text = sequences.views[0], list(range(50))
    sequences.together([(0, branched(text, [100, 101], {0: 200, 1: 201}))])
    copy, cached = view.native.copied(view.number), view.cached
    view.truncate(0)
    view.prefill([5] * 680)
    view.truncate(0)
    assert sequences.native.put_back(view.number, copy)
    assert view.assume(cached)
    (rows,) = sequences.together([(0, branched([*text, 100], [101, 102], {1: 202}))])
    for row, end in zip(rows.copy(), ([], [101], [101, 102], [101, 202]), strict=True):
        assert is_close(row, context.logits([*text, 100, *end], rows=1)[0])
    view.prefill([6] * 690)
    sequences.close()
    context.close()


@pytest.mark.weights
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_the_same_bytes_under_exact_with_branches(
    six_layers_path: Path, temperature: float
) -> None:
    options = ReplyOptions(SamplingParams(temperature=temperature), seed=11, max_tokens=48)
    path, questions = (
        str(six_layers_path),
        ("Name three rivers, and say where they are.", "The longest?"),
    )
    launch = LaunchOptions(target=path, draft="off", exact=True, load=LoadOptions(n_ctx=512))

    def answers(runtime: Runtime, policy: Callable[[list[int]], Policy | None]) -> list[Reply]:
        """Return the answers to one question after the other, by the policy that is made of each prompt."""
        assistant, conversation, replies = runtime.assistant, Conversation("You are brief."), []
        for question in questions:
            conversation.append_user(question)
            made = policy(assistant.prompt_tokens(conversation))
            replies.append(assistant.reply(conversation, options, policy=made))
        assistant.close()
        return replies

    alone = answers(load(make_plan(launch)), lambda _: None)
    pair = replace(launch, draft_model=path, draft="model:3", further=("auto",))
    drafting = load(make_plan(pair))
    longest, texts = drafting.drafting.longest, iter(alone)
    n_vocab = drafting.assistant.models.target.n_vocab
    assert drafting.drafting.branches > 1
    assert longest > 3

    def forced(prompt: list[int]) -> Policy:
        text = [*prompt, *next(texts).tokens]
        oracle = Oracle(text, n_vocab, 0.5, Random(3))
        # After a branch one token more is evaluated, and no pass may be wider than is safe.
        return FixedPolicy(Branching(oracle, 3, text, n_vocab, Random(4)), min(longest - 1, 5))

    for reply, expected in zip(answers(drafting, forced), alone, strict=True):
        assert (reply.tokens, reply.stop_reason) == (expected.tokens, expected.stop_reason)
        assert reply.cached_tokens == expected.cached_tokens
        assert reply.acceptance.branched > reply.acceptance.rounds
        assert reply.acceptance.caught > 2
