"""A file on a web server, read from any offset. Knows no hub, and keeps a token where it belongs.

The client is an httpx client, made by huggingface_hub: of which generation depends on its version,
so none is imported here, and what it raises is taken as what it is, a line that failed.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

from localspec.models.progress import SourceFailedError

# Without a byte for so long, a line counts as cut.
SILENCE_S = 20.0
_CONNECT_S = 8.0
_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_MOST_REDIRECTS = 5
# What storage answers to an address that was signed for a while only.
_EXPIRED = frozenset({400, 401, 403, 404, 410})
_PORTS = {"http": 80, "https": 443}


class LineCutError(Exception):
    """A request failed in a way that another try may mend; the text is a short reason."""


@dataclass(frozen=True, slots=True)
class Answer:
    """What a server says: `headers` by lower-case names, `chunks` of the body as they arrive."""

    status: int
    headers: Mapping[str, str]
    chunks: Iterator[bytes]
    from_home: bool


class HttpFile:
    """One file, and where to read it from.

    Args:
        client: an httpx client.
        resolve: returns the address to read from; asked again when that one has expired.
        home: an address on the server that may see `secret`.
        secret: headers for that server alone; a redirect to another one never gets them.
    """

    def __init__(
        self, client: Any, resolve: Callable[[], str], home: str, secret: Mapping[str, str]
    ) -> None:
        self._client = client
        self._resolve = resolve
        self._home = _origin(home)
        self._secret = dict(secret)
        self._address: str | None = None

    @contextmanager
    def open(self, first: int, last: int | None = None) -> Iterator[Answer]:
        """Ask for the bytes from `first` to `last`, or to the end.

        Raises:
            LineCutError: the server cannot be reached, or stopped in the middle of an answer.
            SourceFailedError: it leads nowhere.
        """
        with ExitStack() as stack:
            known = self._address is not None
            answer = stack.enter_context(self._follow(self._current(), first, last))
            if known and answer.status in _EXPIRED and not answer.from_home:
                stack.pop_all().close()
                self._address = None
                answer = stack.enter_context(self._follow(self._current(), first, last))
            yield answer

    def locate(self) -> None:
        """Resolve the address now, so that a server that does not answer is known before anything else."""
        self._current()

    def _current(self) -> str:
        if self._address is None:
            self._address = self._resolve()
        return self._address

    @contextmanager
    def _follow(self, url: str, first: int, last: int | None) -> Iterator[Answer]:
        for _ in range(_MOST_REDIRECTS):
            if urlsplit(url).scheme not in _PORTS:
                raise SourceFailedError("it redirects to something that is no web address")
            with self._request(url, first, last) as response:
                if response.status_code not in _REDIRECTS or "location" not in response.headers:
                    headers = {key.lower(): value for key, value in response.headers.items()}
                    at_home = _origin(url) == self._home
                    yield Answer(response.status_code, headers, _chunks(response), at_home)
                    return
                url = urljoin(url, response.headers["location"])
        raise SourceFailedError(f"more than {_MOST_REDIRECTS} redirects")

    @contextmanager
    def _request(self, url: str, first: int, last: int | None) -> Iterator[Any]:
        headers = dict(self._secret) if _origin(url) == self._home else {}
        # A compressed body would have other offsets.
        headers["Accept-Encoding"] = "identity"
        if first or last is not None:
            headers["Range"] = f"bytes={first}-{'' if last is None else last}"
        with ExitStack() as stack:
            patience_s = (_CONNECT_S, SILENCE_S, SILENCE_S, SILENCE_S)  # connect, read, write, pool
            try:
                stream = self._client.stream(
                    "GET", url, headers=headers, follow_redirects=False, timeout=patience_s
                )
                response = stack.enter_context(stream)
            except Exception as error:  # of whichever httpx: see the module's docstring
                raise LineCutError(line_failure(error)) from error
            yield response


def line_failure(error: Exception) -> str:
    """Return in a few words what a client of the httpx family says of a line that failed."""
    kind = type(error).__name__
    if kind in {"ConnectError", "ConnectTimeout"}:
        return "no connection"
    if "Timeout" in kind:
        return "the server fell silent"
    return "the line was cut"


def _chunks(response: Any) -> Iterator[bytes]:
    try:
        yield from response.iter_raw()
    except Exception as error:
        raise LineCutError(line_failure(error)) from error


def _origin(url: str) -> tuple[str, str, int]:
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or _PORTS.get(parts.scheme, 0)
