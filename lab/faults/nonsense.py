"""Requests that are none, or nearly: bodies, encodings, depths, headers, request lines, noise. Made by chance, with a seed."""

import gzip
import json
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.serve.test_fuzzed import body as fuzzed

_PATHS = (
    *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"),
    *("/v1/messages/count_tokens", "/infill", "/tokenize", "/detokenize"),
)
_GOOD = {"messages": [{"role": "user", "content": "Hello."}], "max_tokens": 1}
_HOST = "Host: localhost"
_DEEPEST = 100_000


@dataclass(frozen=True, slots=True)
class Nonsense:
    """What is sent.

    Args:
        sent: all of it.
        answered: whether it is HTTP enough for an answer.
    """

    sent: bytes
    answered: bool = True


def nonsense(chance: Random) -> Nonsense:
    """Return something that no client should send."""
    kinds, weights = zip(*_KINDS.items(), strict=True)
    made: Nonsense = chance.choices(kinds, weights)[0](chance)
    return made


def assert_refused(came: bytes, made: Nonsense) -> None:
    """See that it was refused in one line, or by an end of the connection where it was no HTTP."""
    if not came:
        assert not made.answered, ("no answer", made.sent[:500])
        return
    head, _, told = came.partition(b"\r\n\r\n")
    version, status = head.split(b" ")[:2]
    assert version == b"HTTP/1.1", (came[:200], made.sent[:500])
    assert int(status) < 500, (came[:500], made.sent[:500])
    if int(status) >= 400 and b"application/json" in head and made.answered:
        message = json.loads(told)["error"]["message"]
        assert message.isprintable(), (message, made.sent[:500])


def _post(chance: Random, body: bytes, *headers: str, path: str | None = None) -> Nonsense:
    path = path or chance.choice(_PATHS)
    lines = (f"POST {path} HTTP/1.1", _HOST, "Connection: close", *headers)
    head = "\r\n".join((*lines, f"Content-Length: {len(body)}"))
    return Nonsense(head.encode() + b"\r\n\r\n" + body)


def _fuzzed(chance: Random) -> Nonsense:
    return _post(chance, fuzzed(chance))


def _broken(chance: Random) -> Nonsense:
    """Return a body that is no JSON."""
    good = json.dumps(_GOOD).encode()
    raw = bytearray(good)
    at = chance.randrange(1, len(raw))
    harm = chance.randrange(6)
    if harm == 0:
        del raw[at:]
    elif harm == 1:
        raw[at:at] = chance.randbytes(chance.randint(1, 20))
    elif harm == 2:
        raw = bytearray(chance.randbytes(chance.randint(0, 2000)))
    elif harm == 3:
        raw += b"}" + good
    elif harm == 4:
        raw[at:at] = b"\0"
    else:
        raw = bytearray(b"\xef\xbb\xbf" + good)
    return _post(chance, bytes(raw))


_WRONG: dict[str, tuple[Any, ...]] = {
    "messages": (
        *(None, 5, "x", [5], [[]], {}, [{}], [{"role": 5}], [{"role": "user"}], [None] * 9),
        [{"role": "nobody", "content": "x"}],
        [{"role": "user", "content": 5}],
        [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "/etc/passwd"}}]}],
        [{"role": "user", "content": [{"type": "text"}]}],
        [{"role": "tool", "content": "x"}] * 3,
    ),
    "temperature": ("hot", -1, 1e308, [], True),
    "top_p": (-1, 2, "x"),
    "top_k": (-5, 1.5, 2**70),
    "max_tokens": ("many", 2**64, 1.5),
    "n": (-1, 99, "x", 2**40),
    "seed": (-(2**70), 2**70, "x", 1.5),
    "stop": (5, [5], [""] * 100, {"a": 1}, ["x" * 10_000]),
    "logit_bias": ({"x": 1}, {"-1": 1}, {"999999999": 5}, {"1": "x"}, []),
    "top_logprobs": (-1, 999, "x"),
    "response_format": (
        *(
            5,
            "json",
            {"type": 5},
            {"type": "json_schema"},
            {"type": "json_schema", "json_schema": 5},
        ),
        {"type": "json_schema", "json_schema": {"schema": {"type": "nothing"}}},
        {"type": "json_schema", "json_schema": {"schema": {"$ref": "#/nowhere"}}},
        {"type": "json_schema", "json_schema": {"schema": {"$ref": "file:///etc/passwd"}}},
        {"type": "json_schema", "json_schema": {"schema": {"pattern": "(" * 50}}},
    ),
    "stream": (5, "yes", []),
    "stream_options": (5, [], {"include_usage": 7}),
    "model": (5, "../../etc/passwd", "/etc/passwd", "x" * 100_000, "nobody/nothing:Q4"),
    "localspec": (5, {"draft": "magic"}, {"draft": 5}, {"exact": False}, {"exact": "x"}),
    "tools": ([{"type": "function"}],),
    "prompt": (5, [], [5], {}, ["x"] * 99),
    "input": (5, [5], [{}], {"role": "user"}),
    "tokens": (5, ["x"], [-1], [2**70], [10**9]),
    "content": (5, [], {}),
}


def _wrong(chance: Random) -> Nonsense:
    """Return JSON that says what nobody may say."""
    name = chance.choice(list(_WRONG))
    value = chance.choice(_WRONG[name])
    at = {
        "prompt": "/v1/completions",
        "input": "/v1/responses",
        "tokens": "/detokenize",
        "content": "/tokenize",
    }
    path = at.get(name, "/v1/chat/completions")
    return _post(chance, json.dumps({**_GOOD, name: value}).encode(), path=path)


