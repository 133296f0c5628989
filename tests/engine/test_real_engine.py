"""The engine's own process with real models: a restart in the middle of a conversation, and loads that end early."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from localspec.engine.protocol import Failed, LoadCancelled, Loading, Ready
from localspec.messages import Message
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from tests.engine.talking import Talker, hear_last, hear_of
from tests.llama import tiny_llama
from tests.support.machines import with_what_is_known

GREEDY = ReplyOptions(SamplingParams(temperature=0), max_tokens=40)
QUESTION = [Message.system("You are brief."), Message.user("Name three rivers of Europe.")]


@contextmanager
def engine(path: Path, n_ctx: int = 1024) -> Iterator[Talker]:
    small = LoadOptions(threads=1, gpu_layers=0, n_ctx=n_ctx)
    with closing(Talker()) as client:
        client.load(LaunchOptions(target=str(path), draft="lookup", load=small))
        ready = hear_last(client, Ready)
        assert (ready.target, ready.n_ctx) == (str(path), n_ctx)
        yield client


@pytest.mark.slow
def test_a_restart_in_the_middle_of_a_conversation_reads_little_of_it_again(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(with_what_is_known(tmp_path / "data", "blobs")))
    more, long = Message.user("Which of them is the longest?"), [Message.system("Be brief. " * 300)]
    with engine(smollm2_path, 2048) as before:
        first = before.reply([*long, *QUESTION], GREEDY).done
        talk = [*long, *QUESTION, first.message, more]
        before.close()
    with engine(smollm2_path, 2048) as after:
        resumed = after.reply(talk, GREEDY).done
    assert resumed.reply.cached_tokens > resumed.reply.prompt_tokens - 64
    for each in (tmp_path / "data" / "reads").glob("*/*.*"):
        each.write_bytes(b"damaged")
    with engine(smollm2_path, 2048) as afresh:
        again = afresh.reply(talk, GREEDY).done
    assert again.reply.cached_tokens == 0
    assert again.reply.prompt_tokens == resumed.reply.prompt_tokens


def test_a_file_that_is_none_is_refused_and_the_pair_stays(tmp_path: Path) -> None:
    (tmp_path / "x.gguf").write_bytes(b"GGUF nonsense")
    with engine(tiny_llama.write(tmp_path / "tiny.gguf")) as client:
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
