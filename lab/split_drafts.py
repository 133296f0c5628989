"""A laptop drafts, a server verifies, through a proxy that delays: tokens a second with and without the laptop's drafts, and what two machines would give.

    python -m lab.split_drafts --target TARGET.gguf --draft-model DRAFT.gguf --delays 0,2,10,40 --kinds code,edit --answers 4

Starts `serve` with the target alone. Sides are asked in turns, greedily, without the prompt cache: `off`, for whose answers the server drafts
nothing either, `auto` and `lookup`. Both programs share this machine's cores, so that the laptop does not draft while the server verifies,
unless `--ahead` says so, as it does beside a server elsewhere. A ratio is to the answer of `off` to the same question: median, least, most.
`two machines` is computed from the costs of passes of both and the share of tokens that was accepted.
"""

import argparse
import asyncio
import json
import re
import statistics
import sys
import threading
import time
from collections import defaultdict
from contextlib import suppress
from random import Random
from typing import Any

from lab.ports import free_port
from lab.serving import ServerProcess
from localspec.api import Finished, LaunchOptions, Message, ReplyOptions, Request, SamplingParams
from localspec.decoding.costs import PassCosts
from localspec.plugins.bench.prompts import bundled, per_workload
from localspec.plugins.remote import client as remote
from localspec.plugins.remote.client import Client

_AT_ONCE = 1 << 22  # logits are half a megabyte a row


