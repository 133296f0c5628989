"""The two forms of OpenAI's completions, and how they tell logprobs."""

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

from localspec.chat.events import CallBegun, CallDelta, Delta, Reply, Text, TokenLogprob
from localspec.messages import ToolCall
from localspec.serve.tools import openai_call

_UNLIKELY = -9999.0


class ChatForm:
    """The forms of a chat completion."""

    whole, chunk, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl"

    def __init__(self, model: str, logprobs: bool, notes: Sequence[str] = ()) -> None:
        self.model = model
        self.notes = notes
        self._logprobs = logprobs
        self._calls: dict[int, int] = {}

    def choice(self, reply: Reply, texts: Sequence[Text]) -> dict[str, Any]:
        """Return one whole answer."""
        more: dict[str, Any] = {"reasoning_content": reply.thinking} if reply.thinking else {}
        content: str | None = reply.text
        if reply.calls:
            content = content or None
            more["tool_calls"] = [openai_call(each) for each in reply.calls]
        message = {"role": "assistant", "content": content, "refusal": None, **more}
        return {"message": message, "logprobs": self._likely(texts)}

    def opening(self) -> dict[str, Any]:
        """Return what a stream begins with."""
        return {"delta": {"role": "assistant", "content": ""}}

    def piece(self, at: int, told: Delta | None) -> dict[str, Any]:
        """Return a part of a stream; without any its end."""
        match told:
            case Text():
                delta = {"reasoning_content" if told.thinking else "content": told.text}
                return {"delta": delta, "logprobs": self._likely([told])}
            case CallBegun(id=name):
                self._calls[at] = self._calls.get(at, -1) + 1
                call = openai_call(ToolCall(name, told.name, ""))
            case CallDelta(text=text):
                call = {"function": {"arguments": text}}
            case _:
                return {"delta": {}}
        return {"delta": {"tool_calls": [{"index": self._calls[at], **call}]}}

    def _likely(self, texts: Sequence[Text]) -> dict[str, Any] | None:
        if not self._logprobs:
            return None
        return {"content": likely(texts), "refusal": None}


class TextForm:
    """The forms of a completion."""

    whole, chunk, prefix = "text_completion", "text_completion", "cmpl"

    notes: Sequence[str] = ()

    def __init__(self, model: str, logprobs: bool) -> None:
        self.model = model
        self._logprobs = logprobs
        self._told: dict[int, int] = {}

    def choice(self, reply: Reply, texts: Sequence[Text]) -> dict[str, Any]:
        """Return one whole answer."""
        return {"text": reply.text, "logprobs": self._likely(texts, 0)}

    def opening(self) -> None:
        """Return what a stream begins with: nothing."""

    def piece(self, at: int, text: Delta | None) -> dict[str, Any]:
        """Return a part of a stream; without a text its end."""
        if not isinstance(text, Text):
            return {"text": "", "logprobs": None}
        start = self._told.get(at, 0)
        self._told[at] = start + len(text.text)
        return {"text": text.text, "logprobs": self._likely([text], start)}

    def _likely(self, texts: Sequence[Text], start: int) -> dict[str, Any] | None:
        if not self._logprobs:
            return None
        told = [each for text in texts for each in text.logprobs]
        before = accumulate((each.piece for each in told), initial="")
        return {
            "tokens": [_named(each.piece) for each in told],
            "token_logprobs": [_finite(each.logprob) for each in told],
            "top_logprobs": [_likeliest(each) for each in told],
            # Where a token begins, in characters of the text.
            "text_offset": [
                start + len(_bytes(spelled).decode(errors="ignore"))
                for spelled, _ in zip(before, told, strict=False)
            ],
        }


def likely(texts: Sequence[Text]) -> list[dict[str, Any]]:
    """Return the logprobs of an answer's tokens, those of thoughts not among them."""
    return [
        {
            **_token(each.piece, each.logprob),
            "top_logprobs": [_token(*other) for other in each.top],
        }
        for text in texts
        if not text.thinking
        for each in text.logprobs
    ]


def _bytes(piece: str) -> bytes:
    return piece.encode("latin-1")


def _token(piece: str, logprob: float) -> dict[str, Any]:
    raw = _bytes(piece)
    return {
        "token": raw.decode(errors="replace"),
        "logprob": _finite(logprob),
        "bytes": list(raw),
    }


def _named(piece: str) -> str:
    """Return a token's text; of one that is no text by itself its bytes, so that no two are called alike."""
    raw = _bytes(piece)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{each:02x}" for each in raw)


def _likeliest(told: TokenLogprob) -> dict[str, float]:
    """Return the likeliest tokens, and the chosen one where it is none of them."""
    return {_named(piece): _finite(each) for piece, each in (*told.top, (told.piece, told.logprob))}


def _finite(logprob: float) -> float:
    """Return what JSON can say, as OpenAI does."""
    return max(logprob, _UNLIKELY)
