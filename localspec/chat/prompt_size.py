"""How much context a prompt needs: guessed by its text, before any vocabulary is loaded; rather too much."""

import math
import re

from localspec.chat.request import Request
from localspec.media import picture_size, sound_seconds
from localspec.messages import MediaPart

ANSWER_TOKENS = 2048
"""Tokens of an answer without a limit."""
_AROUND = 256
"""What a template adds, at most, as far as was seen."""
_MEDIUM_TOKENS = 1024
"""What a picture takes, or a sound, mostly."""
_PATCH = 28
"""Sides in pixels of what becomes a token of a picture, where that depends on its size."""
_CLIP_S, _CLIP_TOKENS = 30, 750
"""Sounds are encoded in clips of this length."""
_TOOLS_TOKENS = 4096
"""Descriptions of tools and what they return."""
_CHARS_PER_TOKEN = 3
# Many vocabularies have a token for each digit, sign and character of another script.
_DENSE = re.compile(r"[^A-Za-z\s]")


def media_tokens(part: MediaPart, most: int) -> int:
    """Return how many tokens a picture or a sound has, rather too many; how many exactly only its encoder knows."""
    if part.kind == "audio":
        return _CLIP_TOKENS * math.ceil((sound_seconds(part.data) or _CLIP_S) / _CLIP_S)
    width, height = picture_size(part.data, part.name)
    return min(most, math.ceil(width / _PATCH) * math.ceil(height / _PATCH))


def _text(request: Request) -> str:
    return str(request.raw or "".join(each.text for each in request.messages))


def _beside_text(request: Request) -> int:
    """Return the tokens of context that pictures, sounds and the answer need, about."""
    media = _MEDIUM_TOKENS * sum(len(each.media) for each in request.messages)
    return media + _AROUND + (request.options.max_tokens or ANSWER_TOKENS)


def guessed_context(request: Request, *, tools: bool = False) -> int:
    """Return about how many tokens of context a prompt and its answer need; rather too many."""
    text = _text(request)
    others = len(_DENSE.sub("", text))
    guess = len(text) - others + others // _CHARS_PER_TOKEN
    return guess + _beside_text(request) + tools * _TOOLS_TOKENS


def may_need_more(request: Request, n_ctx: int) -> bool:
    """Return whether a prompt may need more than a context holds: no token of a text is shorter than a byte."""
    has_media = any(each.media for each in request.messages)
    return has_media or len(_text(request).encode()) + _beside_text(request) > n_ctx
