"""Clients of `localspec serve`: some that want their answer, some that vanish, send nonsense, or sleep."""

import http.client
import json
import re
import socket
import struct
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from random import Random

from lab.faults.ground import ANSWER, PATIENCE, Ground, Running
from lab.faults.limits import Limits
from lab.faults.soundness import assert_fine
from lab.serving import status

_HOST = "127.0.0.1"
_TIMEOUT_S = 600.0
_TOKENS = 24
_SERVE = ("serve", "--parallel", "4", "--max-queue", "400", "--exact", *ANSWER)
_USUAL = Limits(descriptors=1024)
QUESTIONS = ("Name a river.", "Count from one to ten.", "What is a stone?", "Say hello in French.")


@dataclass(frozen=True, slots=True)
class Heard:
    """What a client got.

    Args:
        text: as far as it came.
        end: `whole`, an error that was told, or `cut` where the connection broke.
    """

    text: str
    end: str


@dataclass(slots=True)
class Served:
    """A server that runs.

    Args:
        running: its process.
        port: where it listens.
    """

    running: Running
    port: int
    expected: dict[str, str] = field(default_factory=dict)

    def learn(self) -> None:
        """Ask every question alone: under --exact the answers stay as they are, whatever runs beside them."""
        for question in QUESTIONS:
            heard = self.ask(question)
            assert heard.end == "whole", heard
            self.expected[question] = heard.text
        assert len(set(self.expected.values())) == len(QUESTIONS)

    def ask(self, question: str, tokens: int = _TOKENS) -> Heard:
        """Ask as a client that waits for its answer, whatever comes."""
        text = ""
        with closing(http.client.HTTPConnection(_HOST, self.port, timeout=_TIMEOUT_S)) as to:
            try:
                to.request("POST", "/v1/chat/completions", asking(question, tokens))
                answer = to.getresponse()
                if answer.status != 200:
                    told = json.loads(answer.read())["error"]["message"]
                    assert "\n" not in told, told
                    return Heard("", f"{answer.status}")
                for line in answer:
                    if line.startswith(b"data: [DONE]"):
                        return Heard(text, "whole")
                    if line.startswith(b"data: "):
                        event = json.loads(line[6:])
                        if "error" in event:
                            return Heard(text, event["error"]["type"])
                        for choice in event["choices"]:
                            text += choice["delta"].get("content", "")
            except TimeoutError:
                raise  # a client waits in vain
            except (OSError, http.client.HTTPException):
                pass
        return Heard(text, "cut")

    def under_way(self) -> int | None:
        """Return how many requests run or wait; None while there is no engine."""
        with closing(http.client.HTTPConnection(_HOST, self.port, timeout=_TIMEOUT_S)) as to:
            to.request("GET", "/health")
            answer = to.getresponse()
            told = json.loads(answer.read())
        return int(told["under_way"]) if answer.status == 200 else None

    def until_idle(self) -> None:
        """Wait until nothing runs or waits, and the engine is there."""
        self.running.until(lambda _: self.under_way() == 0)

    def assert_answers(self) -> None:
        """See that every question is answered as it was at first."""
        for question, text in self.expected.items():
            assert self.ask(question) == Heard(text, "whole")

    def held(self) -> dict[str, int]:
        """Return megabytes and descriptors of the server and its engine."""
        (engine,) = self.running.children()
        own, other = status(self.running.process.pid), status(engine)
        return {
            "server MB": own["rss_kb"] // 1024,
            "engine MB": other["rss_kb"] // 1024,
            "server descriptors": own["fds"],
            "engine descriptors": other["fds"],
        }

    def assert_held(self, before: dict[str, int]) -> str:
        """See that memory and descriptors are as before; return them as a line."""
        for _ in range(PATIENCE):
            after = self.held()
            if after["server descriptors"] <= before["server descriptors"] + 2:
                break
            time.sleep(0.02)
        assert after["server descriptors"] <= before["server descriptors"] + 2, (before, after)
        for name in ("server MB", "engine MB"):
            assert after[name] <= before[name] + 64, (name, before, after)
        return ", ".join(f"{name} {before[name]} to {after[name]}" for name in before)


def asking(question: str, tokens: int = _TOKENS) -> str:
    """Return the body of a request for a stream."""
    said = [{"role": "user", "content": question}]
    return json.dumps({"messages": said, "max_tokens": tokens, "stream": True})


@contextmanager
def serving(ground: Ground, port: int = 0) -> Iterator[Served]:
    """Serve SmolLM2; what outlives this is killed."""
    with ground.started(*_SERVE, "--port", str(port), limits=_USUAL) as running:
        running.until(lambda each: b"; Ctrl-C stops it" in each.err)
        found = re.search(rb"at http://127\.0\.0\.1:(\d+)/v1", running.err)
        assert found is not None
        yield Served(running, int(found[1]))


def stopped(served: Served) -> None:
    """End a server as its user does, and see that it ends in order."""
    served.running.process.terminate()
    assert_fine(served.running.end())


@contextmanager
def living(served: Served, count: int = 3, pause_s: float = 0.0) -> Iterator["Counter[str]"]:
    """Let clients ask and wait for their answers while this lasts; see that each gets its own text, as far as it comes."""
    ends: Counter[str] = Counter()
    wrong: list[str] = []
    enough = threading.Event()

    def live(number: int) -> None:
        chance = Random(number)
        while not enough.is_set() and not wrong:
            question = chance.choice(QUESTIONS)
            try:
                heard = served.ask(question)
            except Exception as error:
                wrong.append(f"{type(error).__name__}: {error}")
                return
            ends[heard.end] += 1
            expected = served.expected[question]
            fits = (
                heard.text == expected if heard.end == "whole" else expected.startswith(heard.text)
            )
            if not fits:
                wrong.append(f"{question}: {heard} instead of {expected!r}")
            # Who is refused tries again, and not at once.
            enough.wait(pause_s if heard.end == "whole" else 0.05)

    threads = [threading.Thread(target=live, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield ends
    finally:
        enough.set()
        for thread in threads:
            thread.join()
    assert not wrong, wrong


def connected(served: Served) -> socket.socket:
    """Return a connection that says nothing yet."""
    return socket.create_connection((_HOST, served.port), timeout=_TIMEOUT_S)


def request(body: str, path: str = "/v1/chat/completions") -> bytes:
    """Return a whole request."""
    head = (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body.encode())}\r\n\r\n"
    )
    return (head + body).encode()


def vanish(client: socket.socket, chance: Random) -> None:
    """Go away without a word: in order, or by a reset, or with an answer half read."""
    how = chance.choice(["close", "reset", "half"])
    if how == "reset":
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    if how == "half":
        with suppress(OSError):
            client.shutdown(socket.SHUT_WR)
    client.close()
