"""Vectors and rankings over HTTP, by small real models in an engine of their own beside one that tells a script."""

import base64
import hashlib
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

from lab.serving import status
from localspec.models.entries import ModelEntry
from localspec.models.ledger import IMPORTS
from localspec.options import LaunchOptions, ReplyOptions
from localspec.plugins.serve.catalogue import Catalogue
from localspec.plugins.serve.http import NotFound
from localspec.plugins.serve.model_pool import ServedModel
from tests.llama import tiny_models
from tests.plugins.serve.clients import ollama
from tests.plugins.serve.serving import Served, served
from tests.waiting import until

pytestmark = pytest.mark.slow

EMBED, RERANK = "/v1/embeddings", "/v1/rerank"
MEAN, RANK = 1, 4
TEXTS = ["tea", "hot water", "a", "green tea with hot water " * 9]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A server on a machine with a model for vectors, one that ranks, one that writes, and one that is damaged."""
    data = tmp_path_factory.mktemp("data")
    files = {
        "vectors": tiny_models.write_bert(data / "vectors.gguf", MEAN),
        "ranker": tiny_models.write_bert(data / "ranker.gguf", RANK),
        "writer": tiny_models.write_llama(data / "writer.gguf"),
        "damaged": data / "damaged.gguf",
    }
    files["damaged"].write_bytes(b"GGUF, but no more")
    entries = dict[str, ModelEntry]()
    (data / "blobs").mkdir()
    for name, file in files.items():
        content = file.read_bytes()
        digest = hashlib.sha256(content).hexdigest()
        entries[name] = ModelEntry(name, len(content), digest, origin=str(file))
        (data / "blobs" / digest).symlink_to(file)
    IMPORTS.write(data, entries)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LOCALSPEC_DATA_DIR", str(data))
        patch.setenv("LOCALSPEC_CONFIG_DIR", str(data))
        with served({"otherwise": ["Hello."]}, most=4) as server:
            yield server


def vectors(server: Served, texts: Any, model: str = "vectors", **more: Any) -> np.ndarray:
    answer = server.post(EMBED, input=texts, model=model, **more)
    assert answer.status_code == 200, answer.text
    rows = answer.json()["data"]
    assert [each["index"] for each in rows] == list(range(len(rows)))
    return np.array([each["embedding"] for each in rows])


def engine_pid(server: Served) -> int:
    pid = server.engine("vectors").pid
    assert pid is not None
    return pid


def test_texts_ids_and_lists_of_both_have_vectors_of_length_1(server: Served) -> None:
    rows = vectors(server, TEXTS)
    assert rows.shape == (4, 64)
    for each in (rows, vectors(server, ["tea", "tea time"], "writer")):  # which has them, too
        assert np.allclose(np.linalg.norm(each, axis=1), 1, atol=1e-5)
    assert np.allclose(vectors(server, "tea")[0], rows[0], atol=1e-3)
    ids = [[256, *text.encode(), 256] for text in ("tea", "a")]
    assert np.allclose(vectors(server, ids[0]), rows[:1], atol=1e-3)
    assert np.allclose(vectors(server, ids), rows[[0, 2]], atol=1e-3)
    answer = server.post(EMBED, input=ids, model="vectors", user="somebody").json()
    assert answer["model"] == "vectors"
    assert answer["usage"] == {"prompt_tokens": 8, "total_tokens": 8}
    many = [*["x"] * 298, "tea", "a"]
    assert np.allclose(vectors(server, many)[[0, 297, 298, 299]], vectors(server, ["x", *many[-3:]]), atol=1e-3)  # fmt: skip


def test_vectors_can_be_cut_and_packed(server: Served) -> None:
    whole, cut = vectors(server, TEXTS), vectors(server, TEXTS, dimensions=16)
    assert cut.shape == (4, 16)
    again = whole[:, :16] / np.linalg.norm(whole[:, :16], axis=1, keepdims=True)
    assert np.allclose(cut, again, atol=1e-6)
    packed = server.post(EMBED, input=TEXTS, model="vectors", encoding_format="base64").json()
    rows = [np.frombuffer(base64.b64decode(e["embedding"]), "<f4") for e in packed["data"]]
    assert np.allclose(rows, whole, atol=1e-6)


def test_the_makers_client_gets_the_same_packed_and_not(client: Any) -> None:
    packed = client.embeddings.create(model="vectors", input=TEXTS)
    floats = client.embeddings.create(model="vectors", input=TEXTS, encoding_format="float")
    for one, other in zip(packed.data, floats.data, strict=True):
        assert np.allclose(one.embedding, other.embedding, atol=1e-6)
    assert packed.usage.prompt_tokens == floats.usage.total_tokens > 0


def test_what_is_wrong_with_a_request_is_one_line(server: Served) -> None:
    wrong: dict[str, dict[str, Any]] = {
        "a text has 1501 tokens and the model takes 1024": {"input": ["a", "x" * 1499]},
        "token 257 is none": {"input": [1, 257]},
        "token -1 is none": {"input": [[-1]]},
        "ids beside texts": {"input": [1, "a"]},
        "0 texts": {"input": []},
        "2049 texts": {"input": ["a"] * 2049},
        "dimensions is 65, and the model's vectors have 64": {"input": "a", "dimensions": 65},
        "dimensions is 0": {"input": "a", "dimensions": 0},
        "encoding_format": {"input": "a", "encoding_format": "hex"},
        "missing required field `input`": {},
    }
    for word, body in wrong.items():
        server.refuse(EMBED, word, **{"model": "vectors", **body})
    server.refuse(EMBED, "ranks texts", input="a", model="ranker")
    server.refuse(EMBED, "GGUF version", input="a", model="damaged")
    server.refuse(EMBED, "there is no model 'nobody'", 404, input="a", model="nobody")
    server.refuse(EMBED, "localspec pull bge-small", 404, input="a", model="bge-small-en-v1.5")
    server.refuse(RERANK, "localspec pull bge-reranker", 404, query="q", documents=["a"])
    server.refuse(RERANK, "makes vectors", query="q", documents=["a"], model="vectors")
    server.refuse(RERANK, "0 texts", query="q", documents=[], model="ranker")
    server.refuse(RERANK, "top_n is 0", query="q", documents=["a"], top_n=0, model="ranker")
    assert len(vectors(server, "a")) == 1


def test_documents_come_back_the_best_first_in_the_form_that_was_asked_for(server: Served) -> None:
    documents = ["hot", "cold", "tea", "water " * 20]
    body = {"model": "ranker", "query": "what is tea?"}
    answer = server.post(RERANK, documents=documents, **body).json()
    scores = [each["relevance_score"] for each in answer["results"]]
    assert scores == sorted(scores, reverse=True)
    order = [each["index"] for each in answer["results"]]
    assert sorted(order) == [0, 1, 2, 3]
    assert answer["usage"]["total_tokens"] > 4 * len("what is tea?")
    for path in ("/rerank", "/reranking", "/v1/reranking"):
        objects = [{"text": each} for each in documents]
        top = server.post(path, documents=objects, top_n=2, return_documents=True, **body).json()
        assert [each["index"] for each in top["results"]] == order[:2]
        assert top["results"][0]["document"] == {"text": documents[order[0]]}
    tei = server.post(RERANK, texts=documents, return_text=True, **body).json()
    assert [(each["index"], each["text"]) for each in tei] == [(at, documents[at]) for at in order]
    assert np.allclose([each["score"] for each in tei], scores, atol=1e-3)


def test_an_engine_that_dies_ends_its_requests_and_the_next_has_another(server: Served) -> None:
    before = vectors(server, TEXTS)
    with httpx.Client(base_url=server.url, timeout=60) as other:
        answers = list[httpx.Response]()
        body = {"input": ["x" * 900] * 1000, "model": "vectors"}
        thread = threading.Thread(target=lambda: answers.append(other.post(EMBED, json=body)))
        thread.start()
        server.wait_until(1)
        os.kill(engine_pid(server), signal.SIGKILL)
        thread.join()
    assert answers[0].status_code == 503
    assert "SIGKILL" in answers[0].json()["error"]["message"]
    assert until(lambda: server.post(EMBED, input="a", model="vectors").status_code == 200)
    assert np.allclose(vectors(server, TEXTS), before, atol=1e-6)
    assert server.chat("hello").json()["choices"][0]["message"]["content"] == "Hello."


def test_clients_that_go_away_leave_nothing_behind(server: Served) -> None:
    vectors(server, "a")
    pid, body = engine_pid(server), {"input": ["x" * 900] * 1000, "model": "vectors"}

    def vanish(count: int) -> int:
        for _ in range(count):
            with pytest.raises(httpx.ReadTimeout):
                httpx.post(f"{server.url}{EMBED}", json=body, timeout=0.1)
        vectors(server, "a")
        return status(pid)["rss_kb"]

    first = vanish(4)
    assert vanish(12) < 1.1 * first + 20_000


def test_ollamas_client_has_the_same_vectors(server: Served) -> None:
    rows = vectors(server, TEXTS)
    with ollama.Client(host=server.url) as ask:
        done = ask.embed("vectors:latest", TEXTS)
        assert np.allclose(done.embeddings, rows, atol=1e-6)
        assert done.prompt_eval_count > 0
        assert done.total_duration > 0
        assert np.allclose(ask.embed("vectors", "tea").embeddings, rows[:1], atol=1e-3)
        assert np.allclose(ask.embeddings("vectors", "tea").embedding, rows[0], atol=1e-3)
        assert len(ask.embed("vectors", "tea", dimensions=8).embeddings[0]) == 8
        long = "hot tea " * 400
        assert len(ask.embed("vectors", long).embeddings) == 1, "it is cut, unless that is refused"
        refused: list[tuple[dict[str, Any], str]] = [
            ({"input": long, "truncate": False}, "the model takes"),
            ({"input": "tea", "dimensions": 99}, "dimensions is 99"),
            ({"input": "tea", "model": "none"}, "there is no model 'none'"),
        ]
        for more, word in refused:
            with pytest.raises(ollama.ResponseError, match=word):
                ask.embed(**{"model": "vectors", **more})
        ask.embed("vectors", "tea", keep_alive=0)
        assert until(lambda: "vectors:latest" not in [each.model for each in ask.ps().models])
        # What a file's header says.
        ask.embed("writer", "tea")
        listed = {each.model: each for each in ask.ps().models}["writer:latest"]
        assert (listed.size > 1000, len(listed.digest)) == (True, 64)
        known = ask.show("writer")
        assert (known.details.family, known.capabilities) == ("llama", ["completion"])
        assert known.modelinfo["general.architecture"] == "llama"
        assert known.modelinfo["llama.context_length"] > 0
        assert known.modelinfo["general.parameter_count"] > 1000
        with pytest.raises(ollama.ResponseError, match="download a conversion"):
            ask.show("damaged")


def test_nothing_to_make_vectors_of_is_an_empty_list(server: Served) -> None:
    nothing: list[Any] = [[], "", None]
    for given in nothing:
        answer = server.post("/api/embed", model="vectors", input=given, options={"num_ctx": 9})
        assert answer.json() == {"model": "vectors", "embeddings": []}
    assert server.post("/api/embed", model="vectors").json()["embeddings"] == []
    for given in ("", None):
        older = server.post("/api/embeddings", model="vectors", prompt=given)
        assert older.json()["embedding"] == []
    server.refuse("/api/embed", "no model 'nobody'", 404, input=[], model="nobody")
    server.refuse(EMBED, "0 texts", input=[])


def test_without_a_name_the_first_makes_vectors_where_nothing_else_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    file = tiny_models.write_llama(tmp_path / "writer.gguf")
    first = ServedModel("mine", LaunchOptions(target=str(file)), ReplyOptions())
    for pinned in (False, True):
        catalogue = Catalogue((first,), lambda _: ReplyOptions(), pinned)
        for name in ("", "mine", "mine:latest"):
            model = catalogue.embedder(name)
            assert (model.launch.target, model.embeds) == (str(file), True)
        with pytest.raises(NotFound, match="no model here ranks texts: run `localspec pull"):
            catalogue.embedder("", ranks=True)
        with pytest.raises(NotFound, match="'other'"):
            catalogue.embedder("other")
