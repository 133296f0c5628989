"""SavedConversation: a conversation of the history, of which one branch is shown. Knows no engine and no screen.

Several windows may show one conversation, each its own branch: what another window adds is never read into this one.
"""

import json
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from localspec.chat.events import Reply
from localspec.chat.turns import with_results
from localspec.decoding.round import StopReason
from localspec.display import clean_line, printable_line
from localspec.errors import UsageError
from localspec.history.archive import History
from localspec.history.database import Unsaved
from localspec.history.recorder import ReplyRecorder
from localspec.history.records import Mark, StoredConversation, StoredMessage, content_of, tags_of
from localspec.messages import Message
from localspec.session.citing import NumberedPassage, passages_in
from localspec.session.compaction import (
    branched,
    context_of,
    figures_of,
    is_request,
    recent_from,
    request_for,
    summary_at,
    typed_of,
    with_media_that_fit,
)

__all__ = [
    "History",
    "Mark",
    "ReplyRecorder",
    "SavedConversation",
    "StoredConversation",
    "StoredMessage",
    "Unsaved",
    "content_of",
    "tags_of",
]

if TYPE_CHECKING:
    from localspec.session.approval import CarriedOut

_NO_FIGURES: Mapping[str, object] = MappingProxyType({})


class SavedConversation:
    """One conversation, of which one branch is shown.

    Args:
        history: keeps it.
        system: the system prompt of new conversations.

    Attributes:
        conversation: id in the history; None before the first question.
        messages: the branch that is shown, from its first message on.
        system: the system prompt; None without one.
        title: what lists call it; empty before the first question.
        pair: what answered last, as `--pair` or `--target` names it; empty before the first answer.
        drop_oldest: leave out the oldest turns, or their pictures and sounds, where they have no room, instead of failing.
    """

    def __init__(self, history: History, system: str | None = None) -> None:
        self.history = history
        self.system = self._usual_system = system
        self.conversation: int | None = None
        self.messages: list[StoredMessage] = []
        self.title = ""
        self.pair = ""
        self.drop_oldest = False

    @property
    def number(self) -> int | None:
        """The history's of this conversation; None before the first question, and where nothing is saved."""
        return None if self.history.trouble is not None else self.conversation

    @property
    def media_names(self) -> set[str]:
        """The names of its pictures and sounds."""
        return {part.name for each in self.messages for part in each.message.media}

    @property
    def passages(self) -> dict[int, NumberedPassage]:
        """The passages of the user's files that answers may cite, by their numbers."""
        return passages_in(each.message for each in self.messages)

    @property
    def continuing(self) -> str:
        """Which conversation goes on, on one line."""
        title = f", {clean_line(self.title)!r}" if self.title else ""
        unanswered = ", whose last question got no answer: the next takes its place"
        return f"continuing {self.conversation}{title}{unanswered if self._is_unanswered else ''}"

    def new(self) -> None:
        """Leave this conversation and begin another, with the system prompt of new ones."""
        self.system = self._usual_system
        self.conversation, self.messages, self.title, self.pair = None, [], "", ""

    def open(self, conversation: int) -> None:
        """Show a conversation that the history has."""
        stored = self.history.conversation(conversation)
        self.conversation, self.system = stored.id, stored.system
        self.title, self.pair = stored.title, stored.pair
        self.messages = self.history.branch(conversation)

    def go_back(self, leaf: int | None) -> None:
        """Go on behind a message of this conversation; the history keeps what follows it."""
        self.history.go_back(self._id, leaf)
        self.show_branch(leaf)

    def show_branch(self, leaf: int | None) -> None:
        """Show the branch that ends with a message; None shows nothing."""
        self.messages = []
        if self.conversation is not None and leaf is not None:
            self.messages = self.history.branch(self.conversation, leaf)

    def turns_behind(self) -> tuple[Message, ...]:
        """Return what was said before the next question, without one that never got an answer; see `say`."""
        return self._turns(self._answered_branch())

    def turns_with(self, question: Message) -> tuple[Message, ...]:
        """Return what goes to the engine with a question that `say` would add; nothing is saved.

        Raises:
            UsageError: the file of a picture or a sound is missing, or all have too many bytes; so do all that return turns.
        """
        return self._turns(self._answered_branch(), question)

    def say(self, question: Message, settings: str = "") -> int:
        """Add a question at the end and return its id. One that never got an answer is put aside.

        Args:
            question: its text and files.
            settings: what the history keeps with a conversation that begins with it.
        """
        last = self.messages[-1] if self.messages else None
        if self.conversation is None:
            self.conversation = self.history.create(system=self.system, settings=settings)
        place = None if last is None else last.parent if self._is_unanswered else last.id
        return self._add(question, place)

    @property
    def is_open_elsewhere(self) -> bool:
        """Whether the next question begins a branch, since another window has gone on from the same message.

        Raises:
            UsageError: the conversation was deleted there.
        """
        if self.conversation is None or not self.messages:
            return False
        self._require_there()
        last = self.messages[-1]
        place = last.parent if self._is_unanswered else last.id
        others = self.history.rows("message", "conversation", self.conversation)
        return self.history.conversation(self.conversation).leaf != last.id and any(
            each["parent"] == place and each["id"] != last.id for each in others
        )

    def add_result(self, done: "CarriedOut") -> int:
        """Add what a call of the last answer came to; return its id."""
        message, figures = Message("tool", (done.result,)), json.dumps({"seconds": done.seconds})
        parent, figures = self.messages[-1].id, figures if done.begun else ""
        added = self.history.add_result(self._id, parent, message, done.call.name, figures)
        self.show_branch(added)
        return added

    def begin_reply(self, model: str) -> ReplyRecorder:
        """Begin a reply of a model to the last message; it is saved as it comes."""
        return self.history.begin_reply(self._id, self.messages[-1].id, model)

    def finish_reply(
        self,
        recorder: ReplyRecorder,
        reply: Reply,
        message: Message,
        left_out: int = 0,
        no_drafting: str = "",
        before: Mapping[str, object] = _NO_FIGURES,
    ) -> None:
        """Save a reply with its figures, and show the branch that ends with it.

        Args:
            recorder: of the reply.
            reply: its figures.
            message: its words and calls.
            left_out: turns that the context had no room for.
            no_drafting: why nothing was drafted, in about five words.
            before: figures of what the reply goes on with.
        """
        # What is kept as "no_drafting" says why a gain is not known, too.
        figures = {
            "tokens": reply.completion_tokens,
            "tokens_per_s": reply.tokens_per_s,
            "accepted": reply.acceptance.acceptance_rate,
            "drafted": reply.acceptance.drafted,
            "confirmed": reply.acceptance.accepted,
            "gain": reply.gain_ratio,
            "no_drafting": no_drafting or reply.no_gain,
            "stop": reply.stop_reason.value,
            "seed": reply.seed,
            "prompt": reply.prompt_tokens,
            "left_out": left_out,
        }
        # A summary that was whole is one still where more of it was stopped.
        whole = self.ends_with_summary and recorder.message == self.messages[-1].id
        stopped = reply.stop_reason is StopReason.CANCELLED and not whole
        end = recorder.cut if stopped else recorder.finish
        end(message, figures=json.dumps(_of_both(before, figures) if before else figures))
        self.show_branch(recorder.message)

    def before(self, number: int) -> tuple[Message, ...]:
        """Return what was said before the `number`-th question."""
        parent = self.question(number).parent
        return () if parent is None else self.turns(parent)

    def say_compaction(self, n_ctx: int = 0) -> str | None:
        """Add a request to summarise what was said; return a question that has no answer, which is taken back for it.

        Args:
            n_ctx: tokens of the context; 0 where that is unknown.

        Raises:
            UsageError: there is nothing to summarise.
        """
        branch, unanswered = self._answered_branch(), self._is_unanswered
        if not self.can_be_summarised:
            raise UsageError("nothing to summarise yet: ask something first")
        if unanswered and is_request(self.messages[-1]):  # it came to nothing, and is asked again
            return None
        text = self.take_back() if unanswered else None
        context = context_of(branch)
        self._add(request_for(context), branch[-1].id, figures_of(recent_from(context, n_ctx)))
        return text

    @property
    def can_be_summarised(self) -> bool:
        """Whether something was answered since the last summary."""
        branch = self._answered_branch()
        since = context_of(branch)[0 if summary_at(branch) is None else 2 :]
        return any(each.message.role == "assistant" for each in since)

    def least_to_summarise(self, n_ctx: int) -> tuple[Message, ...]:
        """Return the turns that a summary cannot leave out: the last question that does not stay as it is, what came of it, and the request."""
        context = context_of(self._answered_branch())
        recent = recent_from(context, n_ctx)
        ids = [each.id for each in context]
        old = context if recent is None else context[: ids.index(recent)]
        asked = [at for at, each in enumerate(old) if each.message.role == "user"]
        return self._turns(old[asked[-1] :], request_for(old))

    @property
    def ends_with_summary(self) -> bool:
        """Whether the last message is a summary of those before it."""
        return summary_at(self.messages[-2:]) == 1  # the screen asks five times a second

    @property
    def has_tried_summary(self) -> bool:
        """Whether a summary was asked for here already, whatever came of it: nothing but a question has followed."""
        if any(is_request(each) for each in self.messages[-3:]):
            return True
        if self.conversation is None or not self._is_unanswered:
            return False
        # A request that nothing answered gives its place to the question.
        here, stored = self.messages[-1].parent, self.history.messages(self.conversation)
        answered = {each.parent for each in stored}
        return any(
            each.parent == here and is_request(each) and each.id not in answered for each in stored
        )

    def rewrite_summary(self, text: str) -> None:
        """Have the last summary say something else.

        Raises:
            UsageError: there is none.
        """
        summary = self.summary()
        self.history.resume_reply(summary.id).finish(Message.assistant(text), summary.figures)
        self.show_branch(self.messages[-1].id)

    def summary(self) -> StoredMessage:
        """Return the last summary.

        Raises:
            UsageError: there is none.
        """
        at = summary_at(self.messages)
        if at is None:
            raise UsageError("there is no summary yet: /compact makes one")
        return self.messages[at]

    def say_instead(self, number: int, question: Message) -> int:
        """Ask something else in place of the `number`-th question, in a branch; return its id."""
        return self._add(question, self.question(number).parent)

    def question(self, number: int | None = None) -> StoredMessage:
        """Return the `number`-th question, from 1 on, or the last one, which may be a request for a summary.

        Raises:
            UsageError: there is no such question.
        """
        questions = [each for each in self.messages if each.message.role == "user"]
        if not questions:
            raise UsageError("nothing was asked yet: write a question first")
        if number is None:
            return questions[-1]
        questions = [each for each in questions if not is_request(each)]
        if not 1 <= number <= len(questions):
            raise UsageError(f"there is no question {number}: there are {len(questions)}")
        return questions[number - 1]

    def answer(self) -> StoredMessage:
        """Return the last message, an answer.

        Raises:
            UsageError: the last message is none.
        """
        if self._is_unanswered:
            raise UsageError("the last question has no answer yet: /regenerate asks it again")
        if not self.messages or self.messages[-1].message.role != "assistant":
            raise UsageError("no answer yet: ask something first")
        return self.messages[-1]

    def is_answered_elsewhere(self) -> bool:
        """Whether another window has gone on with the last answer, which is shown as it is now.

        Raises:
            UsageError: the last message is no answer, or the conversation was deleted there.
        """
        before = self.answer()
        self._require_there()
        self.show_branch(before.id)
        now = self.answer()
        return now.state != "streaming" and now.message != before.message

    def mark(self, mark: Mark, reply: StoredMessage | None = None) -> Mark:
        """Mark a reply, or the last one; the mark that it has already is taken back. Return which it has then.

        Raises:
            UsageError: there is no reply, or the conversation was deleted elsewhere.
        """
        replies = [each for each in self.messages if each.message.role == "assistant"]
        if not replies:
            raise UsageError("no answer yet: ask something first")
        self._require_there()
        reply = reply or replies[-1]
        mark = "" if reply.mark == mark else mark
        self.history.mark(reply.id, mark)
        self.show_branch(self.messages[-1].id)
        return mark

    def numbers(self) -> dict[int, int]:
        """Return the number of every question, by its id; requests for summaries have none."""
        questions = [
            each for each in self.messages if each.message.role == "user" and not is_request(each)
        ]
        return {each.id: number for number, each in enumerate(questions, 1)}

    def take_back(self) -> str:
        """Show the conversation as it was before the last question, and return that; the history keeps both.

        Raises:
            UsageError: nothing was asked yet.
        """
        last = self.question()
        self.go_back(last.parent)
        return typed_of(last)

    def turns(self, upto: int, *, summarises: bool = False) -> tuple[Message, ...]:
        """Return what goes to the engine, from the system prompt to the message `upto`, which may be a summary that is to go on."""
        ids = [each.id for each in self.messages]
        branch = self.messages[: ids.index(upto) + 1] if upto in ids else self.messages
        return self._turns(branch, summarises=summarises)

    def answered(self) -> tuple[Message, ...]:
        """Return the turns up to the last answer; without one, the system prompt if there is one."""
        roles = enumerate((each.message.role for each in self.messages), 1)
        return self._turns(
            self.messages[: max((n for n, r in roles if r == "assistant"), default=0)]
        )

    def turn_aside(self, message: StoredMessage, step: int) -> int:
        """Show the next of the messages that stand at the same place, and what follows it; return its id."""
        at = message.siblings.index(message.id)
        other = message.siblings[(at + step) % len(message.siblings)]
        if self.conversation is not None and other != message.id:
            self.messages = self.history.show(self.conversation, other)
        return other

    def branch_off(self, count: int, settings: str = "") -> None:
        """Go on in a conversation of its own that has the first `count` messages of this one; settings as for `say`."""
        messages, title = self.messages[:count], self.title
        self.conversation = self.history.create(
            system=self.system, pair=self.pair, settings=settings
        )
        parent: int | None = None
        ids = dict[int, int]()
        for each in messages:
            place = self.conversation, parent
            match each.message.role:
                case "user":
                    parent = self.history.add_user(*place, each.message, branched(each, ids))
                    ids[each.id] = parent
                case "tool":
                    parent = self.history.add_result(*place, each.message, each.model, each.figures)
                case _:
                    reply = self.history.begin_reply(*place, model=each.model)
                    end = reply.finish if each.state == "complete" else reply.cut
                    end(each.message, figures=each.figures)
                    self.history.mark(reply.message, each.mark)
                    parent = reply.message
        self.rename(f"{title} (branch)")
        self.show_branch(parent)

    def set_system(self, system: str | None) -> None:
        """Change the system prompt, from the next answer on."""
        self.system = system
        if self.conversation is not None:
            self.history.update(self.conversation, system=system)

    def set_pair(self, pair: str) -> None:
        """Take note of what answers in this conversation, to be loaded when it is taken up again."""
        if self.conversation is not None and pair != self.pair:
            self.history.update(self.conversation, pair=pair)
            self.pair = pair

    def rename(self, title: str) -> None:
        """Give this conversation a title.

        Raises:
            UsageError: there is nothing to name yet, or it was deleted elsewhere.
        """
        if self.conversation is None:
            raise UsageError("this conversation is empty: ask something before you name it")
        self._require_there()
        self.history.rename(self.conversation, title)
        self.title = title

    @property
    def _id(self) -> int:
        assert self.conversation is not None, "it has a question"  # noqa: S101
        return self.conversation

    def _require_there(self) -> None:
        """Raise UsageError where another program has deleted the conversation."""
        if not self.history.rows("conversation", "id", self._id):
            raise UsageError("this conversation was deleted elsewhere: /new begins another")

    @property
    def _is_unanswered(self) -> bool:
        return bool(self.messages) and self.messages[-1].message.role == "user"

    def _answered_branch(self) -> Sequence[StoredMessage]:
        return self.messages[:-1] if self._is_unanswered else self.messages

    def _turns(
        self, branch: Sequence[StoredMessage], *more: Message, summarises: bool = False
    ) -> tuple[Message, ...]:
        system = [] if self.system is None else [Message.system(self.system)]
        context = context_of(branch, summarises=summarises)
        turns = with_results([*system, *(each.message for each in context), *more])
        for each in turns:
            for part in each.media:
                if not part.data:
                    raise UsageError(
                        f"the file of {printable_line(part.name)} is missing or damaged in the history: "
                        "edit its question in the chat, or begin a new conversation"
                    )
        summarised = not more and any(is_request(each) for each in branch[-2:])
        return with_media_that_fit(turns, leave_out=summarised or self.drop_oldest)

    def _add(self, message: Message, parent: int | None, figures: str = "") -> int:
        added = self.history.add_user(self._id, parent, message, figures)
        self.show_branch(added)
        self.title = self.history.conversation(self._id).title
        return added


