"""Embeddings as OpenAI's interface has them, and rankings of documents as Jina's, Cohere's and TEI's, all of which llama-server speaks.

Source: the API reference of OpenAI, and the README of llama.cpp's server.
"""

import asyncio
import base64
from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from starlette.requests import Request as HttpRequest
from starlette.responses import Response

from localspec.api import UsageError
from localspec.plugins.serve.answering import Service, unless_gone
from localspec.plugins.serve.bodies import body_of
from localspec.plugins.serve.embeddings import Embedded, Text, embed


class EmbeddingBody(msgspec.Struct):
    """Texts or ids of texts, and how to answer. Other fields are ignored."""

    input: str | list[str | int | list[int]]
    model: str = ""
    dimensions: int | None = None
    encoding_format: Literal["float", "base64"] = "float"


class Document(msgspec.Struct):
    """A text in an object."""

    text: str


class RerankBody(msgspec.Struct):
    """A question, and what may answer it; `texts` are `documents` in TEI's interface, whose answer is a bare list."""

    query: str
    model: str = ""
    documents: list[str | Document] = []
    texts: list[str] = []
    top_n: int | None = None
    return_documents: bool = False
    return_text: bool = False


async def embeddings(request: HttpRequest, service: Service) -> Response:
    """Return a vector of each text."""
    body = await body_of(request, EmbeddingBody)
    work = embed(service, body.model, _texts(body.input), dimensions=body.dimensions)
    done = await unless_gone(request, work)
    return await _answer(_listed, done, body.encoding_format == "base64")


def _texts(given: str | Sequence[str | int | list[int]]) -> Sequence[Text]:
    """Return the texts of an input: one, several, or one of ids alone."""
    if isinstance(given, str):
        return [given]
    texts = [each for each in given if not isinstance(each, int)]
    if len(texts) == len(given):
        return texts
    if texts:
        raise UsageError("input has ids beside texts: send texts, lists of ids, or one list of ids")
    return [[each for each in given if isinstance(each, int)]]


def _listed(done: Embedded, packed: bool) -> dict[str, Any]:
    rows = done.rows.astype("<f4")
    vectors = (
        [base64.b64encode(each.tobytes()).decode() for each in rows] if packed else rows.tolist()
    )
    data = [
        {"object": "embedding", "index": at, "embedding": each} for at, each in enumerate(vectors)
    ]
    return {"object": "list", "data": data, "model": done.model, "usage": _usage(done)}


async def rerank(request: HttpRequest, service: Service) -> Response:
    """Return how well each document answers a question, the best first."""
    body = await body_of(request, RerankBody)
    texts = body.texts or [each if isinstance(each, str) else each.text for each in body.documents]
    most = len(texts) if body.top_n is None else body.top_n
    if most < 1 and texts:
        raise UsageError(f"top_n is {most}: give 1 or more")
    done = await unless_gone(request, embed(service, body.model, texts, query=body.query))
    return await _answer(_ranked, done, body, texts, most)


def _ranked(done: Embedded, body: RerankBody, texts: Sequence[str], most: int) -> Any:
    scores = done.rows[:, 0]
    label = "score" if body.texts else "relevance_score"
    results = list[dict[str, Any]]()
    for at in np.argsort(-scores, kind="stable")[:most].tolist():
        result = {"index": at, label: float(scores[at])}
        if body.return_text and body.texts:
            result["text"] = texts[at]
        elif body.return_documents:
            result["document"] = {"text": texts[at]}
        results.append(result)
    if body.texts:
        return results
    return {"object": "list", "model": done.model, "usage": _usage(done), "results": results}


def _usage(done: Embedded) -> dict[str, int]:
    return {"prompt_tokens": done.tokens, "total_tokens": done.tokens}


async def _answer(form: Any, *values: Any) -> Response:
    """Return a form as JSON, made beside the loop: it may have a million numbers."""
    content = await asyncio.to_thread(lambda: msgspec.json.encode(form(*values)))
    return Response(content, media_type="application/json")
