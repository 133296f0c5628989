"""Requests that name models: those on the disk are loaded; others are refused in the form of each interface."""

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from localspec.models.entries import ModelEntry
from localspec.models.ledger import IMPORTS
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions
from localspec.plugins.serve.catalogue import Catalogue, senses_of
from localspec.plugins.serve.http import NotFound
from localspec.plugins.serve.model_pool import ServedModel
from tests.plugins.serve.serving import COUNT, MESSAGES, OLLAMA, Served, bodies, served, user
from tests.waiting import until

_MODEL = """
[models.{name}]
repo = "maker/{name}"
file = "{name}.gguf"
revision = "0000000000000000000000000000000000000000"
sha256 = "{digest}"
size_bytes = {size}
"""
_REST = """heads = { kind = "eagle3", target = "big", source = "a test", date = "2026-11" }
[models.vectors.embedding]
query = "query: "
[pairs.both]
target = "big"
draft_model = "small"
[pairs.half]
target = "small"
draft_model = "absent"
[pairs.neither]
target = "absent"
draft = "lookup"
[aliases]
mine = "both"
"""
FIRST = ServedModel(
    "first",
    LaunchOptions(target="/somewhere/first.gguf", load=LoadOptions(n_ctx=99)),
    ReplyOptions(),
    ("also",),
)


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


@pytest.fixture
def catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Catalogue:
    """A registry of three models, of which two are here, and an import."""
    data, settings = tmp_path / "data", tmp_path / "settings"
    (data / "blobs").mkdir(parents=True)
    settings.mkdir()
    contents = {"big": b"big", "small": b"small", "absent": b"absent!", "vectors": b"vectors!"}
    contents["heads"] = b"heads!!!!"
    models = (
        _MODEL.format(name=name, digest=sha256(each), size=len(each))
        for name, each in contents.items()
    )
    text = "".join(('default_pair = "both"\n', *models, _REST))
    (settings / "models.toml").write_text(text)
    own = ModelEntry("own", 4, sha256(b"mine"), origin="/elsewhere/own.gguf")
    IMPORTS.write(data, {own.name: own})
    for content in (b"big", b"small", b"mine", b"vectors!", b"heads!!!!"):
        (data / "blobs" / sha256(content)).write_bytes(content)
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(data))
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(settings))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.gguf").write_bytes(b"GGUF")
    return Catalogue((FIRST,), lambda name: ReplyOptions(seed=len(name)))


def test_only_what_is_on_the_disk_can_be_asked_for(catalogue: Catalogue) -> None:
    listed = catalogue.listed()
    assert listed[:2] == ["first", "also"]
    assert set(listed) == {"first", "also", "both", "half", "big", "small", "own", "vectors"}
    assert listed[-1] == "vectors"
    for name in ("", "first", "also"):
        assert catalogue.find(name) == FIRST
    like = replace(FIRST.launch, target=None, offline=True)
    assert catalogue.find("both").launch == replace(like, pair="both")
    assert catalogue.find("mine") == catalogue.find("Both")
    for name, target in (("half", "small"), ("big", "big"), ("own", "own")):
        # The draft model of half is not here.
        assert catalogue.find(name).launch == replace(like, target=target)
    assert catalogue.find("own").options.seed == 3
    launch = LaunchOptions(pair="both", draft_model="small")
    first = ServedModel("both", launch, ReplyOptions(), ("big",))
    of_a_pair = replace(catalogue, models=(first,))
    for name in ("", "both", "Both", "mine", "big"):
        assert of_a_pair.find(name) is first
    # Its draft model is not another's.
    assert of_a_pair.find("own").launch == LaunchOptions(target="own", offline=True)


def test_what_cannot_answer_says_why_and_no_path_is_looked_at(
    catalogue: Catalogue, tmp_path: Path
) -> None:
    for name, word in [
        ("absent", "localspec pull absent"),
        ("neither", "localspec pull neither"),
        ("vectors", "is an embedding model"),
        ("heads", "has draft heads of another"),
    ]:
        with pytest.raises(NotFound, match=word):
            catalogue.find(name)
    paths = ("there.gguf", "./there.gguf", "~/there.gguf", "../../etc/passwd")
    for name in (*paths, "gpt-4", "user/repo:Q4_K_M", "\0", "x" * 9999):
        for each in (name, str(tmp_path / "there.gguf")):
            with pytest.raises(NotFound, match="/v1/models") as caught:
                catalogue.find(each)
            assert len(str(caught.value)) < 300
    pinned = replace(catalogue, pinned=True)
    assert pinned.listed() == ["first", "also"]
    with pytest.raises(NotFound, match="first or also"):
        pinned.find("big")


@pytest.fixture(scope="module")
def hello() -> Iterator[Served]:
    with served({"otherwise": ["Hello."]}) as server:
        yield server


def test_every_interface_refuses_an_unknown_name_in_its_own_form(hello: Served) -> None:
    for path in [*bodies(""), COUNT]:
        body = bodies("hello").get(path) or {"messages": [user("hello")]}
        error = hello.refuse(path, "gpt-4", 404, **body, model="gpt-4")
        if path in OLLAMA:
            continue
        assert error["type"] == "not_found_error"
        assert ("param" in error) is not path.startswith(MESSAGES)


def test_another_model_is_loaded_when_nothing_runs_and_its_requests_wait(tmp_path: Path) -> None:
    begin = tmp_path / "begin"
    script = {"otherwise": ["x" * 300], "pass_s": str(begin), "parallel": 2, "crowded": 0}
    with served(script, others=("other",)) as server:
        models = [{"text": "hello", "model": each} for each in ("a-pair", "other", "other")]
        with server.asking(*models) as asked:
            assert not any(each.done() for each in asked)
            begin.touch()
        answers = [each.result().json() for each in asked]
        assert [each["model"] for each in answers] == ["a-pair", "other", "other"]
        assert {len(each["choices"][0]["message"]["content"]) for each in answers} == {300}
        assert server.client.get("/health").json()["model"] == "other"
        assert [*server.states().items()] == [("other", "loaded"), ("a-pair", "unloaded")]
        assert server.chat("hello", model="a-pair").json()["model"] == "a-pair"


def test_a_server_is_healthy_while_its_model_rests_and_is_loaded_again(tmp_path: Path) -> None:
    loads = tmp_path / "loads"
    loads.touch()
    with served({"otherwise": ["Hello."], "load_s": str(loads)}, keep_alive_s=0.05) as server:
        health = partial(server.client.get, "/health")
        assert until(lambda: health().raise_for_status().json()["status"] == "unloaded")
        loads.unlink()
        with server.asking({"text": "hello"}) as (waiting,):
            assert health().raise_for_status().json()["status"] == "loading"
            loads.touch()
            assert waiting.result().status_code == 200


@pytest.mark.parametrize(("kind", "senses"), [("tiles", (True, False)), ("sound", (False, True))])
def test_what_a_model_takes_is_known_before_it_is_loaded(
    seeing_models: Callable[[str], tuple[Path, Path]],
    tmp_path: Path,
    kind: str,
    senses: tuple[bool, bool],
) -> None:
    model, mmproj = tmp_path / "model.gguf", tmp_path / "mmproj-model.gguf"
    model.touch()
    known = ServedModel("a", LaunchOptions(target=str(model)), ReplyOptions())
    assert senses_of(known) == (False, False)
    mmproj.write_bytes(seeing_models(kind)[1].read_bytes())
    assert senses_of(known) == senses
    blind = replace(known, launch=replace(known.launch, mmproj="off"))
    assert senses_of(blind) == (False, False)
