"""Rounds with tools: an answer calls, the calls are carried out, and so on until an answer is words."""

import threading
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from localspec.chat.conversation import Conversation
from localspec.chat.events import Reply
from localspec.messages import Message
from localspec.toolbox.functions import Functions
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
        prompt: a text, or a conversation. A call that its policy requires is required of the first reply alone.
        tools: functions, or a toolbox, which carries the calls out.
        most_rounds: after so many replies that call, the next must not.
    """
    toolbox = tools if isinstance(tools, Toolbox) else Functions(tools)
    conversation = prompt if isinstance(prompt, Conversation) else Conversation()
    if isinstance(prompt, str):
        conversation.append_user(prompt)
    stop = threading.Event()
    policy = conversation.call_policy
    for number in range(most_rounds + 1):
        conversation.tools = tuple(toolbox.tools)
        if number == most_rounds:
            conversation.call_policy = replace(policy, choice="none")
        elif number:
            conversation.call_policy = replace(policy, choice="auto")
        try:
            reply = answer(conversation)
        finally:
            conversation.call_policy = policy
        if not reply.calls:
            break
        for call in reply.calls:
            conversation.append(Message("tool", (toolbox.call(call, stop),)))
    return reply
