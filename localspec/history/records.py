"""What the history hands out: values alone."""

from dataclasses import dataclass
from typing import Literal

from localspec.messages import Message

State = Literal["streaming", "complete", "cut"]


@dataclass(frozen=True, slots=True)
class StoredMessage:
    """One message in a tree of them.

    Args:
        id: never used again, also after it was deleted.
        parent: the message that it follows; None for a first one.
        message: what was said.
        state: `streaming` while it is written, `cut` where it was stopped or its writer died, else `complete`.
        created_s: seconds since 1970.
        model: what answered, as it was called; empty for the user's.
        figures: what the screen wants to remember of a reply, as JSON; empty without any.
        siblings: ids of all messages with the same parent and conversation, itself included, oldest first.
    """

    id: int
    parent: int | None
    message: Message
    state: State
    created_s: float
    model: str
    figures: str
    siblings: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """What a list of conversations shows.

    Args:
        id: never used again, also after it was deleted.
        title: as the user named it, else the beginning of the first question.
        system: the system prompt; None without one.
        pair: what it was last held with, as `--pair` or `--target` names it.
        settings: what the screen wants to remember, as JSON; empty without any.
        created_s: seconds since 1970.
        updated_s: likewise, of the last message.
        leaf: the last message of the branch that is shown; None for an empty conversation.
        n_messages: in all branches.
        excerpt: where a search found something in a message, the words around it; else empty.
    """

    id: int
    title: str
    system: str | None
    pair: str
    settings: str
    created_s: float
    updated_s: float
    leaf: int | None
    n_messages: int
    excerpt: str = ""
