"""Content: what a server sends as the result of a call, as a text that a model reads and a terminal shows."""

import json
from collections.abc import Iterable

import mcp_types as types

from localspec.display import printable

MOST_CHARS = 40_000
_KEPT = "\n\t"


def text_of_result(result: types.CallToolResult) -> str:
    """Return what a tool returned; values only where it said nothing in words."""
    text = "\n".join(_texts(result.content))
    if not text and result.structured_content is not None:
        text = json.dumps(result.structured_content, ensure_ascii=False)
    return bounded(text or "(nothing)")


def text_of_resource(result: types.ReadResourceResult) -> str:
    """Return a resource's content."""
    return bounded("\n".join(map(_resource, result.contents)) or "(nothing)")


def bounded(text: str) -> str:
    """Return a text without control characters, cut where it is too long."""
    more = len(text) - MOST_CHARS
    cut = f"\n[{more:,} more characters are left out]" if more > 0 else ""
    return printable(text[:MOST_CHARS], _KEPT) + cut


def _texts(blocks: Iterable[types.ContentBlock]) -> Iterable[str]:
    for each in blocks:
        match each:
            case types.TextContent():
                yield each.text
            case types.EmbeddedResource():
                yield _resource(each.resource)
            case types.ResourceLink():
                yield f"[resource {each.uri}: {each.name}]"
            case types.ImageContent() | types.AudioContent():
                yield f"[{each.mime_type}, {_size(each.data)}: only text is read]"


def _resource(content: types.TextResourceContents | types.BlobResourceContents) -> str:
    if isinstance(content, types.TextResourceContents):
        return content.text
    return f"[{content.mime_type or 'data'}, {_size(content.blob)}: only text is read]"


def _size(base64: str) -> str:
    return f"{len(base64) * 3 // 4:,} bytes"
