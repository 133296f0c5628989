"""Files with encoders: whose they are by their names, what they take by their headers, and their way with the model."""

import json
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from msgspec.structs import replace

from localspec.cli import pull as pull_verb
from localspec.errors import UsageError
from localspec.models.architectures import why_no_target
from localspec.models.entries import Medium, ModelEntry
from localspec.models.file_names import mmproj_for
from localspec.models.gguf import GgufHeader, parse_header
from localspec.models.inventory import inventory, plan_removal, remove
from localspec.models.mmproj import encoded, mmproj_of, model_that_takes, takes, why_no_mmproj
from localspec.models.pull import Wanted, fetch
from localspec.models.registry import Registry, load_registry, parse_registry
from localspec.models.shape import encoder_bytes
from localspec.models.store import Store
from localspec.options import LaunchOptions
from localspec.plan.fit import Outlook
from tests.models.gguf_builder import Content, Tensor, build, model_file, model_values
from tests.models.loopback_hub import COMMIT, loopback_hub
from tests.models.sources import add, entry_for
from tests.models.toy_machine import REPO, ToyMachine

WIDTH = 8


def target_file(pre: str = "toy-bpe") -> bytes:
    values = {**model_values(pre=pre), "toy.embedding_length": WIDTH}
    return build(values, [Tensor("weights", (8, 4))], data_bytes=128)


def mmproj_file(*media: Medium, width: int = WIDTH, **values: Content) -> bytes:
    words = {"image": "vision", "audio": "audio"}
    known: dict[str, Content] = {"general.architecture": "clip", "clip.projector_type": "gemma3"}
    for medium in media:
        known |= {f"clip.has_{words[medium]}_encoder": True}
        known |= {f"clip.{words[medium]}.projection_dim": width}
    known |= {f"clip.{key}": value for key, value in values.items()}
    return build(known, [Tensor("mm.2.weight", (4, WIDTH))], data_bytes=128)


def header(data: bytes) -> GgufHeader:
    return parse_header(data, name="toy")


SEES = mmproj_file("image")


@pytest.mark.parametrize(
    ("model", "names", "expected", "in_a_folder"),
    [
        ("gemma-Q4_K_M.gguf", "mmproj-F32.gguf mmproj-BF16.gguf mmproj-F16.gguf", "mmproj-F16.gguf", None),
        ("gemma-Q4_K_M.gguf", "mmproj-F32.gguf mmproj-BF16.gguf", "mmproj-BF16.gguf", None),
        ("M-3B-Q4_K_M.gguf", "M-3B-BF16-mmproj.gguf", "M-3B-BF16-mmproj.gguf", "M-3B-BF16-mmproj.gguf"),
        ("I-8B-Q4_K_M.gguf", "mmproj-I-2B-f16.gguf mmproj-I-8B-f16.gguf", "mmproj-I-8B-f16.gguf", "mmproj-I-8B-f16.gguf"),
        ("g-it-qat-UD-Q4_K_XL.gguf", "mmproj-g-it-f16.gguf", "mmproj-g-it-f16.gguf", "mmproj-g-it-f16.gguf"),
        ("text-model-f16.gguf", "moondream2-mmproj-f16-20250414.gguf", "moondream2-mmproj-f16-20250414.gguf", None),
        ("BF16/big-BF16-00001-of-00002.gguf", "BF16/big-BF16-00002-of-00002.gguf mmproj-Q8_0.gguf", "mmproj-Q8_0.gguf", None),
        ("gemma-Q4_K_M.gguf", "mtp-gemma.gguf imatrix.gguf mmproj.md", None, None),
    ],
)  # fmt: skip
def test_the_mmproj_of_a_model_is_chosen_by_names(
    model: str, names: str, expected: str | None, in_a_folder: str | None
) -> None:
    beside = [model, *names.split()]
    assert mmproj_for(model, beside) == expected
    assert mmproj_for(model, beside, mixed=True) == expected, "the only model there"
    beside.append("another-7B-Q4_K_M.gguf")
    assert mmproj_for(model, beside, mixed=True) == in_a_folder


