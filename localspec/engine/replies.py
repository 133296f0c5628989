"""What the engine says of a reply: while it is made, and when it is done. See `protocol`."""

from dataclasses import dataclass

from localspec.chat.events import Reply, StreamEvent
from localspec.messages import Message


@dataclass(frozen=True, slots=True)
class Forecast:
    """Speed-ups over plain decoding, 1 is nothing; None where nothing was drafted.

    Args:
        predicted: by the costs of this machine and the acceptance of this reply.
        measured: by costs and the clock.
        note: what the draft model would cost where it is off; empty where it is on, or there is none.
    """

    predicted: float | None
    measured: float | None
    note: str = ""


@dataclass(frozen=True, slots=True)
class ReplyEvents:
    """What happened of a reply since the last one; at most ten a second, and the last comes before `ReplyDone`.

    Args:
        id: of the request.
        events: in their order; neighbouring texts are joined.
    """

    id: int
    events: tuple[StreamEvent, ...]


@dataclass(frozen=True, slots=True)
class ReplyDone:
    """A reply is complete, or was stopped.

    Args:
        id: of the request.
        reply: what is new, and its figures.
        message: the assistant's whole turn, the part that a continued one had before included. Sent back
            unchanged in the next `Ask`, its tokens are known.
        dropped_turns: how many of the oldest turns were left out.
        forecast: what drafting was to gain, and what it came to; None if costs are not known.
    """

    id: int
    reply: Reply
    message: Message
    dropped_turns: int = 0
    forecast: Forecast | None = None
