"""What a server gives several clients at once: `localspec serve` beside llama-server, in turns.

    python -m lab.benchmarks.serve_load MODEL --peer PATH/llama-server [--clients 1,2,4,8]
        [--requests 8] [--max-tokens 48] [--minutes 10] [--modes none,ngram-simple:4:12,draft:3]

Both get the same files, threads, context and slots. A level is a number of clients; at each, every server answers the
same bundled prompts greedily, each client sending its next as soon as its last is answered. A round goes through all
levels, and at each through all servers, in another order and with other prompts than the round before; rounds go on
as long as another one fits the time. Idle servers stay loaded: how much processor they took meanwhile is told.

Every way of drafting is a process, ours as well as llama-server's: the second of two that share one would find the
prompts evaluated by the first. One of llama-server that remembers earlier texts is started anew for every level, since it
would know the answers. A system prompt that is new at every level and round keeps a server from knowing a prompt already,
and neither writes down what it evaluated (`--forget`, `-cram 0`), so that none knows it from an earlier run. A mode of
llama-server that reaches less than 0.8 of its best at a level in the first round is not tried there again.

Delta are medians over rounds of requests a minute and tokens a second (of the answers, prompts' time included), the
time to the first text (p50, p95), and that from one piece of text to the next (p95), of all rounds together, and what a
token took of the processor, in all processes of a server. A ratio is the median of a round's ratios. Of localspec stderr tells, too, how many passes gave logits, how wide
they were and what was drafted. Such counts are exact also beside other programs, which with one thread (`--threads 1`)
change little of the processor's time, either.
"""

import argparse
import http.client
import json
import os
import re
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import cycle, islice, pairwise
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any, Protocol
from urllib.parse import urlsplit
from urllib.request import urlopen

import numpy as np

from lab.benchmarks.workbench import machine, prompts
from lab.peers import PeerServer
from lab.serving import ServeProcess, cpu_s
from localspec.models.pull import pull
from localspec.resources import default_threads

_TIMEOUT_S = 600.0
_HOPELESS = 0.8
_COUNT = re.compile(
    r"^localspec_(pass_tokens_(?:sum|count)|(?:drafted|accepted)_tokens_total)\S* (\S+)$",
    re.MULTILINE,
)
_REMEMBERS = {"ngram-mod", "ngram-cache"}
_PEER_MODES = (
    *("none", "ngram-simple", "ngram-simple:4:12", "ngram-map-k", "ngram-map-k4v", "ngram-mod"),
    *("ngram-cache", "draft:3", "draft:8", "draft:16"),
)
Arrivals = list[tuple[float, bytes]]


class Process(Protocol):
    """A server that runs."""

    @property
    def address(self) -> str:
        """Where it is asked."""
        ...

    @property
    def pids(self) -> list[int]:
        """Its processes."""
        ...

    def close(self) -> None:
        """End it."""
        ...


@dataclass(frozen=True, slots=True)
class Arm:
    """What is compared: a server, and what its requests say beside the prompt.

    Args:
        name: in the table.
        start: starts its process.
        body: fields of every request.
        fresh: start a new process at every level.
        own: it is localspec.
    """

    name: str
    start: Callable[[], Process]
    body: Mapping[str, Any] = field(default_factory=dict)
    fresh: bool = False
    own: bool = False


