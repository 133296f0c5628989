"""What a server gives several clients at once: `localspec serve` beside llama-server, in turns.

    python -m lab.benchmarks.serve_load MODEL --peer PATH/llama-server [--clients 1,2,4,8] [--prompts FILE]
        [--requests 8] [--max-tokens 48] [--minutes 10] [--modes none,ngram-simple:4:12,draft:3]

Both get the same files, threads, context and slots. A level is a number of clients; at each, every server answers the
same bundled prompts greedily, each client sending its next as soon as its last is answered. A round goes through all
levels, and at each through all servers, in another order and with other prompts than the round before; rounds go on
as long as another one fits the time. Idle servers stay loaded.

Every way of drafting is a process: of two that share one, the second would find the prompts evaluated by the first; one of
llama-server that remembers earlier texts is started anew for every level. A system prompt that is new at every level and
round keeps a server from knowing a prompt, and neither writes down what it evaluated (`--forget`, `-cram 0`). A mode of
llama-server that reaches less than 0.8 of its best at a level in the first round is not tried there again.

The table has medians over rounds of requests a minute and tokens a second (of the answers, prompts' time included), and of
all rounds together the time to the first text (p50, p95) and that from one piece of text to the next (p95). A ratio is the
median of a round's ratios.
"""

import argparse
import os
import re
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from functools import partial
from itertools import cycle, islice, pairwise
from pathlib import Path
from statistics import geometric_mean, median
from typing import Any, NamedTuple, Protocol

import httpx
import msgspec
import numpy as np

from lab.benchmarks.workbench import machine
from lab.peers import PeerServer
from lab.serving import ServerProcess
from localspec.models.pull import pull
from localspec.plugins.bench.prompts import bundled, read
from localspec.resources import default_threads

_TIMEOUT_S = 600.0
_HOPELESS = 0.8
_READY = re.compile(r"serving .* at (http://\S+)/v1")
_REMEMBERS = {"ngram-mod", "ngram-cache"}
_PEER_MODES = (
    *("none", "ngram-simple", "ngram-simple:4:12", "ngram-map-k", "ngram-map-k4v", "ngram-mod"),
    *("ngram-cache", "draft:3", "draft:8", "draft:16"),
)


class Process(Protocol):
    """A server that runs, and where it is asked."""

    address: str

    def close(self) -> None:
        """End it."""
        ...


class Arm(NamedTuple):
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
    body: Mapping[str, Any] = {}
    fresh: bool = False
    own: bool = False


class Answered(NamedTuple):
    """One answer: its tokens, and when its pieces came, in seconds from the request."""

    tokens: int
    pieces_s: tuple[float, ...]


class Level(NamedTuple):
    """What so many clients got, and the seconds from the first request to the last answer."""

    took_s: float
    answers: tuple[Answered, ...]

    @property
    def tokens_per_s(self) -> float:
        """Tokens of the answers by the time that all of it took."""
        return sum(each.tokens for each in self.answers) / self.took_s


class Load(NamedTuple):
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


Levels = dict[tuple[int, str], list[Level]]


def ask(address: str, body: Mapping[str, Any]) -> list[tuple[float, str]]:
    """Ask one question; return the lines of the answer, and when they came. They are read later.

    Raises:
        RuntimeError: the server refuses.
    """
    start, url = time.perf_counter(), f"{address}/v1/chat/completions"
    with httpx.stream("POST", url, json=body, timeout=_TIMEOUT_S) as answer:
        if answer.status_code != 200:
            raise RuntimeError(f"{answer.status_code}: {answer.read()[:400]!r}")
        return [(time.perf_counter() - start, line) for line in answer.iter_lines()]


def answered(arrivals: Sequence[tuple[float, str]]) -> Answered:
    """Return what a stream held.

    Raises:
        RuntimeError: it broke off.
    """
    tokens, pieces_s = 0, []
    for at_s, line in arrivals:
        if line.startswith("data: {"):
            event = msgspec.json.decode(line[6:])
            delta = (event.get("choices") or [{}])[0].get("delta") or {}
            if delta.get("content") or delta.get("reasoning_content"):
                pieces_s.append(at_s)
            tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
    if not tokens:
        raise RuntimeError("the answer broke off before its usage came")
    return Answered(tokens, tuple(pieces_s))


