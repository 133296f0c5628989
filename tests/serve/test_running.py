"""Servers that others can find: files with locks, sockets that one user may connect to, and a process in the background."""

import json
import os
import re
import socket
import stat
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from localspec.cli.main import localspec as cli
from localspec.cli.servers import listening
from localspec.engine.running import Running, announced, directory, runs, servers
from localspec.errors import UsageError
from tests.cli.command import PLAIN, Done, assert_one_complaint, localspec

ME = Running(os.getpid(), "a-pair", ("http://127.0.0.1:8080/v1",), 7)


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    return directory()


def refuse(*_: object) -> None:
    raise OSError(24, "Too many open files")


@pytest.mark.usefixtures("place")
def test_an_address_that_is_no_utf8_is_announced() -> None:
    odd = Running(os.getpid(), "a-pair", ("/tmp/\udcff.sock",), 7)
    with announced(odd):
        assert servers() == [odd]


def test_a_server_is_seen_while_it_runs(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with announced(ME):
        assert servers() == [ME]
        assert runs(ME.pid) == ME
        assert stat.S_IMODE((place / f"{ME.pid}.json").stat().st_mode) == 0o600
        heading, row = CliRunner().invoke(cli, ["ps"], standalone_mode=False).stdout.splitlines()
        assert heading.split() == ["PID", "SINCE", "MODEL", "ADDRESS"]
        assert row.split()[0] == str(ME.pid)
        for column, text in (("MODEL", ME.model), ("ADDRESS", ME.addresses[0])):
            assert row[heading.index(column) :].startswith(text)
        with monkeypatch.context() as broken:  # a file that cannot be read now stays
            broken.setattr(Path, "open", refuse)
            assert servers() == []
            assert runs(ME.pid) is None
        assert servers() == [ME]
    assert servers() == []
    assert list(place.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", "[]", '{"pid": 1}', json.dumps({"pid": 1, "more": 2})])
def test_what_a_server_left_behind_is_cleared_away(place: Path, text: str) -> None:
    # The process is there: it is another one, which has got the number since.
    (place / f"{os.getpid()}.json").write_text(text)
    assert runs(os.getpid()) is None
    assert servers() == []
    assert list(place.iterdir()) == []


def test_a_socket_is_of_one_user_and_goes_with_the_server(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with listening(None, None, str(path)) as listeners:
        assert [each.family for each in listeners] == [socket.AF_UNIX]
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        with pytest.raises(UsageError, match="give another path"), listening(None, 0, str(path)):
            pass
        assert path.exists()
    assert not path.exists()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    with listening(None, 0, str(path)) as listeners:
        assert [each.family for each in listeners] == [socket.AF_INET, socket.AF_UNIX]
    path.write_text("mine")
    for wrong in (path, tmp_path / ("x" * 300)):
        with (
            pytest.raises(UsageError, match="give another path"),
            listening(None, None, str(wrong)),
        ):
            pass
    assert path.read_text() == "mine", "a file is no socket"


def test_where_no_server_runs_there_is_nothing_to_stop(bare_machine: dict[str, str]) -> None:
    listed = localspec("ps", env=bare_machine)
    assert (listed.code, listed.out) == (0, "")
    assert "no server is running" in listed.err
    done = localspec("stop", env=bare_machine)
    assert (done.code, done.err) == (1, "localspec: no server is running\n")
    done = localspec("stop", "smollm2-135m", env=bare_machine)
    assert_one_complaint(done, 1)
    assert "localspec ps" in done.err


def background(*words: str, env: dict[str, str] | None = None) -> Done:
    return localspec("serve", "smollm2-135m", *words, "--background", *PLAIN, env=env, cold=True)


@pytest.mark.slow
@pytest.mark.weights
def test_a_server_in_the_background_is_listed_asked_and_stopped(
    smollm2_path: Path, tmp_path: Path
) -> None:
    assert smollm2_path.exists()
    path = tmp_path / "socket"
    done = background("--draft", "off", "--ctx", "512", "--parallel", "1", "--socket", str(path))
    assert done.code == 0, done.err
    found = re.search(r"`localspec stop (\d+)`", done.err)
    assert found is not None, done.err
    try:
        listed = [line for line in localspec("ps").out.splitlines() if line.split()[0] == found[1]]
        assert len(listed) == 1
        assert str(path) in listed[0]
        assert "smollm2-135m" in listed[0]
        transport = httpx.HTTPTransport(uds=str(path))
        with httpx.Client(transport=transport, base_url="http://localhost", timeout=60) as client:
            body = {"messages": [{"role": "user", "content": "hello"}], "max_tokens": 4}
            answer = client.post("/v1/chat/completions", json=body)
        assert answer.status_code == 200
        assert answer.json()["usage"]["completion_tokens"] == 4
    finally:
        stopped = localspec("stop", found[1])
    assert stopped.code == 0, stopped.err
    assert not path.exists()
    assert runs(int(found[1])) is None


@pytest.mark.slow
def test_what_keeps_it_from_starting_is_told_in_the_foreground(
    bare_machine: dict[str, str],
) -> None:
    done = background("--port", "0", "--offline", env=bare_machine)
    assert done.code == 3
    assert done.out == ""
    assert done.err.startswith("localspec: ")
    assert "Traceback" not in done.err
