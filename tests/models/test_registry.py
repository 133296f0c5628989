from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from lab.fuzz.target import load
from localspec.errors import LocalspecError, ModelUnavailable, UsageError
from localspec.models.entries import Chances, Embedding, HubSource, TailoredFor, WheelSource
from localspec.models.registry import Registry, load_registry, parse_registry

VALID = """
default_pair = "p"
[models.toy]
repo = "owner/Toy-GGUF"
file = "sub/toy.Q4.gguf"
revision = "abc"
size_bytes = 10
sha256 = "{sha}"
params = "0.5B"
context = 512
licence = "apache-2.0"
[[models.toy.sources]]
kind = "wheels"
requirement = "toy-part{{part}}==1.0"
parts = 11
member = "*/data/part{{part:02}}.bin"
[pairs.p]
target = "toy"
draft = "lookup"
good_for = "tests"
""".format(sha="0" * 64)
LICENCE = 'licence = "apache-2.0"\n'
HEADS = 'heads = {kind = "mtp", source = "a test", date = "2026-11"}\n'


def changed(old: str = "", new: str = "") -> Registry:
    assert old in VALID
    return parse_registry(VALID.replace(old, new) if old else VALID, "my.toml")


def test_an_entry_is_read_whole() -> None:
    model = changed().model("toy")
    assert (model.size_bytes, model.sha256, model.context) == (10, "0" * 64, 512)
    assert (model.params, model.licence, model.read_bytes) == ("0.5B", "apache-2.0", 10)
    wheels = WheelSource("toy-part{part}==1.0", "*/data/part{part:02}.bin", 11)
    assert model.sources == (HubSource("owner/Toy-GGUF", "sub/toy.Q4.gguf", "abc"), wheels)
    assert wheels.in_order()[8] == ("toy-part9==1.0", "*/data/part09.bin")
    assert wheels.in_order()[10:] == [("toy-part11==1.0", "*/data/part11.bin")]
    pair = changed('draft = "lookup"', 'draft = "model"\ndraft_model = "toy"').pair("p")
    assert (pair.target, pair.draft, pair.draft_model) == ("toy", "model", "toy")
    assert changed('good_for = "tests"', 'recommend = "code"').pair("p").recommend == "code"
    mixture = changed('params = "0.5B"', 'params = "30.5B"\nactive = "3.05B"')
    assert mixture.model("toy").read_bytes == 1
    registry = changed(LICENCE, LICENCE + "sampling = { top_k = 20, temperature = 1 }\n")
    assert registry.sampling("p") == registry.sampling("toy") == {"temperature": 1.0, "top_k": 20}
    assert registry.sampling("gone") == registry.sampling("~/gone.gguf") == {}


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        (LICENCE, "sampling = 1\n", "models.toy.sampling must be a table, not '1'"),
        (LICENCE, "sampling = { top_p = 2 }\n", "sampling.top_p cannot be used: top_p is 2"),
        (LICENCE, "sampling = { seed = 1 }\n", "models.toy.sampling.seed is not a known option"),
        (LICENCE, 'heads_to_convert = ["x"]\n', r"models.toy.heads_to_convert.* cannot be 'x'"),
        (LICENCE, "heads = {}\n", r"models.toy.heads.kind is missing"),
        (LICENCE, HEADS.replace("mtp", "medusa"), r"heads.kind is 'medusa': choose one of"),
        (LICENCE, HEADS.replace("2026-11", "soon"), "models.toy.heads.date cannot be 'soon'"),
        (LICENCE, HEADS.replace("}", ", step = 1.5}"), r"models.toy.heads.step must be"),
        (LICENCE, HEADS.replace("}", ", target = 'x'}"), r"heads.target is 'x': there is no model"),
        (LICENCE, HEADS.replace("}", ", chances = {x = 0.5}}"), r"chances.x is not a known"),
        (LICENCE, "year = 26\n", "models.toy.year must be"),
        (LICENCE, 'embedding = { question = "x" }\n', r"embedding\.question is not a known key"),
        ("size_bytes = 10", "size_bytes = 0", "models.toy.size_bytes must be"),
        ("size_bytes = 10", "size_bytes = true", "models.toy.size_bytes must be"),
        ("size_bytes = 10", "size_bytes = 0x" + "f" * 5000, "not a number of thousands of digits"),
        ("size_bytes = 10", "size_bytes = " + "9" * 5000, "is not TOML"),
        ("size_bytes = 10", f"size_bytes = {2**63}", "models.toy.size_bytes must be"),
        ("size_bytes = 10", "size_bytes = " + "[" * 100_000, "is not TOML"),
        ("context = 512", "context = [\n1, 0x" + "f" * 5000 + "]", "context must be"),
        ("0" * 64, "0" * 63, "models.toy.sha256 cannot be"),
        ("owner/Toy", "../Toy", "models.toy.repo cannot be"),
        ("sub/toy", "../toy", "models.toy.file cannot be"),
        ("sub/toy", r"sub\\toy", "models.toy.file cannot be"),
        ('"abc"', '"../abc"', "models.toy.revision cannot be"),
        ("[models.toy]", '[models."a/b"]\n[models.toy]', "is not a usable name"),
        ('"wheels"', '"torrent"', r"models.toy.sources\[1\].kind is 'torrent': choose"),
        ("parts = 11", "parts = 1001", r"sources\[1\].parts must be at most 1000, not '1001'"),
        ('target = "toy"', 'target = "other"', "pairs.p.target is 'other': choose one of toy"),
        ('target = "toy"', 'target = "../x.gguf"', "pairs.p.target cannot be"),
        ('target = "toy"', r'target = "/x\u0000.gguf"', "pairs.p.target cannot be"),
        ("toy-part{part}==1.0", "--index-url=x{part}==1.0", "requirement cannot be"),
        ("toy-part{part}==1.0", "toy{part} @ https://x==1", "requirement cannot be"),
        ("toy-part{part}==1.0", "toy==1.0", "requirement names no {part}"),
        ("toy-part{part}==1.0", "toy{0.name}==1.0", "requirement cannot be"),
        ("*/data", "*/../data", "member cannot be"),
        ('"lookup"', '"guess"', "pairs.p.draft is 'guess': choose one of lookup, model"),
        ('"lookup"', '"model"', "pairs.p.draft_model is missing"),
        ('default_pair = "p"', "", "my.toml: default_pair is missing"),
        ('default_pair = "p"', 'default_pair = "q"', "default_pair is 'q': choose one of p"),
        ("[pairs.p]", "[pairs.p]\ntypo = 1", "pairs.p.typo is not a known key"),
    ],
    ids=lambda text: text[:30],
)
def test_an_unusable_key_is_named_with_the_file(old: str, new: str, key: str) -> None:
    with pytest.raises(UsageError, match=key) as caught:
        changed(old, new)
    assert "my.toml" in str(caught.value)
    assert str(caught.value).isprintable()


