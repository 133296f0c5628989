"""What a failure of the hub means, in a few words. Knows the errors of its client by their names."""

from localspec.models.http_file import line_failure

_SHOWN_REASON = 120


def hub_reason(error: Exception, *, with_token: bool) -> str:
    """Return a short reason for what the hub's client raised when it asked for a file."""
    status = status_of(error)
    if type(error).__name__ == "GatedRepoError":
        return f"access refused (HTTP {status}), it is gated: accept its terms on its page on the hub, with HF_TOKEN set"
    if status in {401, 403}:
        return f"access refused (HTTP {status}){refusal(with_token=with_token)}"
    if status is not None:
        return f"HTTP {status}" + (", no such file" if status == 404 else "")
    if type(error).__name__ == "LocalEntryNotFoundError":
        return "no connection"
    if type(error).__module__.startswith("http"):
        return line_failure(error)
    first_line = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first_line}"[:_SHOWN_REASON]


def refusal(*, with_token: bool) -> str:
    """Return what an HTTP 401 or 403 of the hub may mean, given whether it was sent a token."""
    if with_token:
        return ": the token has expired or may not read this, or the repository is gone; `hf auth login` gets a new token"
    return ": the repository is gated, private or gone; set HF_TOKEN if it is yours to read"


def may_pass(error: Exception) -> bool:
    """Return whether asking again later may help."""
    status = status_of(error)
    return status is not None and (status >= 500 or status == 429)


def status_of(error: Exception) -> int | None:
    """Return the HTTP status that an error carries, if it carries one."""
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) else None
