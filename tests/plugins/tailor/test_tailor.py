"""Candidates made and measured on a small real model, kept, used by their pair, and removed; nothing half made is left."""

import json
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.calibration.calibrated import Calibration
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.costs import PairCosts, PassCosts
from localspec.errors import LocalspecError, ModelUnavailable
from localspec.launch.load import load
from localspec.llama.quantize import quantise
from localspec.models.entries import ModelEntry, TailoredFor
from localspec.models.gguf import read_header
from localspec.models.inventory import facts_of, inventory, plan_removal, remove
from localspec.models.ledger import TAILORED
from localspec.models.registry import load_registry
from localspec.models.store import Store
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from localspec.plan.make import make_plan
from localspec.plugins.bench.prompts import BenchPrompt
from localspec.plugins.tailor.command import _judge
from localspec.plugins.tailor.measure import speed_up
from localspec.plugins.tailor.tailor import (
    Candidate,
    Tailor,
    TailoringJob,
    Tried,
    best_of,
    candidates,
    keep,
    prunable_layers,
    tailoring_job,
    undo,
    work_folder,
)
from tests.cli.command import assert_one_complaint, localspec
from tests.llama.tiny_llama import write
from tests.llama.tiny_models import write_qwen35
from tests.models.gguf_builder import Content, Tensor, build

