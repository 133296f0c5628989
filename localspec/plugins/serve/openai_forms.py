"""The two forms of OpenAI's completions, and how they write logprobs."""

import secrets
import time
from abc import abstractmethod
from codecs import getincrementaldecoder
from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

from localspec import __version__
from localspec.api import Finished, Reply, StopReason, Text
from localspec.chat.events import CallBegun, CallDelta, CallDone, Delta, Echo, TokenLogprob
from localspec.chat.reply_figures import speculation, timings
from localspec.display import drafting_text
from localspec.messages import ToolCall, call_to_json
from localspec.plugins.serve.answering import AnswerForm, Body, PromptProgress

CUT = {StopReason.LENGTH, StopReason.CONTEXT_FULL, StopReason.LOOP}
"""Why an answer may end before its end."""
_UNLIKELY = -9999.0
_FINISHES = {
    StopReason.TOOL_CALL: "tool_calls",
    StopReason.GATED: "content_filter",
    **dict.fromkeys(CUT, "length"),
}


def _thoughts(text: str) -> Body:
    """Return thoughts under both names that clients read: llama.cpp's and DeepSeek's, and that of vLLM and OpenRouter."""
    return {"reasoning_content": text, "reasoning": text}


def drafting(done: Finished) -> dict[str, Any]:
    """Return how drafting went, why it went so, and both in the words that stand under an answer."""
    reply, why = done.reply, done.no_drafting or done.reply.no_gain
    counts = reply.acceptance
    line = drafting_text(counts.drafted, counts.accepted, reply.gain_ratio, why)
    return {**speculation(reply, done.reason), "line": line}


def figures(done: Finished, notes: Sequence[str] = ()) -> dict[str, Any]:
    """Return what only localspec has: seed, where the time went, and how drafting went."""
    own = {"seed": done.reply.seed, "stop_reason": done.reply.stop_reason.value}
    notes = [*notes, *filter(None, [done.reply.note])]
    return {
        "localspec": {**own, **({"notes": notes} if notes else {})},
        "timings": {**timings(done.reply), **paces(done.reply)},
        "speculation": drafting(done),
    }


def paces(reply: Reply) -> dict[str, float]:
    """Return how fast a prompt was read and its answer written, by llama-server's names."""
    evaluated = reply.prompt_tokens - reply.cached_tokens
    return {
        "cache_n": reply.cached_tokens,
        **_pace("prompt", evaluated, reply.prefill_s),
        **_pace("predicted", reply.completion_tokens, reply.decode_s),
    }


def _pace(name: str, count: int, seconds: float) -> dict[str, float]:
    return {
        f"{name}_n": count,
        f"{name}_ms": 1000 * seconds,
        f"{name}_per_token_ms": 1000 * seconds / count if count else 0.0,
        f"{name}_per_second": count / seconds if seconds else 0.0,
    }


