"""What a server gives several clients at once: ours, or llama-server, by its address.

    python -m lab.benchmarks.serve_load http://127.0.0.1:8080 [--clients 1,2,4,8] [--requests 24]
        [--max-tokens 128] [--draft auto|off|lookup|model] [--key KEY]

For every number of clients the bundled prompts are sent greedily, by as many threads as there are clients, each
sending its next as soon as its last is answered. Told are requests a minute, tokens a second, the time to the first
text (p50, p95), and that from one piece of text to the next (p95; localspec sends ten pieces a second at most). A
system prompt that is new at every level keeps a server from knowing a prompt already. Start the server with as many
slots as there are clients (`--parallel 8`; llama-server: `-np 8`), the same files, threads and context.
"""

import argparse
import http.client
import json
import secrets
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import cycle, islice, pairwise
from queue import Empty, SimpleQueue
from typing import Any
from urllib.parse import urlsplit

import numpy as np

from lab.benchmarks.workbench import machine, prompts

_TIMEOUT_S = 600.0


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer: its tokens, and when its pieces came, in seconds from the request."""

    tokens: int
    pieces_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Server:
    """Where to ask, and with what beside the prompt."""

    address: str
    key: str
    body: dict[str, Any]

    def ask(self, system: str, text: str) -> Answered:
        """Ask one question, and read the answer as it comes.

        Raises:
            RuntimeError: the server refuses, or breaks off.
        """
        place = urlsplit(self.address)
        messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
        connection = http.client.HTTPConnection(
            place.hostname or "", place.port or 80, timeout=_TIMEOUT_S
        )
        try:
            start = time.perf_counter()
            connection.request(
                "POST",
                "/v1/chat/completions",
                json.dumps({**self.body, "messages": messages}),
                {"Content-Type": "application/json", "Authorization": f"Bearer {self.key}"},
            )
            answer = connection.getresponse()
            if answer.status != 200:
                raise RuntimeError(f"{answer.status}: {answer.read(400).decode(errors='replace')}")
            tokens, pieces_s = 0, []
            for event in _events(answer):
                choices = event.get("choices") or [{}]
                delta = choices[0].get("delta") or {}
                if delta.get("content") or delta.get("reasoning_content"):
                    pieces_s.append(time.perf_counter() - start)
                tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
        finally:
            connection.close()
        if not tokens:
            raise RuntimeError("the answer broke off before its usage was told")
        return Answered(tokens, tuple(pieces_s))


def _events(answer: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    for line in answer:
        told = line.decode().strip().removeprefix("data: ")
        if line.startswith(b"data: ") and told != "[DONE]":
            yield json.loads(told)


def level(server: Server, clients: int, texts: Sequence[str]) -> tuple[float, list[Answered]]:
    """Have all texts answered by so many clients; return the seconds that it took, and the answers."""
    waiting: SimpleQueue[str] = SimpleQueue()
    for text in texts:
        waiting.put(text)
    system = f"Session {secrets.token_hex(4)}."
    answers: list[Answered] = []
    failures: list[Exception] = []

    def client() -> None:
        try:
            while not failures:
                answers.append(server.ask(system, waiting.get_nowait()))
        except Empty:
            pass
        except Exception as error:  # it is told, and the others end, too
            failures.append(error)

    start = time.perf_counter()
    threads = [threading.Thread(target=client) for _ in range(clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return time.perf_counter() - start, answers


def row(clients: int, took_s: float, answers: Sequence[Answered]) -> str:
    """Return a line of the table."""
    first_s = [each.pieces_s[0] for each in answers if each.pieces_s] or [0.0]
    gaps_s = [b - a for each in answers for a, b in pairwise(each.pieces_s)] or [0.0]
    tokens = sum(each.tokens for each in answers)
    p50, p95 = np.percentile(first_s, [50, 95])
    return (
        f"| {clients} | {60 * len(answers) / took_s:.1f} | {tokens / took_s:.1f} "
        f"| {p50:.2f} | {p95:.2f} | {1000 * np.percentile(gaps_s, 95):.0f} |"
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("address")
    parser.add_argument("--clients", default="1,2,4,8")
    parser.add_argument("--requests", type=int, default=24)
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--draft", help="of localspec alone: auto, off, lookup or model")
    parser.add_argument("--key", default="none")
    given = parser.parse_args(arguments)
    body: dict[str, Any] = {
        "max_tokens": given.max_tokens,
        "temperature": 0,
        "seed": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if given.draft is not None:
        body["localspec"] = {"draft": given.draft}
    server = Server(given.address, given.key, body)
    bundled = prompts()
    # One of each kind after the other, and not ten of one.
    texts = [each.prompt for at in range(10) for each in bundled[at::10]]
    print(f"{machine()}; {given.requests} requests of {given.max_tokens} tokens at most a level")
    print("| clients | requests/min | tokens/s | first text p50, s | p95, s | between p95, ms |")
    print("|---|---|---|---|---|---|")
    for clients in map(int, given.clients.split(",")):
        took_s, answers = level(server, clients, list(islice(cycle(texts), given.requests)))
        print(row(clients, took_s, answers), flush=True)


if __name__ == "__main__":
    main()
