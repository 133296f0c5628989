"""The kinds of text that are told apart."""

from localspec.errors import UsageError

WORKLOADS = ("code", "edit", "chat", "summarise", "structured", "creative")


def required(workload: str) -> str:
    """Return a kind of text that a user named.

    Raises:
        UsageError: there is no such kind.
    """
    if workload not in WORKLOADS:
        raise UsageError(f"workload {workload!r}: choose one of {', '.join(WORKLOADS)}")
    return workload
