"""A head made of a small model, as llama.cpp computes it, used by its pair; nothing half made is used."""

import errno
import os
import re
import signal
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner
from localspec_student import __main__ as command
from localspec_student.recipe import MakeFlags, Recipe
from msgspec import structs

from localspec.chat.assistant import Assistant
from localspec.chat.events import Finished
from localspec.cli.stats import stats
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.costs import AT_BEST
from localspec.errors import LocalspecError, PairMismatch, UsageError
from localspec.launch.load import load
from localspec.launch.observe import Telemetry
from localspec.llama.heads import LlamaHeads
from localspec.llama.model import LlamaModel
from localspec.llama.quantize import quantise
from localspec.llama.sequence import LlamaContext
from localspec.llama.target_rows import follow
from localspec.models.gguf import read_header
from localspec.models.ledger import TAILORED
from localspec.models.registry import Registry, load_registry
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from localspec.plan.make import make_plan
from localspec.plugins.bench.prompts import BenchPrompt, bundled
from localspec.plugins.tailor.lessons import RecordedReply, own_lessons
from localspec.plugins.tailor.tailor import tailoring_job
from tests import warm
from tests.llama.tiny_llama import N_EMBD, write
from tests.plugins.tailor.replies import add_marked, record

pytestmark = pytest.mark.slow
torch = pytest.importorskip("torch")
pytest.importorskip("gguf")
from localspec_student import make as making  # noqa: E402 - needs torch
from localspec_student import train  # noqa: E402
from localspec_student.collect import Talk, made_prompt, read_talks  # noqa: E402
from localspec_student.head import Head, Target, new_weights, write_head  # noqa: E402
from localspec_student.make import Making  # noqa: E402
from localspec_student.train import Trainer  # noqa: E402