@pytest.mark.parametrize(
    ("data", "media", "why"),
    [
        (SEES, ("image",), None),
        (mmproj_file("image", "audio"), ("image", "audio"), None),
        (mmproj_file("audio"), ("audio",), None),
        (mmproj_file(), (), "has no encoder"),
        (target_file(), (), "its architecture is toy"),
        (mmproj_file("image", width=16), ("image",), "for a model of width 16, and toy has width 8"),
        (mmproj_file("image", width=768, projector_type="mlp"), ("image",), None),
        (mmproj_file("image", "audio", **{"audio.projection_dim": 9}), ("image", "audio"), "width 9"),
    ],
)  # fmt: skip
def test_a_header_says_whose_it_is(data: bytes, media: tuple[Medium, ...], why: str | None) -> None:
    assert encoded(header(data)) == media
    assert bool(why_no_target(header(data))) is (data != target_file())
    reason = why_no_mmproj(header(target_file()), header(data))
    assert (reason or "") == "" if why is None else why in (reason or "")


MODEL = """
[models."toy:Q4_K_M"]
repo = "me/toy"
file = "toy-Q4_K_M.gguf"
revision = "r"
[models."toy:Q4_K_M".mmproj]
"""


def test_a_registry_names_the_file_and_what_it_takes() -> None:
    text = MODEL + 'takes = ["image"]\nfile = "mmproj-F16.gguf"\nsource = "x"\ndate = "2026-11"'
    pairs = '\n[pairs.toy]\ntarget = "toy"\ndraft = "lookup"\n'
    entry = parse_registry('default_pair = "toy"' + text + pairs, "r").model("toy")
    mmproj = entry.mmproj
    assert mmproj is not None
    assert (mmproj.takes, mmproj.source, mmproj.date) == (("image",), "x", "2026-11")
    assert mmproj.hub is not None
    assert (mmproj.hub.repo, mmproj.hub.revision) == ("me/toy", "r")
    assert (takes(entry), mmproj_of(entry)) == (("image",), None)
    for wrong, problem in (
        ('takes = ["smell"]', "smell"),
        ("takes = []", "takes"),
        ('file = "a.gguf"', "takes"),
        (f'takes = ["image"]\nsha256 = "{"0" * 64}"', "needs a file"),
    ):
        with pytest.raises(UsageError, match=problem):
            parse_registry('default_pair = "toy"' + MODEL + wrong + pairs, "r")


def test_models_that_take_it_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    of = {
        name: entry_for(name.encode() * size, name=name)
        for name, size in zip("abc", (9, 5, 7), strict=True)
    }
    sees, hears = (ModelEntry("x", takes=media) for media in (("image",), ("image", "audio")))
    models = {"a": replace(of["a"], mmproj=sees), "b": of["b"], "c": replace(of["c"], mmproj=hears)}
    registry = Registry(models, {}, "")
    assert model_that_takes("image", registry) == model_that_takes("audio", registry) == "c"
    add(Store(tmp_path), of["a"], b"a" * 9)
    assert (model_that_takes("image", registry), model_that_takes("audio", registry)) == ("a", "c")
    assert model_that_takes("audio", Registry({"b": of["b"]}, {}, "")) is None
    assert "image" in takes(load_registry().model("gemma3-4b"))


