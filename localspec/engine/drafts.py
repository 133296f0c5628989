"""What a server and a client that drafts for it say to each other while an answer is made: JSON in the text frames of a WebSocket; see docs/serve.md.

Cheap to import: no event loop, and nothing that loads models.
"""

from typing import TypeVar

import msgspec

from localspec.options import SamplingParams

PATH = "/v1/drafts/"
"""The name that a body gave in `localspec.drafts` follows."""
MOST_FRAME_BYTES = 4096
"""Of what comes up."""
T = TypeVar("T")


class DraftOpening(msgspec.Struct, frozen=True):
    """The first that goes down: what an answer begins with, and how each of its tokens is chosen.

    Args:
        prompt: ids; those of pictures and sounds are negative.
        seed: of the noise.
        sampling: every transform.
        pass_s: seconds of a pass by its width, from one token on; empty where that is not known.
    """

    prompt: tuple[int, ...]
    seed: int
    sampling: SamplingParams
    pass_s: tuple[float, ...] = ()


class Confirmed(msgspec.Struct, frozen=True):
    """Goes down behind every round.

    Args:
        at: how many tokens of the text, prompt included, stand before these.
        tokens: that are certain.
        verified: how many of the client's proposals were looked at for them.
        waited: seconds that the round waited for proposals.
        width: tokens that its pass had; 0 where these are of several rounds.
    """

    at: int
    tokens: tuple[int, ...]
    verified: int = 0
    waited: float = 0.0
    width: int = 0


class DraftProposal(msgspec.Struct, frozen=True):
    """Comes up, at any time; see `Proposals.add`.

    Args:
        at: how many tokens stand before these: what is confirmed, and perhaps earlier proposals behind it.
        behind: the `checksum` of these.
        tokens: that may follow; none says that nothing comes for this text.
        sure: how sure the client is of each, in percent; empty where it does not know.
        more: whether it is drafting further ones behind these.
    """

    at: int
    behind: int
    tokens: tuple[int, ...]
    sure: tuple[int, ...] = ()
    more: bool = False


def encoded(message: DraftOpening | Confirmed | DraftProposal) -> str:
    """Return a message as a frame has it."""
    return msgspec.json.encode(message).decode()


def decoded(frame: str | bytes, kind: type[T]) -> T | None:
    """Return the message in a frame; None where it is no such message, whatever else it is."""
    try:
        return msgspec.json.decode(frame, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError, ValueError, TypeError):
        return None
