"""Candidates made and measured on a small real model, kept, used by their pair, and removed; nothing half made is left."""

import json
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.bench.prompts import BenchPrompt
from localspec.calibration.calibrated import Calibration
from localspec.cli.tailoring import _advise, _judge, _Said, _tried
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.costs import PairCosts, PassCosts
from localspec.errors import LocalspecError, ModelUnavailable
from localspec.launch.load import load
from localspec.launch.plan import make_plan
from localspec.llama.quantize import quantise
from localspec.models.cut_head import read_cut
from localspec.models.gguf import read_header
from localspec.models.gguf_layout import read_layout
from localspec.models.inventory import facts_of, inventory, plan_removal, remove
from localspec.models.offload import Machine, Place
from localspec.models.registry import load_registry
from localspec.models.store import Store
from localspec.models.tailored import TailoredDraft, keep_tailored
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from localspec.tailor.candidates import (
    of_draft_model,
    of_layers,
    of_target,
    requantised,
    with_adapter,
)
from localspec.tailor.job import job, undo, workshop
from localspec.tailor.making import make
from localspec.tailor.tailor import Tailor, Tried, best_of
from localspec.tailor.worth import Replayed, replayed
from tests.cli.command import assert_one_complaint, localspec
from tests.tailor.test_adapter import adapter
from tests.tailor.tiny_llama import write