def _of_both(before: Mapping[str, object], now: Mapping[str, object]) -> dict[str, object]:
    """Return the figures of a reply in two parts: tokens add up, and so do seconds, with drafts and without."""
    parts, whole = (before, now), dict(now)
    for name in ("tokens", "drafted", "confirmed", "left_out"):
        counts = (each.get(name) for each in parts)
        whole[name] = sum(each for each in counts if isinstance(each, int))
    whole |= {name: before[name] for name in ("seed", "prompt") if name in before}
    timed = [
        (tokens, tokens / speed, each.get("gain"))
        for each in parts
        if isinstance(tokens := each.get("tokens"), int)
        and isinstance(speed := each.get("tokens_per_s"), float)
        and speed > 0
    ]
    seconds = sum(each for _, each, _ in timed)
    gains = [each * gain for _, each, gain in timed if isinstance(gain, float)]
    if seconds:
        whole["tokens_per_s"] = sum(tokens for tokens, _, _ in timed) / seconds
        whole["gain"] = sum(gains) / seconds if len(gains) == len(timed) else None
    drafted, confirmed = whole["drafted"], whole["confirmed"]
    if isinstance(drafted, int) and isinstance(confirmed, int):
        whole["accepted"] = confirmed / drafted if drafted else None
    return whole
