"""Answers as the engine tells them, made by hand."""

from typing import Any

from localspec.chat.events import Finished, Reply, RoundDone, Started, Text
from localspec.chat.request import Request
from localspec.decoding.round import OFF, Draft, Round, Spent, StopReason, Verdict
from localspec.engine.protocol import ReplyEvents
from localspec.messages import Message
from localspec.session.conversation import SavedConversation
from localspec.tui.exchange import Exchange, ReplySaver


def round_of(drafted: int, accepted: int, seconds: float = 0.04) -> Round:
    """Return a round of a draft model that took so long."""
    draft = Draft((7,) * drafted, (0.5,) * drafted, "model")
    confirmed = (7,) * accepted + (8,)
    return Round(draft, Verdict(accepted, 8), confirmed, Spent(verify_s=seconds))


def plain(seconds: float = 0.02) -> Round:
    """Return a round without a draft."""
    return Round(Draft(), Verdict(0, 8), (8,), Spent(verify_s=seconds))


def tokens(*texts: str, by: str = OFF, drafted: int = 0, accepted: int = 0) -> RoundDone:
    """Return a round that confirmed tokens of these texts and took no time."""
    draft = Draft((7,) * drafted, (0.5,) * drafted, by)
    return RoundDone(Round(draft, Verdict(accepted, 8), (8,) * len(texts)), texts)


def started(id: int, prompt_tokens: int, cached_tokens: int) -> ReplyEvents:  # noqa: A002 - the protocol's word
    """Return the beginning of an answer."""
    return ReplyEvents(id, (Started(prompt_tokens, cached_tokens),))


def streamed(id: int, text: str) -> ReplyEvents:  # noqa: A002 - the protocol's word
    """Return a part of an answer."""
    return ReplyEvents(id, (Text(text),))


def finished(
    id: int = 1,  # noqa: A002 - the protocol's word
    text: str = "text",
    *,
    message: Message | None = None,
    tokens_per_s: float = 20.0,
    draft_note: str = "",
    no_drafting: str = "",
    **changes: Any,
) -> Finished:
    """Return the end of an answer; `changes` are of its reply."""
    values: dict[str, Any] = {
        "text": text,
        "thinking": "",
        "tokens": (7, 8),
        "stop_reason": StopReason.EOG,
        "seed": 7,
        "prompt_tokens": 10,
        "cached_tokens": 4,
        "completion_tokens": 1 + round(tokens_per_s),
        "first_token_s": 0.1,
        "prefill_s": 0.1,
        "decode_s": 1.0,
        "spent": Spent(draft_s=0.1, verify_s=0.8, other_s=0.1),
        "drafter": "lookup",
    }
    reply = Reply(**{**values, **changes})
    turn = message or Message.assistant(text)
    return Finished(reply, turn, id=id, draft_note=draft_note, no_drafting=no_drafting)


def save_reply(talk: SavedConversation, reply: Reply, model: str) -> None:
    """Save a whole reply of a model behind the last message, as the chat does."""
    asked = Exchange(Request(1), parent=talk.messages[-1].id)
    ReplySaver(talk).finish(Finished(reply, reply.message), asked, model)


def exchange(
    text: str = "text",
    rounds: list[Round] | None = None,
    tokens: list[RoundDone] | None = None,
    done: Finished | None = None,
) -> Exchange:
    """Return a request and what came back for it."""
    happened = [*(RoundDone(each, ()) for each in rounds or []), *(tokens or [])]
    request = Request(0, (Message.user("question"),))
    return Exchange(request, answer=text, happened=happened, finished=done)
