"""What a copy takes: an answer, a block of its code, or a whole conversation. No Textual."""

from collections.abc import Sequence

from localspec.display import code_blocks
from localspec.errors import UsageError
from localspec.history.records import StoredMessage, content_of


def copied(messages: Sequence[StoredMessage], what: str) -> str:
    """Return what is copied.

    Args:
        messages: the conversation; the last answer counts.
        what: empty for the answer, `code` for its last block of code, a number for its N-th, or `all`.

    Raises:
        UsageError: there is no such thing.
    """
    if what == "all":
        return "\n\n".join(
            f"{each.message.role}: {each.message.typed or content_of(each.message)}"
            for each in messages
        )
    answers = [each.message.text for each in messages if each.message.role == "assistant"]
    if not answers:
        raise UsageError("no answer to copy yet")
    if not what:
        return answers[-1]
    blocks = code_of(answers[-1])
    if what == "code":
        return blocks[-1]
    if not what.isdecimal() or not 1 <= int(what) <= len(blocks):
        raise UsageError(
            f"{what[:20]!r} is not a block of code: give a number from 1 to {len(blocks)}"
        )
    return blocks[int(what) - 1]


def code_of(text: str) -> list[str]:
    """Return the blocks of code in an answer.

    Raises:
        UsageError: there are none.
    """
    blocks = [code for _, code in code_blocks(text)]
    if not blocks:
        raise UsageError("this answer has no block of code: /copy takes all of it")
    return blocks
