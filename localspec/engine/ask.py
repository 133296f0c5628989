"""Ask: a request for a reply, as it is said to an engine. Alone in its module: `run` makes one whoever answers."""

from localspec.calls import Tool
from localspec.calls.policy import CallPolicy
from localspec.messages import Infill, Message, Tagged
from localspec.options import ReplyOptions


class Ask(Tagged, frozen=True):
    """Answer the last message: `ReplyEvents`, as they happen, and in the end `ReplyDone`.

    Args:
        id: chosen by the client, new for every request.
        messages: the whole conversation, system prompt first. Where it begins like the one before,
            nothing is evaluated twice. If its last message is the assistant's, that one goes on.
        options: how to answer.
        draft: what drafts for this reply alone, as `--draft` has it; None takes what was loaded to. The text is the same.
        keep: use so many of the cached tokens at most, so that two runs evaluate the same; None uses what fits.
        aside: this is no part of the conversation: what was said in it before is remembered, and not this.
        drop_oldest: where the conversation is too long, leave out its oldest messages, never the
            system prompt, instead of failing.
        raw: a text that goes to the model as it is, without the chat template; then there are no messages.
        infill: a gap to fill in, where the model can; then there are no messages.
        logprobs: tell how likely every token was, and so many of the likeliest beside it; None tells nothing.
        afresh: likewise whole chunks at most, so that no bit depends on what was answered before.
        client: who asks. Of those who wait, whoever has the fewest answers under way goes first; of equals they take turns.
        tools: functions that the model may call.
        call_policy: which of them, how often and in what order.
        conversation: the history's number of the conversation, so that what is said may go into the store, and leave it with
            the conversation; None where the history does not keep it.
        rounds: whether `RoundDone` is told; what nobody looks at is most of what goes over the wire.
    """

    id: int
    messages: tuple[Message, ...]
    options: ReplyOptions = ReplyOptions()
    draft: str | None = None
    keep: int | None = None
    aside: bool = False
    drop_oldest: bool = False
    raw: str | None = None
    infill: Infill | None = None
    logprobs: int | None = None
    afresh: bool = False
    client: str = ""
    tools: tuple[Tool, ...] = ()
    call_policy: CallPolicy = CallPolicy()
    conversation: int | None = None
    rounds: bool = True

    @property
    def asked(self) -> str:
        """What the user said last."""
        said = (each.typed for each in reversed(self.messages) if each.role == "user")
        return next(said, self.raw or "")
