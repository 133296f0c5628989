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
)
from localspec.messages import Message
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from tests.engine.talking import Talker, hear_all, hear_event, hear_last, hear_of
from tests.support.machines import with_what_is_known

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
def test_a_restart_in_the_middle_of_a_conversation_reads_little_of_it_again(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(with_what_is_known(tmp_path / "data", "blobs")))
    more, long = Message.user("Which of them is the longest?"), [Message.system("Be brief. " * 300)]
    with engine(smollm2_path) as before:
        first = before.reply([*long, *QUESTION], GREEDY).done
        talk = [*long, *QUESTION, first.message, more]
        before.close()
    with engine(smollm2_path) as after:
        resumed = after.reply(talk, GREEDY).done
    assert resumed.reply.cached_tokens > resumed.reply.prompt_tokens - 64
    for each in (tmp_path / "data" / "reads").glob("*/*.*"):
        each.write_bytes(b"damaged")
    with engine(smollm2_path) as afresh:
        again = afresh.reply(talk, GREEDY).done
    assert again.reply.cached_tokens == 0
    assert again.reply.prompt_tokens == resumed.reply.prompt_tokens


@pytest.mark.slow
def test_a_reply_stops_in_the_middle_and_goes_on(client: Talker) -> None:
    story = [Message.user("Tell me a long story about a fox.")]
    whole = client.reply(story, GREEDY, most_cached=0).done.message.text
    number = client.ask(story, replace(GREEDY, max_tokens=1000), most_cached=0)
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
