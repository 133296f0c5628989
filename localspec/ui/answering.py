"""GrowingAnswer: the answer that is under way, and how it gets into the history while it grows."""

from localspec.chat.events import Text
from localspec.engine.protocol import Notice, ReplyDone, ReplyEvents
from localspec.history.recorder import ReplyRecorder
from localspec.history.records import StoredMessage
from localspec.session.conversation import SavedConversation
from localspec.ui.exchange import Exchange


class GrowingAnswer:
    """An answer, from the request to its last word.

    Args:
        talk: the conversation that it belongs to.

    Attributes:
        exchange: the last request, running or done; None before the first.
        parent: the message that is being answered.
        continued: the same, where it is an answer that goes on; else None.
        message: what was kept of it last; None before there is anything.
    """

    def __init__(self, talk: SavedConversation) -> None:
        self._talk = talk
        self.exchange: Exchange | None = None
        self.parent: int | None = None
        self.continued: StoredMessage | None = None
        self.message: int | None = None
        self._recorder: ReplyRecorder | None = None

    @property
    def growing(self) -> bool:
        """Whether it is under way."""
        return self.exchange is not None and not self.exchange.done

    def begin(self, exchange: Exchange, parent: int) -> None:
        """Take note that an answer to the message `parent` was asked for, or more of it."""
        last = next(each for each in self._talk.messages if each.id == parent)
        self.exchange, self.parent, self._recorder = exchange, parent, None
        self.message = None
        self.continued = last if last.message.role == "assistant" else None

    def take(self, notice: Notice, model: str) -> bool:
        """Take a notice, and keep what it says; return whether it was for this answer.

        Args:
            notice: from the engine.
            model: what answers, as it is called.
        """
        if self.exchange is None or not self.exchange.take(notice):
            return False
        match notice:
            case ReplyEvents():
                for event in notice.events:
                    if isinstance(event, Text):  # one that never begins leaves no message behind
                        self._begun(model).feed(event.text, thinking=event.thinking)
            case ReplyDone():
                self._finish(notice, model)
            case _:
                pass
        return True

    def tick(self) -> None:
        """Save what came in, if half a second went by."""
        if self._recorder is not None:
            self._recorder.tick()

    def break_off(self) -> None:
        """Keep what there is of an answer that will not end by itself."""
        if self._recorder is not None:
            self._recorder.cut()
            self._talk.show_branch(self._recorder.message)
            self._recorder = None
        if self.growing:
            self.exchange = None

    def forget(self) -> None:
        """Let go of it: its conversation was left."""
        self.exchange, self._recorder = None, None

    def _begun(self, model: str) -> ReplyRecorder:
        if self._recorder is None:
            history, conversation = self._talk.history, self._talk.conversation
            assert conversation is not None  # noqa: S101 - it holds the message that is answered
            assert self.parent is not None  # noqa: S101 - set with the request
            if self.continued is not None:
                self._recorder = history.resume_reply(self.continued.id)
            else:
                self._recorder = history.begin_reply(conversation, self.parent, model)
            self.message = self._recorder.message
        return self._recorder

    def _finish(self, finished: ReplyDone, model: str) -> None:
        reply, message = finished.reply, finished.message
        said = message.text or message.thinking or message.calls
        if not said and self._recorder is None:
            return  # stopped before the first token
        recorder = self._begun(model)
        self._talk.finish_reply(recorder, reply, message, finished.dropped_turns)
        self._recorder = None
