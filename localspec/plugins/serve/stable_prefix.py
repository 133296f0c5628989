"""Normalises per-request noise in agents' system prompts, so that the prefix cache hits.

Claude Code, for one, begins with `x-anthropic-billing-header: cc_version=2.1.42.834; cc_entrypoint=cli; cch=65abc;`,
where `834` and `65abc` are checksums of the request. Nothing after them could be taken from a cache. They tell a model
nothing, so they read 0 here; all else stays as it is.

Source: llama.cpp writes `fffff` for the last of them, https://github.com/ggml-org/llama.cpp/pull/21793.
"""

import re
from collections.abc import Sequence
from dataclasses import replace

from localspec.api import Message
from localspec.messages import TextPart

_HEADER = re.compile(r"x-[a-z0-9-]+:(?: *\w+=[^;\s]*;)+", re.IGNORECASE)
_VALUE = re.compile(r"=([^;\s]*);")
_CHECKSUM = re.compile(r"(\d+\.\d+\.\d+\.)[0-9a-f]{3,64}|[0-9a-f]{5,64}", re.IGNORECASE)


def normalise(messages: Sequence[Message]) -> tuple[Message, ...]:
    """Return a conversation whose system prompt begins the same as in the request before, see above."""
    match messages:
        case [Message(role="system", parts=[TextPart(text=text), *others]) as first, *rest]:
            header = _HEADER.match(text)
            if header is not None:
                text = _VALUE.sub(_without_checksum, header[0]) + text[header.end() :]
                return replace(first, parts=(TextPart(text), *others)), *rest
    return tuple(messages)


def _without_checksum(value: re.Match[str]) -> str:
    checksum = _CHECKSUM.fullmatch(value[1])
    return value[0] if checksum is None else f"={checksum[1] or ''}0;"
