"""Made hybrids: recurrent states rolled back by snapshots, to the bit, and the notes where they cannot."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random

import numpy as np
import pytest

from localspec.chat.request import Request
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.model import Pass, Role
from localspec.launch.load import load
from localspec.llama import safe_widths as module
from localspec.llama.model import LlamaModel
from localspec.llama.native_context import NativeContext
from localspec.llama.safe_widths import Rewound, differences_at, safe_widths
from localspec.llama.sequence import LlamaContext
from localspec.llama.sequences import LlamaSequences
from localspec.messages import Message
from localspec.models.gguf import read_header
from localspec.models.shape import model_shape
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from localspec.plan.make import make_plan
from localspec.plan.memory import predict
from tests.chat.answers import replies
from tests.llama import tiny_models
from tests.llama.test_memory_agrees import logged
from tests.llama.tiny_mamba import SUPPRESSED, write
from tests.support.planting import Bug, plant

Patch = pytest.MonkeyPatch

pytestmark = pytest.mark.slow

ROUNDING = 0.5
"""Logits of another state differ by 2 and more here, and those of another width by 0.1 at most."""
EXACT = LoadOptions(n_ctx=512, threads=1, max_rows=8).exact()
SMALL = LoadOptions(n_ctx=512, threads=1)
WRITERS = {"qwen35": tiny_models.write_qwen35, "lfm2": tiny_models.write_lfm2}


@pytest.fixture(scope="module", params=WRITERS)
def hybrid(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a model whose text comes round again, so that looking up drafts rightly."""
    path: Path = tmp_path_factory.mktemp("models") / f"{request.param}.gguf"
    return WRITERS[request.param](path, counts=0.005)


@pytest.fixture
def model(hybrid: Path) -> Iterator[LlamaModel]:
    model = LlamaModel(hybrid, EXACT)
    yield model
    model.close()


def test_what_is_rolled_back_goes_on_as_if_nothing_had_been_drafted(model: LlamaModel) -> None:
    random = Random(1)
    drafting, alone = LlamaContext(model), LlamaContext(model, options=LoadOptions(512).exact())
    text = [random.randrange(256) for _ in range(40)]
    drafting.prefill(text[:-1])
    for _ in range(60):
        draft = [random.randrange(256) for _ in range(random.randint(0, 7))]
        rows = drafting.logits([*text, *draft], rows=len(draft) + 1).copy()
        accepted = random.randint(0, len(draft))
        for row, token in zip(rows, [*draft[:accepted], random.randrange(256)], strict=False):
            np.testing.assert_allclose(row, alone.logits(text, rows=1)[0], atol=ROUNDING)
            text.append(token)
        assert drafting.common_prefix(text) == len(text) - 1, "nothing is evaluated again"


def test_what_no_snapshot_reaches_or_was_cancelled_is_evaluated_again(model: LlamaModel) -> None:
    cancel = CancelFlag()
    context, alone, text = LlamaContext(model, cancel), LlamaContext(model), list(range(30))
    context.logits(text, rows=4)
    context.logits([*text, 5], rows=1)
    other = [*text[:-2], 9, 9]  # within reach, if the last pass had been wider
    assert context.common_prefix(other) == 0
    expected = alone.logits(other, rows=1)
    np.testing.assert_allclose(context.logits(other, rows=1), expected, atol=ROUNDING)
    cancel.set()
    with pytest.raises(Cancelled):
        context.logits([*other, 5], rows=1)
    cancel.clear()
    assert context.n_cached == 0