def test_heads_are_a_files_own_or_alone_in_one_and_draft_for_a_pair() -> None:
    own = changed(LICENCE, HEADS)
    toy = own.model("toy")
    assert own.drafter_of(own.pair("p")) is toy
    assert own.with_heads_for(toy) == [toy]
    assert own.published_heads(toy) == ["toy"]
    assert own.published_heads(None) == []
    apart = VALID + (
        '[models."toy-heads:Q8_0"]\nrepo = "owner/Toy-GGUF"\nfile = "heads.gguf"\n'
        + HEADS.replace("}", ", target = 'toy', chances = {code = 0.8}}")
    )
    alone = parse_registry(apart, "my.toml")
    toy, file = alone.model("toy"), alone.model("toy-heads")
    assert alone.drafter_of(alone.pair("p")) is None
    assert alone.with_heads_for(toy) == [file]
    elsewhere = structs.replace(toy, heads_to_convert=("a/Toy-EAGLE3",))
    toys = replace(alone, models={**alone.models, "toy": elsewhere})
    assert toys.published_heads(elsewhere) == ["toy-heads", "a/Toy-EAGLE3"]
    made = structs.replace(file, tailored=TailoredFor("p", "toy"))
    toys = replace(alone, models={**alone.models, file.name: made})
    assert (toys.with_heads_for(toy), toys.published_heads(toy)) == ([made], [])
    assert alone.with_heads_for(file) == []
    assert list(alone.writing().models) == ["toy"]
    assert len({toy, file}) == 2, "they are keys of dictionaries"
    pair = apart.replace('draft = "lookup"', 'draft_model = "toy-heads"')
    both = parse_registry(pair, "my.toml")
    assert both.drafter_of(both.pair("p")) == file