def test_removal_takes_the_mmproj_along_unless_another_model_has_it(store: Store) -> None:
    data = {name: name.encode() * 100 for name in ("one", "two", "mmproj")}
    mmproj = entry_for(data["mmproj"], name="toy mmproj")
    models = {}
    for name in ("one", "two"):
        models[name] = replace(entry_for(data[name], name=name), mmproj=mmproj)
        add(store, models[name], data[name])
    registry = Registry(models, {}, "")
    add(store, mmproj, data["mmproj"])
    here = [(each.name, each.mmproj_bytes) for each in inventory(registry, store)]
    assert here == [("one", 600), ("two", 600)]
    for name, freed in (("one", 300), ("two", 900)):
        removal = plan_removal([name], registry, store)
        assert (removal.frees_bytes, remove(removal, store)) == (freed, freed)
    assert inventory(registry, store) == []
    add(store, mmproj, data["mmproj"])
    (alone,) = inventory(registry, store)
    assert alone.name == f"sha256:{mmproj.sha256[:12]}"


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[ToyMachine]:
    with loopback_hub() as hub:
        machine = ToyMachine(tmp_path, hub)
        machine.offer("toy", target_file())
        yield machine


def offer(machine: ToyMachine, name: str, data: bytes, repo: str = REPO) -> None:
    for revision in (COMMIT, "main"):
        machine.hub.files[f"/{repo}/resolve/{revision}/{name}"] = data


def test_pull_fetches_both_and_rm_removes_both(machine: ToyMachine) -> None:
    offer(machine, "mmproj-F16.gguf", SEES)
    machine.pairs = '[models.toy.mmproj]\ntakes = ["image"]\n'
    done = machine.succeed("pull", "toy")
    model, mmproj = map(Path, done.out.splitlines())
    assert (model.read_bytes(), mmproj.read_bytes()) == (target_file(), SEES)
    facts = json.loads(machine.succeed("show", "toy", "--json").out)
    assert (facts["takes"], facts["mmproj"]) == (["text", "images"], str(mmproj))
    assert "text, images" in machine.succeed("list").out
    assert "images" in machine.succeed("search", "pictures").out
    command = machine.succeed("show", "toy", "--for", "llama-server").out
    assert f"-m {model} -c 512 --mmproj {mmproj}" in command
    assert machine.succeed("check", "toy").out.endswith("toy takes text, images\n")
    requests = len(machine.hub.requests)
    assert machine.succeed("pull", "toy").out == machine.succeed("pull", "--offline", "toy").out
    assert len(machine.hub.requests) == requests, "what was learnt is pinned"
    removed = machine.succeed("rm", "toy").out
    assert f"freed {len(SEES) + len(target_file())} bytes" in removed
    assert machine.blobs == []


def test_a_start_fetches_the_mmproj_file(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(store.root))
    monkeypatch.setenv("LOCALSPEC_MIRRORS", str(tmp_path))
    mmproj, draft = entry_for(SEES, name="toy mmproj"), entry_for(b"draft", name="draft")
    target = replace(entry_for(b"target", name="toy"), mmproj=mmproj)
    for name, data in (("toy", b"target"), ("draft", b"draft")):
        (tmp_path / f"{name}.gguf").write_bytes(data)
    files = fetch([target, replace(draft, mmproj=entry_for(b"none", name="draft mmproj"))])
    assert [each.read_bytes() for each in files] == [b"target", b"draft"]
    (tmp_path / "toy-mmproj.gguf").write_bytes(SEES)
    assert fetch([target]) == files[:1]
    assert mmproj_of(target) is None, "it is not looked for at each start"
    files[0].unlink()
    fetch([target])
    assert mmproj_of(target) == store.path_of(mmproj)


def test_a_model_is_pulled_where_its_mmproj_cannot_be_had(machine: ToyMachine) -> None:
    machine.pairs = '[models.toy.mmproj]\ntakes = ["image"]\nfile = "mmproj-F16.gguf"\n'
    done = machine.succeed("pull", "toy")
    assert len(done.out.splitlines()) == 1
    assert f"toy will read text only: {REPO} has no mmproj file" in done.err
    machine.hub.status = 503
    assert "toy will read text only until it is pulled again" in machine.succeed("pull", "toy").err
    assert len(machine.succeed("pull", "--offline", "toy").out.splitlines()) == 1


