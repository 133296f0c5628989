"""Whether the hub can be reached, within a deadline, and what answers in its place. No token is sent."""

import http.client
import os
import queue
import threading
import urllib.error
import urllib.request
from collections.abc import Iterator
from urllib.parse import urlsplit

from localspec.diagnosis.fact import Fact

DEADLINE_S = 5.0
_DEFAULT = "https://huggingface.co"
_LEFT = "models on this machine work, others come only if a Python package has them, too"
_SET = ("HF_TOKEN", "HF_HUB_OFFLINE", "HTTPS_PROXY", "HTTP_PROXY")


def network(*, offline: bool, deadline_s: float = DEADLINE_S) -> Iterator[Fact]:
    """Yield the hub's variables, and whether it answers.

    Args:
        offline: ask nobody.
        deadline_s: how long to wait at most, name resolution included.
    """
    for name in _SET:  # a token, or a proxy's password, is nobody's business
        value = "set" if os.environ.get(name) or os.environ.get(name.lower()) else "not set"
        yield Fact("network", name, value)
    endpoint = os.environ.get("HF_ENDPOINT") or _DEFAULT
    parts = urlsplit(endpoint)
    name = f"hub {parts.hostname}"
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        text = "HF_ENDPOINT is not an address: unset it, or start it with https://"
        yield Fact("network", "hub", text, "broken")
    elif offline:
        yield Fact("network", name, "not asked, offline", "note")
    elif (os.environ.get("HF_HUB_OFFLINE") or "0").lower() not in {"0", "false", "no", "off"}:
        yield Fact("network", name, "not asked, HF_HUB_OFFLINE", "note")
    else:
        problem = _in_time(endpoint.rstrip("/") + "/api/models?limit=1", deadline_s)
        if problem is None:
            yield Fact("network", name, "answers")
        else:
            yield Fact("network", name, f"{problem}; {_LEFT}", "warning")


def _in_time(url: str, deadline_s: float) -> str | None:
    """Return what is wrong with the hub; None if nothing. Name resolution knows no timeout."""
    answers: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    ask = threading.Thread(target=lambda: answers.put(_ask(url, deadline_s)), daemon=True)
    ask.start()
    try:
        return answers.get(timeout=deadline_s)
    except queue.Empty:
        return f"no answer within {deadline_s:g} s"


def _ask(url: str, deadline_s: float) -> str | None:
    request = urllib.request.Request(url, headers={"User-Agent": "localspec-doctor"})  # noqa: S310 - http(s), checked
    try:
        with urllib.request.urlopen(request, timeout=deadline_s) as answer:  # noqa: S310 - likewise
            kind = answer.headers.get_content_type()
    except urllib.error.HTTPError as error:
        error.close()
        return f"answers HTTP {error.code}"
    except (OSError, http.client.HTTPException, ValueError) as error:
        reason = getattr(error, "reason", error)
        return f"cannot be reached ({reason})"
    if kind != "application/json":
        return f"something answers {kind} in its place: sign in to this network first?"
    return None