OPTIONS = LoadOptions(n_ctx=1024, threads=1, gpu_layers=0)
RECIPE = Recipe(tokens=900, epochs=1, depths=2, ids=200, batch=1000)
ANSWERS = {"code": ["def f(): pass"], "chat": ["It is late."], "creative": ["Once."]}
OWN = {f"held:own{n}": BenchPrompt("own", f"What is {n}?") for n in range(2)}


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a pair of one small model, whose answers are short."""
    torch.set_num_threads(1)
    own = tmp_path / "settings"
    own.mkdir()
    model = tmp_path / "tiny.gguf"
    quantise(
        write(tmp_path / "f32.gguf"), model
    )  # of F32, no wider pass has the bits of a narrow one
    (own / "models.toml").write_text(f'[pairs.tiny]\ntarget = "{model}"\n')
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(own))
    monkeypatch.setattr("localspec_student.collect._ANSWER", 24)
    monkeypatch.setattr("localspec_student.make.per_workload", lambda *_: [])
    return tmp_path / "data"


def job_of(cancel: CancelFlag | None = None, **wanted: Any) -> Making:
    launch = LaunchOptions(draft="off", load=OPTIONS, fit=False)
    job = tailoring_job("tiny", launch)
    flags = MakeFlags(**wanted)
    return Making(job, RECIPE, flags, OWN, cancel or CancelFlag(), lambda _: None)


def student() -> str | None:
    """Return the draft model of the pair."""
    return load_registry().pairs["tiny"].draft_model


def text_with(draft: str, *, exact: bool = False) -> tuple[int, ...]:
    options = LaunchOptions(pair="tiny", draft=draft, load=OPTIONS, fit=False, exact=exact)
    telemetry = Telemetry()
    runtime = load(make_plan(options), observe=telemetry.observe)
    reply = ReplyOptions(SamplingParams(temperature=0.9), seed=3, max_tokens=40)
    answer = runtime.assistant.reply("Hello", reply)
    runtime.assistant.close()
    telemetry.close()
    assert (answer.acceptance.drafted > 0) is (draft != "off")
    return tuple(answer.tokens)


def test_a_head_is_made_registered_trained_on_and_forgotten(
    data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = text_with("off", exact=True)
    job_of().make()
    said = capsys.readouterr().out
    assert "tiny: about" in said
    assert "tokens a round" in said
    assert "tiny now drafts with tiny-student" in said
    assert student() == "tiny-student"
    plan = make_plan(LaunchOptions(pair="tiny", draft="auto", load=OPTIONS, fit=False))
    assert plan.heads is not None
    assert plan.heads.layers == (1, 1, 1)
    best = max(map(float, re.findall(r"^  own +(\S+)", said, re.MULTILINE)))
    assert plan.heads.accepted == pytest.approx(best - 1, abs=0.006)
    weighed = load(plan)
    assert weighed.costs is not None
    accepted = plan.heads.accepted
    assert accepted is not None
    assert weighed.costs.at_best == pytest.approx(min(AT_BEST, accepted + 0.1))
    weighed.assistant.close()
    monkeypatch.setenv("LOCALSPEC_TELEMETRY", "on")
    text_with("heads:3")
    told = CliRunner().invoke(stats, []).output
    assert "tiny-student: trained here for pair tiny: " in told
    assert "trained on 900 tokens, on held-out prompts, 20" in told
    assert re.search(r"since 20.*: \d\.\d\d tokens a round in \d+ rounds; ", told)
    monkeypatch.setenv("LOCALSPEC_TELEMETRY", "off")
    # One that learns nothing from there is no better, and does not replace it.
    lazy = replace(job_of(again=True), recipe=replace(RECIPE, rate=0.0))
    lazy.make()
    assert "and stays" in capsys.readouterr().out
    again = replace(job_of(again=True), recipe=replace(RECIPE, rate=3e-3, epochs=8))
    again.make()
    assert "trained on 1,800 tokens; tiny now drafts" in capsys.readouterr().out
    assert text_with("heads:3", exact=True) == before
    assert len([*(data / "blobs").iterdir()]) == 1
    assert "deleted" in CliRunner().invoke(command.student, ["forget", "tiny"]).output
    assert [*(data / "student").iterdir()] == []
    assert student() == "tiny-student"
    with pytest.raises(UsageError, match="no head of tiny yet"):
        job_of(again=True).make()


def test_prompts_are_of_six_kinds_without_end_and_none_is_held_out() -> None:
    prompts = [made_prompt(number, ANSWERS) for number in range(2400)]
    kinds = ["code", "edit", "chat", "summarise", "extract", "creative"]
    assert [each.workload for each in prompts[:6]] == kinds
    texts = {each.prompt for each in prompts}
    assert len(texts) > 700
    assert not texts & {each.prompt for each in bundled()}
    assert not [each for each in texts if "{" in each.replace('{"', "")]
    assert prompts == [made_prompt(number, ANSWERS) for number in range(2400)]
    # Before there are answers, there is nothing to change.
    assert made_prompt(1, {}).workload == "code"


def test_what_is_noted_is_what_the_target_computes_and_half_of_the_prompts_are_its_own(
    data: Path, tmp_path: Path
) -> None:
    write(tmp_path / "tiny.gguf")  # of F32: passes of other widths differ in the last bits alone
    replace(job_of(), recipe=replace(RECIPE, tokens=9000)).make()
    (folder,) = (data / "student").iterdir()
    talks = [*read_talks(folder)]
    model = LlamaModel(tmp_path / "tiny.gguf", OPTIONS)
    context, target = LlamaContext(model, options=OPTIONS), Target(tmp_path / "tiny.gguf", "tiny")
    (latest,) = follow([context], target.layers)
    for talk in talks[:12]:
        context.forget()
        context.prefill(talk.tokens)
        rows = np.stack(latest.rows(0, len(talk.tokens)))
        np.testing.assert_allclose(talk.noted["row"], rows, rtol=2e-2, atol=2e-2)
        likeliest, at = talk.noted["ids"][:, 0], talk.n_prompt - 1
        assert likeliest[:at].tolist() == talk.tokens[1 : at + 1]
        if talk.is_held_out:
            assert likeliest[at:-1].tolist() == talk.tokens[at + 1 :]
        assert np.exp(talk.noted["logs"].astype(float)).sum(1).max() <= 1.01
    asked = [tuple(each.tokens[: each.n_prompt]) for each in talks if each.kind == "asked"]
    assert len(asked) > len(talks) // 4
    assert len({*asked}) > len(asked) // 2
    model.close()


def test_an_answer_that_ends_at_once_is_collected_as_well(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, turn = Assistant.take, count()

    def some_ended_at_once(assistant: Assistant) -> list[Any]:
        events = list[Any]()
        for number, event in take(assistant):
            if isinstance(event, Finished) and next(turn) % 2:
                empty = replace(event.reply, tokens=())
                events.append((number, structs.replace(event, reply=empty)))
            else:
                events.append((number, event))
        return events

    monkeypatch.setattr(Assistant, "take", some_ended_at_once)
    replace(job_of(), recipe=replace(RECIPE, batch=1)).make()  # of one answer a step
    (folder,) = (data / "student").iterdir()
    short = [each for each in read_talks(folder) if len(each.tokens) < each.n_prompt]
    assert short != []
    for talk in short:
        assert talk.noted["ids"][:-1, 0].tolist() == talk.tokens[1:]


@pytest.mark.parametrize(("block", "alike"), [(32, 0.999), (7, 0.99999)])
def test_torch_and_llama_cpp_compute_the_same_head(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, block: int, alike: float
) -> None:
    """As the file is written, and with weights of 32 bits, as blocks of seven do not divide rows."""
    write(tmp_path / "tiny.gguf")  # of F32: its own rounding is not what is compared
    target, random = Target(tmp_path / "tiny.gguf", "tiny"), np.random.default_rng(1)
    ids, text = np.arange(0, 250, 2), random.integers(0, 256, 4).tolist()
    sample = random.normal(size=(30, 3 * N_EMBD)).astype(np.float32)
    weights = new_weights(target, ids, sample)
    for name in ("q", "k"):  # flatter, so that all places count
        weights[name] *= 0.5
    monkeypatch.setattr("localspec_student.head._BLOCK", block)
    state = {"weights": weights, "ids": torch.from_numpy(ids)}
    write_head(target, state, tmp_path / "head.gguf", 0.5)
    model = LlamaModel(tmp_path / "tiny.gguf", OPTIONS)
    head = LlamaModel(tmp_path / "head.gguf", OPTIONS, is_heads=True)
    context = LlamaContext(model, options=OPTIONS)
    heads = LlamaHeads(head, [context], CancelFlag(), OPTIONS, target.layers)
    latest = heads.views[0]._target
    context.prefill(text)
    rows = torch.from_numpy(np.stack(latest.rows(0, len(text))))[None]
    drafted = [*text]
    for depth in range(4):
        drafted.append(int(random.integers(0, 256)))
        theirs = heads.views[0].logits(drafted, rows=1)[0, ids]
        embedded = torch.from_numpy(target.weights("token_embd"))[torch.tensor([drafted])]
        # The last of the target's rows stands before the first token that it has not computed.
        padded = torch.cat([rows, torch.zeros(1, depth + 1, 3 * N_EMBD)], 1)
        unrolled = [*Head(target, weights).unrolled(embedded, padded, depth + 1)]
        ours = Head(target, weights).logits(unrolled[depth][0, len(text) - 1]).numpy()
        assert np.corrcoef(ours, theirs)[0, 1] > alike, depth
    head.close()
    model.close()


def test_the_last_layer_is_computed_as_the_target_computes_it_or_not_at_all(
    data: Path, tmp_path: Path
) -> None:
    job_of().make()
    (folder,) = (data / "student").iterdir()
    talk = max(read_talks(folder), key=lambda each: len(each.tokens) - each.n_prompt)
    target = Target(tmp_path / "tiny.gguf", "tiny")
    assert train.right_teacher(target, talk) is not None
    other = Target(write(tmp_path / "other.gguf", seed=2), "other")
    assert train.right_teacher(other, talk) is None
    # What was given to the target says nothing of it, however wrong.
    given = replace(talk, noted=talk.noted.copy())
    given.noted["ids"][: talk.n_prompt - 1] = 0
    assert train.right_teacher(target, given) is not None
    values = {**target.header.metadata, "general.architecture": "qwen3"}
    target.header = replace(target.header, metadata=values)  # whose queries are rotated otherwise
    assert train.right_teacher(target, talk) is None


def test_a_heads_rows_come_near_to_those_of_the_target(data: Path, tmp_path: Path) -> None:
    job_of().make()
    (folder,) = (data / "student").iterdir()
    target = Target(tmp_path / "tiny.gguf", "tiny")
    talks = [each for each in read_talks(folder) if len(each.tokens) > each.n_prompt + 1]
    longest = max(talks, key=lambda each: len(each.tokens) - each.n_prompt)
    teacher, apart = train.right_teacher(target, longest), list[Any]()
    assert teacher is not None
    embedding = torch.from_numpy(target.weights("token_embd")).to(train.ON)
    for hidden in (0.0, 100.0):
        recipe = replace(RECIPE, hidden=hidden, epochs=40, rate=1e-2)
        trainer = Trainer(target, recipe, talks, train.new_head(target, recipe, talks, [0]))
        assert [*trainer.train()] != []
        head, squares = Head(target, trainer.state["weights"]), list[Any]()
        for talk in talks:
            rows = train.padded([talk.noted["row"]], np.float32)
            (row,) = head.unrolled(embedding[talk.tokens][None], rows, 1)
            its, mine = head.norm(teacher.outputs(rows)), head.norm(row)
            by_place = (mine - its[:, 1:], mine - its[:, :-1])  # its own place, the one before
            answers = [each.detach()[:, talk.n_prompt - 1 :] for each in by_place]
            squares.append([float(each.square().mean()) for each in answers])
        apart.append(np.mean(squares, 0))
    (alone, _), (own, before) = apart
    assert own < 0.8 * before, apart
    assert own < 0.8 * alone, apart


def test_a_target_without_hooks_is_refused(tmp_path: Path) -> None:
    from tests.models.gguf_builder import build  # noqa: PLC0415 - here alone

    path = tmp_path / "qwen2.gguf"
    path.write_bytes(build({"general.architecture": "qwen2"}, []))
    with pytest.raises(PairMismatch, match=r"big is qwen2, in which llama\.cpp has no hooks"):
        Target(path, "big")
    assert read_header(path).architecture == "qwen2"


def test_a_full_disk_is_said_beforehand_and_loses_nothing(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(making, "free_bytes", lambda _: 10)
        with pytest.raises(LocalspecError, match="of disk, and 0 MB are free"):
            job_of().make()
    with monkeypatch.context() as patch:
        patch.setattr(making, "write_head", lambda *_: raising())
        with pytest.raises(OSError, match="No space left"):
            job_of().make()
    assert student() is None
    collected = sorted((data / "student").rglob("talks-*"))
    assert collected != []
    job_of().make()
    assert sorted((data / "student").rglob("talks-*")) == collected
    assert student() == "tiny-student"


def test_own_prompts_that_come_later_are_answered_and_trained_on(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = list[list[str]]()

    class Noting(Trainer):
        def __init__(self, target: Target, recipe: Recipe, talks: Any, before: Any) -> None:
            trained.append([each.key for each in talks])
            super().__init__(target, recipe, talks, before)

    monkeypatch.setattr(train, "Trainer", Noting)
    job_of().make()
    own = {f"own:{n}": BenchPrompt("own", f"Who has {n}?") for n in range(3)}
    mine = replace(job_of(), own={**OWN, **own})
    mine.make()
    assert not {*own} & {*trained[0]}
    assert {*trained[1][:3]} == {*own}
    files = [*(data / "student").rglob("training-*.pt")]
    assert len(files) == 2
    mine.make()  # nothing is new
    assert trained[2] == trained[1]
    # Of many, no more are answered than are trained on, and those that are held out all the same.
    many = {"held:late": BenchPrompt("own", "Who was late?")}
    many |= {f"own:many{n}": BenchPrompt("own", f"Who has {n} more?") for n in range(200)}
    replace(mine, own=many).make()
    assert {*trained[3]} <= {*many}
    talks = [each.key for folder in files[:1] for each in read_talks(folder.parent)]
    assert "held:late" in talks
    assert sum(key.startswith("own:many") for key in talks) < 100


def test_again_trains_on_what_was_rejected_and_what_is_good_and_not_on_what_is_bad(
    data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = list[Talk]()

    class Noting(Trainer):
        def __init__(self, target: Target, recipe: Recipe, talks: Any, before: Any) -> None:
            trained[:] = talks
            super().__init__(target, recipe, talks, before)

    monkeypatch.setattr(train, "Trainer", Noting)
    monkeypatch.setattr("localspec.plugins.tailor.lessons._HELD_SHARE", 1000)
    record(data, "tiny.gguf", [(1, "heads", 1), (2, "heads", 0), (3, "heads", 0)])
    add_marked(data, "tiny.gguf", 2, "bad")
    add_marked(data, "tiny.gguf", 9, "good", words="ABC")
    target = load_registry().pairs["tiny"].target
    job_of().make()
    again = job_of(again=True)
    own = own_lessons(None, history=False, replies_of=target)
    replace(again, own={**OWN, **own}).make()
    mine = {each.key: each for each in trained[:3]}
    assert len(own) == 3
    assert {*mine} == {*own}
    assert {each.kind for each in mine.values()} == {"own"}
    good = mine.pop([*own][2])
    answer = bytes(good.tokens[good.n_prompt :])
    assert answer == b"ABC"
    for key, reply in [*own.items()][:2]:
        assert isinstance(reply, RecordedReply)
        assert (mine[key].n_prompt, tuple(mine[key].tokens)) == (reply.n_prompt, reply.tokens)
    # One that was marked bad since is left out, though it was collected before.
    add_marked(data, "tiny.gguf", 3, "bad")
    left = own_lessons(None, history=False, replies_of=target)
    replace(again, own={**OWN, **left}).make()
    assert {*left} < {*own}
    assert {*left} == {*own} & {each.key for each in trained}


def raising() -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_ctrl_c_stops_and_the_next_run_goes_on(data: Path) -> None:
    stops: list[Callable[[str], bool]] = [
        lambda text: "collecting" in text,
        lambda text: "training" in text,
    ]
    for stop in stops:
        cancel = CancelFlag()
        wanted = job_of(cancel)

        def draw(text: str, stop: Any = stop, cancel: CancelFlag = cancel) -> None:
            if stop(text):
                cancel.set()

        with pytest.raises(Cancelled):
            replace(wanted, draw=draw).make()
        assert student() is None
    assert [*(data / "student").rglob("training-*.pt")] != []
    job_of().make()
    assert student() == "tiny-student"


STAGES = [
    ("localspec_student.collect:Teacher", "text", 5),  # among the answers
    ("localspec_student.collect", "write_atomic", 1),  # the rows of a part
    ("localspec_student.train", "write_atomic", 1),  # what is trained
    ("torch.nn.utils", "clip_grad_norm_", 1),  # in a step
    ("localspec_student.make", "write_head", 1),
    ("gguf:GGUFWriter", "write_tensors_to_file", 1),
    ("localspec.models.store:Store", "take", 1),
    ("localspec.models.ledger:ModelLedger", "add", 1),
    ("localspec_student.train", "write_atomic", 2),  # the head to go on from
    *(("os", "replace", count) for count in (2, 5)),  # files that are written, without names
]


@pytest.mark.parametrize(
    "stage", [pytest.param(each, id=f"{each[1]}-{n}") for n, each in enumerate(STAGES)]
)
def test_killed_at_any_stage_leaves_no_head_or_a_whole_one(
    stage: tuple[str, str, int], data: Path
) -> None:
    words = tuple(map(str, stage))
    done = warm.run("tests.student.killed", words, os.environ, also="tests.student.test_making")
    assert done.returncode == -signal.SIGKILL, done.stderr.decode()
    parts = sorted((data / "student").rglob("talks-*"))
    if student() is not None:
        text_with("heads:3")
    job_of().make()
    assert {*parts} <= {*(data / "student").rglob("talks-*")}
    assert student() == "tiny-student"
    assert [*TAILORED.load(data)] == ["tiny-student"]
    assert not [*(data / "student").rglob(".*")]


def test_published_heads_are_named_before_any_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Making, "make", lambda _: None)
    assert CliRunner().invoke(command.student, ["make", "tiny"]).output == ""
    monkeypatch.setattr(Registry, "published_heads", lambda *_: ["a/b", "c/d"])
    said = CliRunner().invoke(command.student, ["make", "tiny"])
    assert said.stderr == "tiny has published heads, the better choice: a/b, c/d\n"