def test_an_alias_means_a_pair_or_a_model_and_of_a_wrong_name_similar_ones_are_listed() -> None:
    below = parse_registry(VALID + '\n[aliases]\nmine = "p"\n', "below.toml")
    registry = parse_registry('[aliases]\nfast = "toy"\n', "my.toml", below)
    assert registry.pair("mine") is registry.pairs["p"]
    assert registry.model("fast") is registry.models["toy"]
    with pytest.raises(UsageError, match="alias odd is nothing, and no model matches"):
        parse_registry('[aliases]\nodd = "nothing"\n', "my.toml", below)
    with pytest.raises(ModelUnavailable, match=r"no model 'toyy': did you mean toy\?$"):
        changed().model("toyy")
    with pytest.raises(ModelUnavailable, match=r"no pair 'xyz\\n': choose one of p"):
        changed().pair("xyz\n")
    with pytest.raises(ModelUnavailable, match="`localspec search` lists"):
        load_registry().require("foo")


def test_a_bare_name_means_the_first_quantisation_and_a_model_may_come_in_shards() -> None:
    other = VALID[VALID.index("[models.toy]") : VALID.index("[[")]
    text = VALID.replace("models.toy", 'models."toy:Q4_0"')
    text += other.replace("models.toy", 'models."toy:Q8_0"').replace("0" * 64, "1" * 64)
    registry = parse_registry(text, "my.toml")
    assert list(registry.models) == ["toy", "toy:Q8_0"]
    assert registry.model("toy").full_name == "toy:Q4_0"
    assert registry.model("toy:q4_0") is registry.model("toy")
    assert registry.model("toy:q8_0").sha256 == "1" * 64
    assert registry.pair("p").target == "toy"
    with pytest.raises(ModelUnavailable, match="no model 'toy:Q2_K': did you mean toy:Q8_0"):
        registry.model("toy:Q2_K")
    shards = ", ".join(
        f'{{file = "toy-0000{n}-of-00002.gguf", size_bytes = {n}, sha256 = "{str(n) * 64}"}}'
        for n in (1, 2)
    )
    text = f"""
default_pair = "p"
[models."toy:Q4_0"]
repo = "owner/Toy-GGUF"
files = [{shards}]
[pairs.p]
target = "toy"
"""
    model = parse_registry(text, "my.toml").model("toy")
    first, second = model.shards
    assert (model.size_bytes, first.sha256, second.sha256) == (3, "1" * 64, "2" * 64)
    assert second.name == "toy:Q4_0 shard 2 of 2"
    assert second.sources == (HubSource("owner/Toy-GGUF", "toy-00002-of-00002.gguf", None),)
    assert model.sha256 not in {first.sha256, second.sha256}
    for old, new, problem in [
        ("toy-00002", "toy-00001", "an earlier shard"),
        ("2" * 64, "1" * 64, "an earlier shard"),
        ("toy-00002", "../toy", r"files\[2\].file cannot be"),
        ('repo = "owner/Toy-GGUF"', "", "files needs a repo"),
        (shards, "", "files needs a repo, and at least one file"),
    ]:
        with pytest.raises(UsageError, match=rf"my.toml: .*{problem}"):
            parse_registry(text.replace(old, new), "my.toml")


def test_the_users_file_adds_and_replaces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path))
    before, file = load_registry(), tmp_path / "models.toml"
    pair = '[pairs.mine]\ntarget = "/models/my target.gguf"\ndraft_model = "qwen3-0.6b:q8_0"\n'
    size = f"[models.'smollm2-135m:q4_1']\nrepo = 'me/x'\nfile = 'x.gguf'\nsha256 = '{'2' * 64}'\n"
    file.write_text(f"default_pair = 'mine'\n{size}size_bytes = 7\n{pair}")
    after = load_registry()
    assert after.default_pair == "mine"
    mine = after.pair("mine")
    assert (mine.target, mine.draft) == ("/models/my target.gguf", "model")
    assert mine.draft_model == "qwen3-0.6b"
    assert (after.model("smollm2-135m").size_bytes, after.model("smollm2-135m").params) == (7, None)
    assert list(after.models) == list(before.models)
    assert list(after.pairs) == [*before.pairs, "mine"]
    file.write_text(pair + "x = 1")
    with pytest.raises(UsageError, match=r"models.toml: pairs.mine.x is not a known key"):
        load_registry()
    file.unlink()
    file.symlink_to("gone")
    with pytest.raises(UsageError, match=r"models.toml cannot be read \(No such file"):
        load_registry()
    (tmp_path / "latin.toml").write_bytes(b"\xff")
    with pytest.raises(UsageError, match=r"latin.toml cannot be read \(it is not UTF-8"):
        load_registry(tmp_path / "latin.toml")


