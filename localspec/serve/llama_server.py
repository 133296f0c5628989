"""What llama-server has beside OpenAI's interface, and editors ask for: tokens of a text, and back.

Source: the README of llama.cpp's server.
"""

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from localspec.engine.protocol import Detokenize, Tokenize
from localspec.serve.answering import Service, unless_gone
from localspec.serve.http import body_of


class TokenizeBody(msgspec.Struct):
    """A text, and whether the ids stand alone, or each with what it stands for."""

    content: str
    add_special: bool = False
    with_pieces: bool = False


class DetokenizeBody(msgspec.Struct):
    """Ids."""

    tokens: list[int]


async def tokenize(request: Request, service: Service) -> Response:
    """Return the ids of a text; where asked, each with its piece, or the bytes of one that is no text by itself."""
    body = await body_of(request, TokenizeBody)
    asked = Tokenize(0, body.content, body.add_special)
    found = await unless_gone(request, service.backend.tokens(asked))
    if not body.with_pieces:
        return JSONResponse({"tokens": found.tokens})
    pairs = zip(found.tokens, found.pieces, strict=True)
    return JSONResponse({"tokens": [{"id": each, "piece": _piece(text)} for each, text in pairs]})


async def detokenize(request: Request, service: Service) -> Response:
    """Return what ids stand for, control tokens included."""
    body = await body_of(request, DetokenizeBody)
    found = await unless_gone(request, service.backend.tokens(Detokenize(0, tuple(body.tokens))))
    whole = "".join(found.pieces).encode("latin-1")
    return JSONResponse({"content": whole.decode(errors="replace")})


def _piece(text: str) -> Any:
    raw = text.encode("latin-1")
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return list(raw)
