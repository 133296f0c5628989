"""Kept: the conversation in the history that a prompt of `run` belongs to."""

import json
from collections.abc import Sequence

from localspec.chat.events import Reply
from localspec.cli.hands import said_by
from localspec.decoding.round import StopReason
from localspec.errors import UsageError
from localspec.history.archive import History
from localspec.messages import Message
from localspec.options import LaunchOptions
from localspec.storage.paths import data_dir
from localspec.toolbox.loop import CarriedOut
from localspec.ui.model_switch import name_of, with_names
from localspec.ui.talk import Talk


class Kept:
    """A conversation of the history: the last one, or a new one.

    Args:
        go_on: whether it is the last one.

    Attributes:
        model: what answered in it last, as `--model` takes it; empty in a new one.

    Raises:
        UsageError: there is none to go on with.
    """

    def __init__(self, *, go_on: bool) -> None:
        self._talk = Talk(History.open(data_dir() / "history"))
        self._new = not go_on
        if go_on:
            latest = self._talk.history.latest()
            if latest is None:
                raise UsageError("no conversation to continue yet: ask without --continue")
            self._talk.open(latest)
        self.model = self._talk.pair

    @property
    def number(self) -> int | None:
        """The history's of the conversation; None before the first question, and where nothing is saved."""
        return self._talk.number

    @property
    def messages(self) -> tuple[Message, ...]:
        """What was said in it before."""
        return tuple(each.message for each in self._talk.messages)

    def say(self, said: Message, system: str | None) -> tuple[Message, ...]:
        """Keep a question; return the conversation that ends with it.

        Args:
            said: the question.
            system: the system prompt of a new conversation; one that goes on has its own.
        """
        if self._new:
            self._talk.system = system
        asked = self._talk.say(said)
        return self._talk.turns(asked)

    def answer(
        self, said: Sequence[Reply | CarriedOut], target: str, loaded: LaunchOptions
    ) -> None:
        """Keep the answer.

        Args:
            said: replies, and what came of their calls; of an answer without calls one reply.
            target: the model that gave it.
            loaded: what was loaded, and is to be when the conversation goes on.
        """
        talk = self._talk
        assert talk.conversation is not None  # noqa: S101 - it was said in one
        talk.hold_with(name_of(with_names(loaded)))
        for each in said:
            if isinstance(each, CarriedOut):
                talk.add_result(each)
            else:
                self._keep(each, talk.conversation, target)
        talk.history.close()

    def _keep(self, reply: Reply, conversation: int, target: str) -> None:
        talk = self._talk
        recorder = talk.history.begin_reply(conversation, talk.messages[-1].id, target)
        figures = {
            "tokens": reply.completion_tokens,
            "tokens_per_s": reply.tokens_per_s,
            "stop": reply.stop_reason.value,
            "seed": reply.seed,
        }
        end = recorder.cut if reply.stop_reason is StopReason.CANCELLED else recorder.finish
        end(said_by(reply), figures=json.dumps(figures))
        talk.show_branch(recorder.message)
