"""localspec: a small model guesses ahead, a large one checks, and the text stays the same.

    import localspec

    assistant = localspec.load("qwen2.5-coder-1.5b", draft="model")
    reply = assistant.reply("Write a Python function that reverses a linked list.")
    print(reply.text, reply.seed, reply.acceptance.acceptance_rate)

`load` returns an `Assistant`; its `reply` waits for the answer, its `stream` yields events.
Every error is a `LocalspecError` that says in one line what, which value and what to do.
"""

# ruff: noqa: PLC0415 - `localspec --help` must not pay for what only an answer needs.

from typing import TYPE_CHECKING, Any

from localspec.errors import LocalspecError

if TYPE_CHECKING:
    from localspec.chat.assistant import Assistant
    from localspec.chat.token_prefix import Conversation
    from localspec.options import LoadOptions, ReplyOptions, SamplingParams

__version__ = "0.1.0"
__all__ = [
    "Assistant",
    "Conversation",
    "LoadOptions",
    "LocalspecError",
    "ReplyOptions",
    "SamplingParams",
    "load",
]

_HOMES = {
    "Assistant": "localspec.chat.assistant",
    "Conversation": "localspec.chat.token_prefix",
    "LoadOptions": "localspec.options",
    "ReplyOptions": "localspec.options",
    "SamplingParams": "localspec.options",
}


def load(
    pair: str | None = None, *, options: "LoadOptions | None" = None, **launch: Any
) -> "Assistant":
    """Load a pair, or a target with or without a draft model, fetching what is missing.

    Args:
        pair: name of a pair; by default the small one that runs anywhere.
        options: context size, threads, devices and the like.
        launch: other fields of `localspec.options.LaunchOptions` by their names: `target` and `draft_model`, names of
            models or paths of GGUFs; `draft`, which is `off`, `lookup`, `model`, or `auto` and never changes the text, only
            the speed; `draft_length`, `exact`, `offline` and `fit`.

    Raises:
        LocalspecError: one of its kinds, see `localspec.errors`.
    """
    from localspec.launch.load import load as load_plan
    from localspec.options import LaunchOptions, LoadOptions
    from localspec.plan.make import make_plan

    request = LaunchOptions(pair, load=options or LoadOptions(), **launch)
    return load_plan(make_plan(request)).assistant


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'localspec' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