class CompletionForm(AnswerForm):
    """The common form of completions.

    Args:
        model: its name.
        logprobs: whether they are reported.
        count: of answers.
        each: how many of them are to each prompt.
        counted: whether a stream ends with the usage.
        notes: on the request.
    """

    object: str
    chunk: str
    prefix: str
    end = b"data: [DONE]\n\n"

    def __init__(
        self,
        model: str,
        *,
        logprobs: bool,
        count: int,
        each: int = 1,
        counted: bool = False,
        notes: Sequence[str] = (),
    ) -> None:
        self._logprobs = logprobs
        self._count = count
        self._each = each
        self._counted = counted
        self._notes = notes
        self._done: dict[int, Reply] = {}
        self._head = {
            "id": f"{self.prefix}-{secrets.token_hex(12)}",
            "created": int(time.time()),
            "model": model,
            "system_fingerprint": f"localspec-{__version__}",
        }

    @abstractmethod
    def choice(self, reply: Reply, texts: Sequence[Text | Echo]) -> Body:
        """Return one whole answer."""

    @abstractmethod
    def piece(self, at: int, event: Delta | None) -> Body:
        """Return a part of one streamed answer; without an event its end."""

    def pieces(self, at: int, event: Delta | Finished) -> Iterable[Body]:
        """Return the part of an answer that an event is."""
        if isinstance(event, Finished):
            self._done[at] = event.reply
            more = figures(event, self._notes) if self._count == 1 else {}
            reason = _FINISHES.get(event.reply.stop_reason, "stop")
            yield self._chunk(at, self.piece(at, None), reason, **more)
        elif not isinstance(event, CallDone):
            yield self._chunk(at, self.piece(at, event))

    def closing(self) -> Iterable[Body]:
        """Return the usage, where it is wanted."""
        if self._counted:
            usage = _usage([self._done[at] for at in sorted(self._done)], self._each)
            yield {**self._head, "object": self.chunk, "choices": [], "usage": usage}

    def whole(self, answers: Sequence[Sequence[Delta]], done: Sequence[Finished]) -> Body:
        """Return all answers, with the figures of the first."""
        choices = [
            {
                "index": at,
                **self.choice(each.reply, [x for x in pieces if isinstance(x, Text | Echo)]),
                "finish_reason": _FINISHES.get(each.reply.stop_reason, "stop"),
            }
            for at, (pieces, each) in enumerate(zip(answers, done, strict=True))
        ]
        usage = _usage([each.reply for each in done], self._each)
        head = {**self._head, "object": self.object, "choices": choices, "usage": usage}
        return {**head, **figures(done[0], self._notes)}

    def _chunk(self, at: int, piece: Body, reason: str | None = None, **more: Any) -> Body:
        choice = {"index": at, **piece, "finish_reason": reason}
        usage = {"usage": None} if self._counted else {}
        return {**self._head, "object": self.chunk, "choices": [choice], **usage, **more}


class ChatForm(CompletionForm):
    """The form of a chat completion."""

    object, chunk, prefix = "chat.completion", "chat.completion.chunk", "chatcmpl"

    def __init__(self, model: str, **given: Any) -> None:
        super().__init__(model, **given)
        self._calls: dict[int, int] = {}

    def opening(self, progress: PromptProgress) -> Iterable[Body]:  # noqa: ARG002 - see AnswerForm
        """Return an empty part of every answer."""
        for at in range(self._count):
            yield self._chunk(at, {"delta": {"role": "assistant", "content": ""}})

    def choice(self, reply: Reply, texts: Sequence[Text | Echo]) -> Body:
        """Return one whole answer."""
        more = {**(_thoughts(reply.thinking) if reply.thinking else {})}
        content: str | None = reply.text
        if reply.calls:
            content = content or None
            more["tool_calls"] = [call_to_json(each) for each in reply.calls]
        message = {"role": "assistant", "content": content, "refusal": None, **more}
        return {"message": message, "logprobs": self._likely(texts)}

    def piece(self, at: int, event: Delta | None) -> Body:
        """Return a part of one streamed answer; without an event its end."""
        match event:
            case Text():
                delta = _thoughts(event.text) if event.thinking else {"content": event.text}
                return {"delta": delta, "logprobs": self._likely([event])}
            case CallBegun(id=name):
                self._calls[at] = self._calls.get(at, -1) + 1
                call = call_to_json(ToolCall(name, event.name, ""))
            case CallDelta(text=text):
                call = {"function": {"arguments": text}}
            case _:
                return {"delta": {}}
        return {"delta": {"tool_calls": [{"index": self._calls[at], **call}]}}

    def _likely(self, texts: Sequence[Text | Echo]) -> Body | None:
        return {"content": likely(texts), "refusal": None} if self._logprobs else None