def _deep(chance: Random) -> Nonsense:
    """Return what is nested."""
    deep = round(10 ** chance.uniform(1, 5))
    opening, closing = chance.choice(
        [("[", "]"), ('{"type":"array","items":', "}"), ('{"a":', "}")]
    )
    nest = opening * deep + "1" + closing * chance.choice([deep, deep, 0])
    place = chance.randrange(4)
    if place == 0:
        return _post(chance, nest.encode())
    if place == 1:
        return _post(chance, f'{{"messages": {nest}}}'.encode(), path="/v1/chat/completions")
    if place == 2:
        return _post(chance, f'{{"unknown": {nest}, "max_tokens": 0}}'.encode())
    nested = f'{{"type": "json_schema", "json_schema": {{"schema": {nest}}}}}'
    body = f'{{"messages": [], "response_format": {nested}}}'
    return _post(chance, body.encode(), path="/v1/chat/completions")


def _encoded(chance: Random) -> Nonsense:
    """Return a body in another encoding than it should have."""
    text = json.dumps({**_GOOD, "max_tokens": 0, "user": "é€😀"}, ensure_ascii=False)
    kind = chance.randrange(5)
    if kind == 0:
        named = chance.choice(["utf-16", "utf-16-le", "utf-32", "utf-7", "cp1252"])
        return _post(
            chance,
            text.encode(named, "replace"),
            f"Content-Type: application/json; charset={named}",
        )
    if kind == 1:
        return _post(chance, gzip.compress(text.encode()), "Content-Encoding: gzip")
    if kind == 2:
        bad = chance.choice(
            [b"\xff\xfe", b"\xc0\x80", b"\xed\xa0\x80", b"\xf5\x80\x80\x80", b"\x80"]
        )
        return _post(chance, text.encode().replace("é".encode(), bad))
    if kind == 3:
        lone = '{"messages": [{"role": "user", "content": "\\ud800"}], "max_tokens": 1}'
        return _post(chance, lone.encode(), path="/v1/chat/completions")
    return _post(chance, text.encode(), "Content-Type: multipart/form-data; boundary=x")


def _headers(chance: Random) -> Nonsense:
    """Return a head that is no head."""
    line = f"POST {chance.choice(_PATHS)} HTTP/1.1"
    bad = chance.choice(
        (
            *(
                "",
                "Host: evil.example",
                "Host: localhost\r\nHost: evil.example",
                "Host:",
                "Host: [::",
            ),
            *(f"{_HOST}\r\nOrigin: https://evil.example", f"{_HOST}\r\nOrigin: null"),
            *(f"{_HOST}\r\nX: {'x' * 20_000}", f"{_HOST}\r\nX: {'x' * 300_000}"),
            f"{_HOST}" + "".join(f"\r\nX-{n}: {n}" for n in range(2_000)),
            *(
                f"{_HOST}\r\nX: \0",
                f"{_HOST}\r\nX: a\r\n b",
                f"{_HOST}\r\nno colon",
                f"{_HOST}\r\n: x",
            ),
            *(f"{_HOST}\r\nX: é", f"{_HOST}\r\nÄ: x", f"{_HOST}\nX: y", f"{_HOST}\r\nX : y"),
            *(
                f"{_HOST}\r\nContent-Length: {each}"
                for each in (-1, "x", "1, 2", 2**70, "0x5", "+5")
            ),
            f"{_HOST}\r\nContent-Length: 3\r\nContent-Length: 4",
            f"{_HOST}\r\nContent-Length: 5\r\nTransfer-Encoding: chunked",
            *(
                f"{_HOST}\r\nTransfer-Encoding: {each}"
                for each in ("gzip", "x, chunked", "chunked")
            ),
            f"{_HOST}\r\nExpect: a miracle",
            f"{_HOST}\r\nUpgrade: websocket\r\nConnection: Upgrade",
            f"{_HOST}\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings",
            f"{_HOST}\r\nAuthorization: Bearer \xff",
        )
    )
    rest = chance.choice(
        [b"", b"{}", b"5\r\n{}", b"zz\r\n", b"ffffffffffffffff\r\n{}", chance.randbytes(40)]
    )
    return Nonsense(f"{line}\r\n{bad}\r\n\r\n".encode("latin-1") + rest, answered=False)


def _lines(chance: Random) -> Nonsense:
    """Return a request line that is none, or asks for what is not there."""
    method = chance.choice(
        ["GET", "PUT", "DELETE", "TRACE", "OPTIONS", "HEAD", "post", "G\0T", "M" * 9000]
    )
    path = chance.choice(
        (
            *("/", "*", "//", "/../../etc/passwd", "/%2e%2e/%00", "/%ff%fe", "/v1/models/../../x"),
            *(
                "http://evil.example/v1/models",
                "/é",
                "/ x",
                "",
                "/" + "x" * 20_000,
                "/health?" + "&" * 5000,
            ),
            *_PATHS,
        )
    )
    version = chance.choice(
        ["HTTP/1.1", "HTTP/1.0", "HTTP/0.9", "HTTP/2.0", "HTTP/9.9", "http/1.1", "", "X"]
    )
    line = f"{method} {path} {version}\r\n{_HOST}\r\nConnection: close\r\n\r\n"
    return Nonsense(line.encode("latin-1"), answered=False)


def _noise(chance: Random) -> Nonsense:
    sent = chance.choice(
        [
            chance.randbytes(chance.randint(1, 4000)),
            b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + chance.randbytes(500),
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            b"\r\n" * chance.randint(1, 500),
            b"GET",
        ]
    )
    return Nonsense(sent, answered=False)


_KINDS: dict[Callable[[Random], Nonsense], int] = {
    _fuzzed: 2,  # every third is answered, which takes the model's time
    _broken: 25,
    _wrong: 15,
    _deep: 13,
    _encoded: 13,
    _headers: 17,
    _lines: 12,
    _noise: 3,
}
