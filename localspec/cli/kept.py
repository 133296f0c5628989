"""Kept: the conversation in the history that a prompt of `run` belongs to."""

import json
from collections.abc import Sequence
from contextlib import closing

from localspec.chat.events import Reply
from localspec.cli.hands import said_by
from localspec.cli.words import is_model
from localspec.decoding.round import StopReason
from localspec.errors import UsageError
from localspec.history.archive import History
from localspec.history.records import StoredConversation
from localspec.messages import Message
from localspec.models.registry import load_registry
from localspec.options import LaunchOptions
from localspec.storage.paths import data_dir
from localspec.toolbox.loop import CarriedOut
from localspec.ui.model_switch import name_of, with_names
from localspec.ui.talk import Talk


def continued(name: str, words: tuple[str, ...]) -> tuple[StoredConversation, tuple[str, ...]]:
    """Return the conversation that `run --continue` means, and the words that are left for model and prompt.

    A number is always a conversation. Without a prompt among the words, the name is the prompt; else it is a model or a title.

    Args:
        name: what stands behind `--continue`; empty if nothing does.
        words: the others on the command line.

    Raises:
        LocalspecError: there is no such conversation, or none at all.
    """
    if not name or name.removeprefix("#").isdecimal():
        return stored(name), words
    registry = load_registry()
    if len(words) == (is_model(words[0], registry) if words else 0):
        return stored(""), (*words, name)
    if is_model(name, registry):
        return stored(""), (name, *words)
    try:
        return stored(name), words
    except UsageError as error:
        raise UsageError(f"{error}; put quotes around a prompt of several words") from None


def stored(name: str) -> StoredConversation:
    """Return the conversation of a number or a title; of an empty name, the last one.

    Raises:
        LocalspecError: there is no such conversation, or none at all.
    """
    with closing(History(data_dir() / "history")) as history:
        latest = history.latest()
        if latest is None:
            raise UsageError("no conversation to continue yet: ask without -c (--continue)")
        return history.named(name or str(latest))


class Kept:
    """A conversation of the history that `run` goes on with, or a new one.

    Args:
        conversation: its number; None for a new one.

    Attributes:
        model: what answered in it last, as `--model` takes it; empty in a new one.
    """

    def __init__(self, conversation: int | None = None) -> None:
        self._talk = Talk(History(data_dir() / "history"))
        self._new = conversation is None
        if conversation is not None:
            self._talk.open(conversation)
        self.model = self._talk.pair

    @property
    def number(self) -> int | None:
        """The history's of the conversation; None before the first question, and where nothing is saved."""
        return self._talk.number

    @property
    def continuing(self) -> str:
        """Which conversation goes on, on one line."""
        return self._talk.continuing

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
