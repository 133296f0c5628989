"""An hour of everything that clients send to `localspec serve`, and what its processes hold before and after.

    python -m lab.mixed_traffic --minutes 60 [--models smollm2-135m,qwen2.5-coder-0.5b] [--clients 4] [--every 60]

Chats, completions, responses, messages, fillings of a gap, countings and tokens, streamed and not, of several models in
turns; clients that go away in mid-answer, that ask for what is not there, and that send nonsense. A line of JSON each
`--every` seconds, then a table: memory and descriptors of the server and its engine, after the first sample and at the
end, each with the same model loaded and nothing under way. Ends with code 1 where an answer was neither whole nor an
error of its own.
"""

import argparse
import http.client
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from random import Random
from typing import Any
from urllib.parse import urlsplit

from lab.benchmarks.endurance import status
from lab.benchmarks.workbench import machine, one_of_each
from lab.serving import ServeProcess

_TIMEOUT_S = 600.0
_POLL_S = 0.2
_FINE = {200, 400, 404, 429, 503}
_DONE = {
    "/v1/chat/completions": b"data: [DONE]",
    "/v1/completions": b"data: [DONE]",
    "/v1/responses": b"response.completed",
    "/v1/messages": b"message_stop",
}


@dataclass(slots=True)
class Traffic:
    """Clients of one server.

    Args:
        server: answers.
        models: names to ask for.
        done: how often which path ended how.
        wrong: answers that were neither whole nor an error.
    """

    server: ServeProcess
    models: Sequence[str]
    done: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)
    enough: threading.Event = field(default_factory=threading.Event)

    def client(self, number: int) -> None:
        """Ask one thing after the other, until it is enough."""
        chance = Random(number)
        while not self.enough.is_set() and not self.wrong:
            path, body = self._request(chance)
            try:
                ended = self.ask(path, body, chance if chance.random() < 0.1 else None)
            except Exception as error:
                self.wrong.append(
                    f"{path} {json.dumps(body)[:200]}: {type(error).__name__}: {error}"
                )
                return
            self.done[f"{path} {ended}"] += 1
            if ended in {"429", "503"}:
                time.sleep(_POLL_S)

    def ask(self, path: str, body: Mapping[str, Any], leaves: Random | None = None) -> str:
        """Send a request; return how it ended.

        Raises:
            AssertionError: neither whole, nor an error that was told.
        """
        place = urlsplit(self.server.address)
        with closing(
            http.client.HTTPConnection(str(place.hostname), place.port, timeout=_TIMEOUT_S)
        ) as to:
            to.request("POST", path, json.dumps(body))
            answer = to.getresponse()
            if leaves is not None:
                answer.read1(leaves.randint(1, 2000))
                return "left"
            told = answer.read()
        assert answer.status in _FINE, f"{answer.status}: {told[:300]!r}"
        if answer.status != 200:
            assert b"message" in told, told[:300]
            return str(answer.status)
        if body.get("stream") and b'"error"' not in told and b"response.failed" not in told:
            assert _DONE[path] in told, told[-300:]
        return "200"

    def settle(self) -> dict[str, int]:
        """Have the first model loaded, wait until nothing is under way, and return what the processes hold."""
        while self._asked_back() != "200":
            time.sleep(_POLL_S)
        while self._under_way():
            time.sleep(_POLL_S)
        held: dict[str, int] = {}
        for name, pid in zip(("server", "engine"), self.server.pids, strict=True):
            held |= {f"{name} {what}": value for what, value in status(pid).items()}
        return held

    def _asked_back(self) -> str:
        said = {"role": "user", "content": "Name a river."}
        body = {"model": self.models[0], "messages": [said], "max_tokens": 4}
        return self.ask("/v1/chat/completions", body)

    def _under_way(self) -> int:
        place = urlsplit(self.server.address)
        with closing(
            http.client.HTTPConnection(str(place.hostname), place.port, timeout=_TIMEOUT_S)
        ) as to:
            to.request("GET", "/health")
            return int(json.loads(to.getresponse().read())["under_way"])

    def _request(self, chance: Random) -> tuple[str, dict[str, Any]]:
        """Return a path and a body."""
        text = chance.choice([*(each.prompt for each in one_of_each(chance.randrange(10)))])[:2000]
        said = [{"role": "user", "content": text}]
        few = {"max_tokens": chance.randint(1, 40), "temperature": chance.choice([0, 0.8])}
        more: dict[str, Any] = {**few, "stream": chance.random() < 0.5}
        if chance.random() < 0.5:  # who names none takes what is loaded, and nothing is switched
            more["model"] = chance.choice(self.models)
        schema = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
        kinds: list[tuple[str, dict[str, Any]]] = [
            ("/v1/chat/completions", {"messages": said, **more}),
            ("/v1/chat/completions", {"messages": said, "n": 2, "logprobs": True, **more}),
            (
                "/v1/chat/completions",
                {
                    "messages": said,
                    **more,
                    "response_format": {"type": "json_schema", "json_schema": {"schema": schema}},
                },
            ),
            ("/v1/completions", {"prompt": text, **more, "localspec": {"draft": "off"}}),
            ("/v1/responses", {"input": text, "stream": more["stream"], "max_output_tokens": 20}),
            ("/v1/messages", {"messages": said, **more}),
            ("/v1/messages/count_tokens", {"messages": said}),
            ("/tokenize", {"content": text}),
            ("/infill", {"input_prefix": "def f(", "input_suffix": "):", "n_predict": 8}),
            ("/v1/chat/completions", {"messages": said, "tools": 5, "temperature": "hot"}),
            ("/v1/chat/completions", {"messages": said, "model": "nobody/nothing"}),
        ]
        return chance.choice(kinds)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run, and print what was held."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--models", default="smollm2-135m")
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--every", type=float, default=60, help="seconds between samples")
    given = parser.parse_args(arguments)
    models = given.models.split(",")
    flags = [models[0], "--ctx", "1024", "--threads", "1", "--gpu-layers", "0", "--draft", "lookup"]
    with closing(ServeProcess(flags)) as server:
        traffic = Traffic(server, models)
        start, samples = time.monotonic(), list[dict[str, int]]()
        while (left_s := 60 * given.minutes - (time.monotonic() - start)) > 0 and not traffic.wrong:
            _go_on(traffic, given.clients, min(given.every, left_s))
            samples.append(traffic.settle())
            minute = round((time.monotonic() - start) / 60, 1)
            print(json.dumps({"minute": minute, **samples[-1]}), flush=True)
    print(f"{machine()}; {given.minutes:g} minutes, {', '.join(models)}, {given.clients} clients")
    print(json.dumps(dict(sorted(traffic.done.items()))))
    print("| | first sample | last | most |\n|---|---|---|---|")
    for name in samples[0]:
        values = [each[name] for each in samples]
        print(f"| {name} | {values[0]} | {values[-1]} | {max(values)} |")
    for each in traffic.wrong:
        print(f"WRONG {each}")
    sys.exit(1 if traffic.wrong else 0)


def _go_on(traffic: Traffic, clients: int, time_s: float) -> None:
    """Let the clients ask for a while."""
    traffic.enough.clear()
    # Each while goes on with what the last did not ask.
    offset = clients * traffic.done.total()
    threads = [
        threading.Thread(target=traffic.client, args=(offset + number,))
        for number in range(clients)
    ]
    for thread in threads:
        thread.start()
    traffic.enough.wait(time_s)
    traffic.enough.set()
    for thread in threads:
        thread.join()


if __name__ == "__main__":
    main()
