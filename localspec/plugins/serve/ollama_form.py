"""The form of Ollama's answers: an object a line, the last of them with the figures; a call comes whole."""

import time
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any

from localspec.api import Finished, StopReason, Text
from localspec.chat.events import CallDone, Delta
from localspec.messages import ToolCall
from localspec.plugins.serve.answering import AnswerForm, Body, PromptProgress, json_of
from localspec.plugins.serve.openai_forms import CUT, figures, likely
from localspec.plugins.serve.tools import arguments_object

_ENDS = {**dict.fromkeys(CUT, "length"), StopReason.GATED: "content_filter"}


class OllamaForm(AnswerForm):
    """The form of a chat, or of a generated text.

    Args:
        model: its name.
        chat: whether it is a chat.
        logprobs: whether they are reported.
        notes: on the request.
    """

    media_type = "application/x-ndjson"

    def __init__(
        self, model: str, *, chat: bool, logprobs: bool = False, notes: Sequence[str] = ()
    ) -> None:
        self._model = model
        self._chat = chat
        self._logprobs = logprobs
        self._notes = notes
        self._since_s = time.monotonic()
        self._calls = 0

    def encoded(self, events: Iterable[Body]) -> bytes:
        """Return a line for each event."""
        return b"".join(json_of(each) + b"\n" for each in events)

    def waiting(self, progress: PromptProgress, number: int) -> bytes:  # noqa: ARG002 - a line is JSON, and there are no comments
        """Return a piece without a word."""
        return self.encoded([self._piece()])

    def pieces(self, at: int, event: Delta | Finished) -> Iterable[Body]:  # noqa: ARG002 - the only one
        """Return the piece that an event is, or the end."""
        match event:
            case Text(thinking=True):
                yield self._piece(thinking=event.text)
            case Text():
                yield self._piece(event.text, texts=[event])
            case CallDone(call=call):
                yield self._piece(calls=[call])
            case Finished():
                yield {**self._piece(), **self._end(event)}

    def whole(self, answers: Sequence[Sequence[Delta]], done: Sequence[Finished]) -> Body:
        """Return the answer."""
        reply = done[0].reply
        texts = [each for each in answers[0] if isinstance(each, Text)]
        piece = self._piece(reply.text, reply.thinking, reply.calls, texts)
        return {**piece, **self._end(done[0])}

    def empty(self, reason: str) -> Body:
        """Return an answer without a word, and why there is none."""
        return {**self._piece(), "done": True, "done_reason": reason}

    def _piece(
        self,
        text: str = "",
        thinking: str = "",
        calls: Sequence[ToolCall] = (),
        texts: Sequence[Text] = (),
    ) -> dict[str, Any]:
        head = {"model": self._model, "created_at": datetime.now(UTC).isoformat()}
        more: dict[str, Any] = {"thinking": thinking} if thinking else {}
        if calls:
            more["tool_calls"] = [self._call(each) for each in calls]
        if self._chat:
            words: dict[str, Any] = {"message": {"role": "assistant", "content": text, **more}}
        else:
            words = {"response": text, **more}
        logprobs = {"logprobs": likely(texts)} if self._logprobs else {}
        return {**head, **words, "done": False, **logprobs}

    def _call(self, call: ToolCall) -> Body:
        index = self._calls
        self._calls += 1
        function = {"index": index, "name": call.name, "arguments": arguments_object(call)}
        return {"id": call.id, "function": function}

    def _end(self, done: Finished) -> Body:
        """Return the figures of an answer; what neither reading nor writing took was loading and waiting."""
        reply, total_s = done.reply, time.monotonic() - self._since_s
        waited_s = max(0.0, total_s - reply.prefill_s - reply.decode_s)
        return {
            "done": True,
            "done_reason": _ENDS.get(reply.stop_reason, "stop"),
            "total_duration": ns(total_s),
            "load_duration": ns(waited_s),
            "prompt_eval_count": reply.prompt_tokens,
            "prompt_eval_duration": ns(reply.prefill_s),
            "eval_count": reply.completion_tokens,
            "eval_duration": ns(reply.decode_s),
            **figures(done, self._notes),
        }


def ns(seconds: float) -> int:
    """Return seconds in nanoseconds."""
    return round(seconds * 1e9)
