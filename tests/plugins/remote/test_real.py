"""Real servers: another `localspec serve`, and llama-server where there is one (LOCALSPEC_LLAMA_SERVER names it)."""

import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.cli.command import PLAIN, localspec, started, succeed
from tests.plugins.serve.test_process import url_of
from tests.support.media import picture_file, sound_file
from tests.waiting import PATIENCE_S

pytestmark = [pytest.mark.slow]
LLAMA_SERVER = os.environ.get("LOCALSPEC_LLAMA_SERVER", "")
GREEDY = ("--temperature", "0", "-n", "24", "--seed", "1")
QUESTION = "Name three rivers."


@pytest.fixture(scope="module")
def own_server(smollm2_path: Path) -> Iterator[str]:
    assert smollm2_path.is_file()
    flags = ("-m", "smollm2-135m", "--draft", "off", "--ctx", "1024", "--port", "0", *PLAIN)
    with started("serve", *flags, "--parallel", "2") as process:
        yield url_of(process)
        process.send_signal(signal.SIGINT)
        process.wait(PATIENCE_S)


@contextmanager
def serving(*words: str) -> Iterator[str]:
    if not LLAMA_SERVER:
        pytest.skip("LOCALSPEC_LLAMA_SERVER names no llama-server")
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        port = probe.getsockname()[1]
    command = [LLAMA_SERVER, *words, "--port", str(port), "-c", "2048", "-t", "1"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


@pytest.fixture(scope="module")
def llama_server(smollm2_path: Path) -> Iterator[str]:
    with serving("-m", str(smollm2_path), "-np", "2") as url:
        yield url


@pytest.fixture(params=["own_server", "llama_server"])
def server(request: pytest.FixtureRequest) -> str:
    url: str = request.getfixturevalue(request.param)
    return url


def test_run_and_chat_answer_and_know_how_much_context_there_is(server: str) -> None:
    first = succeed("run", "--server", server, *GREEDY, QUESTION)
    assert "without exactness" in first.err
    again = json.loads(succeed("run", "--server", server, "--json", *GREEDY, QUESTION).out)
    assert again["text"].strip() == first.out.strip()
    assert again["usage"]["completion_tokens"] == 24
    assert again["stop_reason"] == "length"
    lines = b"My name is Bob.\nWhat is my name?\n/set\n"
    done = succeed("chat", "--plain", "--server", server, *GREEDY, stdin=lines)
    assert len(done.out) > 20
    assert re.search(r"ctx +(1024|2048)\b", done.err), done.err
    raw = succeed("run", "--server", server, "--raw", *GREEDY, "Once upon a").out
    assert raw.strip()
    bound = ("--json-schema", '{"enum": ["yes", "no"]}')
    chosen = succeed("run", "--server", server, *GREEDY, *bound, "Is it?").out.strip()
    assert chosen in {'"yes"', '"no"'}


def test_the_text_of_another_localspec_is_its_own(own_server: str) -> None:
    flags = ("-m", "smollm2-135m", "--draft", "off", "--ctx", "1024", *PLAIN)
    here = succeed("run", *flags, "-q", *GREEDY, QUESTION).out
    assert succeed("run", "--server", own_server, "-q", *GREEDY, QUESTION).out == here


@pytest.mark.parametrize("kind", ["tiles", "sound"])
def test_llama_server_sees_and_hears(
    seeing_models: Callable[[str], tuple[Path, Path]], tmp_path: Path, kind: str
) -> None:
    pictures, sounds = (picture_file(4), picture_file(9)), (sound_file(1), sound_file(3))
    seen, other = (pictures, sounds) if kind == "tiles" else (sounds, pictures)
    for name, content in zip(("first", "second", "other"), (*seen, other[0]), strict=True):
        (tmp_path / name).write_bytes(content)
    target, encoder = seeing_models(kind)
    with serving("-m", str(target), "--mmproj", str(encoder)) as url:
        texts, tokens = list[str](), list[int]()
        for files in (("first",), ("second",), ("first", "second"), ()):
            flags = [word for name in files for word in ("-f", str(tmp_path / name))]
            done = succeed("run", "--server", url, "--json", *GREEDY, *flags, QUESTION)
            answer = json.loads(done.out)
            texts.append(answer["text"])
            tokens.append(answer["usage"]["prompt_tokens"])
        assert len({*texts}) > 2
        assert tokens[2] == tokens[0] + tokens[1] - tokens[3]
        assert min(tokens[:2]) > tokens[3]
        done = localspec("run", "--server", url, "-f", str(tmp_path / "other"), QUESTION)
        assert done.code == 1
        refused = "audio" if kind == "tiles" else "image"
        assert f"{refused} input is not supported" in done.err.splitlines()[-1]
