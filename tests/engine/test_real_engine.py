"""The engine's own process with real weights: a conversation, stops, a restart in the middle of it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.chat.events import Text
from localspec.decoding.round import StopReason
from localspec.engine.protocol import (
    Failed,
    LoadCancelled,
    Loading,
    Ready,
    StateLeft,
    StateRestored,
    StateSaved,
)
from localspec.messages import Message
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from tests.engine.talking import Talker, hear_all, hear_event, hear_last, hear_of

pytestmark = pytest.mark.weights

GREEDY = ReplyOptions(SamplingParams(temperature=0), max_tokens=40)
QUESTION = [Message.system("You are brief."), Message.user("Name three rivers of Europe.")]


@contextmanager
def engine(path: Path) -> Iterator[Talker]:
    small = LoadOptions(threads=1, gpu_layers=0, n_ctx=2048)
    with closing(Talker()) as client:
        client.load(LaunchOptions(target=str(path), draft="lookup", load=small))
        ready = hear_last(client, Ready)
        assert (ready.target, ready.n_ctx) == (str(path), 2048)
        yield client


@pytest.fixture(scope="module")
def client(smollm2_path: Path) -> Iterator[Talker]:
    with engine(smollm2_path) as client:
        yield client


@pytest.mark.slow
def test_a_restart_in_the_middle_of_a_conversation_changes_nothing(
    smollm2_path: Path, tmp_path: Path
) -> None:
    state = str(tmp_path / "state" / "1")
    more = Message.user("Which of them is the longest?")
    with engine(smollm2_path) as before:
        heard = before.reply(QUESTION, GREEDY)
        first = heard.done
        assert first.message.text == heard.text != ""
        talk = [*QUESTION, first.message, more]
        before.save_state(state)
        saved = hear_last(before, StateSaved)
        uninterrupted = before.reply(talk, GREEDY).done
    with engine(smollm2_path) as after:
        after.restore_state(state)
        assert hear_of(after, StateRestored)[-1] == StateRestored(state, saved.tokens)
        resumed = after.reply(talk, GREEDY).done
    assert resumed.message == uninterrupted.message
    assert resumed.reply.cached_tokens == uninterrupted.reply.cached_tokens == saved.tokens
    with engine(smollm2_path) as afresh:
        (tmp_path / "state" / "1" / "target.kv").write_bytes(b"damaged")
        afresh.restore_state(state)
        assert hear_of(afresh, StateLeft)[-1] == StateLeft(state, "it is damaged")
        again = afresh.reply(talk, GREEDY).done
    assert again.reply.cached_tokens == 0
    assert again.reply.prompt_tokens == resumed.reply.prompt_tokens


@pytest.mark.slow
def test_a_reply_stops_in_the_middle_and_goes_on(client: Talker) -> None:
    story = [Message.user("Tell me a long story about a fox.")]
    whole = client.reply(story, GREEDY, keep=0).done.message.text
    number = client.ask(story, replace(GREEDY, max_tokens=1000), keep=0)
    hear_event(client, Text)
    client.cancel(number)
    cut = hear_all(client, number).done
    assert cut.reply.stop_reason is StopReason.CANCELLED
    left = max(40 - cut.reply.completion_tokens, 8)
    rest = client.reply([*story, cut.message], replace(GREEDY, max_tokens=left)).done
    assert rest.reply.cached_tokens == rest.reply.prompt_tokens - 1
    assert rest.message.text.startswith(cut.message.text)
    assert len(rest.message.text) > len(cut.message.text)
    assert whole.startswith(cut.message.text) or cut.message.text.startswith(whole)


def test_a_file_that_is_none_is_refused_and_the_pair_stays(client: Talker, tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF nonsense")
    client.load(LaunchOptions(target=str(tmp_path / "x.gguf")))
    assert hear_last(client, Failed).kind == "ModelFileError"
    assert client.reply(QUESTION, GREEDY).done.message.text != ""


def test_a_load_is_stopped_in_the_middle(smollm2_path: Path) -> None:
    small = LoadOptions(threads=1, gpu_layers=0)
    with closing(Talker()) as client:
        client.load(LaunchOptions(target=str(smollm2_path), load=small))
        client.cancel()
        heard = hear_of(client, LoadCancelled)
    assert heard[-1] == LoadCancelled(None)
    assert all(each.share < 1 for each in heard.of(Loading))