def level(
    address: str, body: Mapping[str, Any], clients: int, system: str, texts: Sequence[str]
) -> Level:
    """Have all texts answered by so many clients."""
    start = time.perf_counter()
    with ThreadPoolExecutor(clients) as pool:
        bodies = [{**body, "messages": _messages(text, system)} for text in texts]
        arrivals = list(pool.map(partial(ask, address), bodies))
    return Level(time.perf_counter() - start, tuple(map(answered, arrivals)))


def _messages(text: str, system: str) -> list[dict[str, str]]:
    return [{"role": "system", "content": system}, {"role": "user", "content": text}]


def measure(arms: Sequence[Arm], load: Load, report: Callable[[str], None]) -> Levels:
    """Go through all levels and servers, round after round."""
    levels: Levels = {(clients, arm.name): [] for clients in load.clients for arm in arms}
    given_up: set[tuple[int, str]] = set()
    start, longest_s, number = time.monotonic(), 0.0, 0
    with ExitStack() as stack:
        running: dict[str, Process] = {}

        def one(arm: Arm, clients: int, system: str, texts: Sequence[str]) -> Level:
            """Have one server answer; it is started when it is first needed."""
            with ExitStack() as own:
                process = running.get(arm.name)
                if process is None:
                    process = (own if arm.fresh else stack).enter_context(closing(arm.start()))
                    brief = {"max_tokens": 8, "messages": _messages("Hello.", "Be brief.")}
                    ask(process.address, {**load.body, **brief})
                    if not arm.fresh:
                        running[arm.name] = process
                return level(process.address, {**load.body, **arm.body}, clients, system, texts)

        while number == 0 or time.monotonic() - start + longest_s <= 60 * load.minutes:
            began, first = time.monotonic(), number * load.requests
            texts = list(islice(cycle(load.texts), first, first + load.requests))
            for clients in load.clients:
                tried = [arm for arm in arms if (clients, arm.name) not in given_up]
                turn = number % len(tried)
                for arm in [*tried[turn:], *tried[:turn]]:
                    done = one(arm, clients, f"Session {number}-{clients}.", texts)
                    speed = f"{done.tokens_per_s:.1f} tokens/s"
                    report(f"round {number}, {clients} clients, {arm.name}: {speed}")
                    levels[clients, arm.name].append(done)
                if number == 0:
                    speeds = {name: levels[clients, name][0].tokens_per_s for name in _peers(arms)}
                    least = _HOPELESS * max(speeds.values(), default=0.0)
                    given_up |= {(clients, name) for name, speed in speeds.items() if speed < least}
            longest_s, number = max(longest_s, time.monotonic() - began), number + 1
    return levels


def _peers(arms: Sequence[Arm]) -> list[str]:
    return [arm.name for arm in arms if not arm.own]


def row(clients: int, name: str, rounds: Sequence[Level]) -> str:
    """Return a line of the table."""
    answers = [each for one in rounds for each in one.answers]
    first_s = [each.pieces_s[0] for each in answers if each.pieces_s] or [0.0]
    gaps_s = [b - a for each in answers for a, b in pairwise(each.pieces_s)] or [0.0]
    requests = median(60 * len(each.answers) / each.took_s for each in rounds)
    speed = median(each.tokens_per_s for each in rounds)
    p50, p95 = np.percentile(first_s, [50, 95])
    return (
        f"| {clients} | {name} | {requests:.1f} | {speed:.1f} | {p50:.2f} | {p95:.2f} "
        f"| {1000 * np.percentile(gaps_s, 95):.0f} | {len(rounds)} |"
    )


def ratio(rounds: Sequence[Level], others: Sequence[Level]) -> float:
    """Return how much faster one is than the other: the median over the rounds that both had."""
    both = zip(rounds, others, strict=False)
    return median(one.tokens_per_s / other.tokens_per_s for one, other in both)


