"""Which messages to leave out of a conversation that its context does not hold. Knows no tokens, only how to count."""

from collections.abc import Callable, Sequence

from localspec.messages import Message

# Room for an answer, as a share of the context, where nobody says how long it may be.
_ANSWER_SHARE = 4


def dropped_to_fit(
    messages: Sequence[Message],
    n_ctx: int,
    max_tokens: int | None,
    length: Callable[[Sequence[Message]], int],
) -> int:
    """Return how many of the oldest messages after the system prompt to leave out; as few as will do.

    What remains begins with a user's message, and ends with the last one: where even that is too long, nothing helps, and
    all before it is left out.

    Args:
        messages: the conversation, system prompt first if there is one.
        n_ctx: tokens of context.
        max_tokens: most tokens of the answer; a quarter of the context is kept free at most.
        length: counts the tokens of a conversation.
    """
    system = list(messages[:1]) if messages[0].role == "system" else []
    rest = messages[len(system) :]
    room = n_ctx - min(n_ctx // _ANSWER_SHARE, max_tokens or n_ctx)
    last = len(rest) - 1 if rest[-1].role == "user" else max(0, len(rest) - 2)
    starts = [0, *(i for i in range(1, last + 1) if rest[i].role == "user")]
    low, high = 0, len(starts) - 1
    while low < high:  # the more is left out, the shorter it gets
        middle = (low + high) // 2
        if length([*system, *rest[starts[middle] :]]) <= room:
            high = middle
        else:
            low = middle + 1
    return starts[low]
