"""Heads of a made target: what they go on from is what the target computed, whatever was rejected before."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import cast

import numpy as np
import pytest

from localspec.chat.assistant import Assistant
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.costs import PairCosts, PassCosts
from localspec.decoding.model import Pass, Role
from localspec.errors import ModelLoadError, PassFailed, UsageError
from localspec.launch import load as loading
from localspec.launch.load import load
from localspec.launch.plan import make_plan
from localspec.llama import heads as heads_module
from localspec.llama import target_rows
from localspec.llama.batch import Batch, Part
from localspec.llama.encoder import Encoder, MediaChunk
from localspec.llama.heads import HeadSequence, LlamaHeads
from localspec.llama.media_ids import media_ids
from localspec.llama.model import LlamaModel
from localspec.llama.native import native
from localspec.llama.sequence import LlamaContext, LlamaSequence
from localspec.llama.sequences import LlamaSequences
from localspec.llama.staging import Rows
from localspec.llama.target_rows import TargetRows
from localspec.models.architectures import Heads, heads_of, why_no_mtp
from localspec.models.gguf import read_header
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from tests.decoding.planting import plant
from tests.llama import tiny_models
from tests.llama.same_text import check_same_text
from tests.support.bugs import Bug
from tests.support.checks import refuses

pytestmark = pytest.mark.slow

OPTIONS = LoadOptions(n_ctx=1024, threads=1, max_rows=8).exact()
COUNTS = 0.008
LAYERS = (1, 2, 3)
SEVERAL = ("three mtp on step35", "two mtp on mimo2")
KINDS = ("mtp", *SEVERAL, "eagle3 on qwen35", "eagle3 on llama", "eagle3 with few ids")
OTHER_STATE = 0.5
"""Logits of another recurrent state differ by 2 and more, and those of another width by 0.2 at most."""


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
    if kind in SEVERAL:
        mtp, architecture = 2 + kind.startswith("three"), kind.rpartition(" ")[2]
        path = tiny_models.write_windowed(path, COUNTS, mtp=mtp, architecture=architecture)
        return path, None
    write = tiny_models.write_qwen35 if "qwen35" in kind else tiny_models.write_llama
    ids = range(0, 256, 2) if "few" in kind else ()
    return write(path, COUNTS), tiny_models.write_eagle3(folder / "heads.gguf", ids=ids)


class Bench:
    """Models, loaded once; targets with heads are made of them."""

    def __init__(self, target: Path, heads: Path | None) -> None:
        self.target = LlamaModel(target, OPTIONS, mtp=heads is None)
        self.heads = self.target if heads is None else LlamaModel(heads, OPTIONS, is_heads=True)
        self._layers = () if heads is None else LAYERS
        self.encoder: RandomEncoder | None = None
        self._kind = (heads_of(read_header(target)) if heads is None else None) or Heads()

    @property
    def several(self) -> bool:
        """Whether there are several layers, each for one token."""
        return self._kind.count > 1

    def of(self, targets: Sequence[LlamaSequence], cancel: CancelFlag) -> LlamaHeads:
        """Return heads that follow these."""
        kind = self._kind
        return LlamaHeads(
            self.heads,
            targets,
            cancel,
            OPTIONS,
            self._layers,
            kind.count,
            of_outputs=kind.of_outputs,
        )

    def made(
        self, text: Sequence[int] = (), cancel: CancelFlag | None = None
    ) -> tuple[LlamaContext, LlamaHeads, HeadSequence]:
        """Return a target that has computed a text but for its last token, heads, and their sequence."""
        target = LlamaContext(self.target, encoder=cast(Encoder, self.encoder))
        heads = self.of([target], cancel or CancelFlag())
        if text:
            target.prefill(text[:-1])
        return target, heads, heads.views[0]

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


def check_after_any_drafts(
    bench: Bench, seed: int, close: float, rounds: int = 12, picture: Sequence[int] = ()
) -> None:
    """Draft, reject and go on; assert that what is proposed then is what heads propose that saw the text alone.

    Logits, of 10 and more, may differ by `close`: they come from passes of other widths.
    """
    random = Random(seed)
    text = text_of(random, random.choice((20, 70, 150)))
    text = [*text[:-12], *picture, *text[-12:]]
    target, heads, own = bench.made(text)
    most = own.longest - 1 if bench.several else 4
    for _ in range(rounds):
        back, draft = 0 if bench.several else random.randint(0, 5), list[int]()
        rows = own.logits(text, rows=1 + back).copy()
        fresh_target, fresh_heads, fresh = bench.made(text)
        np.testing.assert_allclose(rows, fresh.logits(text, rows=1 + back), atol=close, rtol=0)
        for _ in range(random.randint(0, most)):
            draft.append(int(rows[-1].argmax()))
            rows, others = (each.logits([*text, *draft], rows=1) for each in (own, fresh))
            np.testing.assert_allclose(rows, others, atol=close, rtol=0)
        if random.random() < 0.3:  # another drafter's
            draft = text_of(random, random.randint(0, 4))
        if random.random() < 0.1:
            target.truncate(0)
        target.logits([*text, *draft], rows=len(draft) + 1)
        text += [*draft[: random.randint(0, len(draft))], random.randrange(256)]
        for each in (fresh_heads, fresh_target):
            each.close()
    heads.close()
    target.close()


def test_what_they_propose_depends_on_the_text_alone(bench: Bench) -> None:
    for seed in range(4):
        check_after_any_drafts(bench, seed, close=0.15)


class RandomEncoder:
    """Stands in for an `Encoder`: rows of its own for every chunk, at positions in a grid where the model has M-RoPE."""

    most_at_once = 0

    def __init__(self, model: LlamaModel) -> None:
        self.width = int(native.llama_model_n_embd_inp(model.handle))
        self.mrope = native.llama_model_rope_type(model.handle) >= native.LLAMA_ROPE_TYPE_MROPE

    def batch(self, tokens: int, sequences: int) -> Batch:
        sections = 4 if self.mrope else 1
        return Batch(tokens, sequences, width=self.width, with_tokens=False, sections=sections)

    def chunk(self, ids: Sequence[int]) -> MediaChunk:
        count, places, moves = len(ids), None, None
        rows = np.random.default_rng(-ids[0]).normal(0, 1, (count, self.width))
        if self.mrope:
            places = np.array(
                [
                    [0] * count,
                    [at // 4 for at in range(count)],
                    [at % 4 for at in range(count)],
                    [0] * count,
                ],
                np.int32,
            )
            moves = np.array([[1] * count] * 3 + [[0] * count], np.int32)
        return MediaChunk(rows.astype(np.float32), causal=True, places=places, moves=moves)


def test_beside_a_picture_they_follow_the_rows_of_the_target(bench: Bench) -> None:
    bench.encoder = RandomEncoder(bench.target)
    picture = media_ids("a picture", 20, 5 if bench.encoder.mrope else 20)
    for seed in range(3):
        check_after_any_drafts(bench, seed, close=0.15, picture=picture)


def test_of_a_long_text_they_begin_with_so_many_tokens_and_go_on_from_there(bench: Bench) -> None:
    text = text_of(Random(3), 90)
    target, _, own = bench.made(text)
    own.fresh = 16

    def evaluated(rows: int) -> int:
        missing = len(text) - own.common_prefix(text)
        assert not np.isnan(own.logits(text, rows=rows)).any()
        return missing

    assert evaluated(1 if bench.several else 4) == 16
    text.append(7)
    target.logits(text, rows=1)
    assert evaluated(1) <= 2
    text += text_of(Random(4), 40)
    target.prefill(text[:-1])
    assert evaluated(1) == 16, "they begin again where they would lag further"


def test_in_chunks_they_evaluate_what_was_due(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    text, rows, chunk = text_of(Random(5), 150), 1 if bench.several else 3, 16
    _, heads, own = bench.made(text)
    own.fresh = 48
    expected = own.logits(text, rows).copy()
    own.truncate(0)
    evaluated, decode = list[int](), heads.native.decode

    def counted(parts: Sequence[Part]) -> None:
        evaluated.extend(token for part in parts for token in part.tokens)
        decode(parts)

    monkeypatch.setattr(heads.native, "decode", counted)
    request = Pass(Role.DRAFT_MODEL, text, rows)
    assert heads.missing(0, request) == own.fresh + rows
    while heads.missing(0, request) > chunk:
        heads.evaluate(0, request, chunk)
    (logits,) = heads.together([(0, request)])
    assert sorted({*evaluated}) == sorted({*text[-own.fresh - rows :]})
    assert bench.several or evaluated == text[-own.fresh - rows :]
    np.testing.assert_allclose(logits, expected, atol=0.15, rtol=0)


LENGTH, H = "len(self._tokens)", HeadSequence
MTP_BUGS = {
    "rows of their own stay where the target has computed them": Bug(
        H.common_prefix, "same = min(same, self._settled)", "pass"
    ),
    "rows of rejected tokens": Bug(
        TargetRows.end, "common_prefix(self._tokens, list(tokens[self.begin :]))", LENGTH
    ),
    "rows at the place where others were rejected": Bug(
        TargetRows.add, "part.place - self.begin", LENGTH
    ),
    "the row of another place": Bug(H._before, "start + zeros - 1", "max(0, start + zeros - 2)"),
}
EAGLE_BUGS = {
    "first rows for last ones": Bug(
        H._step, "given = count if rows and self._first else rows", "given = rows"
    ),
    "places of tokens for those of rows": Bug(H._step, "start - self._first", "start"),
}
SEVERAL_BUGS = {
    "what one layer drafted counts for all": Bug(
        H.evaluated, "(self._count > 1 and step.rows > 0)", "0"
    ),
    "the first layer alone reads what the target computed": Bug(
        H._catch_up, "range(self._count)", "range(1)"
    ),
    "every token by the first layer": Bug(
        H.last_step,
        "self._step(tokens, len(tokens), rows, layer)",
        "self._step(tokens, len(tokens), rows)",
    ),
}
BUGS = MTP_BUGS | EAGLE_BUGS | SEVERAL_BUGS


@pytest.mark.parametrize("name", BUGS)
def test_a_planted_bug_is_caught(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind = "mtp" if name in MTP_BUGS else "eagle3 on llama"
    bench = Bench(*written(SEVERAL[0] if name in SEVERAL_BUGS else kind, tmp_path))
    plant(monkeypatch, *BUGS[name])
    with pytest.raises((AssertionError, PassFailed, IndexError)):  # noqa: PT012
        for seed in range(8):
            check_after_any_drafts(bench, seed, close=0.01)
    bench.close()


def test_rows_stay_of_the_latest_tokens(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(target_rows, "HEADS_MEMORY", 40)
    text = text_of(Random(1), 300)
    _, _, own = bench.made(text)
    assert own.knows(text)
    assert 200 < own.common_prefix(text) < 280
    own.logits(text, rows=1 if bench.several else 6)
    assert own.common_prefix(text) == len(text) - bench.several


def test_they_know_what_the_target_did_not_compute(bench: Bench) -> None:
    target, _, own = bench.made()
    text = text_of(Random(1), 60)
    assert not own.knows(text)
    target.prefill(text[:40])
    assert not own.knows(text)
    assert own.knows(text[:41])
    target.prefill(text)
    assert own.knows(text)
    assert not own.knows([*text[:50], 1, *text[51:]])


def test_rows_of_another_text_are_none_of_what_was_copied_or_put_back() -> None:
    rows, texts = TargetRows(), ([1, 2, 3], [1, 9, 3, 4])
    computed = np.zeros((3, 1), np.float32)
    rows.add(Part(0, texts[0], 0, 0), computed, lambda _: [])
    rows.add(Part(0, texts[1][2:], 2, 0), computed[:2], lambda place: texts[1][place:2])
    assert (rows.begin, rows.end(texts[1])) == (2, 4)


def test_a_blank_or_cancelled_pass_leaves_nothing(bench: Bench) -> None:
    cancel, text = CancelFlag(), text_of(Random(1), 60)
    _, heads, own = bench.made(text, cancel)
    expected = own.logits(text, rows=1).copy()
    cancel.set()
    with pytest.raises(Cancelled):
        own.logits([*text, 5], rows=1)
    cancel.clear()
    np.testing.assert_allclose(own.logits(text, rows=1), expected, atol=1e-4)
    for width in (1, 3, 16):
        heads.blank_pass(width)
    np.testing.assert_allclose(own.logits(text, rows=1), expected, atol=1e-4)


def test_heads_that_are_closed_leave_the_target_as_it_was(bench: Bench) -> None:
    text = text_of(Random(1), 60)
    target, heads, _ = bench.made(text)
    heads.close()
    heads.close()
    row = target.logits(text, rows=1).copy()
    alone = LlamaContext(bench.target)
    alone.prefill(text[:-1])
    np.testing.assert_allclose(row, alone.logits(text, rows=1), atol=OTHER_STATE)


def test_a_pass_that_failed_can_be_made_again(bench: Bench) -> None:
    """As the scheduler does it for those beside a cancelled one, at every token of a draft."""
    random, cancel = Random(8), CancelFlag()
    targets = LlamaSequences(bench.target, cancel, replace(OPTIONS, max_rows=8), 2, 16)
    heads = bench.of(targets.views, cancel)
    texts = [text_of(random, length) for length in (33, 50)]
    most = min(3, heads.views[0].longest)
    for failing in range(most):
        drafts: list[list[int]] = [[], []]
        for slot, text in enumerate(texts):
            targets.views[slot].prefill(text[:-1])
        alone = [bench.made(text) for text in texts]
        for at in range(most):
            requests = [
                (slot, Pass(Role.DRAFT_MODEL, [*texts[slot], *drafts[slot]], 1)) for slot in (0, 1)
            ]
            if at == failing:
                cancel.set()
                with pytest.raises(Cancelled):
                    heads.together(requests)
                cancel.clear()
            for (slot, request), row in zip(requests, heads.together(requests), strict=True):
                expected = alone[slot][2].logits(request.tokens, rows=1)
                np.testing.assert_allclose(row, expected, atol=OTHER_STATE, rtol=0)
                drafts[slot].append(int(row[-1].argmax()))
        for each in alone:
            each[1].close()
            each[0].close()
        texts = [[*text, random.randrange(256)] for text in texts]
    heads.close()
    targets.close()


def check_several_at_once(bench: Bench) -> None:
    """Assert that targets and heads are each as alone, jointly and in any order: cut back, begun from nothing, idle for a while."""
    random, cancel, most = Random(6), CancelFlag(), 3
    options = replace(OPTIONS, max_rows=8)
    targets = LlamaSequences(bench.target, cancel, options, 4, 32)
    heads = bench.of(targets.views, cancel)
    texts = [text_of(random, random.choice((20, 40, 70))) for _ in range(4)]
    for _ in range(16):
        running = random.sample(range(4), random.randint(1, 4))
        targets.close_ranks(running)
        for slot in running:
            if random.random() < 0.15:
                texts[slot] = text_of(random, random.choice((20, 40, 70)))
            targets.views[slot].prefill(texts[slot][:-1])
        drafts: dict[int, list[int]] = {slot: [] for slot in running}
        alone = {slot: bench.made(texts[slot]) for slot in running}
        for _ in range(random.randint(0, min(most, heads.views[0].longest))):
            requests = [
                (slot, Pass(Role.DRAFT_MODEL, [*texts[slot], *drafts[slot]], 1)) for slot in running
            ]
            for (slot, request), row in zip(requests, heads.together(requests), strict=True):
                expected = alone[slot][2].logits(request.tokens, rows=1)
                np.testing.assert_allclose(row, expected, atol=OTHER_STATE, rtol=0)
                drafts[slot].append(int(row[-1].argmax()))
        requests = [
            (slot, Pass(Role.TARGET, [*texts[slot], *drafts[slot]], len(drafts[slot]) + 1))
            for slot in running
        ]
        for (slot, request), rows in zip(requests, targets.together(requests), strict=True):
            expected = alone[slot][0].logits(request.tokens, request.rows)
            np.testing.assert_allclose(rows, expected, atol=OTHER_STATE, rtol=0)
            kept = drafts[slot][: random.randint(0, len(drafts[slot]))]
            # Not what the target has computed: heads alone would not know it.
            following = random.choice([each for each in range(256) if each not in drafts[slot]])
            texts[slot] = [*texts[slot], *kept, following]
            alone[slot][1].close()
            alone[slot][0].close()
    heads.close()
    targets.close()


def test_several_at_once_are_each_as_alone(bench: Bench) -> None:
    check_several_at_once(bench)


def mixed_rows(view: HeadSequence, begin: int, end: int) -> list[Rows]:
    """Return the rows of the sequence before a view's, where it has as many."""
    own, theirs = (
        each._target.rows(begin, end) for each in (view, view._heads.views[view.number - 1])
    )
    return theirs if len(theirs) == len(own) else own


