"""ReplyRecorder: a reply is saved while it grows, so that a kill loses less than a second of it."""

import time
from collections.abc import Callable

from localspec.history.database import HistoryDatabase, RowChange
from localspec.history.records import State, acts_of, storable
from localspec.messages import Message

# Twice as often as promised: `tick` may come late.
FLUSH_S = 0.5


class ReplyRecorder:
    """Writes one message.

    Args:
        database: where to.
        message: id of the message.
        begun: what it says already.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        database: HistoryDatabase,
        message: int,
        begun: Message | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        begun = begun or Message.assistant("")
        self.message, self._database, self._clock = message, database, clock
        self._content, self._thinking, self._acts = [begun.text], [begun.thinking], acts_of(begun)
        self._flushed_s, self._dirty = clock(), False

    def feed(self, text: str, *, thinking: bool = False) -> None:
        """Add text to the answer, or to its thoughts."""
        (self._thinking if thinking else self._content).append(text)
        self._dirty = True
        self.tick()

    def tick(self) -> None:
        """Save what came in if half a second went by; to be called several times a second."""
        if self._dirty and self._clock() - self._flushed_s >= FLUSH_S:
            self._save("streaming")

    def finish(self, reply: Message | None = None, figures: str = "") -> None:
        """Save the reply as complete; by default it is what was fed."""
        self._save("complete", reply, figures)

    def cut(self, reply: Message | None = None, figures: str = "") -> None:
        """Save the reply as one that was stopped; by default it is what was fed."""
        self._save("cut", reply, figures)

    def _save(self, state: State, reply: Message | None = None, figures: str = "") -> None:
        if reply is not None:
            self._content, self._thinking = [reply.text], [reply.thinking]
            self._acts = acts_of(reply)
        self._content, self._thinking = ["".join(self._content)], ["".join(self._thinking)]
        self._flushed_s, self._dirty = self._clock(), False
        values = {
            "content": storable(self._content[0]),
            "thinking": storable(self._thinking[0]),
            "state": state,
            "figures": figures,
            "acts": storable(self._acts),
        }
        self._database.save(RowChange("message", self.message, values))