@dataclass(frozen=True, slots=True)
class Answered:
    """One answer: its tokens, and when its pieces came, in seconds from the request."""

    tokens: int
    pieces_s: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Level:
    """What so many clients got.

    Args:
        took_s: from the first request to the last answer.
        answers: all of them.
        cpu_s: of the processor, by processes of the server.
        counts: what localspec counted meanwhile, by names in its metrics.
    """

    took_s: float
    answers: tuple[Answered, ...]
    cpu_s: tuple[float, ...] = ()
    counts: Mapping[str, float] = field(default_factory=dict)

    @property
    def tokens(self) -> int:
        """Tokens of the answers."""
        return sum(each.tokens for each in self.answers)

    @property
    def tokens_per_s(self) -> float:
        """Tokens of the answers by the time that all of it took."""
        return self.tokens / self.took_s

    @property
    def cpu_ms(self) -> tuple[float, ...]:
        """Milliseconds of the processor for a token, by processes."""
        return tuple(1000 * each / self.tokens for each in self.cpu_s)


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent.

    Args:
        clients: at once, one level after the other.
        texts: prompts to choose from.
        requests: answers at each level.
        body: fields of every request.
        minutes: how long rounds go on; the first is always made.
    """

    clients: Sequence[int]
    texts: Sequence[str]
    requests: int
    body: Mapping[str, Any]
    minutes: float


Found = dict[tuple[int, str], list[Level]]


def ask(address: str, body: Mapping[str, Any]) -> Arrivals:
    """Ask one question; return the bytes of the answer, and when they came. They are read later.

    Raises:
        RuntimeError: the server refuses.
    """
    place = urlsplit(address)
    connection = http.client.HTTPConnection(
        place.hostname or "", place.port or 80, timeout=_TIMEOUT_S
    )
    try:
        start = time.perf_counter()
        connection.request(
            "POST",
            "/v1/chat/completions",
            json.dumps(body),
            {"Content-Type": "application/json", "Authorization": "Bearer none"},
        )
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"{answer.status}: {answer.read(400).decode(errors='replace')}")
        arrivals = []
        while piece := answer.read1(1 << 16):
            arrivals.append((time.perf_counter() - start, piece))
        return arrivals
    finally:
        connection.close()


def answered(arrivals: Arrivals) -> Answered:
    """Return what a stream held.

    Raises:
        RuntimeError: it broke off.
    """
    tokens, pieces_s = 0, []
    for at_s, event in _events(arrivals):
        choices = event.get("choices") or [{}]
        delta = choices[0].get("delta") or {}
        if delta.get("content") or delta.get("reasoning_content"):
            pieces_s.append(at_s)
        tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
    if not tokens:
        raise RuntimeError("the answer broke off before its usage was told")
    return Answered(tokens, tuple(pieces_s))


def _events(arrivals: Arrivals) -> Iterator[tuple[float, dict[str, Any]]]:
    rest = b""
    for at_s, piece in arrivals:
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            told = line.strip().removeprefix(b"data: ")
            if line.startswith(b"data: ") and told != b"[DONE]":
                yield at_s, json.loads(told)


def level(
    address: str, body: Mapping[str, Any], clients: int, system: str, texts: Sequence[str]
) -> Level:
    """Have all texts answered by so many clients."""
    waiting: SimpleQueue[str] = SimpleQueue()
    for text in texts:
        waiting.put(text)
    heard: list[Arrivals] = []
    failures: list[Exception] = []

    def client() -> None:
        try:
            while not failures:
                said = [
                    {"role": "system", "content": system},
                    {"role": "user", "content": waiting.get_nowait()},
                ]
                heard.append(ask(address, {**body, "messages": said}))
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
    took_s = time.perf_counter() - start
    if failures:
        raise failures[0]
    return Level(took_s, tuple(map(answered, heard)))


class Servers:
    """Processes that are started when they are first needed; `close` ends them."""

    def __init__(self) -> None:
        self._running: dict[str, Process] = {}
        self.idle_share = 0.0
        """Cores that idle servers took at most while another one answered."""

    def run(self, arm: Arm, load: Load, clients: int, system: str, texts: Sequence[str]) -> Level:
        """Have one server answer."""
        if arm.fresh:
            self._end(arm.name)
        if arm.name not in self._running:
            self._running[arm.name] = arm.start()
            ask(self._running[arm.name].address, {**load.body, **_said("Hello."), "max_tokens": 8})
        used_s, process = self._used_s(arm.name), self._running[arm.name]
        own_s, counts = [cpu_s(pid) for pid in process.pids], _counts(process, arm)
        found = level(process.address, {**load.body, **arm.body}, clients, system, texts)
        found = replace(
            found,
            cpu_s=tuple(cpu_s(pid) - s for pid, s in zip(process.pids, own_s, strict=True)),
            counts={name: n - counts.get(name, 0) for name, n in _counts(process, arm).items()},
        )
        self.idle_share = max(
            self.idle_share, (self._used_s(arm.name) - used_s) / max(found.took_s, 1.0)
        )
        if arm.fresh:
            self._end(arm.name)
        return found

    def close(self) -> None:
        """End them all."""
        for server in list(self._running):
            self._end(server)

    def _used_s(self, busy: str) -> float:
        return sum(
            cpu_s(pid)
            for server, process in self._running.items()
            if server != busy
            for pid in process.pids
        )

    def _end(self, server: str) -> None:
        process = self._running.pop(server, None)
        if process is not None:
            process.close()


def _counts(process: Process, arm: Arm) -> dict[str, float]:
    """Return what localspec counted since it was started; nothing of another server."""
    if not arm.own:
        return {}
    with urlopen(f"{process.address}/metrics", timeout=_TIMEOUT_S) as answer:
        text = answer.read().decode()
    counts: dict[str, float] = {}
    for name, value in _COUNT.findall(text):
        counts[name] = counts.get(name, 0.0) + float(value)
    return counts


def _said(text: str) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": text}]}


def measure(
    arms: Sequence[Arm], load: Load, servers: Servers, tell: Callable[[str], None]
) -> Found:
    """Go through all levels and servers, round after round."""
    found: Found = {(clients, arm.name): [] for clients in load.clients for arm in arms}
    given_up: set[tuple[int, str]] = set()
    start, longest_s, number = time.monotonic(), 0.0, 0
    while number == 0 or time.monotonic() - start + longest_s <= 60 * load.minutes:
        began = time.monotonic()
        first = number * load.requests
        texts = list(islice(cycle(load.texts), first, first + load.requests))
        for clients in load.clients:
            tried = [arm for arm in arms if (clients, arm.name) not in given_up]
            turn = number % len(tried)
            for arm in [*tried[turn:], *tried[:turn]]:
                system = f"Session {number}-{clients}."
                came = servers.run(arm, load, clients, system, texts)
                tell(f"round {number}, {clients} clients, {arm.name}: {told_of(came)}")
                found[clients, arm.name].append(came)
            if number == 0:
                speeds = {name: found[clients, name][0].tokens_per_s for name in _peers(arms)}
                least = _HOPELESS * max(speeds.values(), default=0.0)
                given_up |= {(clients, name) for name, speed in speeds.items() if speed < least}
        longest_s, number = max(longest_s, time.monotonic() - began), number + 1
    return found


def told_of(came: Level) -> str:
    """Return what came of a level, in a few words."""
    used = " + ".join(f"{each:.2f}" for each in came.cpu_ms)
    said = f"{came.tokens_per_s:.1f}/s, {came.tokens} tokens, {used} ms of the processor each"
    counts = came.counts
    if not counts:
        return said
    passes = counts["pass_tokens_count"]
    return (
        f"{said}, {passes:.0f} passes of {counts['pass_tokens_sum'] / max(passes, 1):.2f}, "
        f"{counts.get('drafted_tokens_total', 0):.0f} drafted, "
        f"{counts.get('accepted_tokens_total', 0):.0f} accepted"
    )


def _peers(arms: Sequence[Arm]) -> list[str]:
    return [arm.name for arm in arms if not arm.own]


def row(clients: int, name: str, rounds: Sequence[Level]) -> str:
    """Return a line of the table."""
    answers = [each for one in rounds for each in one.answers]
    first_s = [each.pieces_s[0] for each in answers if each.pieces_s] or [0.0]
    gaps_s = [b - a for each in answers for a, b in pairwise(each.pieces_s)] or [0.0]
    requests = statistics.median(60 * len(each.answers) / each.took_s for each in rounds)
    speed = statistics.median(each.tokens_per_s for each in rounds)
    cpu_ms = statistics.median(sum(each.cpu_ms) for each in rounds)
    p50, p95 = np.percentile(first_s, [50, 95])
    return (
        f"| {clients} | {name} | {requests:.1f} | {speed:.1f} | {p50:.2f} | {p95:.2f} "
        f"| {1000 * np.percentile(gaps_s, 95):.0f} | {cpu_ms:.1f} | {len(rounds)} |"
    )


def ratio(rounds: Sequence[Level], others: Sequence[Level]) -> float:
    """Return how much faster one is than the other: the median over the rounds that both had."""
    return statistics.median(
        one.tokens_per_s / other.tokens_per_s for one, other in zip(rounds, others, strict=False)
    )


def table(arms: Sequence[Arm], found: Found) -> Iterator[str]:
    """Yield the lines of what came of it."""
    yield "| clients | server | requests/min | tokens/s | first text p50, s | p95, s | between p95, ms | processor, ms/token | rounds |"
    yield "|---|---|---|---|---|---|---|---|---|"
    for (clients, name), rounds in found.items():
        yield row(clients, name, rounds)
    peers, best_of, off_of = _peers(arms), [], []
    yield ""
    for clients in dict.fromkeys(clients for clients, _ in found):
        auto, told = found[clients, "auto"], []
        if peers:
            best = max(
                peers,
                key=lambda name: statistics.median(
                    each.tokens_per_s for each in found[clients, name]
                ),
            )
            best_of.append(ratio(auto, found[clients, best]))
            told.append(f"auto to the best of llama-server ({best}) {best_of[-1]:.3f}")
        off_of.append(ratio(auto, found[clients, "off"]))
        told.append(f"auto to off {off_of[-1]:.3f}")
        yield f"- {clients} clients: {', '.join(told)}"
    if peers:
        yield f"- in geometric mean, auto to the best of llama-server: {statistics.geometric_mean(best_of):.3f}"
    yield f"- in geometric mean, auto to off: {statistics.geometric_mean(off_of):.3f}"


def peer_flags(mode: str, files: Sequence[Path], slots: int, n_ctx: int, threads: int) -> list[str]:
    """Return what starts llama-server so that it drafts in some way, and all else as ours.

    Args:
        mode: `none`, an n-gram mode (with the lengths of what is looked up and drafted: `ngram-simple:4:12`),
            or `draft:LENGTH`.
        files: of the target, and of the draft model where there is one.
        slots: requests at a time.
        n_ctx: tokens of context for each of them.
        threads: CPU threads.
    """
    kind, *lengths = mode.split(":")
    flags = ["-m", str(files[0]), "-c", str(slots * n_ctx), "-np", str(slots), "-cram", "0"]
    flags += ["-t", str(threads), "-tb", str(threads)]
    if kind == "draft":
        flags += ["-md", str(files[1]), "--spec-type", "draft-simple"]
        flags += ["--spec-draft-n-max", *lengths]
    elif kind != "none":
        flags += ["--spec-type", kind]
        for name, length in zip("nm", lengths, strict=False):
            flags += [f"--spec-{kind}-size-{name}", length]
    return flags


def _arms(given: argparse.Namespace, most: int) -> list[Arm]:
    """Return all that is compared."""
    threads, files = given.threads, pull(given.model)
    own = [given.model, "--parallel", str(most), "--max-queue", "64"]
    own += ["--ctx", str(given.ctx), "--threads", str(threads), "--forget"]
    arms = [
        Arm(mode, lambda: ServeProcess(own), {"localspec": {"draft": mode}}, own=True)
        for mode in ("auto", "off")
    ]
    if given.peer is None:
        return arms
    modes = given.modes.split(",") if given.modes else list(_PEER_MODES)
    for mode in modes:
        if mode.startswith("draft") and len(files) == 1:
            continue
        flags = peer_flags(mode, files, most, given.ctx, threads)
        start = partial(PeerServer, given.peer, flags)
        arms.append(Arm(f"llama-server {mode}", start, fresh=mode in _REMEMBERS))
    return arms


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--peer", type=Path, help="llama-server; without it ours alone")
    parser.add_argument("--clients", default="1,2,4,8")
    parser.add_argument("--requests", type=int, default=8, help="at every level")
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--ctx", type=int, default=2048, help="of every slot")
    parser.add_argument("--threads", type=int, default=default_threads(), help="of both")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--modes", help=f"of llama-server; usually {','.join(_PEER_MODES)}")
    given = parser.parse_args(arguments)
    clients = [int(each) for each in given.clients.split(",")]
    bundled = prompts()
    body = {
        "max_tokens": given.max_tokens,
        "temperature": 0,
        "repeat_penalty": 1.0,  # what a model's makers recommend is ours alone, and would be another text
        "seed": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    os.environ["LOCALSPEC_STOP_LOOPS"] = "false"  # likewise: some answers would be shorter here
    # One of each kind after the other, and not ten of one.
    texts = [each.prompt for at in range(10) for each in bundled[at::10]]
    load = Load(clients, texts, given.requests, body, given.minutes)
    arms = _arms(given, max(clients))
    with closing(Servers()) as servers:
        found = measure(arms, load, servers, lambda line: print(line, file=sys.stderr, flush=True))
    print(
        f"{machine()}; {given.model}, {max(clients)} slots of {given.ctx} tokens, {given.threads} threads; "
        f"{given.requests} requests of {given.max_tokens} tokens at most a level"
    )
    print("\n".join(table(arms, found)))
    print(f"- idle servers took {servers.idle_share:.3f} of a core at most")


if __name__ == "__main__":
    main()
