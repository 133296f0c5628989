"""Assistants of real weights, and what they reply from empty caches."""

from pathlib import Path
from typing import Any

from localspec.chat.assistant import Assistant
from localspec.chat.events import Event, Finished, Reply
from localspec.chat.request import Request
from localspec.chat.token_prefix import Conversation
from localspec.decoding.policy import plain_policy
from localspec.launch.load import load
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions
from localspec.plan.make import make_plan


def opened(
    target: Path,
    draft: str = "off",
    draft_model: Path | None = None,
    *,
    parallel: int = 1,
    options: LoadOptions | None = None,
    **more: Any,
) -> Assistant:
    """Load a target, which drafts for itself where a draft model is asked for and none is given."""
    draft_model = draft_model or (target if draft.startswith("model") else None)
    launch = LaunchOptions(
        target=str(target),
        draft_model=None if draft_model is None else str(draft_model),
        draft=draft,
        load=options or LoadOptions(n_ctx=1024),
        **more,
    )
    return load(make_plan(launch, parallel=parallel)).assistant


def forget(assistant: Assistant) -> None:
    """Empty the caches of both models."""
    for model in (assistant.models.target, assistant.models.draft_model):
        if model is not None:
            model.truncate(0)


def afresh(
    assistant: Assistant,
    prompt: str | Conversation,
    options: ReplyOptions,
    *,
    drafting: bool = True,
    **more: Any,
) -> Reply:
    """Reply from empty caches, with the assistant's own policy or with none."""
    forget(assistant)
    policy = None if drafting else plain_policy()
    return assistant.reply(prompt, options, policy=policy, **more)


def heard(
    assistant: Assistant, request: Request, *, drafting: bool = True
) -> tuple[Reply, list[Event]]:
    """Answer a request from empty caches; return the reply, and all events."""
    forget(assistant)
    policy = None if drafting else plain_policy()
    *events, end = assistant.events(request, policy=policy)
    assert isinstance(end, Finished)
    return end.reply, events
