"""Heads of a target that are made here: what they go on from is what the target computed, whatever was rejected before."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import numpy as np
import pytest

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.model import Pass, Role
from localspec.errors import PassFailed
from localspec.launch.load import load
from localspec.launch.plan import make_plan
from localspec.llama import heads as heads_module
from localspec.llama.batch import Part
from localspec.llama.heads import LlamaHeads, TargetRows
from localspec.llama.model import LlamaModel
from localspec.llama.sequence import LlamaContext
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from tests.decoding.planting import plant
from tests.llama import tiny_models

OPTIONS = LoadOptions(n_ctx=1024, threads=1, max_rows=8).exact()
COUNTS = 0.008
LAYERS = (1, 2, 3)
KINDS = ("mtp", "eagle3 on qwen35", "eagle3 on llama", "eagle3 with few ids")


@dataclass(frozen=True, slots=True)
class Files:
    """A target, and heads that are not in its file."""

    target: Path
    heads: Path | None = None


@pytest.fixture(scope="module", params=KINDS)
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Files:
    return written(request.param, tmp_path_factory.mktemp("models"))


def written(kind: str, folder: Path) -> Files:
    path = folder / "target.gguf"
    if kind == "mtp":
        return Files(tiny_models.write_qwen35(path, COUNTS, mtp=1))
    target = (
        tiny_models.write_qwen35(path, COUNTS)
        if "qwen35" in kind
        else tiny_models.write_llama(path, COUNTS)
    )
    ids = list(range(0, 256, 2)) if "few" in kind else ()
    return Files(target, tiny_models.write_eagle3(folder / "heads.gguf", ids=ids))


class Bench:
    """Models, loaded once; targets with heads are made of them."""

    def __init__(self, files: Files) -> None:
        self.target = LlamaModel(files.target, OPTIONS, mtp=files.heads is None)
        self.heads = (
            self.target if files.heads is None else LlamaModel(files.heads, OPTIONS, is_heads=True)
        )
        self._layers = () if files.heads is None else LAYERS

    def made(self, cancel: CancelFlag | None = None) -> tuple[LlamaContext, LlamaHeads]:
        target = LlamaContext(self.target)
        return target, LlamaHeads(self.heads, target, cancel or CancelFlag(), OPTIONS, self._layers)

    def close(self) -> None:
        self.heads.close()
        self.target.close()


@pytest.fixture
def bench(files: Files) -> Iterator[Bench]:
    bench = Bench(files)
    yield bench
    bench.close()


def text_of(random: Random, length: int) -> list[int]:
    return [random.randrange(256) for _ in range(length)]


def check_after_any_drafts(bench: Bench, seed: int, close: float, rounds: int = 12) -> None:
    """Draft, reject and go on; assert that what is proposed then is what heads propose that saw the text alone.

    Args:
        bench: what drafts.
        seed: of all that is drawn.
        close: what logits, of 10 and more, may differ by: they come from passes of other widths.
        rounds: how many.
    """
    random = Random(seed)
    target, heads = bench.made()
    text = text_of(random, random.choice((20, 70, 150)))
    target.prefill(text[:-1])
    for _ in range(rounds):
        back = random.randint(0, 5)
        draft: list[int] = []
        rows = heads.logits(text, rows=1 + back).copy()
        fresh_target, fresh = bench.made()
        fresh_target.prefill(text[:-1])
        np.testing.assert_allclose(rows, fresh.logits(text, rows=1 + back), atol=close, rtol=0)
        for _ in range(random.randint(0, 4)):
            draft.append(int(rows[-1].argmax()))
            rows = heads.logits([*text, *draft], rows=1)
            np.testing.assert_allclose(
                rows, fresh.logits([*text, *draft], rows=1), atol=close, rtol=0
            )
        if random.random() < 0.3:  # another drafter's
            draft = text_of(random, random.randint(0, 4))
        if random.random() < 0.1:
            target.truncate(0)
        target.logits([*text, *draft], rows=len(draft) + 1)
        text += [*draft[: random.randint(0, len(draft))], random.randrange(256)]
        fresh.close()
        fresh_target.close()
    heads.close()
    target.close()


def test_what_they_propose_depends_on_the_text_alone(bench: Bench) -> None:
    for seed in range(4):
        check_after_any_drafts(bench, seed, close=0.15)


def test_of_a_long_text_they_begin_with_as_many_tokens_as_they_are_told(bench: Bench) -> None:
    target, heads = bench.made()
    heads.fresh = 16
    text = text_of(Random(3), 90)
    target.prefill(text[:-1])
    assert len(text) - heads.common_prefix(text) == 16
    assert not np.isnan(heads.logits(text, rows=4)).any()
    text.append(7)
    target.logits(text, rows=1)
    assert len(text) - heads.common_prefix(text) <= 2, "they go on from there"
    assert not np.isnan(heads.logits(text, rows=1)).any()
    text += text_of(Random(4), 40)
    target.prefill(text[:-1])
    assert len(text) - heads.common_prefix(text) == 16, (
        "and begin anew where they would lag further"
    )
    assert not np.isnan(heads.logits(text, rows=1)).any()
    heads.close()
    target.close()


def test_in_chunks_they_evaluate_no_more_than_was_planned(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, heads = bench.made()
    heads.fresh = 48
    text, rows, chunk = text_of(Random(5), 150), 3, 16
    target.prefill(text[:-1])
    wanted = heads.logits(text, rows).copy()
    heads.truncate(0)
    evaluated, decode = list[int](), heads._native.decode

    def counted(parts: Sequence[Part]) -> None:
        evaluated.extend(token for part in parts for token in part.tokens)
        decode(parts)

    monkeypatch.setattr(heads._native, "decode", counted)
    asked = Pass(Role.DRAFT_MODEL, text, rows)
    assert heads.missing(0, asked) == heads.fresh + rows
    while heads.missing(0, asked) > chunk:
        heads.evaluate(0, asked, chunk)
    (logits,) = heads.together([(0, asked)])
    assert evaluated == text[-heads.fresh - rows :]
    np.testing.assert_allclose(logits, wanted, atol=0.15, rtol=0)
    heads.close()
    target.close()


@pytest.mark.parametrize(
    ("kind", "function", "right", "wrong"),
    [
        ("mtp", LlamaHeads.common_prefix, "same = min(same, self._by_target)", "pass"),
        (
            "mtp",
            TargetRows.end,
            "_common(self._tokens, list(tokens[self.begin :]))",
            "len(self._tokens)",
        ),
        ("mtp", TargetRows._take, "part.n_past - self.begin", "len(self._tokens)"),
        ("mtp", LlamaHeads._embeddings, "start + zeros - 1", "max(0, start + zeros - 2)"),
        (
            "eagle3 on llama",
            LlamaHeads._decode,
            "given = count if rows and self._is_eagle3 else rows",
            "given = rows",
        ),
        ("eagle3 on llama", LlamaHeads._decode, "start - self._is_eagle3", "start"),
    ],
    ids=(
        "rows of their own are kept where the target has computed them",
        "rows of rejected tokens",
        "rows at the place where others were rejected",
        "the row of another place",
        "first rows for last ones",
        "places of tokens for those of rows",
    ),
)
def test_a_planted_bug_is_caught(
    kind: str,
    function: Callable[..., object],
    right: str,
    wrong: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bench = Bench(written(kind, tmp_path))
    plant(monkeypatch, function, right, wrong)
    with pytest.raises((AssertionError, PassFailed, IndexError)):  # noqa: PT012
        for seed in range(8):
            check_after_any_drafts(bench, seed, close=0.01)
    bench.close()


def test_rows_are_kept_of_the_latest_tokens_alone(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heads_module, "_MEMORY", 40)
    target, heads = bench.made()
    text = text_of(Random(1), 300)
    target.prefill(text[:-1])
    assert heads.knows(text)
    begin = heads.common_prefix(text)
    assert 200 < begin < 280
    heads.logits(text, rows=6)
    assert heads.common_prefix(text) == len(text)


def test_they_know_that_they_cannot_go_on_from_what_the_target_did_not_compute_before_them(
    bench: Bench,
) -> None:
    target, heads = bench.made()
    text = text_of(Random(1), 60)
    assert not heads.knows(text)
    target.prefill(text[:40])
    assert not heads.knows(text)
    assert heads.knows(text[:41])
    target.prefill(text)
    assert heads.knows(text)
    assert not heads.knows([*text[:50], 1, *text[51:]])


def test_after_a_pass_that_was_cancelled_they_begin_again(bench: Bench) -> None:
    cancel = CancelFlag()
    target, heads = bench.made(cancel)
    text = text_of(Random(1), 60)
    target.prefill(text[:-1])
    wanted = heads.logits(text, rows=1).copy()
    cancel.set()
    with pytest.raises(Cancelled):
        heads.logits([*text, 5], rows=1)
    cancel.clear()
    np.testing.assert_allclose(heads.logits(text, rows=1), wanted, atol=1e-4)


def test_a_blank_pass_leaves_nothing(bench: Bench) -> None:
    target, heads = bench.made()
    text = text_of(Random(1), 30)
    target.prefill(text[:-1])
    before = heads.logits(text, rows=1).copy()
    for width in (1, 3, 16):
        heads.blank_pass(width)
    np.testing.assert_allclose(heads.logits(text, rows=1), before, atol=1e-5)


@pytest.mark.first(3)
@pytest.mark.parametrize("temperature", [0.8, 0.0])
def test_drafting_with_heads_changes_no_byte_of_the_text(
    files: Files, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(files.target.parent))  # what was measured is kept
    options = ReplyOptions(
        seed=1, max_tokens=80, sampling=SamplingParams(temperature=temperature, top_k=5)
    )
    texts, accepted, rejected = set[tuple[int, ...]](), 0, 0
    for draft in ("off", "heads:2", "heads:7", "auto"):
        launch = LaunchOptions(
            target=str(files.target),
            draft_model=None if files.heads is None else str(files.heads),
            draft=draft,
            exact=True,
            fit=False,
            load=LoadOptions(n_ctx=512, threads=1),
        )
        assistant = load(make_plan(launch)).assistant
        for prompt in ("abc and so on, and more", "abc and so on, and then"):
            reply = assistant.reply(prompt, options)
            texts.add((len(prompt), ord(prompt[-1]), *reply.tokens))
            done = reply.acceptance.by_drafter.get("heads")
            if done is not None:
                accepted += done.accepted
                rejected += done.drafted - done.accepted
        assistant.close()
    assert len(texts) == 2
    assert rejected > 0
    assert accepted > 0


@pytest.mark.weights
@pytest.mark.slow
def test_heads_of_a_real_target_change_no_bit_of_its_rows(
    smollm2: LlamaModel, smollm2_path: Path, tokens: list[int], tmp_path: Path
) -> None:
    layers = (2, 15, 27)
    file = tiny_models.write_eagle3_for(smollm2_path, tmp_path / "heads.gguf", layers)
    target, alone = LlamaContext(smollm2), LlamaContext(smollm2)
    heads_model = LlamaModel(file, smollm2.options, is_heads=True)
    heads = LlamaHeads(heads_model, target, CancelFlag(), smollm2.options, layers)
    text = tokens[:40]
    target.prefill(text[:-1])
    alone.prefill(text[:-1])
    while len(text) < 52:
        draft: list[int] = []
        for _ in range(3):
            draft.append(int(heads.logits([*text, *draft], rows=1)[0].argmax()))
        rows = target.logits([*text, *draft], rows=4).copy()
        for row, drafted in zip(rows, [*draft, None], strict=True):
            assert np.array_equal(row, alone.logits(text, rows=1)[0])
            text.append(int(row.argmax()))
            if text[-1] != drafted:
                break
    heads_model.close()
    target.close()
    alone.close()
