"""A chat's engine on a worker: the worker dies, the engine says which, and both come back."""

from contextlib import closing

import pytest

from localspec.chat.events import Text
from localspec.engine.protocol import EngineDied, Failed, Ready
from localspec.messages import Message
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from tests.engine.talking import Talker, hear_event, hear_last, hear_of
from tests.plugins.workers.workers import free_address, working

LONG = ReplyOptions(SamplingParams(temperature=0), max_tokens=400)
SHORT = ReplyOptions(SamplingParams(temperature=0), max_tokens=4)
STORY = [Message.user("Tell a long story about a river.")]


@pytest.mark.slow
@pytest.mark.weights
def test_a_chat_goes_on_when_its_worker_is_back(smollm2_path: object) -> None:
    address, client = free_address(), Talker()
    small = LoadOptions(threads=1, n_ctx=512)
    load = LaunchOptions(target=str(smollm2_path), draft="off", load=small, workers=(address,))
    with closing(client):
        with working(at=address) as worker:
            client.load(load)
            hear_last(client, Ready)
            client.ask(STORY, LONG)
            before = hear_event(client, Text).text
            worker.kill()
            last = hear_of(client)
        assert isinstance(last[-1], EngineDied)
        assert last[-1].reason == f"worker {address} is gone, and with it the engine"
        assert before + last.text
        client.restart()
        away = hear_last(client, Failed)
        assert (away.id, away.kind) == (None, "UsageError")
        assert away.reason.startswith(f"worker {address} cannot be reached")
        with working(at=address):
            client.restart()
            hear_last(client, Ready)
            assert client.reply(STORY, SHORT).done.reply.completion_tokens == 4
