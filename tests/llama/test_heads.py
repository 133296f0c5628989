"""Heads of a made target: what they go on from is what the target computed, whatever was rejected before."""

from collections.abc import Iterator, Sequence
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
from tests.support.bugs import Bug

OPTIONS = LoadOptions(n_ctx=1024, threads=1, max_rows=8).exact()
COUNTS = 0.008
LAYERS = (1, 2, 3)
KINDS = ("mtp", "eagle3 on qwen35", "eagle3 on llama", "eagle3 with few ids")


@pytest.fixture(scope="module", params=KINDS)
def files(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, Path | None]:
    return written(request.param, tmp_path_factory.mktemp("models"))


def written(kind: str, folder: Path) -> tuple[Path, Path | None]:
    """Write a target, and heads that are not in its file."""
    path = folder / "target.gguf"
    if kind == "mtp":
        return tiny_models.write_qwen35(path, COUNTS, mtp=1), None
    write = tiny_models.write_qwen35 if "qwen35" in kind else tiny_models.write_llama
    ids = range(0, 256, 2) if "few" in kind else ()
    return write(path, COUNTS), tiny_models.write_eagle3(folder / "heads.gguf", ids=ids)


class Bench:
    """Models, loaded once; targets with heads are made of them."""

    def __init__(self, target: Path, heads: Path | None) -> None:
        self.target = LlamaModel(target, OPTIONS, mtp=heads is None)
        self.heads = self.target if heads is None else LlamaModel(heads, OPTIONS, is_heads=True)
        self._layers = () if heads is None else LAYERS

    def made(
        self, text: Sequence[int] = (), cancel: CancelFlag | None = None
    ) -> tuple[LlamaContext, LlamaHeads]:
        """Return a target that has computed a text but for its last token, and heads."""
        target = LlamaContext(self.target)
        cancel = cancel or CancelFlag()
        heads = LlamaHeads(self.heads, target, cancel, OPTIONS, self._layers)
        if text:
            target.prefill(text[:-1])
        return target, heads

    def close(self) -> None:
        self.heads.close()
        self.target.close()


@pytest.fixture
def bench(files: tuple[Path, Path | None]) -> Iterator[Bench]:
    bench = Bench(*files)
    yield bench
    bench.close()


def text_of(random: Random, length: int) -> list[int]:
    return [random.randrange(256) for _ in range(length)]


def check_after_any_drafts(bench: Bench, seed: int, close: float, rounds: int = 12) -> None:
    """Draft, reject and go on; assert that what is proposed then is what heads propose that saw the text alone.

    Logits, of 10 and more, may differ by `close`: they come from passes of other widths.
    """
    random = Random(seed)
    text = text_of(random, random.choice((20, 70, 150)))
    target, heads = bench.made(text)
    for _ in range(rounds):
        back, draft = random.randint(0, 5), list[int]()
        rows = heads.logits(text, rows=1 + back).copy()
        fresh_target, fresh = bench.made(text)
        np.testing.assert_allclose(rows, fresh.logits(text, rows=1 + back), atol=close, rtol=0)
        for _ in range(random.randint(0, 4)):
            draft.append(int(rows[-1].argmax()))
            rows, others = (each.logits([*text, *draft], rows=1) for each in (heads, fresh))
            np.testing.assert_allclose(rows, others, atol=close, rtol=0)
        if random.random() < 0.3:  # another drafter's
            draft = text_of(random, random.randint(0, 4))
        if random.random() < 0.1:
            target.truncate(0)
        target.logits([*text, *draft], rows=len(draft) + 1)
        text += [*draft[: random.randint(0, len(draft))], random.randrange(256)]
        for each in (fresh, fresh_target):
            each.close()
    heads.close()
    target.close()


def test_what_they_propose_depends_on_the_text_alone(bench: Bench) -> None:
    for seed in range(4):
        check_after_any_drafts(bench, seed, close=0.15)


def test_of_a_long_text_they_begin_with_so_many_tokens_and_go_on_from_there(bench: Bench) -> None:
    text = text_of(Random(3), 90)
    target, heads = bench.made(text)
    heads.fresh = 16

    def evaluated(rows: int) -> int:
        missing = len(text) - heads.common_prefix(text)
        assert not np.isnan(heads.logits(text, rows=rows)).any()
        return missing

    assert evaluated(4) == 16
    text.append(7)
    target.logits(text, rows=1)
    assert evaluated(1) <= 2
    text += text_of(Random(4), 40)
    target.prefill(text[:-1])
    assert evaluated(1) == 16, "they begin again where they would lag further"


