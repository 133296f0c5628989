"""Heads that draft from one place: blocks of one pass, and Gemma 4's assistant. What they draft depends on the text alone."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random

import numpy as np
import pytest

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.model import Pass, Role
from localspec.errors import PassFailed
from localspec.llama.batch import Part
from localspec.llama.model import LlamaModel
from localspec.llama.place_heads import (
    PlaceHeads,
    _AssistantPlace,
    _BlockPlace,
    _Place,
)
from localspec.llama.sequence import LlamaContext, LlamaSequence
from localspec.llama.sequences import LlamaSequences
from localspec.models.architectures import heads_in
from localspec.models.gguf import read_header
from localspec.options import LoadOptions
from tests.decoding.planting import plant
from tests.llama.same_text import check_same_text
from tests.llama.tiny_models import (
    write_assistant,
    write_dflash,
    write_gemma4,
    write_llama,
    write_qwen35,
)
from tests.support.bugs import Bug

pytestmark = pytest.mark.slow

OPTIONS = LoadOptions(n_ctx=1024, threads=1, max_rows=8).exact()
COUNTS = 0.005
FEW = range(0, 256, 2)
BLOCKS: dict[str, Callable[[Path], Path]] = {
    "dflash": write_dflash,
    "dflash of few ids": lambda path: write_dflash(path, ids=FEW),
    "dflash on qwen35": lambda path: write_dflash(path, mrope=True),
    "dflash2": lambda path: write_dflash(path, kind="dflash2"),
    "dspark": lambda path: write_dflash(path, kind="dspark"),
    "dspark with a bonus": lambda path: write_dflash(path, kind="dspark", anchored=False, ids=FEW),
}
KINDS = [*BLOCKS, "assistant"]


def written(kind: str, folder: Path) -> tuple[Path, Path]:
    """Write a target, and heads for it."""
    target, heads = folder / "target.gguf", folder / "heads.gguf"
    if kind == "assistant":
        return write_gemma4(target, COUNTS), write_assistant(heads)
    write = write_qwen35 if "qwen35" in kind else write_llama
    return write(target, COUNTS, marked=True), BLOCKS[kind](heads)


@pytest.fixture(scope="module", params=KINDS)
def files(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path]:
    return written(request.param, tmp_path_factory.mktemp("models"))


class Bench:
    """Models, loaded once; targets with heads are made of them."""

    def __init__(self, target: Path, heads: Path) -> None:
        self.target = LlamaModel(target, OPTIONS)
        self.model = LlamaModel(heads, OPTIONS, is_heads=True)
        self._heads = heads_in(read_header(heads))

    def made(
        self, text: Sequence[int] = (), cancel: CancelFlag | None = None
    ) -> tuple[LlamaContext, PlaceHeads]:
        """Return a target that has computed a text but for its last token, and heads."""
        target = LlamaContext(self.target)
        heads = self._of([target], cancel or CancelFlag())
        if text:
            target.prefill(text[:-1])
        return target, heads

    def several(self, count: int) -> tuple[LlamaSequences, PlaceHeads]:
        """Return so many sequences of the target in one context, and their heads."""
        cancel = CancelFlag()
        targets = LlamaSequences(self.target, cancel, OPTIONS, count, 32)
        return targets, self._of(targets.views, cancel)

    def _of(self, targets: Sequence[LlamaSequence], cancel: CancelFlag) -> PlaceHeads:
        assert self._heads is not None
        layers, block = self._heads.layers, self._heads.block
        return PlaceHeads(self.model, targets, cancel, OPTIONS, layers, block)

    def close(self) -> None:
        self.model.close()
        self.target.close()


@pytest.fixture
def bench(files: tuple[Path, Path]) -> Iterator[Bench]:
    bench = Bench(*files)
    yield bench
    bench.close()


def text_of(random: Random, length: int) -> list[int]:
    return [random.randrange(255) for _ in range(length)]


def check_after_any_drafts(bench: Bench, seed: int, rounds: int = 12) -> None:
    """Draft, reject and go on; assert that what is drafted then is what heads draft that saw the text alone."""
    random = Random(seed)
    text = text_of(random, random.choice((20, 70, 150)))
    target, heads = bench.made(text)
    for _ in range(rounds):
        draft = list[int]()
        fresh_target, fresh = bench.made(text)
        for _ in range(random.randint(1, 6)):
            row, other = (
                each.views[0].logits([*text, *draft], rows=1)[0] for each in (heads, fresh)
            )
            np.testing.assert_allclose(row, other, atol=0.15, rtol=0)
            draft.append(int(row.argmax()))
        if random.random() < 0.3:  # another drafter's
            draft = text_of(random, random.randint(0, 4))
        if random.random() < 0.1:
            target.truncate(0)
        target.logits([*text, *draft], rows=len(draft) + 1)
        text += [*draft[: random.randint(0, len(draft))], random.randrange(255)]
        for each in (fresh, fresh_target):
            each.close()
    heads.close()
    target.close()


def test_what_they_draft_depends_on_the_text_alone(bench: Bench) -> None:
    for seed in range(4):
        check_after_any_drafts(bench, seed)


BUGS = {
    "an assistant sees rejected tokens": (
        "assistant",
        Bug(_Place.logits, "self._target.truncate(len(tokens) - 1)", "pass"),
    ),
    "a block goes on after the target did": (
        "dflash",
        Bug(_Place.logits, "self._target.n_cached != len(text) - 1", "False"),
    ),
    "masks stay": (
        "dflash",
        Bug(_BlockPlace._draft, "context.remove(self._number, place)", "pass"),
    ),
    "rows of other places": (
        "dspark",
        Bug(_BlockPlace.prefill, "rows(at, end)", "rows(at - (at > 0), end - (at > 0))"),
    ),
}


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, bug = BUGS[name]
    bench = Bench(*written(kind, tmp_path))
    plant(monkeypatch, *bug)
    with pytest.raises((AssertionError, PassFailed, IndexError)):  # noqa: PT012
        for seed in range(8):
            check_after_any_drafts(bench, seed)
    bench.close()


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_block_takes_one_pass_and_follows_the_circle_of_eight(kind: str, tmp_path: Path) -> None:
    bench = Bench(*written(kind, tmp_path))
    text = [64 + place % 8 for place in range(41)]
    _, heads = bench.made(text)
    view, passes, decode = heads.views[0], list[int](), heads.native.decode

    def counted(parts: Sequence[Part]) -> None:
        passes.append(len(parts[0].tokens))
        decode(parts)

    heads.native.decode = counted  # type: ignore[method-assign]
    draft = list[int]()
    for _ in range(view.longest):
        draft.append(int(view.logits([*text, *draft], rows=1)[0].argmax()))
    assert passes == [40, 8]
    assert view.in_one_pass
    if "few" in kind or "bonus" in kind:
        assert all(each % 2 == 0 for each in draft)
    else:
        assert draft == [64 + place % 8 for place in range(41, 41 + len(draft))]
    assert len(draft) == (8 if kind == "dspark" else 7)
    bench.close()


def test_a_selector_scores_candidates_by_the_token_before_them(tmp_path: Path) -> None:
    bench = Bench(*written("dflash2", tmp_path))
    text = text_of(Random(2), 40)
    _, heads = bench.made(text)
    view = heads.views[0]
    first = view.logits(text, rows=1)[0]
    candidates = np.flatnonzero(first > -np.inf)
    rows = [view.logits([*text, int(token)], rows=1)[0] for token in candidates]
    assert len(candidates) == 4
    for row in rows[1:]:
        assert ((row > -np.inf) == (rows[0] > -np.inf)).all()
        assert not np.array_equal(row, rows[0])
    bench.close()


def check_several_at_once(bench: Bench) -> None:
    """Assert that heads of several sequences draft as each would alone: cut back, begun from nothing, idle for a while."""
    random, targets, heads = Random(6), *bench.several(4)
    texts = [text_of(random, random.choice((20, 40, 70))) for _ in range(4)]
    for _ in range(12):
        running = random.sample(range(4), random.randint(1, 4))
        targets.close_ranks(running)
        for slot in running:
            if random.random() < 0.15:
                texts[slot] = text_of(random, random.choice((20, 40, 70)))
            targets.views[slot].prefill(texts[slot][:-1])
        drafts: dict[int, list[int]] = {slot: [] for slot in running}
        alone = {slot: bench.made(texts[slot]) for slot in running}
        for slot in [*running, *running, *running]:  # `most_rows` is 1
            request = Pass(Role.DRAFT_MODEL, [*texts[slot], *drafts[slot]], 1)
            for row in heads.together([(slot, request)]):
                expected = alone[slot][1].views[0].logits(request.tokens, rows=1)
                np.testing.assert_allclose(row, expected, atol=0.15, rtol=0)
                drafts[slot].append(int(row[-1].argmax()))
        for slot in running:
            kept = drafts[slot][: random.randint(0, len(drafts[slot]))]
            texts[slot] = [*texts[slot], *kept, random.randrange(255)]
            for each in reversed(alone[slot]):
                each.close()
    heads.close()
    targets.close()


def test_several_at_once_draft_as_each_would_alone(bench: Bench) -> None:
    check_several_at_once(bench)


SEVERAL_BUGS = {
    "all in one cache": ("dflash", Bug(_BlockPlace.prefill, "take_in(self._number", "take_in(0")),
    "a block is read of another cache": (
        "dflash",
        Bug(_BlockPlace._draft, "Part(self._number", "Part(0"),
    ),
    "the next pass overwrites rows": (
        "dspark",
        Bug(_BlockPlace._draft, "rows.copy() if context.is_shared else rows", "rows"),
    ),
    "an assistant looks at another sequence": (
        "assistant",
        Bug(_AssistantPlace._row, "Part(target.number", "Part(0"),
    ),
}


@pytest.mark.parametrize("name", SEVERAL_BUGS)
def test_a_planted_bug_of_several_is_caught(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, bug = SEVERAL_BUGS[name]
    bench = Bench(*written(kind, tmp_path))
    plant(monkeypatch, *bug)
    with pytest.raises((AssertionError, PassFailed)):
        check_several_at_once(bench)
    bench.close()


def test_in_chunks_they_take_in_what_was_due(bench: Bench) -> None:
    text = text_of(Random(5), 150)
    _, heads = bench.made(text)
    view = heads.views[0]
    expected = view.logits(text, rows=1).copy()
    view.truncate(0)
    view.fresh = 49
    request = Pass(Role.DRAFT_MODEL, text, 1)
    due = heads.missing(0, request)
    assert due == (1 + view.fresh if view.in_one_pass else 1)
    while (missing := heads.missing(0, request)) > 16:
        heads.evaluate(0, request, 16)
        assert heads.missing(0, request) == missing - 16
        assert view.n_cached == len(text) - missing + 16
    (logits,) = heads.together([(0, request)])
    assert logits.shape == expected.shape
    assert not np.isnan(logits).any()


def test_they_know_what_the_target_did_not_compute(bench: Bench) -> None:
    target, heads = bench.made()
    view, text = heads.views[0], text_of(Random(1), 60)
    assert not view.knows(text)
    target.prefill(text[:40])
    assert not view.knows(text)
    assert view.knows(text[:41])
    target.prefill(text)
    assert view.knows(text)
    assert not view.knows([*text[:50], 1, *text[51:]])
    with pytest.raises(PassFailed, match="has not computed"):
        view.logits([*text, 1, 2], rows=1)


def test_a_blank_or_cancelled_pass_leaves_nothing(bench: Bench) -> None:
    cancel, text = CancelFlag(), text_of(Random(1), 60)
    _, heads = bench.made(text, cancel)
    view = heads.views[0]
    expected = view.logits(text, rows=1).copy()
    cancel.set()
    view.truncate(0)
    with pytest.raises(Cancelled):
        view.logits(text, rows=1)
    cancel.clear()
    np.testing.assert_allclose(view.logits(text, rows=1), expected, atol=1e-4)
    for width in (1, 3, 16):
        heads.blank_pass(width)
    np.testing.assert_allclose(view.logits(text, rows=1), expected, atol=1e-4)


@pytest.mark.first(3)
@pytest.mark.parametrize("temperature", [0.8, 0.0])
def test_drafting_with_them_changes_no_byte_of_the_text(
    files: tuple[Path, Path], temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, heads = files
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(target.parent))  # measurements stay
    check_same_text(target, heads, temperature)