PROMPTS = [BenchPrompt("code", "def add(a, b):"), BenchPrompt("chat", "How are you?")]
OPTIONS = LoadOptions(n_ctx=512, threads=1, gpu_layers=0)
CHEAP = PassCosts((1, 64), (1.0, 1.1))


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a pair of one small model."""
    (tmp_path / "settings").mkdir()
    write_pair(tmp_path, write(tmp_path / "tiny.gguf"))
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "settings"))
    return tmp_path / "data"


def write_pair(folder: Path, model: Path) -> None:
    """Let the settings of a folder name a pair whose target drafts for itself."""
    pair = f'[pairs.tiny]\ntarget = "{model}"\ndraft_model = "{model}"\n'
    (folder / "settings/models.toml").write_text(pair)


@pytest.fixture
def job(data: Path) -> TailoringJob:
    return tailoring_job("tiny", LaunchOptions(draft="off", load=OPTIONS, fit=False))


@pytest.fixture
def tailor(job: TailoringJob, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tailor]:
    monkeypatch.setattr("localspec.plugins.tailor.measure.MOST_TOKENS", 24)
    known = Calibration(PairCosts(CHEAP))
    monkeypatch.setattr("localspec.plugins.tailor.tailor.calibrated", lambda *_: known)
    made = Tailor(job, CancelFlag(), lambda *_: None, lambda *_: None)
    yield made
    made.close()


def paying(tried: Tried) -> Tried:
    return replace(tried, by_kind={"code": 2.0})


def text_with(draft: str) -> tuple[int, ...]:
    plan = make_plan(LaunchOptions(pair="tiny", draft=draft, load=OPTIONS, fit=False))
    options = ReplyOptions(SamplingParams(temperature=0.9), seed=3, max_tokens=40)
    with closing(load(plan).assistant) as assistant:
        return tuple(assistant.reply("Hello", options).tokens)


def test_the_best_candidate_is_kept(tailor: Tailor, job: TailoringJob, data: Path) -> None:
    answers, before = tailor.record(PROMPTS), text_with("off")
    assert text_with("model:2") == before
    assert [each.kind for each in answers] == ["code", "chat"]
    with work_folder() as folder:
        every = candidates(job)
        # The second Q4_0 is of the target.
        recipes = ["", "all Q4_0", "all Q4_0", "its first 1 of 2 layers, Q4_0"]
        assert [each.recipe for each in every] == recipes
        itself, smaller = (tailor.measure(each, answers, folder) for each in every[:2])
        # A model agrees with itself, but for two tokens that are nearly tied.
        assert itself.agrees > 0.95
        assert list(itself.by_kind) == ["code", "chat"]
        assert 0.0 < smaller.agrees < itself.agrees
        assert smaller.step > 0
        types = {each.name: each.type_name for each in read_header(smaller.file).tensors}
        assert types["output.weight"] == types["blk.1.ffn_down.weight"] == "Q4_0"
        assert smaller.size_bytes == pytest.approx(every[1].size_bytes, rel=0.02)
        assert smaller.size_bytes < itself.size_bytes / 4
        keep(job, paying(smaller), "it was measured")
    assert not (data / "tailoring").exists()
    registry = load_registry()
    assert registry.pairs["tiny"].draft_model == "tiny-tailored"
    plan = make_plan(LaunchOptions(pair="tiny", draft="model", load=OPTIONS, fit=False))
    assert plan.draft_model is not None
    assert plan.draft_model.parent == data / "blobs"
    assert not plan.draft_model.is_symlink()
    facts = facts_of("tiny-tailored", registry, Store(data))
    assert "all Q4_0, for pair tiny: it was measured" in str(facts["made of"])
    # The next run tailors what this one replaced.
    assert tailoring_job("tiny", LaunchOptions()).pair.draft_model != "tiny-tailored"
    assert text_with("off") == text_with("model:2") == before
    with work_folder() as folder:  # the target's first layers
        made = tailor.measure(every[-1], answers, folder)
        header = read_header(made.file)
        assert header.number("llama.block_count") == 1
        assert {each.name.split(".")[1] for each in header.tensors if "blk" in each.name} == {"0"}
        assert made.size_bytes == pytest.approx(made.candidate.size_bytes, rel=0.02)
        keep(job, paying(made), "it was measured")
    assert text_with("model:2") == before


def test_a_draft_model_that_lacks_the_mtp_layers_of_its_header_is_measured(
    tailor: Tailor, job: TailoringJob, data: Path
) -> None:
    model = write_qwen35(data.parent / "lacking.gguf", lacking=1)
    itself, *made = candidates(replace(job, draft_model=model))
    with work_folder() as folder:
        for each in (itself, made[0]):
            assert tailor.measure(each, tailor.record(PROMPTS[:1]), folder).step > 0


def test_a_target_of_few_bits_gives_its_layers_as_they_are(job: TailoringJob, data: Path) -> None:
    made, first = data.parent / "made.gguf", data.parent / "first.gguf"
    quantise(data.parent / "tiny.gguf", made)
    same = candidates(replace(job, target=made, draft_model=made))
    assert [each.recipe for each in same] == ["", "its first 1 of 2 layers"], "no file twice"
    (candidate,) = candidates(replace(job, target=made, draft_model=None))
    assert (candidate.recipe, candidate.made) == ("its first 1 of 2 layers", None)
    quantise(made, first, None, candidate.left_out)
    before, after = ({e.name: e.type_name for e in read_header(f).tensors} for f in (made, first))
    assert after == {name: kind for name, kind in before.items() if "blk.1" not in name}


def test_layers_may_be_left_out_where_all_are_alike(tmp_path: Path) -> None:
    parts = ("attn_output.weight", "ffn_down.weight")
    tensors = [Tensor(f"blk.{layer}.{part}", (8, 4)) for layer in (0, 1) for part in parts]
    file = tmp_path / "model.gguf"
    usual: dict[str, Content] = {"llama.block_count": 2, "llama4.block_count": 2}
    cases: list[tuple[str, dict[str, Content], bool]] = [
        ("llama", {}, True),
        ("llama4", {}, False),  # depends on the number of a layer
        ("llama", {"llama.attention.head_count_kv": [2, 1]}, False),  # one number for each
    ]
    for architecture, changes, separable in cases:
        values = {"general.architecture": architecture, **usual, **changes}
        file.write_bytes(build(values, tensors, data_bytes=128))
        assert (prunable_layers(read_header(file)) == 2) is separable


def test_of_the_files_made_only_the_best_is_left_and_none_where_there_is_no_room(
    tailor: Tailor, job: TailoringJob, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, refused = tailor.record(PROMPTS[:1]), list[str]()

    def refuse(_: Candidate, error: LocalspecError) -> None:
        refused.append(str(error))

    with work_folder() as folder:
        tried = tailor.measure_all(candidates(job), answers, folder, refuse)
        best = best_of(tried)
        assert list(folder.iterdir()) == ([] if best is None else [best.file])
        assert (len(tried), refused) == (4, [])
    monkeypatch.setattr("localspec.plugins.tailor.tailor.free_ram_bytes", lambda: 1000)
    with work_folder() as folder:
        assert tailor.measure_all(candidates(job), answers, folder, refuse) == []
    assert len(refused) == 4
    assert all("of memory, and 0 MB are free" in each for each in refused)
    monkeypatch.setattr("shutil.disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with work_folder() as folder:
        with pytest.raises(LocalspecError, match="make room"):
            tailor.measure(candidates(job)[1], [], folder)
        assert list(folder.iterdir()) == []


def kept(data: Path) -> str:
    """Give the pair a tailored draft model; return its sha256."""
    data.mkdir(exist_ok=True)
    (data / "made").write_bytes(b"a tailored model")
    path = Store(data).take(data / "made")
    reference = load_registry(tailored=False).pairs["tiny"].target
    made = TailoredFor("tiny", reference, reference)
    TAILORED.add(
        data,
        "tiny-tailored",
        ModelEntry("tiny-tailored", 16, path.name, origin="it earns", tailored=made),
    )
    return path.name


def test_heads_of_a_pair_are_not_tailored(data: Path) -> None:
    own = data.parent / "settings" / "models.toml"
    file = '[models.h]\nrepo = "a/h"\nfile = "h.gguf"\n'
    heads = 'heads = { kind = "eagle3", source = "a test", date = "2026-11" }\n'
    own.write_text(own.read_text().replace("draft_model", 'draft_model = "h" #') + file + heads)
    job = tailoring_job("tiny", LaunchOptions())
    assert (job.pair.draft_model, job.draft_model) == ("h", None)


def test_undo_and_rm_remove_entry_and_file(data: Path) -> None:
    sha256 = kept(data)
    assert load_registry().pairs["tiny"].draft_model == "tiny-tailored"
    done = localspec("tailor", "--undo", "tiny")
    assert done.code == 0, done.err
    assert done.out.startswith("removed tiny-tailored")
    assert not (data / "blobs" / sha256).exists()
    target = load_registry().pairs["tiny"].target
    assert load_registry().pairs["tiny"].draft_model == target
    with pytest.raises(ModelUnavailable, match="nothing was tailored for tiny"):
        undo("tiny")
    kept(data)
    assert tailoring_job(target, LaunchOptions()).pair.name == "tiny"
    assert undo(target)[0].name == "tiny-tailored", "a pair is named by its target too"
    kept(data)
    store, registry = Store(data), load_registry()
    assert [each.name for each in inventory(registry, store)] == ["tiny-tailored"]
    assert remove(plan_removal(["tiny-tailored"], registry, store), store) > 0
    assert inventory(load_registry(), store) == []
    assert "tiny" not in (data / "tailored.toml").read_text()


@pytest.mark.parametrize("change", ["its file is gone", "the pair is another"])
def test_a_pair_without_a_made_one_has_its_own_draft_model(data: Path, change: str) -> None:
    sha256 = kept(data)
    if change == "its file is gone":
        (data / "blobs" / sha256).unlink()
    else:
        write_pair(data.parent, write(data.parent / "other.gguf", seed=2))
    pair_now = load_registry().pairs["tiny"]
    assert pair_now.draft_model == pair_now.target
    assert "tiny-tailored" not in load_registry().models
    undo("tiny")  # takes the entry out nevertheless
    assert not (data / "blobs" / sha256).exists()


def test_damage_is_set_aside_and_one_process_tailors_at_a_time(data: Path) -> None:
    kept(data)
    (data / "tailored.toml").write_text('[pairs.tiny]\ntarget = "x"\n')
    done = localspec("list")
    assert done.code == 0
    assert "tailored.toml is now tailored.toml.damaged (" in done.err
    assert "tailor again" in done.err
    assert localspec("list").err == ""
    (data / "tailoring").mkdir(parents=True)
    (data / "tailoring" / "0.gguf").write_bytes(b"left by a process that was killed")
    with suppress(Cancelled), work_folder() as folder:
        assert list(folder.iterdir()) == []
        (folder / "0.gguf").write_bytes(b"half made")
        with pytest.raises(LocalspecError, match="is running"), work_folder():
            pass
        raise Cancelled
    assert not folder.exists()


def test_quantising_can_be_cancelled_and_names_what_is_wrong(data: Path) -> None:
    source, cancel = data.parent / "tiny.gguf", CancelFlag()
    cancel.set()
    with pytest.raises(Cancelled):
        quantise(source, data.parent / "made.gguf", cancel=cancel)
    source.write_bytes(source.read_bytes()[:5000])
    with pytest.raises(LocalspecError, match=r"cannot requantise .*tiny\.gguf \(.+\)"):
        quantise(source, data.parent / "made.gguf")


def tried(recipe: str, *by_kind: float, sure: bool = True) -> Tried:
    speeds = dict(zip(("code", "chat"), by_kind, strict=False))
    return Tried(Candidate(recipe, Path("x"), "tiny", 1), Path("x"), 1, 1.0, 0.1, speeds, sure)


def test_only_what_earns_more_than_what_is_there_is_kept(job: TailoringJob) -> None:
    own, faster = tried("", 1.2), tried("all Q4_0", 1.3)
    assert best_of([own, faster]) is faster
    for others in (
        [],
        [own, tried("all Q4_0", 1.21)],
        # Faster over all, but a tenth on no kind of text.
        [tried("", 1.0, 1.0), tried("all Q4_0", 1.05, 1.05)],
    ):
        assert best_of(others) is None
    for of_target, of_draft in ((False, True), (True, False)):
        best, result = _judge(job, [tried("all Q4_0", 1.5, sure=of_draft)], sure=of_target)
        assert best is None
        assert "other programs were busy" in result
    assert load_registry().pairs["tiny"].draft_model != "tiny-tailored"


@pytest.mark.parametrize(
    ("words", "code", "error"),
    [
        ((), 2, "no model is given or set"),
        (("--per-workload", "0", "tiny"), 2, "must be 1 or more"),
        (("nobody",), 3, "no pair 'nobody'"),
        (("qwen2.5-coder-1.5b",), 3, "is not on this machine: `localspec pull"),
    ],
)
def test_errors_are_one_line(data: Path, words: tuple[str, ...], code: int, error: str) -> None:
    done = localspec("tailor", *words)
    assert_one_complaint(done, code)
    assert error in done.err


@pytest.mark.slow
def test_the_command_prints_what_it_tried_and_leaves_nothing(data: Path) -> None:
    prompts = data.parent / "mine.jsonl"
    prompts.write_text('{"workload": "code", "prompt": "x = 1"}\n')
    flags = ("--prompts", str(prompts), "--threads", "1", "--gpu-layers", "0")
    done = localspec("tailor", "tiny", "--quiet", *flags)
    assert (done.code, done.err) == (0, "")
    assert "4 draft models to try on 1 answers; about " in done.out
    assert not (data / "tailoring").exists()


@pytest.mark.slow
@pytest.mark.weights
def test_real_models_agree_mostly(smollm2_path: Path, data: Path, tmp_path: Path) -> None:
    model, prompts = tmp_path / "smollm2.gguf", tmp_path / "mine.jsonl"
    model.symlink_to(smollm2_path)
    write_pair(tmp_path, model)
    kinds = ("code", "chat")
    lines = ({"workload": each, "prompt": f"Write a few words of {each}."} for each in kinds)
    prompts.write_text("".join(f"{json.dumps(each)}\n" for each in lines))
    flags = ("--prompts", str(prompts), "--gpu-layers", "0")
    done = localspec("tailor", "tiny", "--json", "--quiet", *flags, timeout_s=900)
    assert done.code == 0, done.err
    result = json.loads(done.out)
    itself, smaller, *_ = result["tried"]
    assert itself["agrees"] > 0.95
    assert 0.5 < smaller["agrees"] < itself["agrees"]
    assert smaller["size_bytes"] < 0.85 * itself["size_bytes"]
    assert set(smaller["speed_up_by_workload"]) == set(kinds)
    is_made = load_registry().pairs["tiny"].draft_model == "tiny-tailored"
    assert (result["kept"] is not None) == is_made


def test_answers_are_replayed_round_by_round() -> None:
    # The first token comes with the prompt. Drafts of one: the second is wrong, of the next two passes each confirms a
    # drafted token and one more, and behind each of these drafts the model has two tokens to evaluate.
    hits = [False, False, True, True, True, True]
    target = PassCosts((1, 2, 3, 32), (10.0, 11.0, 99.0, 999.0))
    found = speed_up({"code": [hits]}, target, PassCosts((1, 2), (1.0, 1.5)))["code"]
    assert found == pytest.approx(50 / ((11 + 1) + (11 + 1) + (11 + 1.5)))
    wide_is_free, draft = PassCosts((1, 64), (1.0, 1.0)), PassCosts((1, 2), (1e-9, 1e-9))
    earned = speed_up({"a": [[True] * 31], "b": [[False] * 31]}, wide_is_free, draft)
    assert earned == {"a": pytest.approx(30), "b": pytest.approx(1)}
