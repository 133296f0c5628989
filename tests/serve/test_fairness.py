"""One client does not starve another, and nobody waits longer than `--max-wait`."""

import threading
from pathlib import Path
from typing import Any

import pytest
from starlette.datastructures import Headers

from localspec.serve.http import Guard
from tests.serve.serving import CHAT, Served, served, user


def stories(begin: Path, pass_s: float) -> dict[str, Any]:
    """Return a script of stories that do not begin before a file is there."""
    rests = {"at": 0, "until": str(begin)}
    return {
        "answers": {"story": "x" * 40},
        "otherwise": ["Hello there."],
        "pass_s": pass_s,
        "rests": rests,
    }


def in_background(server: Served, count: int, key: str, codes: list[int]) -> list[threading.Thread]:
    """Ask for so many stories at once; return once all of them run or wait. Their codes come when they end."""

    def ask() -> None:
        body, headers = {"messages": [user("a story")]}, {"x-api-key": key}
        codes.append(server.client.post(CHAT, json=body, headers=headers).status_code)

    threads = [threading.Thread(target=ask) for _ in range(count)]
    for thread in threads:
        thread.start()
    server.wait_until(count)
    return threads


@pytest.mark.first(1)
@pytest.mark.parametrize("guard", [None, Guard(keys=("one", "two"))], ids=["named", "keys"])
def test_who_asks_for_little_does_not_wait_for_who_asks_for_much(
    guard: Guard | None, tmp_path: Path
) -> None:
    begin, codes = tmp_path / "begin", list[int]()
    with served(stories(begin, 0.01), most=20, guard=guard) as server:
        server.client.headers["x-api-key"] = "two"
        threads = in_background(server, 6, "one", codes)
        begin.touch()
        assert server.chat("hello").status_code == 200
        assert server.under_way() >= 3, "most of the other's are still to come"
        server.client.headers["x-api-key"] = "one"
        assert server.chat("hello").status_code == 200
        assert server.under_way() == 0, "who came later, and asks for much, comes last"
        for thread in threads:
            thread.join()
    assert codes == [200] * 6


def test_clients_are_told_apart_and_cannot_be_read() -> None:
    let_in, keyed = Guard(), Guard(keys=("one", "two"))

    def name(guard: Guard, key: str, agent: str = "a", peer: str = "127.0.0.1") -> str:
        return guard.client(Headers({"authorization": f"Bearer {key}", "user-agent": agent}), peer)

    names = {name(let_in, "one"), name(let_in, "two"), name(let_in, "one", "b"), name(let_in, "one", peer="10.0.0.1")}  # fmt: skip
    assert len(names) == 4
    assert not any("one" in each for each in names)
    # Behind keys nobody gets a second share by calling itself something else.
    assert name(keyed, "one") == name(keyed, "one", "b", "10.0.0.1") != name(keyed, "two")
    by_header = keyed.client(Headers({"x-api-key": "one"}), "127.0.0.1")
    assert by_header == name(keyed, "one")


@pytest.mark.slow
def test_who_waited_too_long_is_told_to_try_later(tmp_path: Path) -> None:
    begin, codes = tmp_path / "begin", list[int]()
    with served(stories(begin, 0.0), max_wait_s=0.3) as server:
        threads = in_background(server, 1, "one", codes)
        for stream in (False, True):  # before the first event it is an error of its own
            refused = server.chat("hello", stream=stream)
            assert refused.status_code == 503
            assert int(refused.headers["retry-after"]) > 0
            assert refused.json()["error"]["type"] == "overloaded_error"
            assert "0.3 s" in refused.json()["error"]["message"]
        begin.touch()
        for thread in threads:
            thread.join()
        assert codes == [200], "who runs may take longer"
        assert server.chat("a story").status_code == 200