@pytest.mark.parametrize("mixed", [False, True])
def test_rows_of_several_are_not_mixed_up(
    mixed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Heads whose logits differ by 5 and more where a row is another's; usually the token outweighs it."""
    target = tiny_models.write_llama(tmp_path / "target.gguf", COUNTS)
    bench = Bench(target, tiny_models.write_eagle3(tmp_path / "heads.gguf", 0.3))
    if mixed:
        plant(monkeypatch, H._before, "self._target.rows(", "mixed(self, ", {"mixed": mixed_rows})
        with pytest.raises(AssertionError):
            check_several_at_once(bench)
    else:
        check_several_at_once(bench)
    bench.close()


@pytest.mark.first(3)
@pytest.mark.parametrize("temperature", [0.8, 0.0])
def test_drafting_with_heads_changes_no_byte_of_the_text(
    files: tuple[Path, Path | None],
    temperature: float,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target, heads = files
    if heads is None and (reason := why_no_mtp(read_header(target), exact=True)) is not None:
        assert "--exact rules that out" in reason  # as it is, and not for another reason
        plan = make_plan(LaunchOptions(target=str(target), draft="auto", exact=True, fit=False))
        assert plan.heads is None
        return
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(target.parent))  # measurements stay
    check_same_text(target, heads, temperature)


@pytest.mark.parametrize(
    ("lacking", "word"), [(True, "not in the file"), (False, "the heads do not draft: no such")]
)
def test_heads_that_cannot_draft_leave_that_to_others_and_are_an_error_if_they_were_named(
    lacking: bool, word: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, mtp = tmp_path / "target.gguf", int(not lacking)
    target = str(tiny_models.write_qwen35(path, COUNTS, mtp=mtp, lacking=int(lacking)))
    options = LoadOptions(n_ctx=512, threads=1)

    def no_interface(*_: object) -> None:
        raise ModelLoadError("no such function")

    def opened(draft: str) -> Assistant:
        launch = LaunchOptions(target=target, draft=draft, fit=False, load=options)
        return load(make_plan(launch)).assistant

    monkeypatch.setattr(heads_module, "follow", no_interface)
    assistant = opened("auto")
    assert assistant.reply("abc and so on", ReplyOptions(seed=1, max_tokens=20)).tokens
    (note,) = [each for each in assistant.notes if word in each]
    assert "\n" not in note
    assistant.close()
    with pytest.raises((UsageError, ModelLoadError)) as raised:
        opened("heads")
    assert "\n" not in str(raised.value)


def test_a_draft_model_that_lacks_the_mtp_layers_of_its_header_is_loaded(tmp_path: Path) -> None:
    small = tiny_models.write_qwen35(tmp_path / "small.gguf", COUNTS, lacking=1)
    target = tiny_models.write_llama(tmp_path / "target.gguf", COUNTS)
    options = LoadOptions(n_ctx=512, threads=1)
    launch = LaunchOptions(target=str(target), draft_model=str(small), load=options)
    runtime = load(make_plan(launch))
    assert "recurrent state" in " ".join(runtime.assistant.notes)  # so it does not draft
    assert runtime.assistant.reply("abc", ReplyOptions(seed=1, max_tokens=8)).tokens
    runtime.assistant.close()


def test_heads_that_fail_while_they_are_measured_are_left_out_unless_they_were_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    target = str(tiny_models.write_qwen35(tmp_path / "target.gguf", COUNTS, mtp=1))
    launch = LaunchOptions(target=target, fit=False, load=LoadOptions(n_ctx=512, threads=1))

    def fails(*_: object) -> None:
        raise PassFailed("there is no memory for a pass")

    monkeypatch.setattr(LlamaHeads, "blank_pass", fails)
    runtime = load(make_plan(replace(launch, draft="auto")))
    assert "no memory for a pass" in " ".join(runtime.assistant.notes)
    assert runtime.assistant.reply("abc", ReplyOptions(seed=1, max_tokens=8)).tokens
    runtime.assistant.close()
    with pytest.raises(PassFailed):
        load(make_plan(replace(launch, draft="heads", further=("auto",))))


def test_what_heads_have_no_use_for_is_refused_where_it_was_named(tmp_path: Path) -> None:
    target = tiny_models.write_qwen35(tmp_path / "target.gguf", COUNTS, mtp=1)
    small = tiny_models.write_llama(tmp_path / "small.gguf", COUNTS)
    launch = LaunchOptions(target=str(target), draft="heads", fit=False)
    refuses("holds no heads", make_plan, replace(launch, draft_model=str(small)))
    adapter = replace(launch, draft_model=str(small), draft_lora=str(small))
    refuses("no adapter", make_plan, adapter)


@pytest.mark.parametrize("parallel", [1, 3])
def test_auto_drafts_with_own_heads_and_lookup_in_the_same_replies(
    parallel: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    wide = PassCosts((1, 2, 4, 8, 16, 32), (0.01, 0.0105, 0.011, 0.012, 0.014, 0.016))
    costs = PairCosts(wide, PassCosts((1, 16), (0.0008, 0.0015)))
    monkeypatch.setattr(loading._Loading, "_with_heads", lambda *_: costs)
    target = tiny_models.write_qwen35(tmp_path / "target.gguf", COUNTS, mtp=1)
    options = LoadOptions(n_ctx=512, threads=1)
    launch = LaunchOptions(target=str(target), load=options)
    assistant = load(make_plan(launch, parallel=parallel), parallel=parallel).assistant
    sampling = SamplingParams(temperature=0.8, top_k=5)
    replies = [
        assistant.reply(f"abc and so on {seed}", ReplyOptions(sampling, seed=seed, max_tokens=120))
        for seed in range(4)
    ]
    assistant.close()
    drafted = [
        {name for name, done in reply.acceptance.by_drafter.items() if done.accepted}
        for reply in replies
    ]
    assert {"heads", "lookup"} in drafted


@pytest.mark.parametrize("parallel", [1, 3])
def test_heads_that_cannot_pay_are_let_go_and_not_loaded_again(
    parallel: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    for module in ("load", "plan"):
        pays = f"localspec.launch.{module}.draft_model_could_win"
        monkeypatch.setattr(pays, lambda costs, *_: costs.draft_model is None)
    target = tiny_models.write_qwen35(tmp_path / "target.gguf", COUNTS, mtp=1)
    load_options = LoadOptions(n_ctx=256, threads=1)
    launch = LaunchOptions(target=str(target), fit=False, load=load_options)
    for planned in (Heads(), None):
        plan = make_plan(launch, parallel=parallel)
        assert plan.heads == planned
        runtime = load(plan, parallel=parallel)
        assert runtime.assistant.models.draft_models is None
        assert runtime.target.native.on_pass is None
        assert runtime.costs is not None
        assert runtime.costs.draft_model is not None
        assert runtime.assistant.reply("abc", ReplyOptions(seed=1, max_tokens=5)).tokens
        runtime.assistant.close()


@pytest.mark.weights
@pytest.mark.slow
def test_heads_of_a_real_target_change_no_bit_of_its_rows(
    smollm2: LlamaModel, smollm2_path: Path, tokens: list[int], tmp_path: Path
) -> None:
    layers = (2, 15, 27)
    file = tiny_models.write_eagle3(tmp_path / "heads.gguf", target=smollm2_path, layers=layers)
    target, alone = LlamaContext(smollm2), LlamaContext(smollm2)
    heads_model = LlamaModel(file, smollm2.options, is_heads=True)
    heads = LlamaHeads(heads_model, [target], CancelFlag(), smollm2.options, layers).views[0]
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