@pytest.mark.parametrize(("temperature", "exact"), [(0.0, True), (0.8, True), (0.8, False)])
def test_hybrids_draft_alone_and_beside_others_and_under_exact_no_byte_changes(
    hybrid: Path, temperature: float, exact: bool, monkeypatch: Patch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(hybrid.parent))  # measured widths stay
    akin = str(tiny_models.write_llama(hybrid.parent / "draft.gguf", counts=0.005))
    options = ReplyOptions(SamplingParams(temperature, top_k=3), seed=1, max_tokens=120)
    prompts = [(Message.user(f"abc and so {end}"),) for end in ("on", "forth")]
    requests = [Request(at, each, options, deterministic=True) for at, each in enumerate(prompts)]
    texts, accepted, drafted = [set[tuple[int, ...]]() for _ in prompts], 0, 0
    launch = LaunchOptions(target=str(hybrid), draft_model=akin, exact=exact, fit=False, load=SMALL)
    ways = ("off", 1), ("lookup:7", 1), ("model:3", 1), ("model:7", 1), ("lookup:7", 2), ("auto", 2)
    for draft, parallel in ways:
        assistant = load(make_plan(replace(launch, draft=draft), parallel=parallel)).assistant
        for at, reply in replies(assistant, requests).items():
            texts[at].add(reply.tokens)
            accepted += reply.acceptance.accepted
            drafted += reply.acceptance.drafted
        assistant.close()
    assert not exact or [len(each) for each in texts] == [1] * len(texts)
    if not exact or hybrid.stem != "lfm2":  # whose convolution may round otherwise in wide passes
        assert drafted > accepted > 0


def check_several_are_as_alone(model: LlamaModel) -> None:
    """Draft, reject, begin anew, cancel and leave idle; assert that rows are those of texts alone."""
    for seed in range(10):
        check_sequences_are_as_alone(model, Random(seed))


def check_sequences_are_as_alone(model: LlamaModel, random: Random) -> None:
    cancel = CancelFlag()
    several = LlamaSequences(model, cancel, EXACT, 4, 32)
    alone = [LlamaContext(model) for _ in range(4)]
    texts = [[random.randrange(256) for _ in range(random.randint(2, 30))] for _ in alone]
    for _ in range(12):
        running = random.sample(range(4), random.randint(1, 4))
        requests = []
        for slot in running:
            if random.random() < 0.15:
                texts[slot] = [random.randrange(256) for _ in range(random.randint(2, 30))]
            several.views[slot].prefill(texts[slot][:-1])
            draft = [random.randrange(256) for _ in range(random.randint(0, 5))]
            request = Pass(Role.TARGET, [*texts[slot], *draft], len(draft) + 1)
            requests.append((slot, request))
        if random.random() < 0.2:
            cancel.set()
            with pytest.raises(Cancelled):
                several.together(requests)
            cancel.clear()
            for slot in running:
                several.views[slot].prefill(texts[slot][:-1])
        answers = several.together(requests)
        for (slot, request), rows in zip(requests, answers, strict=True):
            expected = alone[slot].logits(request.tokens, request.rows)
            np.testing.assert_allclose(rows, expected, atol=ROUNDING)
            end = len(request.tokens) - random.randint(0, request.rows - 1)
            texts[slot] = [*request.tokens[:end], random.randrange(256)]
    several.close()
    for each in alone:
        each.close()


def test_snapshots_stay_with_their_sequences(model: LlamaModel, monkeypatch: Patch) -> None:
    check_several_are_as_alone(model)
    monkeypatch.setattr(NativeContext, "_take_cells", lambda *_: None)
    plant(monkeypatch, Bug("no cells", NativeContext.clear, "if", "False", 1))
    with pytest.raises(AssertionError):
        check_several_are_as_alone(model)


def test_memory_of_snapshots_is_predicted(hybrid: Path) -> None:
    shape = model_shape(read_header(hybrid))
    assert shape is not None
    model, taken = LlamaModel(hybrid, EXACT), []
    for rows in (1, 8):
        options = LoadOptions(512, threads=1, max_rows=rows)
        LlamaContext(model, options=options)
        taken.append(logged("(?:KV|RS)"))
        assert predict(shape, options)[0].kv_bytes == pytest.approx(taken[-1], abs=2 * 5300)
    model.close()
    assert taken[1] > 1.05 * taken[0]


def test_widths_within_snapshots(model: LlamaModel, monkeypatch: Patch) -> None:
    found = safe_widths(model, EXACT, depths=(30,))
    assert {*found.widths} | found.differences.keys() == set(range(1, 9))
    right = module._hidden

    def hidden(context: LlamaContext, tokens: list[int], rows: int) -> np.ndarray:
        return right(context, tokens, rows) + np.float32(0.25 * (rows == 3))

    monkeypatch.setattr(module, "_hidden", hidden)
    assert 3 not in safe_widths(model, EXACT, depths=(30,)).widths