def test_a_repository_and_a_folder_are_looked_through(machine: ToyMachine) -> None:
    other = target_file("other")
    for name, data in (
        ("m-Q4_K_M.gguf", other),
        ("mmproj-F32.gguf", SEES),
        ("mmproj-BF16.gguf", mmproj_file("audio")),
    ):
        offer(machine, name, data, "me/m-GGUF")
        (machine.folder / "own").mkdir(exist_ok=True)
        (machine.folder / "own" / name).write_bytes(data)
    files = machine.succeed("pull", "me/m-GGUF").out.splitlines()
    assert [Path(each).read_bytes() for each in files] == [other, mmproj_file("audio")]
    machine.succeed("rm", "me/m-GGUF")
    assert machine.blobs == []
    for extra in ([], ["--copy"]):
        machine.succeed("import", str(machine.folder / "own"), "--name", "mine", *extra)
        assert len(machine.blobs) == 2
        machine.succeed("rm", "mine")
        assert machine.blobs == []
    (machine.folder / "own" / "mmproj-BF16.gguf").write_bytes(mmproj_file("image", width=99))
    done = machine.succeed("import", str(machine.folder / "own"), "--name", "mine")
    assert "imported without mmproj-BF16.gguf, which is for a model of width 99" in done.err
    (machine.folder / "own" / "other.gguf").write_bytes(target_file())
    done = machine.run("import", str(machine.folder / "own"))
    assert (done.code, "give one of m-Q4_K_M.gguf, other.gguf" in done.err) == (3, True)


def test_a_file_of_a_users_own_has_what_lies_beside_it(tmp_path: Path) -> None:
    (tmp_path / "a.gguf").write_bytes(model_file())
    model, mmproj, link = (tmp_path / name for name in ("a.gguf", "mmproj.gguf", "links/b.gguf"))
    assert (mmproj_of(model), takes(model)) == (None, ())
    mmproj.write_bytes(SEES)
    link.parent.mkdir()
    link.symlink_to(model)
    assert takes(model) == ("image",)
    assert [mmproj_of(each) for each in (model, mmproj, link)] == [mmproj, None, mmproj]
    (link.parent / "mmproj-b.gguf").write_bytes(SEES)
    assert mmproj_of(link) == link.parent / "mmproj-b.gguf"
    mmproj.write_bytes(b"GGUF")
    assert takes(model) == ()


def test_check_refuses_the_mmproj_of_another_model(machine: ToyMachine, tmp_path: Path) -> None:
    done = machine.run("check", "toy")
    assert (done.code, "toy has no mmproj file here" in done.err) == (2, True)
    file = tmp_path / "mmproj.gguf"
    file.write_bytes(mmproj_file("image", width=99))
    done = machine.run("check", "toy", str(file))
    assert (done.code, done.out.startswith("does not fit: ")) == (4, True)
    facts = json.loads(machine.run("check", "toy", str(file), "--json").out)
    assert (facts["fits"], facts["takes"], facts["projector"]) == (False, None, "gemma3")
    file.write_bytes(mmproj_file("image", "audio"))
    assert "toy takes text, images, audio" in machine.succeed("check", "toy", str(file)).out
    file.write_bytes(SEES[:60])
    assert machine.run("check", "toy", str(file)).err.count("\n") == 1


def test_the_forecast_counts_the_encoders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.gguf").write_bytes(target_file())
    (tmp_path / "mmproj.gguf").write_bytes(SEES)
    forecast = Mock(return_value=Outlook((), ()))
    monkeypatch.setattr(pull_verb, "forecast", forecast)
    for launch in (LaunchOptions(), LaunchOptions(mmproj="off")):
        pull_verb.Preview([Wanted("toy", tmp_path / "a.gguf")], launch).after()
    counted = [call.args[-1] for call in forecast.call_args_list]
    assert counted == [encoder_bytes(header(SEES)), 0]
    assert counted[0] >= 128
