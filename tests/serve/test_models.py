"""Requests that name models: those on the disk are loaded, one at a time; others are refused in the form of each interface."""

import hashlib
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from localspec.models.entries import ModelEntry
from localspec.models.ledger import IMPORTS
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions
from localspec.serve.catalogue import Catalogue
from localspec.serve.http import NotFound
from localspec.serve.residence import ServedModel
from tests.serve.serving import served
from tests.waiting import until

_REGISTRY = """
default_pair = "both"
[models.big]
repo = "maker/big"
file = "big.gguf"
revision = "0000000000000000000000000000000000000000"
sha256 = "{big}"
size_bytes = 3
[models.small]
repo = "maker/small"
file = "small.gguf"
revision = "0000000000000000000000000000000000000000"
sha256 = "{small}"
size_bytes = 5
[models.absent]
repo = "maker/absent"
file = "absent.gguf"
revision = "0000000000000000000000000000000000000000"
sha256 = "{absent}"
size_bytes = 7
[models.maker]
repo = "maker/vectors"
file = "vectors.gguf"
revision = "0000000000000000000000000000000000000000"
sha256 = "{vectors}"
size_bytes = 8
embedding = {{ query = "query: " }}
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
    names = {name: sha256(content) for name, content in contents.items()}
    (settings / "models.toml").write_text(_REGISTRY.format(**names))
    own = ModelEntry("own", 4, sha256(b"mine"), origin="/elsewhere/own.gguf")
    IMPORTS.write(data, {own.name: own})
    for content in (b"big", b"small", b"mine", b"vectors!"):
        (data / "blobs" / sha256(content)).write_bytes(content)
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(data))
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(settings))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.gguf").write_bytes(b"GGUF")
    return Catalogue(FIRST, ("first", "also"), lambda name: ReplyOptions(seed=len(name)))


def test_only_what_is_on_the_disk_can_be_asked_for(catalogue: Catalogue) -> None:
    listed = catalogue.listed()
    assert listed[:2] == ["first", "also"]
    assert set(listed) == {"first", "also", "both", "half", "big", "small", "own"}
    for name in ("", "first", "also"):
        assert catalogue.find(name) == FIRST
    like = replace(FIRST.launch, target=None, offline=True)
    assert catalogue.find("both").launch == replace(like, pair="both")
    assert catalogue.find("mine") == catalogue.find("Both")
    assert catalogue.find("half").launch == replace(
        like, target="small"
    )  # its draft model is not here
    assert catalogue.find("big").launch == replace(like, target="big")
    assert catalogue.find("own").launch == replace(like, target="own")
    assert catalogue.find("own").options.seed == 3


def test_what_makes_vectors_answers_nobody(catalogue: Catalogue) -> None:
    assert "maker" not in catalogue.listed()
    with pytest.raises(NotFound, match="makes vectors"):
        catalogue.find("maker")


def test_another_name_of_what_is_loaded_changes_nothing(catalogue: Catalogue) -> None:
    launch = LaunchOptions(pair="both", draft_model="small")
    first = ServedModel("both", launch, ReplyOptions())
    of_a_pair = replace(catalogue, first=first, names=("both", "big"))
    for name in ("", "both", "Both", "mine", "big"):
        assert of_a_pair.find(name) is first
    assert of_a_pair.find("own").launch == LaunchOptions(target="own", offline=True), (
        "its draft model is not another's"
    )


@pytest.mark.parametrize("name", ["absent", "neither"])
def test_what_is_known_and_not_here_is_to_be_pulled_first(catalogue: Catalogue, name: str) -> None:
    with pytest.raises(NotFound, match=f"localspec pull {name}"):
        catalogue.find(name)


@pytest.mark.parametrize(
    "name",
    ["gpt-4", "there.gguf", "./there.gguf", "~/there.gguf", "../../etc/passwd", "user/repo:Q4_K_M", "\0", "x" * 9999],
)  # fmt: skip
def test_no_path_is_looked_at_because_a_request_names_it(
    catalogue: Catalogue, name: str, tmp_path: Path
) -> None:
    for each in (name, str(tmp_path / "there.gguf")):
        with pytest.raises(NotFound, match="/v1/models") as caught:
            catalogue.find(each)
        assert len(str(caught.value)) < 300


def test_one_that_is_pinned_serves_nothing_else(catalogue: Catalogue) -> None:
    pinned = replace(catalogue, pinned=True)
    assert pinned.listed() == ["first", "also"]
    with pytest.raises(NotFound, match="first or also"):
        pinned.find("big")


def test_every_interface_refuses_an_unknown_name_in_its_own_form() -> None:
    said = [{"role": "user", "content": "hello"}]
    bodies: dict[str, dict[str, Any]] = {
        "/v1/chat/completions": {"messages": said},
        "/v1/completions": {"prompt": "hello"},
        "/v1/responses": {"input": "hello"},
        "/v1/messages": {"messages": said, "max_tokens": 4},
        "/v1/messages/count_tokens": {"messages": said},
        "/infill": {"input_prefix": "a", "input_suffix": "b"},
    }
    with served({"otherwise": ["Hello."]}) as server:
        for path, body in bodies.items():
            answer = server.client.post(path, json={**body, "model": "gpt-4"})
            assert answer.status_code == 404, path
            told = answer.json()["error"]
            assert told["type"] == "not_found_error"
            assert "gpt-4" in told["message"]
            assert ("type" in answer.json()) is path.startswith("/v1/messages")


def test_another_model_is_loaded_when_nothing_runs_and_its_requests_wait(tmp_path: Path) -> None:
    begin = tmp_path / "begin"
    script = {"otherwise": ["x" * 300], "pass_s": str(begin), "parallel": 2}
    with served(script, others=("other",)) as server:
        found: dict[str, Any] = {}

        def ask(key: str, model: str) -> None:
            found[key] = server.chat("hello", model=model).json()

        first = threading.Thread(target=ask, args=("first", "a-pair"))
        first.start()
        server.wait_until(1)
        others = [threading.Thread(target=ask, args=(f"other {n}", "other")) for n in range(2)]
        for each in others:
            each.start()
        server.wait_until(3)
        assert found == {}
        begin.touch()
        for each in (first, *others):
            each.join()
        assert {key: answer["model"] for key, answer in found.items()} == {
            "first": "a-pair",
            "other 0": "other",
            "other 1": "other",
        }
        lengths = {len(each["choices"][0]["message"]["content"]) for each in found.values()}
        assert lengths == {300}
        assert server.client.get("/health").json()["model"] == "other"
        listed = [each["id"] for each in server.client.get("/v1/models").json()["data"]]
        assert listed == ["other", "a-pair"]
        assert server.chat("hello", model="a-pair").json()["model"] == "a-pair"


@pytest.mark.slow
def test_a_model_that_cannot_be_loaded_is_told_and_the_server_goes_on() -> None:
    script = {
        "otherwise": ["Hello."],
        "too_large": {"other": ["ModelLoadError", "too large"]},
        "deadly": "third",
    }
    with served(script, others=("other", "third")) as server:
        refused = server.chat("hello", model="other")
        assert refused.status_code == 400
        assert refused.json()["error"]["message"] == "too large"
        assert server.chat("hello").status_code == 200
        died = server.chat("hello", model="third")
        assert died.status_code == 503
        assert "SIGKILL" in died.json()["error"]["message"]
        assert server.chat("hello").status_code == 200


def test_a_model_is_unloaded_after_a_while_and_loaded_again_when_asked() -> None:
    with served({"otherwise": ["Hello."]}, keep_alive_s=0.05) as server:
        for _ in range(2):
            assert server.chat("hello").json()["choices"][0]["message"]["content"] == "Hello."
            assert until(lambda: server.client.get("/health").json()["status"] == "unloaded")
            assert server.client.get("/health").status_code == 200
