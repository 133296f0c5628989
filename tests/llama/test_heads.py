"""Heads of made targets: what they draft depends on the text alone, whatever was rejected before, and changes no byte of it."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import numpy as np
import pytest

from localspec.chat.request import Request
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.costs import PairCosts, PassCosts
from localspec.decoding.model import Pass, Role
from localspec.errors import ModelLoadError, PassFailed, UsageError
from localspec.launch import load as loading
from localspec.launch.load import Runtime, load
from localspec.llama import heads as heads_module
from localspec.llama import target_rows
from localspec.llama.batch import Batch, Part
from localspec.llama.block_heads import BlockHeads, _AssistantPlace, _BlockPlace, _Place
from localspec.llama.encoder import MediaChunk
from localspec.llama.heads import HeadSequence, LlamaHeads
from localspec.llama.media_ids import media_ids
from localspec.llama.model import LlamaModel
from localspec.llama.native import native
from localspec.llama.sequence import LlamaContext, LlamaSequence
from localspec.llama.sequences import LlamaSequences
from localspec.llama.target_rows import TargetRows
from localspec.llama.unstable_api import Rows
from localspec.messages import Message
from localspec.models.architectures import Heads, heads_in, heads_of, why_no_mtp
from localspec.models.gguf import read_header
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from localspec.plan.make import make_plan
from tests.chat.answers import replies
from tests.llama.tiny_models import (
    write_assistant,
    write_dflash,
    write_eagle3,
    write_gemma4,
    write_llama,
    write_qwen35,
    write_windowed,
)
from tests.support.planting import Bug, plant, table_of

Patch = pytest.MonkeyPatch

pytestmark = pytest.mark.slow

OPTIONS = LoadOptions(n_ctx=1024, threads=1, max_rows=8).exact()
SMALL = LoadOptions(n_ctx=512, threads=1)
COUNTS, FEW = 0.008, range(0, 256, 2)
OTHER_STATE = 0.5
"""Logits of another recurrent state differ by 2 and more, and those of another width by 0.2 at most."""

WINDOWED = {"three mtp on step35": (3, "step35"), "two mtp on mimo2": (2, "mimo2")}
EAGLES: dict[str, Callable[[Path], Path]] = {
    "eagle3 on qwen35": write_eagle3,
    "eagle3 on llama": write_eagle3,
    "eagle3 with few ids": lambda path: write_eagle3(path, ids=FEW),
}
BLOCKS: dict[str, Callable[[Path], Path]] = {
    "dflash": write_dflash,
    "dflash of few ids": lambda path: write_dflash(path, ids=FEW),
    "dflash on qwen35": lambda path: write_dflash(path, mrope=True),
    "dflash2": lambda path: write_dflash(path, kind="dflash2"),
    "dspark": lambda path: write_dflash(path, kind="dspark"),
    "dspark with a bonus": lambda path: write_dflash(path, kind="dspark", anchored=False, ids=FEW),
}
FOLLOWERS, PLACED = ("mtp", *WINDOWED, *EAGLES), (*BLOCKS, "assistant")
"""Heads that follow each token, and those that draft from one place: blocks of one pass, and Gemma 4's assistant."""
of_followers = pytest.mark.parametrize("files", FOLLOWERS, indirect=True)


class Files(NamedTuple):
    """A target, and heads that are not in its file."""

    kind: str
    target: Path
    heads: Path | None


def written(kind: str, folder: Path) -> Files:
    target, heads = folder / "target.gguf", folder / "heads.gguf"
    if kind == "mtp":
        return Files(kind, write_qwen35(target, COUNTS, mtp=1), None)
    if kind in WINDOWED:
        mtp, architecture = WINDOWED[kind]
        path = write_windowed(target, COUNTS, mtp=mtp, architecture=architecture)
        return Files(kind, path, None)
    if kind == "assistant":
        return Files(kind, write_gemma4(target, 0.005), write_assistant(heads))
    write = write_qwen35 if "qwen35" in kind else write_llama
    counts = 0.005 if kind in BLOCKS else COUNTS
    path = write(target, counts, marked=kind in BLOCKS)
    return Files(kind, path, (EAGLES | BLOCKS)[kind](heads))


