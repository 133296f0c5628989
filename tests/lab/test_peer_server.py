"""A peer's process: it answers, or one line says why it does not."""

import os
import time
from contextlib import closing
from pathlib import Path

import pytest

from lab.peers.server import PeerServer
from localspec.decoding.cancel import Cancelled
from localspec.errors import LocalspecError
from tests.lab.fake_server import fake_server

REQUEST = {"prompt": [1, 2], "n_predict": 3}


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def test_an_answer_arrives_chunk_by_chunk(tmp_path: Path) -> None:
    with closing(PeerServer(fake_server(tmp_path), ["-m", "x"])) as server:
        chunks = list(server.complete(REQUEST))
        again = list(server.complete(REQUEST))
    assert [chunk["tokens"] for chunk in chunks] == [[0], [1], [2], []]
    assert chunks[-1]["stop"]
    assert chunks[-1]["request"] == {**REQUEST, "stream": True}
    assert len(again) == len(chunks)


def test_closing_ends_the_process_and_closing_twice_is_harmless(tmp_path: Path) -> None:
    server = PeerServer(fake_server(tmp_path), [])
    assert is_alive(server.pid)
    server.close()
    server.close()
    assert not is_alive(server.pid)


def test_a_program_that_ends_at_once_is_quoted_by_its_complaint(tmp_path: Path) -> None:
    with pytest.raises(LocalspecError, match="error: invalid argument: --spec-type") as caught:
        PeerServer(fake_server(tmp_path, "ends"), [])
    assert "\n" not in str(caught.value)


def test_a_file_that_cannot_be_executed_is_told(tmp_path: Path) -> None:
    path = tmp_path / "llama-server"
    path.write_text("no program")
    with pytest.raises(
        LocalspecError, match=r"does not start \(Permission denied\): give the path"
    ):
        PeerServer(path, [])
    path.chmod(0o755)
    with pytest.raises(LocalspecError, match="does not start"):
        PeerServer(path, [])


@pytest.mark.parametrize("behaviour", ["hangs", "loads"])
def test_a_program_that_is_never_ready_is_given_up_and_ended(
    tmp_path: Path, behaviour: str
) -> None:
    with pytest.raises(LocalspecError, match="was not ready after 1 s"):
        PeerServer(fake_server(tmp_path, behaviour), [], timeout_s=1.0)


def test_a_refusal_is_quoted(tmp_path: Path) -> None:
    with (
        closing(PeerServer(fake_server(tmp_path, "refuses"), [])) as server,
        pytest.raises(LocalspecError, match="the prompt is too long"),
    ):
        list(server.complete(REQUEST))


def test_a_server_that_died_is_one_complaint(tmp_path: Path) -> None:
    with closing(PeerServer(fake_server(tmp_path), [])) as server:
        os.kill(server.pid, 9)
        time.sleep(0.1)
        with pytest.raises(LocalspecError, match="broke off"):
            list(server.complete(REQUEST))


def test_waiting_for_an_answer_can_be_cancelled(tmp_path: Path) -> None:
    cancelled: list[bool] = []
    program = fake_server(tmp_path, "trickles")
    with closing(PeerServer(program, [], lambda: bool(cancelled))) as server:
        chunks = server.complete({**REQUEST, "n_predict": 100})
        assert next(chunks)["tokens"] == [0]
        cancelled.append(True)
        with pytest.raises(Cancelled):
            next(chunks)


def test_waiting_for_the_start_can_be_cancelled(tmp_path: Path) -> None:
    with pytest.raises(Cancelled):
        PeerServer(fake_server(tmp_path, "loads"), [], lambda: True)