OLDER = """
default_pair = "p"
[models."t:new"]
repo = "a/t"
file = "new.gguf"
size_bytes = 9
sha256 = "{}"
[models."t:old"]
repo = "a/t"
file = "old.gguf"
size_bytes = 7
sha256 = "{}"
older = true
[models.h]
repo = "a/h"
file = "h.gguf"
heads = {{ kind = "eagle3", target = "t", source = "a test", date = "2026-11" }}
[pairs.p]
target = "t"
draft_model = "h"
""".format("a" * 64, "b" * 64)


@pytest.mark.parametrize("here", ["", "a", "b", "ab"])
def test_an_older_file_alone(here: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path))
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    (tmp_path / "models.toml").write_text(OLDER)
    (tmp_path / "blobs").mkdir()
    for letter in here:
        (tmp_path / "blobs" / (letter * 64)).write_bytes(bytes({"a": 9, "b": 7}[letter]))
    registry, is_older = load_registry(), here == "b"
    assert registry.model("t").sha256[0] == ("b" if is_older else "a")
    old, new = registry.model("t:old"), registry.model("t:new")
    assert (old.sha256[0], new.sha256[0]) == ("b", "a")
    assert [old.name, new.name] == (["t", "t:new"] if is_older else ["t:old", "t"])
    assert (registry.newer(old), registry.newer(new)) == (new, None)
    assert registry.with_heads_for(new) == [registry.model("h")]
    assert registry.with_heads_for(old) == []
    assert registry.published_heads(old) == ["h"]
    pair = registry.pair("p")
    drafts = ("lookup", None) if is_older else ("model", "h")
    assert (pair.target, pair.draft, pair.draft_model) == ("t", *drafts)


def test_every_file_that_a_name_meant_before_this_years_can_be_had() -> None:
    registry = load_registry()
    older = [each for each in registry.models.values() if each.older]
    assert len({each.base for each in older}) == len(older) == 10
    for each in older:
        newer = registry.newer(each)
        assert newer is not None
        assert newer.name == newer.base == each.base
        assert registry.with_heads_for(newer)
        assert each.is_known


def test_the_registry_of_the_program_is_sound() -> None:
    registry = load_registry()
    assert registry.pair(registry.default_pair).target == "smollm2-135m"
    pair = registry.pair("qwen2.5-coder-1.5b")
    assert (pair.target, pair.draft_model) == ("qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b")
    assert len(registry.pairs) >= 12
    for model in registry.models.values():
        assert model.quant
        assert registry.find(model.full_name.lower()) is model
        assert any(isinstance(source, HubSource) for source in model.sources)
        assert model.active is None or model.read_bytes < model.size_bytes
    vectors = {name: each for name, each in registry.models.items() if each.embedding is not None}
    for model in registry.models.values():
        if model.heads is None:
            continue
        assert all((model.is_known, model.source, model.date))
        assert (model.heads.step is None) is (model.heads.target is not None)
        assert (model.heads.chances == Chances()) is (model.heads.published == "")
    for pair in registry.pairs.values():
        target = registry.model(pair.target)
        assert not {pair.target, pair.draft_model} & vectors.keys()
        assert pair.recommend is None or (target.is_known and target.year == 2026)
        drafter = registry.drafter_of(pair)
        assert drafter is None or drafter in registry.with_heads_for(target)
        if pair.draft_model is not None:
            assert registry.model(pair.draft_model).size_bytes * 2 < target.size_bytes
    for name in ("smollm2-135m", "qwen2.5-coder-0.5b", "qwen2.5-coder-1.5b"):
        model = registry.model(name)
        assert any(isinstance(source, WheelSource) for source in model.sources)
        assert model.tokenizer is not None
    assert all(each.is_known and each.hub and each.hub.revision for each in vectors.values())
    wants = vectors["qwen3-embedding-0.6b"].embedding
    assert wants is not None
    assert (wants.query.count("\n"), wants.passage) == (1, "")
    passage = changed(LICENCE, 'embedding = { passage = "text: " }\n').model("toy").embedding
    assert passage == Embedding(passage="text: ")


def test_an_odd_text_is_an_error_of_one_line() -> None:
    for text in ("a." * 5000 + "b = 1", "[models.'a\nb']", "\ufeff", '[models."\\u0000"]'):
        load("registry").check(text.encode())
    for name in ("", "\0", "a\nb", "x" * 5000):
        with pytest.raises(LocalspecError) as caught:
            load_registry().require(name)
        assert str(caught.value).isprintable()