class TextForm(CompletionForm):
    """The form of a completion."""

    object, chunk, prefix = "text_completion", "text_completion", "cmpl"

    def __init__(self, model: str, **given: Any) -> None:
        super().__init__(model, **given)
        self._length = [0] * self._count

    def choice(self, reply: Reply, texts: Sequence[Text | Echo]) -> Body:
        """Return one whole answer, behind its prompt where that is wanted."""
        prompt = "".join(each.text for each in texts if isinstance(each, Echo))
        return {"text": prompt + reply.text, "logprobs": self._likely(texts, 0)}

    def piece(self, at: int, event: Delta | None) -> Body:
        """Return a part of one streamed answer; without a text its end."""
        if not isinstance(event, Text | Echo):
            return {"text": "", "logprobs": None}
        start = self._length[at]
        self._length[at] += len(event.text)
        return {"text": event.text, "logprobs": self._likely([event], start)}

    def _likely(self, texts: Sequence[Text | Echo], start: int) -> Body | None:
        if not self._logprobs:
            return None
        tokens = [each for text in texts for each in text.logprobs]
        decode = getincrementaldecoder("utf-8")("ignore").decode
        lengths = [len(decode(_bytes(each.piece))) for each in tokens]
        prompts = [each for each in texts if isinstance(each, Echo)]
        # What the tokens of a prompt have before its text: a BOS, a space.
        count, written = (
            sum(len(each.logprobs) for each in prompts),
            sum(len(each.text) for each in prompts),
        )
        more = sum(lengths[:count]) - written
        offsets = accumulate(lengths, initial=start)
        return {
            "tokens": [_named(each.piece) for each in tokens],
            "token_logprobs": [_finite(each.logprob) for each in tokens],
            "top_logprobs": [_likeliest(each) for each in tokens],
            # Where a token begins, in characters of the text.
            "text_offset": [max(0, each - more) for each in offsets][: len(tokens)],
        }


def likely(texts: Sequence[Text | Echo]) -> list[dict[str, Any]]:
    """Return the logprobs of an answer's tokens, those of thoughts not among them."""
    return [
        {**_token(each.piece, each.logprob), "top_logprobs": [_token(*other) for other in each.top]}
        for text in texts
        if isinstance(text, Text) and not text.thinking
        for each in text.logprobs
    ]


def _usage(replies: Sequence[Reply], each_prompt: int) -> dict[str, Any]:
    """Return the tokens of answers, so many to each prompt; a prompt counts once, as what is cached of it for all of them does."""
    prompt = sum(each.prompt_tokens for each in replies[::each_prompt])
    same = (replies[at : at + each_prompt] for at in range(0, len(replies), each_prompt))
    cached = sum(min(each.cached_tokens for each in answers) for answers in same)
    completion = sum(each.completion_tokens for each in replies)
    usage = {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": cached},
    }
    predicted = [each.prediction for each in replies if each.prediction is not None]
    if predicted:
        accepted = sum(count for _, count in predicted)
        rejected = sum(tokens for tokens, _ in predicted) - accepted
        usage["completion_tokens_details"] = {
            "accepted_prediction_tokens": accepted,
            "rejected_prediction_tokens": rejected,
        }
    return usage


def _bytes(piece: str) -> bytes:
    return piece.encode("latin-1")


def _token(piece: str, logprob: float | None) -> dict[str, Any]:
    raw = _bytes(piece)
    text = raw.decode(errors="replace")
    return {"token": text, "logprob": _finite(logprob), "bytes": list(raw)}


def _named(piece: str) -> str:
    """Return a token's text; of one that is no text by itself its bytes, so that no two have the same name."""
    raw = _bytes(piece)
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{each:02x}" for each in raw)


def _likeliest(token: TokenLogprob) -> dict[str, float | None] | None:
    """Return the likeliest tokens, and the chosen one where it is none of them; None of a prompt's first."""
    if token.logprob is None:
        return None
    pairs = (*token.top, (token.piece, token.logprob))
    return {_named(piece): _finite(each) for piece, each in pairs}


def _finite(logprob: float | None) -> float | None:
    """Return what JSON can hold, as OpenAI does."""
    return None if logprob is None else max(logprob, _UNLIKELY)