@pytest.fixture(scope="module", params=[*FOLLOWERS, *PLACED])
def files(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Files:
    return written(request.param, tmp_path_factory.mktemp("models"))


class Bench:
    """Models, loaded once; targets with heads are made of them."""

    def __init__(self, files: Files) -> None:
        own = files.heads is None
        self.at_place = files.kind in PLACED
        self.close_to = 0.15 if self.at_place else OTHER_STATE
        self.target = LlamaModel(files.target, OPTIONS, mtp=own)
        self.heads = LlamaModel(files.heads, OPTIONS, is_heads=True) if files.heads else self.target
        header = read_header(files.heads or files.target)
        self.kind = (heads_of(header) if own else heads_in(header)) or Heads()
        self.several = self.kind.count > 1
        self.encoder: Any = None

    def of(self, targets: Sequence[LlamaSequence], cancel: CancelFlag) -> Any:
        """Return heads that follow these."""
        kind, models = self.kind, (self.heads, targets, cancel, OPTIONS, self.kind.layers)
        if self.at_place:
            return BlockHeads(*models, kind.block)
        return LlamaHeads(*models, kind.count, of_outputs=kind.of_outputs)

    def made(
        self, text: Sequence[int] = (), cancel: CancelFlag | None = None
    ) -> tuple[LlamaContext, Any, Any]:
        """Return a target that has computed a text but for its last token, heads, and their sequence."""
        target = LlamaContext(self.target, encoder=self.encoder)
        heads = self.of([target], cancel or CancelFlag())
        if text:
            target.prefill(text[:-1])
        return target, heads, heads.views[0]

    def close(self) -> None:
        self.heads.close()
        self.target.close()


@pytest.fixture
def bench(files: Files) -> Iterator[Bench]:
    bench = Bench(files)
    yield bench
    bench.close()


def text_of(random: Random, length: int) -> list[int]:
    return [random.randrange(255) for _ in range(length)]


def check_drafts(bench: Bench, seed: int, close: float = 0.15, picture: Sequence[int] = ()) -> None:
    """Draft, reject and go on; assert that what is proposed then is what heads propose that saw the text alone.

    Logits, of 10 and more, may differ by `close`: they come from passes of other widths.
    """
    random = Random(seed)
    text = text_of(random, random.choice((20, 70, 150)))
    text = [*text[:-12], *picture, *text[-12:]]
    target, heads, own = bench.made(text)
    most = 6 if bench.at_place else own.longest - 1 if bench.several else 4
    for _ in range(12):
        back, draft = 0 if bench.at_place or bench.several else random.randint(0, 5), list[int]()
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
        text += [*draft[: random.randint(0, len(draft))], random.randrange(255)]
        for each in (fresh_heads, fresh_target):
            each.close()
    heads.close()
    target.close()


def test_what_they_propose_depends_on_the_text_alone(bench: Bench) -> None:
    for seed in range(3):
        check_drafts(bench, seed)


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
            at, none = np.arange(count), np.zeros(count)
            places = np.array([none, at // 4, at % 4, none], np.int32)
            moves = np.array([[1] * count] * 3 + [[0] * count], np.int32)
        return MediaChunk(rows.astype(np.float32), causal=True, places=places, moves=moves)


@of_followers
def test_beside_a_picture_they_follow_the_rows_of_the_target(bench: Bench) -> None:
    bench.encoder = RandomEncoder(bench.target)
    picture = media_ids("a picture", 20, 5 if bench.encoder.mrope else 20)
    for seed in range(2):
        check_drafts(bench, seed, picture=picture)


@of_followers
def test_of_a_long_text_they_begin_with_so_many_tokens_and_go_on_from_there(bench: Bench) -> None:
    text = text_of(Random(3), 90)
    target, _, own = bench.made(text)
    own.fresh = 16

    def evaluated(rows: int) -> int:
        missing = len(text) - int(own.common_prefix(text))
        assert not np.isnan(own.logits(text, rows=rows)).any()
        return missing

    assert evaluated(1 if bench.several else 4) == 16
    text.append(7)
    target.logits(text, rows=1)
    assert evaluated(1) <= 2
    text += text_of(Random(4), 40)
    target.prefill(text[:-1])
    assert evaluated(1) == 16, "they begin again where they would lag further"


def test_in_chunks_they_evaluate_what_was_due(bench: Bench) -> None:
    text, rows = text_of(Random(5), 150), 1 if bench.at_place or bench.several else 3
    _, heads, own = bench.made(text)
    own.fresh = 48
    expected = own.logits(text, rows).copy()
    own.truncate(0)
    evaluated, decode = list[int](), heads.native.decode

    def counted(parts: Sequence[Part]) -> None:
        evaluated.extend(token for part in parts for token in part.tokens)
        decode(parts)

    heads.native.decode = counted
    request = Pass(Role.DRAFT_MODEL, text, rows)
    due = rows + (0 if bench.kind.shares_cache else own.fresh)
    assert heads.missing(0, request) == due
    while (missing := heads.missing(0, request)) > 16:
        heads.evaluate(0, request, 16)
        assert heads.missing(0, request) < missing
    (logits,) = heads.together([(0, request)])
    assert bench.at_place or {*evaluated} == {*text[-due:]}
    assert bench.at_place or bench.several or evaluated == text[-due:]
    np.testing.assert_allclose(logits, expected, atol=0.15, rtol=0)


@of_followers
def test_rows_stay_of_the_latest_tokens(bench: Bench, monkeypatch: Patch) -> None:
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
    assert (own.knows(text), own.knows(text[:41])) == (False, True)
    target.prefill(text)
    assert own.knows(text)
    assert not own.knows([*text[:50], 1, *text[51:]])
    if bench.at_place:
        with pytest.raises(PassFailed, match="has not computed"):
            own.logits([*text, 1, 2], rows=1)


def test_rows_of_another_text_are_none_of_what_was_copied_or_put_back() -> None:
    rows, texts = TargetRows(), ([1, 2, 3], [1, 9, 3, 4])
    computed = np.zeros((3, 1), np.float32)
    rows.add(Part(0, texts[0], 0, 0), computed, lambda _: [])
    rows.add(Part(0, texts[1][2:], 2, 0), computed[:2], lambda place: texts[1][place:2])
    assert (rows.begin, rows.end(texts[1])) == (2, 4)


def test_a_blank_or_cancelled_pass_and_closed_heads_leave_nothing(bench: Bench) -> None:
    cancel, text = CancelFlag(), text_of(Random(1), 60)
    target, heads, own = bench.made(text, cancel)
    expected = own.logits(text, rows=1).copy()
    cancel.set()
    own.truncate(0)
    with pytest.raises(Cancelled):
        own.logits(text, rows=1)
    cancel.clear()
    for blank in ((), (1, 3, 16)):
        for width in blank:
            heads.blank_pass(width)
        np.testing.assert_allclose(own.logits(text, rows=1), expected, atol=1e-4)
    heads.close()
    heads.close()
    alone = LlamaContext(bench.target)
    alone.prefill(text[:-1])
    row = target.logits(text, rows=1).copy()
    np.testing.assert_allclose(row, alone.logits(text, rows=1), atol=OTHER_STATE)


Alone = dict[int, tuple[LlamaContext, Any, Any]]


def drafted_together(
    bench: Bench,
    heads: Any,
    cancel: CancelFlag,
    random: Random,
    texts: list[list[int]],
    alone: Alone,
) -> dict[int, list[int]]:
    """Let heads of several texts draft a token of each in turn; assert that they draft what each would alone."""
    drafts: dict[int, list[int]] = {slot: [] for slot in alone}
    for _ in range(random.randint(0, min(3, heads.views[0].longest))):
        asked = [(slot, Pass(Role.DRAFT_MODEL, [*texts[slot], *drafts[slot]], 1)) for slot in alone]
        for joint in [[each] for each in asked] if bench.at_place else [asked]:
            if random.random() < 0.2:
                cancel.set()  # the scheduler asks again for those beside a cancelled one
                stopped: Any = suppress if bench.at_place else pytest.raises
                with stopped(Cancelled):
                    heads.together(joint)
                cancel.clear()
            for (slot, request), row in zip(joint, heads.together(joint), strict=True):
                expected, close = alone[slot][2].logits(request.tokens, rows=1), bench.close_to
                np.testing.assert_allclose(row, expected, atol=close, rtol=0)
                drafts[slot].append(int(row[-1].argmax()))
    return drafts


def check_several_at_once(bench: Bench) -> None:
    """Assert that targets and heads are each as alone, in any order: cut back, begun anew, idle for a while, cancelled."""
    random, cancel = Random(6), CancelFlag()
    targets = LlamaSequences(bench.target, cancel, OPTIONS, 4, 32)
    heads = bench.of(targets.views, cancel)
    texts = [text_of(random, random.choice((20, 40, 70))) for _ in range(4)]
    for _ in range(14):
        running = random.sample(range(4), random.randint(1, 4))
        targets.compact(running)
        for slot in running:
            if random.random() < 0.15:
                texts[slot] = text_of(random, random.choice((20, 40, 70)))
            targets.views[slot].prefill(texts[slot][:-1])
        alone = {slot: bench.made(texts[slot]) for slot in running}
        drafts = drafted_together(bench, heads, cancel, random, texts, alone)
        # Heads of a place would see how joint passes of the target round.
        asked = [
            (slot, Pass(Role.TARGET, [*texts[slot], *drafts[slot]], len(drafts[slot]) + 1))
            for slot in running
            if not bench.at_place
        ]
        for (slot, request), rows in zip(
            asked, targets.together(asked) if asked else [], strict=True
        ):
            expected = alone[slot][0].logits(request.tokens, request.rows)
            np.testing.assert_allclose(rows, expected, atol=OTHER_STATE, rtol=0)
        for slot in running:
            kept = drafts[slot][: random.randint(0, len(drafts[slot]))]
            # Not what the target has computed: heads alone would not know it.
            following = random.choice([each for each in range(255) if each not in drafts[slot]])
            texts[slot] = [*texts[slot], *kept, following]
            for each in alone[slot][1::-1]:
                each.close()
    heads.close()
    targets.close()


def test_several_at_once_are_each_as_alone(bench: Bench) -> None:
    check_several_at_once(bench)


H, B = HeadSequence, _BlockPlace
FUNCTIONS: tuple[Callable[..., Any], ...] = (
    H.common_prefix,
    H._before,
    H._step,
    H.evaluated,
    H._catch_up,
    H.last_step,
    TargetRows.end,
)
FUNCTIONS += (TargetRows.add, _Place.logits, B.prefill, B._draft, _AssistantPlace._row)
BUGS = table_of(__file__, "heads", *FUNCTIONS)
BUGS_OF_SEVERAL = table_of(__file__, "heads of several", *FUNCTIONS)


@pytest.mark.parametrize("bug", [*BUGS, *BUGS_OF_SEVERAL], ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught(bug: Bug, tmp_path: Path, monkeypatch: Patch) -> None:
    bench = Bench(written(bug.name.partition(":")[0], tmp_path))
    plant(monkeypatch, bug)
    with pytest.raises((AssertionError, PassFailed, IndexError)):  # noqa: PT012
        if bug in BUGS_OF_SEVERAL:
            check_several_at_once(bench)
        else:
            for seed in range(8):
                check_drafts(bench, seed, 0.15 if bench.at_place else 0.01)
    bench.close()


def mixed_rows(view: HeadSequence, begin: int, end: int) -> list[Rows]:
    """Return the rows of the sequence before a view's, where it has as many."""
    both = (view, view._heads.views[view.number - 1])
    own, theirs = (each._target.rows(begin, end) for each in both)
    return theirs if len(theirs) == len(own) else own


def test_rows_of_several_are_not_mixed_up(tmp_path: Path, monkeypatch: Patch) -> None:
    """Heads whose logits differ by 5 and more where a row is another's; usually the token outweighs it."""
    target, heads = tmp_path / "target.gguf", tmp_path / "heads.gguf"
    bench = Bench(Files("", write_llama(target, COUNTS), write_eagle3(heads, 0.3)))
    check_several_at_once(bench)
    bug = Bug("", H._before, "call rows", "mixed(self, start + zeros - 1, settled - 1)")
    plant(monkeypatch, bug, {"mixed": mixed_rows})
    with pytest.raises(AssertionError):
        check_several_at_once(bench)
    bench.close()


@pytest.mark.parametrize("kind", BLOCKS)
def test_a_block_takes_one_pass_and_follows_the_circle_of_eight(kind: str, tmp_path: Path) -> None:
    bench = Bench(written(kind, tmp_path))
    text = [64 + place % 8 for place in range(41)]
    _, heads, view = bench.made(text)
    passes, decode = list[int](), heads.native.decode

    def counted(parts: Sequence[Part]) -> None:
        passes.append(len(parts[0].tokens))
        decode(parts)

    heads.native.decode = counted
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
    bench = Bench(written("dflash2", tmp_path))
    text = text_of(Random(2), 40)
    _, _, view = bench.made(text)
    candidates = np.flatnonzero(view.logits(text, rows=1)[0] > -np.inf)
    rows = [view.logits([*text, int(token)], rows=1)[0] for token in candidates]
    assert len(candidates) == 4
    for row in rows[1:]:
        assert ((row > -np.inf) == (rows[0] > -np.inf)).all()
        assert not np.array_equal(row, rows[0])
    bench.close()


def opened(target: Path, draft: str = "auto", parallel: int = 1, **more: Any) -> Runtime:
    options: dict[str, Any] = {"load": SMALL, "fit": False, **more}
    launch = LaunchOptions(target=str(target), draft=draft, **options)
    return load(make_plan(launch, parallel=parallel))


@pytest.mark.first(3)
def test_drafting_changes_no_byte(files: Files, monkeypatch: Patch) -> None:
    """One answer and three at a time; some of what is drafted is accepted."""
    _, target, heads = files
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(target.parent))  # measurements stay
    if heads is None and (reason := why_no_mtp(read_header(target), exact=True)) is not None:
        assert "--exact rules that out" in reason  # as it is, and not for another reason
        plan = make_plan(LaunchOptions(target=str(target), draft="auto", exact=True, fit=False))
        assert plan.heads is None
        return
    options = ReplyOptions(SamplingParams(temperature=0.8, top_k=5), seed=1, max_tokens=80)
    prompts = [
        (Message.user(f"abc and so on, and {end}"),) for end in ("more", "then", "no more", "x")
    ]
    requests = [Request(at, each, options, deterministic=True) for at, each in enumerate(prompts)]
    texts, accepted, drafted = [set[tuple[int, ...]]() for _ in prompts], 0, 0
    named = {"draft_model": str(heads)} if heads else {}
    ways = ("off", 1), ("heads:2", 1), ("heads:7", 1), ("auto", 1), ("heads:3", 3)
    for draft, parallel in ways:
        assistant = opened(target, draft, parallel, exact=True, **named).assistant
        for at, reply in replies(assistant, requests).items():
            texts[at].add(reply.tokens)
            if done := reply.acceptance.by_drafter.get("heads"):
                accepted, drafted = accepted + done.accepted, drafted + done.drafted
        assistant.close()
    assert [len(each) for each in texts] == [1] * len(prompts)
    assert drafted > accepted > 0


def fails_with(error: Exception) -> Callable[..., None]:
    def fails(*_: object) -> None:
        raise error

    return fails


def check_answers(runtime: Runtime, word: str) -> None:
    """See that a target answers, and says in one line why its heads do not draft."""
    assert runtime.assistant.reply("abc", ReplyOptions(seed=1, max_tokens=8)).tokens
    notes = [each for each in runtime.assistant.notes if word in each]
    assert notes
    assert "\n" not in notes[0]
    runtime.assistant.close()


@pytest.mark.parametrize(
    ("lacking", "word"), [(True, "not in the file"), (False, "the heads do not draft: no such")]
)
def test_unusable_heads(lacking: bool, word: str, tmp_path: Path, monkeypatch: Patch) -> None:
    path = tmp_path / "target.gguf"
    target = write_qwen35(path, COUNTS, mtp=int(not lacking), lacking=int(lacking))
    monkeypatch.setattr(heads_module, "follow", fails_with(ModelLoadError("no such function")))
    check_answers(opened(target), word)
    with pytest.raises((UsageError, ModelLoadError)) as raised:
        opened(target, "heads")
    assert "\n" not in str(raised.value)
    if lacking:  # nor does a draft model's lack keep its target from answering
        large = write_llama(tmp_path / "large.gguf", COUNTS)
        check_answers(opened(large, draft_model=str(target), fit=True), "recurrent state")


def test_heads_that_fail_while_measured_are_left_out(tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    target = write_qwen35(tmp_path / "target.gguf", COUNTS, mtp=1)
    monkeypatch.setattr(LlamaHeads, "blank_pass", fails_with(PassFailed("no memory for a pass")))
    check_answers(opened(target), "no memory for a pass")
    with pytest.raises(PassFailed):
        opened(target, "heads", further=("auto",))


@pytest.mark.parametrize("parallel", [1, 3])
def test_auto_drafts_by_heads_and_lookup(parallel: int, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    wide = PassCosts((1, 2, 4, 8, 16, 32), (0.01, 0.0105, 0.011, 0.012, 0.014, 0.016))
    costs = PairCosts(wide, PassCosts((1, 16), (0.0008, 0.0015)))
    monkeypatch.setattr(loading._Loading, "_with_heads", lambda *_: costs)
    target = write_qwen35(tmp_path / "target.gguf", COUNTS, mtp=1)
    assistant = opened(target, parallel=parallel, fit=True).assistant
    drafted = []
    for seed in range(4):
        options = ReplyOptions(SamplingParams(temperature=0.8, top_k=5), seed=seed, max_tokens=120)
        by_drafter = assistant.reply(f"abc and so on {seed}", options).acceptance.by_drafter
        drafted.append({name for name, done in by_drafter.items() if done.accepted})
    assistant.close()
    assert {"heads", "lookup"} in drafted


@pytest.mark.parametrize("parallel", [1, 3])
def test_heads_not_worth_it_are_let_go(parallel: int, tmp_path: Path, monkeypatch: Patch) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    pays = "localspec.plan.payoff.draft_model_could_win"
    monkeypatch.setattr(pays, lambda costs, *_: costs.draft_model is None)
    target = write_qwen35(tmp_path / "target.gguf", COUNTS, mtp=1)
    launch = LaunchOptions(target=str(target), fit=False, load=replace(SMALL, n_ctx=256))
    for planned in (Heads(), None):
        plan = make_plan(launch, parallel=parallel)
        assert plan.heads == planned
        runtime = load(plan)
        assert runtime.assistant.models.draft_models is None
        assert runtime.target.native.on_pass is None
        assert runtime.costs is not None
        assert runtime.costs.draft_model is not None
        assert runtime.assistant.reply("abc", ReplyOptions(seed=1, max_tokens=5)).tokens
        runtime.assistant.close()


@pytest.mark.weights
def test_real_rows_change_by_no_bit(smollm2: LlamaModel, tokens: list[int], tmp_path: Path) -> None:
    layers = (2, 15, 27)
    file = write_eagle3(tmp_path / "heads.gguf", target=smollm2.path, layers=layers)
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