class DelayingProxy:
    """Passes bytes on in both directions, each after half of a round trip; `trip_s` may be changed at any time."""

    def __init__(self, host: str, port: int, target: tuple[str, int]) -> None:
        self.trip_s, self._target = 0.0, target
        self._where = host, port
        started = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._run(started)), daemon=True).start()
        started.wait()

    async def _run(self, started: threading.Event) -> None:
        server = await asyncio.start_server(self._accept, *self._where, limit=_AT_ONCE)
        started.set()
        await server.serve_forever()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._target, limit=_AT_ONCE)
        with suppress(OSError):
            await asyncio.gather(self._pass(reader, far_writer), self._pass(far_reader, writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        queue: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue()

        async def deliver() -> None:
            while True:
                when_s, piece = await queue.get()
                await asyncio.sleep(max(0.0, when_s - time.monotonic()))
                if not piece:
                    break
                writer.write(piece)
                await writer.drain()
            writer.close()

        delivery = asyncio.create_task(deliver())
        while True:
            piece = await reader.read(_AT_ONCE)
            queue.put_nowait((time.monotonic() + self.trip_s / 2, piece))
            if not piece:
                await delivery
                return


async def answer(client: Client, prompt: str, tokens: int) -> tuple[str, float, tuple[int, int]]:
    """Return the text, tokens a second behind the first, and how many drafted tokens were accepted, of how many."""
    options = ReplyOptions(SamplingParams(temperature=0), max_tokens=tokens, seed=1)
    events = list[object]()
    await client.answer(Request(1, (Message.user(prompt),), options), events.extend)
    (done,) = (each for each in events if isinstance(each, Finished))
    reply = done.reply
    counts = reply.acceptance.accepted, reply.acceptance.drafted
    return reply.text, reply.tokens_per_s or 0.0, counts


class Undrafted(Client):
    """A client for whose answers the server drafts nothing."""

    async def _proposed(self, prediction: str) -> dict[str, Any]:
        return {"localspec": {"draft": "off"}}


def two_machines(target: PassCosts, step_s: float, trip_s: float, accepted: float) -> float:
    """Return tokens a second, where each drafts or verifies while the other does; 2,000 tokens are drawn.

    Args:
        target: passes there.
        step_s: of a token here.
        trip_s: of a round trip.
        accepted: the chance of a drafted token.
    """
    random, now_s, told, from_s = Random(1), 0.0, 0, trip_s / 2
    while told < 2000:
        # Tokens of the chain come one by one; those beyond the first that is wrong are of no use.
        rates = [1 / target.of(1)]
        for length in range(1, 25):
            start_s = max(now_s, from_s + length * step_s + trip_s / 2)
            confirmed = (1 - accepted ** (length + 1)) / (1 - accepted)
            rates.append(confirmed / (start_s - now_s + target.of(length + 1)))
        length = rates.index(max(rates))
        start_s = max(now_s, from_s + length * step_s + trip_s / 2) if length else now_s
        right = next((at for at in range(length) if random.random() > accepted), length)
        now_s = start_s + target.of(length + 1)
        told += right + 1
        if right == length and length and random.random() < accepted:
            from_s += (length + 1) * step_s  # the chain goes on behind them
        else:
            from_s = now_s + trip_s / 2
    return told / now_s


def computed(auto: Client, trip_s: float, accepted: float) -> float | None:
    """Return the gain of two machines, by the costs of passes that were measured here; None before there are any."""
    drafts = auto._drafts  # noqa: SLF001 - an instrument
    runtime = None if drafts is None else drafts._runtime  # noqa: SLF001
    if drafts is None or drafts.pass_costs is None or runtime is None or runtime.costs is None:
        return None
    target, step_s = drafts.pass_costs, runtime.costs.target.of(1)
    # Of drafts of five, behind the first wrong one the others were not accepted either.
    chances = (each / 100 for each in range(1, 99))
    chance = next((a for a in chances if sum(a**n for n in range(1, 6)) / 5 >= accepted), 0.99)
    return round(two_machines(target, step_s, trip_s, chance) * target.of(1), 2)


async def measure(args: argparse.Namespace, url: str, proxy: DelayingProxy) -> None:
    """Ask all sides at every delay, and print the figures."""
    auto = Client(LaunchOptions(server=url, draft_model=args.draft_model), ("temperature",))
    lookup = Client(LaunchOptions(server=url, draft="lookup"), ("temperature",))
    off = Undrafted(LaunchOptions(server=url, draft="off"), ("temperature",))
    sides: dict[str, Client] = {"off": off, "auto": auto, "lookup": lookup}
    for each in sides.values():
        print(*(await each.open()).notes, sep="\n", file=sys.stderr)
    kinds, order = args.kinds.split(","), ["off", *args.sides.split(",")]
    prompts = [each for each in per_workload(bundled(), args.answers) if each.workload in kinds]
    for delay in map(float, args.delays.split(",")):
        proxy.trip_s = delay / 1000
        ratios, rates = defaultdict[str, list[float]](list), defaultdict[str, list[float]](list)
        differ = right = drafted = 0
        for prompt in prompts:
            speeds, texts, order = dict[str, float](), set[str](), order[1:] + order[:1]
            for side in order:
                text, speed, counts = await answer(sides[side], prompt.prompt, args.tokens)
                texts.add(text)
                speeds[side] = speed
                rates[side].append(speed)
                if side == "auto":
                    right, drafted = right + counts[0], drafted + counts[1]
                print(delay, prompt.workload, side, round(speed, 2), counts, file=sys.stderr)
            differ += len(texts) > 1
            for side in order:
                ratios[f"{prompt.workload} {side}"].append(speeds[side] / speeds["off"])
        line: dict[str, Any] = {"ms": delay, "differ": differ}
        for name, values in sorted(ratios.items()):
            line[name] = [round(f(values), 3) for f in (statistics.median, min, max)]
        line["tokens_per_s"] = {side: round(statistics.median(rates[side]), 2) for side in order}
        line["accepted"] = accepted = round(right / max(1, drafted), 2)
        line["two machines"] = computed(auto, proxy.trip_s, accepted)
        print(json.dumps(line), flush=True)
    for each in sides.values():
        await each.close()


def main() -> None:
    """Measure what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--target", required=True)
    parser.add_argument("--draft-model", required=True)
    parser.add_argument("--delays", default="0,2,10,40")
    parser.add_argument("--kinds", default="code,edit")
    parser.add_argument("--answers", type=int, default=3)
    parser.add_argument("--tokens", type=int, default=120)
    parser.add_argument("--ahead", action="store_true")
    parser.add_argument("--serve", default="--parallel 1")
    parser.add_argument("--sides", default="auto,lookup")
    args = parser.parse_args()
    host = "127.0.0.1"
    if args.ahead:
        setattr(remote, "is_here", lambda _url: False)  # noqa: B010 - the proxy stands for a network
    port, own = free_port(), free_port()
    command = [sys.executable, "-m", "localspec", "serve", args.target, "--port", str(own)]
    command += ["--no-prompt-cache", *args.serve.split()]
    server = ServerProcess(
        command, lambda text: (re.search("serving .* at (.*);", text) or [""])[0] or None
    )
    try:
        proxy = DelayingProxy(host, port, ("127.0.0.1", own))
        asyncio.run(measure(args, f"http://{host}:{port}", proxy))
    finally:
        server.close()


if __name__ == "__main__":
    main()