@dataclass(slots=True)
class Recurrent:
    """A sequence whose state is the sum of what it saw, and whose snapshots are off as planted."""

    snapshots_off: dict[int, float] = field(default_factory=dict)
    cells: list[float] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)

    def forget(self) -> None:
        self.tokens, self.cells = [], []

    def prefill(self, tokens: list[int]) -> int:
        self.logits(tokens, rows=1)
        return len(tokens)

    number = 0

    @property
    def native(self) -> "Recurrent":
        return self

    def copied(self, _number: int) -> list[float]:
        return list(self.cells)

    def put_back(self, _number: int, copy: list[float]) -> bool:
        self.cells = list(copy)
        return True

    def assume(self, tokens: list[int]) -> bool:
        self.tokens = list(tokens)
        return len(tokens) == len(self.cells)

    def logits(self, tokens: list[int], rows: int) -> np.ndarray:
        removed = len(self.tokens) - (len(tokens) - rows)
        if removed > 0:
            del self.cells[-removed:]
            self.cells[-1] += self.snapshots_off.get(removed, 0.0)
        for token in tokens[len(self.cells) :]:
            self.cells.append((self.cells[-1] if self.cells else 0.0) + token)
        self.tokens = list(tokens)
        return np.array(self.cells[-rows:], dtype=np.float32)[:, None]


@pytest.mark.parametrize("off", [1, 2, 4])
def test_a_snapshot_that_is_not_what_single_tokens_leave_makes_a_width_unsafe(off: int) -> None:
    tokens = list(range(1, 60))
    wide, alone = Recurrent({off: 0.25}), Recurrent()
    rewound = Rewound(wide, alone)  # type: ignore[arg-type]
    assert differences_at(rewound, tokens, 20, range(2, 8)).keys() == set(range(off + 1, 8))
    sound = Rewound(Recurrent(), Recurrent())  # type: ignore[arg-type]
    assert differences_at(sound, tokens, 20, range(2, 8)) == {}


@pytest.fixture(scope="module")
def mamba(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(tmp_path_factory.mktemp("models") / "mamba.gguf")


def test_a_recurrent_model_after_a_changed_past(mamba: Path) -> None:
    model, cancel, text = LlamaModel(mamba, SMALL), CancelFlag(), [1, 2, 3, 4, 9]
    target = LlamaContext(model, cancel)
    straight = target.logits(text, rows=1).copy()
    target.logits([1, 2, 3, 4, 5, 6, 7], rows=1)
    # Nothing of it can be cut off, so all of it is evaluated again.
    np.testing.assert_allclose(target.logits(text, rows=1), straight, atol=1e-5)
    target.logits([1, 2, 3], rows=1)
    cancel.set()
    with pytest.raises(Cancelled):
        target.logits([1, 2, 3, 4, 5], rows=1)
    cancel.clear()
    assert target.n_cached == 0
    np.testing.assert_allclose(target.logits(text, rows=1), straight, atol=1e-5)
    model.close()


@pytest.mark.parametrize("draft", ["auto", "lookup"])
def test_a_recurrent_target_evaluates_all_and_never_drafts(mamba: Path, draft: str) -> None:
    launch, options = LaunchOptions(target=str(mamba), draft=draft), ReplyOptions(max_tokens=24)
    assistant, other = (load(make_plan(launch)).assistant for _ in range(2))
    assert assistant.notes
    assert list(assistant.models.suppressed) == SUPPRESSED, "what the file forbids"
    # Longer than a chunk, and nothing of it stays, though the next one begins with what was evaluated.
    assistant.reply("x" * 200 + "abc" * 30, replace(options, seed=1))
    prompt, seeded = "x" * 200 + "abc" * 9, replace(options, seed=2)
    again, fresh = (each.reply(prompt, seeded) for each in (assistant, other))
    assert (again.drafter, again.acceptance.drafted) == ("off", 0)
    assert again.tokens == fresh.tokens
    assistant.close()
    other.close()
