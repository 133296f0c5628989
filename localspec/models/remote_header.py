"""Reads the header of a model file that lies on the hub, and nothing behind it.

A tokenizer stands in the first megabytes: they are fetched by HTTP Range, in growing windows, until
the whole header is there.
"""

import re
from dataclasses import dataclass

from localspec.errors import ModelFileError, ModelUnavailable
from localspec.models.entries import HubSource
from localspec.models.gguf_header import GgufHeader, parse_header
from localspec.models.gguf_values import CutOffError
from localspec.models.http_file import Answer, HttpFile, LineCutError
from localspec.models.hub_source import hub_file
from localspec.models.progress import SourceFailedError

# The largest vocabularies, of 262,144 tokens, make headers of 16 MB.
_WINDOWS_BYTES = tuple(size << 20 for size in (1, 2, 4, 8, 16, 18))
LONGEST_BYTES = _WINDOWS_BYTES[-1]
"""Of a header; a file with a longer one has to be fetched to be judged."""
_TRIES = 3
_TOTAL = re.compile(r"bytes (\d+)-\d+/(\d+)")


@dataclass(frozen=True, slots=True)
class RemoteHeader:
    """A header, and the beginning of the file, which was fetched for it."""

    header: GgufHeader
    data: bytes

    @property
    def fetched_bytes(self) -> int:
        """How much was fetched."""
        return len(self.data)


def read_remote_header(source: HubSource, name: str, size_bytes: int) -> RemoteHeader:
    """Read the header of a file on the hub; at most 18 MiB of it are fetched.

    Args:
        source: where the file is.
        name: what to call it in messages.
        size_bytes: its size.

    Raises:
        ModelUnavailable: the hub does not deliver it.
        ModelFileError: what it delivers is no GGUF with a header of that size.
    """
    data = bytearray()
    try:
        with hub_file(source) as file:
            for window in _WINDOWS_BYTES:
                _extend(file, data, min(window, size_bytes))
                try:
                    header = parse_header(data, name=name, size_bytes=size_bytes)
                except ModelFileError as error:
                    if len(data) >= size_bytes or not isinstance(error.__cause__, CutOffError):
                        raise
                else:
                    return RemoteHeader(header, bytes(data))
    except (SourceFailedError, LineCutError, OSError) as error:
        raise ModelUnavailable(
            f"the header of {name} cannot be read from the hub ({error}): "
            f"go online, or run `localspec pull {name}` where it works"
        ) from error
    raise ModelFileError(
        f"{name} is damaged, or its header is longer than {LONGEST_BYTES >> 20} MiB: "
        "fetch it to judge it"
    )


def _extend(file: HttpFile, data: bytearray, size: int) -> None:
    """Fetch until `data` has `size` bytes, or all of them where the server knows no ranges."""
    for attempt in range(1, _TRIES + 1):
        if len(data) >= size:
            return
        try:
            with file.open(len(data), size - 1) as answer:
                _append(answer, data, size)
        except LineCutError:
            if attempt == _TRIES:
                raise
    if len(data) < size:
        raise SourceFailedError(f"it ends after {len(data)} bytes")


def _append(answer: Answer, data: bytearray, size: int) -> None:
    if answer.status in {401, 403}:
        refused = "gated, private or gone: HF_TOKEN may help"
        raise SourceFailedError(f"access refused (HTTP {answer.status}), {refused}")
    if answer.status not in {200, 206}:
        raise SourceFailedError(f"HTTP {answer.status}")
    skip = 0
    if answer.status == 200:  # the whole file is coming: what is here comes again
        skip, size = len(data), LONGEST_BYTES
    elif (match := _TOTAL.match(answer.headers.get("content-range", ""))) is None or int(
        match[1]
    ) != len(data):
        raise SourceFailedError("the server sent another part of the file than was asked for")
    for piece in answer.chunks:
        rest = piece[skip:]
        skip = max(skip - len(piece), 0)
        data += rest[: size - len(data)]
        if len(data) >= size:
            return
