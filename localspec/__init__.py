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
    from localspec.chat.conversation import Conversation
    from localspec.chat.reply_options import ReplyOptions
    from localspec.decoding.sampling import SamplingParams
    from localspec.llama.options import LoadOptions

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
    "Conversation": "localspec.chat.conversation",
    "LoadOptions": "localspec.llama.options",
    "ReplyOptions": "localspec.chat.reply_options",
    "SamplingParams": "localspec.decoding.sampling",
}


def load(
    pair: str | None = None,
    *,
    target: str | None = None,
    draft_model: str | None = None,
    draft: str = "auto",
    draft_length: int | None = None,
    options: "LoadOptions | None" = None,
    exact: bool = False,
    offline: bool = False,
) -> "Assistant":
    """Load a pair, or a target with or without a draft model, fetching what is missing.

    Args:
        pair: name of a pair; by default the small one that runs anywhere.
        target: a model's name or the path of a GGUF, instead of a pair.
        draft_model: likewise for the draft model.
        draft: `off`, `lookup`, `model`, or `auto`, which drafts as far as it pays; it never changes
            the text, only the speed.
        draft_length: tokens to draft a round; by default 3 for a model, up to 15 for lookup.
        options: context size, threads, devices and the like.
        exact: let no bit of any logit depend on drafting, with slower kernels.
        offline: use no network.

    Raises:
        LocalspecError: one of its kinds, see `localspec.errors`.
    """
    from localspec.launch.load import load as load_plan
    from localspec.launch.plan import Launch, make_plan
    from localspec.llama.options import LoadOptions

    request = Launch(
        pair,
        target,
        draft_model,
        draft,
        draft_length,
        options or LoadOptions(),
        exact=exact,
        offline=offline,
    )
    return load_plan(make_plan(request)).assistant


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'localspec' has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(_HOMES[name]), name)