def table(arms: Sequence[Arm], levels: Levels) -> Iterator[str]:
    """Yield the lines of the table, and ratios below it."""
    yield "| clients | server | requests/min | tokens/s | first text p50, s | p95, s | between p95, ms | rounds |"
    yield "|---|---|---|---|---|---|---|---|"
    for (clients, name), rounds in levels.items():
        yield row(clients, name, rounds)
    ratios: dict[str, list[float]] = {}
    yield ""
    for clients in dict.fromkeys(clients for clients, _ in levels):
        medians = {
            name: median(each.tokens_per_s for each in levels[clients, name])
            for name in _peers(arms)
        }
        others = {"off": "off"}
        if medians:
            others["the best of llama-server"] = max(medians, key=lambda name: medians[name])
        parts = []
        for label, other in others.items():
            value = ratio(levels[clients, "auto"], levels[clients, other])
            ratios.setdefault(label, []).append(value)
            parts.append(f"auto to {label} ({other}) {value:.3f}")
        yield f"- {clients} clients: {', '.join(parts)}"
    for label, values in ratios.items():
        yield f"- in geometric mean, auto to {label}: {geometric_mean(values):.3f}"


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


def _arms(given: argparse.Namespace, most: int) -> Iterator[Arm]:
    """Yield all that is compared."""
    threads, files = given.threads, pull(given.model)
    own = [sys.executable, "-m", "localspec", "serve", given.model, "--port", "0"]
    own += ["--parallel", str(most), "--max-queue", "64", "--ctx", str(given.ctx)]
    own += ["--threads", str(threads), "--forget"]

    def start_own() -> ServerProcess:
        return ServerProcess(own, lambda log: (m := _READY.search(log)) and m[1])

    for mode in ("auto", "off"):
        yield Arm(mode, start_own, {"localspec": {"draft": mode}}, own=True)
    for mode in given.modes.split(",") if given.peer is not None else ():
        if not mode.startswith("draft") or len(files) > 1:
            flags = peer_flags(mode, files, most, given.ctx, threads)
            start = partial(PeerServer, given.peer, flags)
            yield Arm(f"llama-server {mode}", start, fresh=mode in _REMEMBERS)


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("model")
    parser.add_argument("--peer", type=Path, help="llama-server; without it ours alone")
    parser.add_argument("--clients", default="1,2,4,8")
    parser.add_argument("--prompts", type=Path, help="as for bench, instead of its own")
    parser.add_argument("--requests", type=int, default=8, help="at every level")
    parser.add_argument("--max-tokens", type=int, default=48)
    parser.add_argument("--ctx", type=int, default=2048, help="of every slot")
    parser.add_argument("--threads", type=int, default=default_threads(), help="of both")
    parser.add_argument("--minutes", type=float, default=10)
    parser.add_argument("--modes", default=",".join(_PEER_MODES), help="of llama-server")
    given = parser.parse_args()
    clients = [int(each) for each in given.clients.split(",")]
    body = {
        "max_tokens": given.max_tokens,
        "temperature": 0,
        "repeat_penalty": 1.0,  # what a model's makers recommend is ours alone, and would be another text
        "seed": 1,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    os.environ["LOCALSPEC_STOP_LOOPS"] = "false"  # some answers would be shorter here
    # Of its own one of each kind after the other, and not ten of one.
    own = [each for at in range(10) for each in bundled()[at::10]]
    texts = [each.prompt for each in (read(given.prompts) if given.prompts else own)]
    load = Load(clients, texts, given.requests, body, given.minutes)
    arms = list(_arms(given, max(clients)))
    levels = measure(arms, load, partial(print, file=sys.stderr, flush=True))
    print(
        f"{machine()}; {given.model}, {max(clients)} slots of {given.ctx} tokens, {given.threads} threads; "
        f"{given.requests} requests of {given.max_tokens} tokens at most a level"
    )
    print("\n".join(table(arms, levels)))


if __name__ == "__main__":
    main()
