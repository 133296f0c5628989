"""Rounds with tools for Python: whatever is called is carried out, until an answer is words."""

import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from localspec.chat.conversation import Conversation
from localspec.chat.events import Reply
from localspec.messages import Message, ToolCall
from localspec.toolbox.functions import Functions
from localspec.toolbox.loop import ToolLoop, Unasked
from localspec.toolbox.permissions import Permissions
from localspec.toolbox.rules import Rules
from localspec.toolbox.toolbox import Toolbox


def answered_in_words(
    answer: Callable[[Conversation], Reply],
    prompt: str | Conversation,
    tools: Iterable[Callable[..., Any]] | Toolbox,
    most_rounds: int,
) -> Reply:
    """Return the first reply without calls; the conversation then has all calls, results and replies.

    Args:
        answer: answers a conversation, and appends the reply.
        prompt: a text, or a conversation, whose policy holds.
        tools: functions, or a toolbox, which carries the calls out.
        most_rounds: after so many replies that call, the next must not.
    """
    conversation = prompt if isinstance(prompt, Conversation) else Conversation()
    if isinstance(prompt, str):
        conversation.append_user(prompt)
    box = tools if isinstance(tools, Toolbox) else Functions(tools)
    own = conversation.call_policy
    loop = ToolLoop([box], Permissions(Rules()), Unasked(), own, most_rounds)
    replies = list[Reply]()

    def ask(results: Sequence[Message]) -> Sequence[ToolCall]:
        for each in results:
            conversation.append(each)
        conversation.tools, conversation.call_policy = loop.tools, loop.policy
        replies.append(answer(conversation))
        return replies[-1].calls

    try:
        loop.converse(ask, threading.Event())
    finally:
        conversation.call_policy = own
    return replies[-1]
