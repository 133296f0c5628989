"""Which values the program itself refuses, asked of those who take them, so that no range is said twice."""

from collections.abc import Callable, Mapping
from typing import Any

from localspec.config.keys import Setting
from localspec.errors import UsageError

MAX_DRAFT_LENGTH = 63
"""As in `drafting.py`, which this room does not know."""


def range_problem(name: str, value: Setting) -> str | None:
    """Return why a key cannot have a value of the right type; None if it can."""
    take = _TAKERS.get(name)
    if take is None or value in (None, "auto"):
        return None
    try:
        take(name, value)
    except UsageError as error:
        return f"cannot be used: {error}"
    return None


def _sampling(name: str, value: Any) -> None:
    from localspec.decoding.sampling import SamplingParams  # noqa: PLC0415 - needs numpy

    SamplingParams(**{name: value})


def _reply(name: str, value: Any) -> None:
    from localspec.chat.reply_options import ReplyOptions  # noqa: PLC0415 - likewise

    ReplyOptions(**{name: value})


def _loading(name: str, value: Any) -> None:
    from localspec.llama.options import LoadOptions  # noqa: PLC0415 - seldom needed

    LoadOptions(**{"n_ctx" if name == "ctx" else name: value})


def _draft_length(name: str, value: Any) -> None:
    if not 1 <= value <= MAX_DRAFT_LENGTH:
        raise UsageError(f"{name} is {value}: it must be from 1 to {MAX_DRAFT_LENGTH}")


_TAKERS: Mapping[str, Callable[[str, Any], None]] = {
    **dict.fromkeys(("temperature", "top_k", "top_p", "min_p", "repeat_penalty"), _sampling),
    **dict.fromkeys(("ctx", "threads", "gpu_layers"), _loading),
    "max_tokens": _reply,
    "draft_length": _draft_length,
}