def test_in_chunks_they_evaluate_what_was_due(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, rows, chunk = text_of(Random(5), 150), 3, 16
    _, heads = bench.made(text)
    heads.fresh = 48
    expected = heads.logits(text, rows).copy()
    heads.truncate(0)
    evaluated, decode = list[int](), heads._native.decode

    def counted(parts: Sequence[Part]) -> None:
        evaluated.extend(token for part in parts for token in part.tokens)
        decode(parts)

    monkeypatch.setattr(heads._native, "decode", counted)
    request = Pass(Role.DRAFT_MODEL, text, rows)
    assert heads.missing(0, request) == heads.fresh + rows
    while heads.missing(0, request) > chunk:
        heads.evaluate(0, request, chunk)
    (logits,) = heads.together([(0, request)])
    assert evaluated == text[-heads.fresh - rows :]
    np.testing.assert_allclose(logits, expected, atol=0.15, rtol=0)


LENGTH, H = "len(self._tokens)", LlamaHeads
MTP_BUGS = {
    "rows of their own stay where the target has computed them": Bug(
        H.common_prefix, "same = min(same, self._by_target)", "pass"
    ),
    "rows of rejected tokens": Bug(
        TargetRows.end, "common(self._tokens, list(tokens[self.begin :]))", LENGTH
    ),
    "rows at the place where others were rejected": Bug(
        TargetRows._take, "part.n_past - self.begin", LENGTH
    ),
    "the row of another place": Bug(
        H._embeddings, "start + zeros - 1", "max(0, start + zeros - 2)"
    ),
}
EAGLE_BUGS = {
    "first rows for last ones": Bug(
        H._decode, "given = count if rows and self._is_eagle3 else rows", "given = rows"
    ),
    "places of tokens for those of rows": Bug(H._decode, "start - self._is_eagle3", "start"),
}


@pytest.mark.parametrize("name", [*MTP_BUGS, *EAGLE_BUGS])
def test_a_planted_bug_is_caught(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = "mtp" if name in MTP_BUGS else "eagle3 on llama"
    bench = Bench(*written(kind, tmp_path))
    plant(monkeypatch, *(MTP_BUGS | EAGLE_BUGS)[name])
    with pytest.raises((AssertionError, PassFailed, IndexError)):  # noqa: PT012
        for seed in range(8):
            check_after_any_drafts(bench, seed, close=0.01)
    bench.close()


def test_rows_stay_of_the_latest_tokens(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heads_module, "_MEMORY", 40)
    text = text_of(Random(1), 300)
    _, heads = bench.made(text)
    assert heads.knows(text)
    assert 200 < heads.common_prefix(text) < 280
    heads.logits(text, rows=6)
    assert heads.common_prefix(text) == len(text)


def test_they_know_what_the_target_did_not_compute(bench: Bench) -> None:
    target, heads = bench.made()
    text = text_of(Random(1), 60)
    assert not heads.knows(text)
    target.prefill(text[:40])
    assert not heads.knows(text)
    assert heads.knows(text[:41])
    target.prefill(text)
    assert heads.knows(text)
    assert not heads.knows([*text[:50], 1, *text[51:]])


def test_a_blank_or_cancelled_pass_leaves_nothing(bench: Bench) -> None:
    cancel, text = CancelFlag(), text_of(Random(1), 60)
    _, heads = bench.made(text, cancel)
    expected = heads.logits(text, rows=1).copy()
    cancel.set()
    with pytest.raises(Cancelled):
        heads.logits([*text, 5], rows=1)
    cancel.clear()
    np.testing.assert_allclose(heads.logits(text, rows=1), expected, atol=1e-4)
    for width in (1, 3, 16):
        heads.blank_pass(width)
    np.testing.assert_allclose(heads.logits(text, rows=1), expected, atol=1e-4)


@pytest.mark.first(3)
@pytest.mark.parametrize("temperature", [0.8, 0.0])
def test_drafting_with_heads_changes_no_byte_of_the_text(
    files: tuple[Path, Path | None], temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, heads = files
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(target.parent))  # measurements stay
    sampling = SamplingParams(temperature=temperature, top_k=5)
    texts, accepted, drafted = set[tuple[int, ...]](), 0, 0
    for draft in ("off", "heads:2", "heads:7", "auto"):
        launch = LaunchOptions(
            target=str(target),
            draft_model=None if heads is None else str(heads),
            draft=draft,
            exact=True,
            fit=False,
            load=LoadOptions(n_ctx=512, threads=1),
        )
        assistant = load(make_plan(launch)).assistant
        for prompt in ("abc and so on, and more", "abc and so on, and then"):
            reply = assistant.reply(prompt, ReplyOptions(sampling, seed=1, max_tokens=80))
            texts.add((ord(prompt[-1]), *reply.tokens))
            if done := reply.acceptance.by_drafter.get("heads"):
                accepted, drafted = accepted + done.accepted, drafted + done.drafted
        assistant.close()
    assert len(texts) == 2
    assert drafted > accepted > 0


@pytest.mark.weights
@pytest.mark.slow
def test_heads_of_a_real_target_change_no_bit_of_its_rows(
    smollm2: LlamaModel, smollm2_path: Path, tokens: list[int], tmp_path: Path
) -> None:
    layers = (2, 15, 27)
    file = tiny_models.write_eagle3(tmp_path / "heads.gguf", target=smollm2_path, layers=layers)
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
