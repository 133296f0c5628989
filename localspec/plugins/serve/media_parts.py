"""Pictures and sounds of requests: the parts that hold them in each interface, and which URLs are opened. Nothing is ever fetched."""

import math
from collections.abc import Callable, Iterable
from typing import Any

from localspec.api import Message, UsageError, printable_line
from localspec.media import MOST_BYTES, MOST_PIXELS, picture_size
from localspec.messages import MediaPart, from_json, without_empty_prompts
from localspec.plugins.serve.http import TooLarge
from localspec.plugins.serve.stable_prefix import normalise
from localspec.toolbox.folder import Folder, name_in_url

MOST_FILE_BYTES = MOST_BYTES
"""Of all files that a request names together."""
MOST_PIXELS_TOGETHER = 4 * MOST_PIXELS
"""Of all pictures of a request: others wait while they are decoded."""
_MOST_PARTS = 500
_MOST_NAME_CHARS = 80
_FIELDS = {
    "image": ("data", "url"),
    "input_image": ("image_url",),
    "input_file": ("file_data", "file_url"),
}
"""Where parts of Anthropic's and of OpenAI's responses hold a file, by their types."""


def conversation(
    given: Iterable[Any], folder: Folder | None, what: str = "message {}"
) -> tuple[Message, ...]:
    """Return the messages of a body in OpenAI's form, as `normalise` has them.

    Args:
        given: the messages.
        folder: holds the files that may be named; None where none may.
        what: how errors call a message, by its number.

    Raises:
        TooLarge: the files that are named have too many bytes together, or all pictures too many pixels.
        UsageError: a message is none, or a picture or a sound cannot be read.
    """
    messages = [*given]
    contents = [each.get("content") for each in messages if isinstance(each, dict)]
    parts = [part for each in contents if isinstance(each, list) for part in each]
    media = sum(isinstance(each, dict) and each.get("type") != "text" for each in parts)
    if media > _MOST_PARTS:
        raise UsageError(f"{media} pictures and sounds are given: send {_MOST_PARTS} at most")
    open_url = _opener(folder)
    read = [from_json(each, what.format(at), open_url) for at, each in enumerate(messages, 1)]
    read_messages = normalise(without_empty_prompts(read))
    pictures = (m for each in read_messages for m in each.media if m.kind == "image")
    if sum(math.prod(picture_size(m.data, m.name)) for m in pictures) > MOST_PIXELS_TOGETHER:
        raise TooLarge(
            f"the pictures have more than {MOST_PIXELS_TOGETHER // 10**6} million pixels together: send fewer or smaller ones"
        )
    return read_messages


def _opener(folder: Folder | None) -> Callable[[str], MediaPart]:
    """Return what opens the URLs of one request that hold no data themselves."""
    size = 0

    def open_url(url: str) -> MediaPart:
        nonlocal size
        visible = printable_line(url[:_MOST_NAME_CHARS])
        scheme = url.partition(":")[0].lower()
        if scheme == "data":
            raise UsageError(
                f"{visible} is no picture or sound in base64: write data:image/png;base64,…"
            )
        if scheme != "file":
            raise UsageError(f"{visible} is not fetched: send the file itself, as a data: URL")
        if folder is None:
            raise UsageError(
                f"{visible} is not opened: send the file as a data: URL, or start the server with --media-path DIR"
            )
        name = name_in_url(url)
        read = folder.read(name, MOST_BYTES)
        if read is None:
            raise UsageError(f"{visible} is not in the folder of --media-path: check its name")
        size += len(read[1])
        if size > MOST_FILE_BYTES:
            raise TooLarge(
                f"the files have more than {MOST_FILE_BYTES >> 20} MB together: name fewer"
            )
        return MediaPart.of(read[1], name)

    return open_url


def image_part(url: Any) -> dict[str, Any]:
    """Return a picture or a sound as chat completions have it: by its URL, or its base64 alone."""
    if isinstance(url, str) and ":" not in url[:_MOST_NAME_CHARS]:  # which base64 never has
        url = f"data:image/x;base64,{url}"
    return {"type": "image_url", "image_url": {"url": url}}


def openai_part(part: Any) -> Any:
    """Return a part of Anthropic's messages or of OpenAI's responses as chat completions have it; another kind as it is.

    Raises:
        UsageError: it names a file that this server would have to have stored.
    """
    kind = part.get("type") if isinstance(part, dict) else None
    if not isinstance(kind, str) or kind not in _FIELDS:
        return part
    source = part.get("source") if kind == "image" else part
    fields = source if isinstance(source, dict) else {}
    url = next((fields[name] for name in _FIELDS[kind] if fields.get(name) is not None), None)
    if url is None:
        raise UsageError(
            f"a part of type {kind} holds no file, and none is stored here: send its base64"
        )
    return image_part(url)
