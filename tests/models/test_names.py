"""What a name means: a model or pair however it is spelt, a file, an import, a repository."""

import hashlib
from pathlib import Path

import pytest

from localspec.errors import LocalspecError, ModelFileError, ModelUnavailable, UsageError
from localspec.models.entries import ModelEntry, PairEntry
from localspec.models.file_names import choose_files
from localspec.models.ledger import IMPORTS
from localspec.models.names import hub_name, import_file, look_up, resolve
from localspec.models.registry import Registry, like, load_registry, spelt
from localspec.models.store import Store
from tests.models.gguf_builder import Content, Tensor, build, model_file
from tests.models.sources import entry_for

REGISTRY, EMPTY = load_registry(), Registry({}, {}, "")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory and a home of a user without models."""
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def file(folder: Path) -> Path:
    path = folder / "My Model (Q4).gguf"
    path.write_bytes(model_file())
    return path


def test_what_looks_like_a_path_or_is_a_file_is_a_path(folder: Path) -> None:
    Path("here").mkdir()
    for name in ("here/my.gguf", "my.gguf", "my.GGUF", "here/model", "model"):
        Path(name).touch()
        assert resolve(name, REGISTRY) == Path(name)
    Path("smollm2-135m").touch()
    assert resolve("smollm2-135m", REGISTRY) is REGISTRY.models["smollm2-135m"]
    assert resolve("./smollm2-135m", REGISTRY) == Path("smollm2-135m")
    assert resolve("~/my.gguf", REGISTRY) == folder / "my.gguf"
    for text in (
        "user/repo",
        "user/repo:q8_0",
        "hf.co/user/repo:Q4",
        "https://huggingface.co/user/repo",
    ):
        reference = hub_name(text)
        assert reference is not None
        assert (reference.repo, reference.quant) == (
            "user/repo",
            text.partition("repo:")[2] or None,
        )
    others = ["name", "name:Q8_0", "./a/b", "/a/b", "~/b", "a/b/c", "a/b.gguf", "../b", "a/.."]
    assert not any(map(hub_name, [*others, "a/b:", "a/" + "b" * 300, ""]))


@pytest.mark.parametrize(
    ("reference", "match"),
    [
        ("gone.gguf", r"no file gone.gguf: check the path, or use a known name \(.*smollm2-135m"),
        ("gone/model", "gone/model was not found locally, and localspec is offline"),
        (".", "no model '.'"),
        ("./", "is a directory: give the .gguf file in it"),
        ("smolm2-135m", r"did you mean smollm2-135m\?"),
        ("", "no model ''"),
        ("a\nb.gguf", r"no file 'a\\nb.gguf'"),
        ("a\0b.gguf", "no file"),
        ("x" * 5000 + ".gguf", "cannot be a model file"),
        ("x" * 5000, "cannot be a model file"),
        ("~nobody-of-this-name/x", "cannot be a model file"),
    ],
)
def test_what_is_not_there_is_an_error_of_one_line(reference: str, match: str) -> None:
    with pytest.raises(ModelUnavailable, match=match) as caught:
        look_up(reference, REGISTRY, offline=True)
    assert str(caught.value).isprintable()
    assert len(str(caught.value)) < 400


def test_models_and_pairs_are_known_by_the_names_of_others_and_a_family_means_all_of_it() -> None:
    for text, name in (
        ("qwen2.5-coder:1.5b", "qwen2.5-coder-1.5b"),
        ("qwen2.5-coder:1.5b-instruct-q4_K_M", "qwen2.5-coder-1.5b"),
        ("Qwen2.5-Coder-1.5B-Instruct-GGUF", "qwen2.5-coder-1.5b"),
        ("gemma-3-4b-it", "gemma3-4b"),
        ("SmolLM2-135M", "smollm2-135m"),
    ):
        assert resolve(text, REGISTRY) is REGISTRY.models[name]
    assert REGISTRY.pair("qwen2.5-coder:1.5b") is REGISTRY.pairs["qwen2.5-coder-1.5b"]
    assert REGISTRY.pair("demo") is REGISTRY.pairs["smollm2-135m"]
    family = r"qwen3-0.6b, qwen3-1.7b, .*, qwen3-4b, .*, qwen3-32b or qwen3-next-80b-a3b\?"
    with pytest.raises(ModelUnavailable, match=family):
        REGISTRY.require("qwen3")
    for text in ("qwen34b", "hi", "", "-", "why is the sky blue", "qwen3-4b:Q2_K"):
        assert not REGISTRY.knows(text)
    assert spelt("toy-1b", ["toy:1b", "toy_1b"]) is None
    assert like("toy", ["toy-7b", "toy-500m", "other"]) == ["toy-500m", "toy-7b"]


def test_an_import_is_a_name_that_points_to_a_file_or_has_a_copy(store: Store, file: Path) -> None:
    pointer = import_file(file, None, EMPTY, store)
    assert pointer == import_file(file, None, EMPTY, store)
    assert pointer.name == "my-model-q4"
    assert pointer.sha256 == hashlib.sha256(model_file()).hexdigest()
    path = resolve("my-model-q4", EMPTY)
    assert isinstance(path, Path)
    assert path.resolve() == file
    copied = store.path_of(import_file(file, "copy", EMPTY, store, copy=True))
    file.unlink()
    assert copied is not None
    assert copied.read_bytes() == model_file()
    copied.unlink()
    with pytest.raises(ModelUnavailable, match=r"my-model-q4 was imported from .*has been moved"):
        resolve("my-model-q4", EMPTY)
    assert sorted(IMPORTS.load(store.root)) == ["copy", "my-model-q4"]


def test_names_of_known_models_are_theirs(store: Store, file: Path) -> None:
    entry = entry_for(model_file())
    import_file(file, "toy", Registry({"toy": entry}, {}, ""), store)
    assert store.path_of(entry) is not None
    assert IMPORTS.load(store.root) == {}
    pair = PairEntry("pair", "toy", "lookup", None, "x")
    registry = Registry({"toy": entry_for(b"other")}, {"pair": pair}, "pair")
    import_file(file, "mine", EMPTY, store)
    other = file.with_name("other.gguf")
    other.write_bytes(model_file(pre="other"))
    for name in ("toy", "pair", "mine"):
        with pytest.raises(UsageError, match=f"the name {name} is taken"):
            import_file(other, name, registry, store)


def test_a_name_is_no_path(store: Store, file: Path) -> None:
    for name in ("", "../x", "/etc/passwd", "a/b", "a\0b", "-x", "x" * 81, "a b"):
        with pytest.raises(UsageError, match="cannot be a name"):
            import_file(file, name, EMPTY, store)
    assert not store.root.exists()


def test_what_is_no_model_is_not_imported(store: Store, folder: Path, file: Path) -> None:
    (folder / "x.gguf").write_text("no model")
    for name, error in (("x.gguf", ModelFileError), ("gone.gguf", ModelUnavailable)):
        with pytest.raises(error):
            import_file(folder / name, None, EMPTY, store)
    assert not store.root.exists()
    odd = file.rename(file.with_name('a "b" \\ ünï\n.gguf'))
    assert {"mine": import_file(odd, "mine", EMPTY, store)} == IMPORTS.load(store.root)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[models.a]\nb = 1\n",
        "\0",
        "\udcff",
        f'[models.a]\norigin = "/a.gguf"\nfiles = [{{ size_bytes = 1, sha256 = "{"a" * 64}" }}]\n',
        '[models.a]\norigin = "x"\nsize_bytes = 1\nsha256 = "../../etc/passwd"\n',
    ],
)
def test_a_damaged_list_of_imports_is_an_error_and_stays(store: Store, text: str) -> None:
    store.root.mkdir()
    (store.root / "imports.toml").write_text(text, errors="surrogateescape")
    with pytest.raises(LocalspecError, match=r"imports\.toml cannot be read") as caught:
        IMPORTS.load(store.root)
    assert str(caught.value).isprintable()
    assert (store.root / "imports.toml").exists()


REPO = (
    "README.md m-Q4_K_M.gguf m-UD-Q4_K_M.gguf m-Q4_K_S.gguf m-IQ4_XS.gguf mmproj-m-Q8_0.gguf mtp-m-Q8_0.gguf "
    "Q8_0/m-00002-of-00002.gguf Q8_0/m-00001-of-00002.gguf m.f16-00001-of-00002.gguf ../m-Q2_K.gguf"
)


def choose(quant: str | None, names: str) -> list[str]:
    entries = [ModelEntry(name, 1, "0" * 64) for name in names.split()]
    return [file.name for file in choose_files("me/m", quant, "Q4_K_M", entries)]


@pytest.mark.parametrize(
    ("quant", "names", "expected"),
    [
        (None, "Model-8B-Q8_0.gguf Model-8B-eagle3-Q4_K_M.gguf", "Model-8B-Q8_0.gguf"),
        (None, "M-27B-UD-Q4_K_XL.gguf dflash-draft-M-27B-Q4_K_M.gguf", "M-27B-UD-Q4_K_XL.gguf"),
        (None, "M-UD-Q4_K_XL.gguf MTP/M-MTP-Q4_K_M.gguf", "M-UD-Q4_K_XL.gguf"),
        (None, "g-assistant-Q4_K_M.gguf g-it-Q6_K.gguf", "g-it-Q6_K.gguf"),
        (None, "Q4_K_M/draft/m.gguf Q5_K_M/m.gguf", "Q5_K_M/m.gguf"),
        (None, "m-NextN-Q4_K_M.gguf m-medusa.Q4_K_M.gguf m-Q6_K.gguf", "m-Q6_K.gguf"),
        (None, "m-speculator-Q4_K_M.gguf m-Q8_0.gguf", "m-Q8_0.gguf"),
        ("Q4_K_M", "a_EAGLE-3_Q4_K_M.gguf a_Q4_K_M.gguf", "a_Q4_K_M.gguf"),
        (None, "m.dspark.Q4_K_M.gguf m.Q8_0.gguf", "m.Q8_0.gguf"),
        # Names of models, where nothing stands beside them.
        (None, "code-assistant-7B-Q4_K_M.gguf", "code-assistant-7B-Q4_K_M.gguf"),
        (None, "M-MTP-Q4_K_M.gguf M-MTP-Q8_0.gguf", "M-MTP-Q4_K_M.gguf"),
        ("Q8_0", "smtp-7B-Q8_0.gguf draftsman-7B-Q4_K_M.gguf", "smtp-7B-Q8_0.gguf"),
    ],
)
def test_a_sidecar_of_heads_is_no_model(quant: str | None, names: str, expected: str) -> None:
    assert choose(quant, names) == [expected]
    assert choose(quant, " ".join(reversed(names.split()))) == [expected]


def test_where_names_leave_it_open_the_header_says_what_is_a_model() -> None:
    heads, asked = {"a-spec-Q4_K_M.gguf", "m-eagle3-Q4_K_M.gguf"}, list[str]()

    def is_heads(file: ModelEntry) -> bool:
        asked.append(file.name)
        return file.name in heads

    def chosen(quant: str | None, names: str) -> list[str]:
        entries = [ModelEntry(name, 1, "0" * 64) for name in names.split()]
        return [each.name for each in choose_files("me/m", quant, "Q4_K_M", entries, is_heads)]

    assert chosen(None, "a-spec-Q4_K_M.gguf model-Q4_K_M.gguf") == ["model-Q4_K_M.gguf"]
    assert chosen("Q8_0", "m-Q4_K_M.gguf m-mtp-Q8_0.gguf") == ["m-mtp-Q8_0.gguf"]
    with pytest.raises(ModelUnavailable, match="has no Q4_K_M: it has Q8_0"):
        chosen("Q4_K_M", "m-Q8_0.gguf m-eagle3-Q4_K_M.gguf")
    asked.clear()
    assert chosen(None, "m-Q4_K_M.gguf m-UD-Q4_K_M.gguf m-Q8_0.gguf") == ["m-Q4_K_M.gguf"]
    assert not asked, "a header is fetched only where there is a doubt"


HEADS_HEADERS: list[dict[str, Content]] = [
    {"general.architecture": "eagle3"},
    {"general.architecture": "dflash"},
    {"general.architecture": "gemma4-assistant"},
    {"general.architecture": "qwen35", "qwen35.nextn_predict_layers": 1},
]


@pytest.mark.parametrize("header", HEADS_HEADERS)
def test_a_folder_with_a_sidecar_is_imported(
    header: dict[str, Content], store: Store, tmp_path: Path
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    layers = [Tensor("blk.0.attn_q.weight", (32,), 0, 0)]
    model: dict[str, Content] = {"general.architecture": "qwen35"}
    (folder / "own-Q4_K_M.gguf").write_bytes(build(model, layers, data_bytes=128))
    last = [Tensor("blk.28.nextn.eh_proj.weight", (32,), 0, 0)]
    for name in ("own-MTP-Q4_K_M.gguf", "side.gguf"):
        (folder / name).write_bytes(build(header, last, data_bytes=128))
        assert import_file(folder, None, EMPTY, store).name == "own-q4_k_m"
    (folder / "other.gguf").write_bytes(build(model, layers, data_bytes=128))
    with pytest.raises(
        ModelUnavailable, match=r"several models: give one of other\.gguf, own-Q4_K"
    ):
        import_file(folder, None, EMPTY, store)


def test_a_quantisation_is_chosen_in_any_case_and_what_is_not_there_is_named() -> None:
    for quant, names, expected in (
        (None, REPO, "m-Q4_K_M.gguf"),
        ("UD-Q4_K_M", REPO, "m-UD-Q4_K_M.gguf"),
        ("iq4_xs", REPO, "m-IQ4_XS.gguf"),
        ("Q8_0", REPO, "Q8_0/m-00001-of-00002.gguf Q8_0/m-00002-of-00002.gguf"),
        (None, "mmproj.gguf only.gguf", "only.gguf"),
    ):
        assert choose(quant, names) == expected.split()
    for quant, names, problem in (
        ("Q4_K", REPO, "me/m has no Q4_K: it has IQ4_XS, Q4_K_M, Q4_K_S"),
        ("XS", REPO, "has no XS"),
        ("Q2_K", REPO, "has no Q2_K"),
        ("F16", REPO, "has 1 of 2 shards of m.f16"),
        (None, "one.gguf two.gguf", "has no Q4_K_M: it has other files"),
        ("Q4_K_M", "README.md", "has no GGUF file of a model"),
    ):
        with pytest.raises(ModelUnavailable, match=problem):
            choose(quant, names)