PROMPTS = [BenchPrompt("code", "def add(a, b):"), BenchPrompt("chat", "How are you?")]
OPTIONS = LoadOptions(n_ctx=512, threads=1, gpu_layers=0)
CHEAP = PassCosts((1, 64), (1.0, 1.1))


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine with a pair of one small model."""
    own = tmp_path / "settings"
    own.mkdir()
    model = write(tmp_path / "tiny.gguf")
    pair = f'[pairs.tiny]\ntarget = "{model}"\ndraft_model = "{model}"\n'
    (own / "models.toml").write_text(pair)
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(own))
    return tmp_path / "data"


@pytest.fixture
def tailor(data: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Tailor]:
    monkeypatch.setattr("localspec.tailor.measure.MOST_TOKENS", 24)
    known = Calibration(PairCosts(CHEAP))
    monkeypatch.setattr("localspec.tailor.tailor.calibrated", lambda *_: known)
    request = LaunchOptions(pair="tiny", draft="off", load=OPTIONS, fit=False)
    made = Tailor(job(request), CancelFlag(), lambda *_: None, lambda *_: None)
    yield made
    made.close()


def paying(tried: Tried) -> Tried:
    """Return a candidate as if it cost nothing, on a machine whose wide passes cost nothing."""
    free = PassCosts((1, 2), (1e-6, 1e-6))
    return replace(tried, costs=free, earned=replayed(tried.hits, CHEAP, free))


def test_candidates_are_measured_and_the_kept_one_is_its_pairs_draft_model(
    tailor: Tailor, data: Path
) -> None:
    texts = tailor.recorded(PROMPTS)
    assert [each.kind for each in texts] == ["code", "chat"]
    with workshop() as folder:
        plain, made, *_ = candidates = tailor.candidates()
        assert [each.recipe for each in candidates] == [
            "",
            "all Q4_0",
            "Q4_0, head as it is",
            "head Q4_0",
            "all Q4_0, head of 128 ids",
            "all Q4_0, head of 64 ids",
            "all Q4_0",  # of the target
            "its first 1 of 2 layers, Q4_0",
        ]
        itself = tailor.tried(plain, texts, folder)
        # A model foretells itself, but for two tokens that are nearly tied.
        assert itself.agrees > 0.95
        assert {kind: len(hits[0]) for kind, hits in itself.hits.items()} == {
            each.kind: len(each.answer) for each in texts
        }
        smaller = tailor.tried(made, texts, folder)
        assert 0.0 < smaller.agrees < itself.agrees
        assert smaller.step > 0
        types = {each.name: each.type_name for each in read_header(smaller.file).tensors}
        assert types["output.weight"] == types["blk.1.ffn_down.weight"] == "Q4_0"
        assert smaller.size_bytes < plain.size_bytes / 4
        tailor.keep(paying(smaller), "it was measured")
    assert not (data / "tailoring").exists()
    registry = load_registry()
    assert registry.pairs["tiny"].draft_model == "tiny-tailored"
    plan = make_plan(LaunchOptions(pair="tiny", draft="model", load=OPTIONS, fit=False))
    assert plan.draft_model is not None
    assert plan.draft_model.parent == data / "blobs"
    assert not plan.draft_model.is_symlink()
    facts = facts_of("tiny-tailored", registry, Store(data))
    assert "all Q4_0, for pair tiny: it was measured" in str(facts["made of"])
    # What it replaced is what is tailored the next time.
    assert job(LaunchOptions(pair="tiny")).pair.draft_model != "tiny-tailored"


def test_a_cut_head_is_measured_on_texts_that_it_was_not_chosen_by(
    tailor: Tailor, data: Path
) -> None:
    texts = tailor.recorded(PROMPTS)
    candidates = {each.recipe: each for each in tailor.candidates()}
    with workshop() as folder:
        whole = tailor.tried(candidates["all Q4_0, head of 128 ids"], texts, folder)
        cut = read_cut(whole.file)
        assert cut is not None
        assert len(cut.ids) == 128
        said = {token for each in texts for token in each.answer}
        assert said <= set(cut.ids.tolist())  # what the target says comes first
        assert len(list(folder.iterdir())) == 1
        every = [hit for hits in whole.hits.values() for each in hits for hit in each]
        assert len(every) == sum(len(each.answer) for each in texts)
        tailor.keep(paying(whole), "it was measured")
    plan = make_plan(LaunchOptions(pair="tiny", draft="model:2", load=OPTIONS, fit=False))
    asked = ReplyOptions(SamplingParams(temperature=0.9), seed=3, max_tokens=40)
    plain = make_plan(LaunchOptions(pair="tiny", draft="off", load=OPTIONS, fit=False))
    texts_of = list[tuple[int, ...]]()
    for each in (plan, plain):
        runtime = load(each)
        texts_of.append(runtime.assistant.reply("Hello", asked).tokens)
        runtime.assistant.close()
    assert texts_of[0] == texts_of[1]


def test_layers_that_the_target_can_do_without_are_searched(tailor: Tailor, data: Path) -> None:
    texts = tailor.recorded(PROMPTS[:1])
    with workshop() as folder:
        (found,) = tailor.searched(texts, folder)
        assert list(folder.iterdir()) == []
        (left_out,) = found.left_out
        made = tailor.tried(found, texts, folder)
        header = read_header(made.file)
    assert header.number("llama.block_count") == 1
    assert {each.name.split(".")[1] for each in header.tensors if "blk" in each.name} == {"0"}
    which = "its first 1 of 2 layers" if left_out == 1 else "1 of 2 layers, without 0"
    assert found.recipe == f"{which}, Q4_0"


def test_a_target_of_few_bits_gives_its_layers_as_they_are(data: Path) -> None:
    made = data.parent / "made.gguf"
    quantise(data.parent / "tiny.gguf", made, {})
    (candidate,) = of_layers(made, "made", read_header(made))
    assert (candidate.recipe, candidate.made) == ("its first 1 of 2 layers", None)
    quantise(made, data.parent / "first.gguf", {}, made=None, left_out=candidate.left_out)
    before, after = (read_layout(each) for each in (made, data.parent / "first.gguf"))
    kept = [each.name for each in before.tensors if "blk.1" not in each.name]
    assert sorted(each.name for each in after.tensors) == sorted(kept)
    assert {each.type_id for each in after.tensors} == {each.type_id for each in before.tensors}


def test_an_adapter_makes_candidates_of_its_own(data: Path) -> None:
    lora = adapter(data.parent / "lora.gguf")
    source = data.parent / "tiny.gguf"
    own = list(of_draft_model(source, "tiny", read_header(source)))
    (first, *_) = found = list(with_adapter(own, lora))
    assert [each.recipe for each in found] == [
        "with lora.gguf, all Q4_0",
        "with lora.gguf, all Q4_0, head of 128 ids",
        "with lora.gguf, all Q4_0, head of 64 ids",
    ]
    (data / "tailoring").mkdir(parents=True)
    file = make(first, data / "tailoring", OPTIONS, CancelFlag())
    assert list((data / "tailoring").iterdir()) == [file]
    assert read_header(file).tensors[-1].type_name in {"Q4_0", "F32"}
    plain = make(own[1], data / "tailoring", OPTIONS, CancelFlag())
    assert plain.stat().st_size == file.stat().st_size
    assert plain.read_bytes() != file.read_bytes()


def test_what_no_memory_holds_is_not_loaded(
    tailor: Tailor, data: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    texts = tailor.recorded(PROMPTS[:1])
    little = Machine(Place("RAM", 100_000, 0))
    monkeypatch.setattr("localspec.tailor.room.free_memory", lambda _: little)
    with workshop() as folder:
        said = _Said(as_json=False)
        assert _tried(tailor, tailor.candidates()[:2], texts, folder, said) == []
        _advise(None, tailor, folder, said)
    told = capsys.readouterr().out
    assert told.count("of memory, and 0 MB are free: end other programs") == 3
    assert told.startswith("not tried: ")


def test_of_what_was_made_only_the_best_is_left(tailor: Tailor, data: Path) -> None:
    texts = tailor.recorded(PROMPTS[:1])
    with workshop() as folder:
        tried = _tried(tailor, tailor.candidates()[:4], texts, folder, _Said(as_json=False))
        best = best_of(tried)
        left = [] if best is None else [best.file]
        assert list(folder.iterdir()) == left
        assert len(tried) == 4


def test_heads_and_blocks_are_told_apart_by_name(data: Path) -> None:
    source = data.parent / "tiny.gguf"
    _, _, candidate, *_ = of_draft_model(source, "tiny", read_header(source))
    made = data.parent / "made.gguf"
    quantise(source, made, candidate.kept)
    types = {each.name: each.type_name for each in read_header(made).tensors}
    assert (types["output.weight"], types["blk.0.attn_q.weight"]) == ("F32", "Q4_0")
    assert made.stat().st_size == pytest.approx(candidate.size_bytes, rel=0.02)


def test_what_would_be_the_same_file_is_not_made_twice(data: Path) -> None:
    source = data.parent / "tiny.gguf"
    made = data.parent / "made.gguf"
    quantise(source, made, {})
    header = read_header(made)
    assert [each.recipe for each in of_draft_model(made, "made", header) if not each.n_ids] == [""]
    assert list(of_target(made, "made", header)) == []
    assert requantised(made, "made", header) is None
    assert [each.recipe for each in of_target(source, "tiny", read_header(source))] == ["all Q4_0"]


def kept(data: Path, content: bytes = b"a tailored model") -> str:
    """Give the pair a tailored draft model; return its sha256."""
    data.mkdir(exist_ok=True)
    (data / "made").write_bytes(content)
    path = Store(data).take(data / "made")
    reference = load_registry(tailored=False).pairs["tiny"].target
    made = TailoredDraft(
        pair="tiny",
        target=reference,
        replaces=reference,
        source=reference,
        source_sha256="0" * 64,
        recipe='all "Q4_0"',
        found="it earns",
        llama_cpp="0",
        size_bytes=len(content),
        sha256=path.name,
    )
    keep_tailored(made, data)
    return path.name


def test_undo_removes_entry_and_file(data: Path) -> None:
    sha256 = kept(data)
    assert load_registry().pairs["tiny"].draft_model == "tiny-tailored"
    done = localspec("tailor", "--undo", "tiny")
    assert done.code == 0, done.err
    assert done.out.startswith("removed tiny-tailored")
    assert not (data / "blobs" / sha256).exists()
    assert load_registry().pairs["tiny"].draft_model == load_registry().pairs["tiny"].target
    with pytest.raises(ModelUnavailable, match="nothing was tailored for tiny"):
        undo("tiny")


def test_rm_removes_it_too(data: Path) -> None:
    kept(data)
    store, registry = Store(data), load_registry()
    assert [each.name for each in inventory(registry, store)] == ["tiny-tailored"]
    assert remove(plan_removal(["tiny-tailored"], registry, store), store) > 0
    assert inventory(load_registry(), store) == []
    assert "tiny" not in (data / "tailored.toml").read_text()


@pytest.mark.parametrize("change", ["its file is gone", "the pair is another"])
def test_a_pair_has_its_own_draft_model_where_the_made_one_does_not_suit(
    data: Path, change: str
) -> None:
    sha256 = kept(data)
    if change == "its file is gone":
        (data / "blobs" / sha256).unlink()
    else:
        settings = data.parent / "settings/models.toml"
        other = write(data.parent / "other.gguf", seed=2)
        settings.write_text(f'[pairs.tiny]\ntarget = "{other}"\ndraft_model = "{other}"\n')
    pair = load_registry().pairs["tiny"]
    assert pair.draft_model == pair.target
    assert "tiny-tailored" not in load_registry().models
    undo("tiny")  # takes the entry out nevertheless
    assert not (data / "blobs" / sha256).exists()


def test_a_damaged_list_is_told_in_one_line(data: Path) -> None:
    kept(data)
    (data / "tailored.toml").write_text('[pairs.tiny]\ntarget = "x"\n')
    done = localspec("list")
    assert_one_complaint(done, 1)
    assert "tailor again" in done.err


def test_the_workshop_is_one_persons_and_is_cleared(data: Path) -> None:
    data.mkdir()
    (data / "tailoring").mkdir()
    (data / "tailoring" / "0.gguf").write_bytes(b"left by a process that was killed")
    with suppress(Cancelled), workshop() as folder:
        assert list(folder.iterdir()) == []
        (folder / "0.gguf").write_bytes(b"half made")
        with pytest.raises(LocalspecError, match="at work"), workshop():
            pass
        raise Cancelled
    assert not folder.exists()


def test_quantising_ends_when_it_is_told_to_and_says_why_it_cannot(data: Path) -> None:
    source = data.parent / "tiny.gguf"
    cancel = CancelFlag()
    cancel.set()
    with pytest.raises(Cancelled):
        quantise(source, data.parent / "made.gguf", {}, cancel)
    source.write_bytes(source.read_bytes()[:5000])
    with pytest.raises(LocalspecError, match=r"cannot requantise .*tiny\.gguf \(.+\)"):
        quantise(source, data.parent / "made.gguf", {})


def test_a_full_disk_is_told_before_anything_is_written(
    tailor: Tailor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("localspec.models.transfer.free_bytes", lambda _: 1000)
    with workshop() as folder:
        with pytest.raises(LocalspecError, match="make room"):
            tailor.tried(tailor.candidates()[1], [], folder)
        assert list(folder.iterdir()) == []


def test_only_what_earns_more_than_what_is_there_is_kept(tailor: Tailor) -> None:
    plain, made, *_ = tailor.candidates()
    right, wrong = {"code": [[True] * 31]}, {"code": [[False] * 31]}
    cheap, dear = PassCosts((1, 2), (0.01, 0.01)), PassCosts((1, 2), (0.3, 0.3))

    def tried(candidate: object, hits: dict[str, list[list[bool]]], costs: PassCosts) -> Tried:
        earned = replayed(hits, CHEAP, costs)
        return Tried(candidate, Path("x"), 1, hits, costs, costs.of(1), earned)  # type: ignore[arg-type]

    before, faster = tried(plain, right, dear), tried(made, right, cheap)
    assert best_of([before, faster]) is faster
    assert best_of([before, tried(made, wrong, cheap)]) is None
    assert best_of([tried(plain, right, cheap), tried(made, right, dear)]) is None
    assert best_of([]) is None


def test_what_was_measured_beside_busy_programs_keeps_nothing(
    tailor: Tailor, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tailor.costs = PairCosts(CHEAP, sure=False)
    hits, costs = {"code": [[True] * 31]}, PassCosts((1, 2), (0.01, 0.01))
    made = tailor.candidates()[1]
    tried = Tried(made, data, 1, hits, costs, 0.01, replayed(hits, CHEAP, costs))
    _judge("tiny", [tried], tailor, data, _Said(as_json=False))
    assert "nothing is kept: " in capsys.readouterr().out
    assert load_registry().pairs["tiny"].draft_model != "tiny-tailored"


def test_what_earns_more_but_no_tenth_on_any_kind_is_not_said_to_earn_no_more(
    tailor: Tailor, data: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Tailor, "otherwise", lambda *_: None)
    earned = Replayed(1.02, {"code": 1.04, "chat": 1.0})
    tried = Tried(tailor.candidates()[1], data, 1, {"code": [[True]]}, CHEAP, 0.01, earned)
    _judge("tiny", [tried], tailor, data, _Said(as_json=False))
    told = capsys.readouterr().out
    assert "no candidate earns" not in told
    assert "makes some kind of text a tenth faster" in told


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("nobody",), 3, "no pair 'nobody'"),
        (("qwen2.5-coder-1.5b",), 3, "is not on this machine: `localspec pull"),
        (("--per-workload", "0", "tiny"), 2, "must be 1 or more"),
        (("--undo", "tiny"), 3, "nothing was tailored"),
    ],
)
def test_errors_are_one_line(data: Path, words: tuple[str, ...], code: int, says: str) -> None:
    done = localspec("tailor", *words)
    assert_one_complaint(done, code)
    assert says in done.err


@pytest.mark.slow
def test_the_command_says_what_could_pay_and_leaves_nothing(data: Path) -> None:
    prompts = data.parent / "mine.jsonl"
    prompts.write_text('{"workload": "code", "prompt": "x = 1"}\n')
    flags = ("--prompts", str(prompts), "--threads", "1", "--gpu-layers", "0")
    done = localspec("tailor", "tiny", "--try", "--json", "--quiet", *flags)
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert {each["accepted"] for each in found["speed_up"]} == {0.7, 0.8, 0.9, 0.96}
    assert [each["recipe"] for each in found["tried"]][:2] == ["", "all Q4_0"]
    assert not (data / "tailoring").exists()
    assert (found["kept"] is None) == (load_registry().pairs["tiny"].draft_model != "tiny-tailored")


@pytest.mark.slow
@pytest.mark.weights
def test_a_real_model_requantised_still_foretells_most(
    smollm2_path: Path, data: Path, tmp_path: Path
) -> None:
    model = tmp_path / "smollm2.gguf"
    model.symlink_to(smollm2_path)
    pair = f'[pairs.tiny]\ntarget = "{model}"\ndraft_model = "{model}"\n'
    (tmp_path / "settings/models.toml").write_text(pair)
    flags = ("--per-workload", "1", "--gpu-layers", "0")
    done = localspec("tailor", "tiny", "--try", "--json", "--quiet", *flags, timeout_s=900)
    assert done.code == 0, done.err
    itself, smaller, *_ = json.loads(done.out)["tried"]
    assert itself["agrees"] > 0.95
    assert 0.6 < smaller["agrees"] < itself["agrees"]
    assert smaller["size_bytes"] < 0.85 * itself["size_bytes"]
    assert set(smaller["agrees_by_workload"]) == {
        "code",
        "edit",
        "chat",
        "summarise",
        "extract",
        "creative",
    }
