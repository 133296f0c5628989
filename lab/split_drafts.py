"""A laptop drafts, a server verifies, through a proxy that delays: tokens a second with and without the laptop's drafts, and whether texts are equal.

    python -m lab.split_drafts --target TARGET.gguf --draft-model DRAFT.gguf --delays 0,2,10,40 --kinds code,edit --answers 4

Starts `serve` with the target alone. Both sides are asked in turns, greedily, without the prompt cache. Both programs share this machine's
cores, so that the laptop does not draft while the server verifies, unless `--ahead` says so, as it does beside a server elsewhere. A figure is the median of the ratios of answers to the same question.
"""

import argparse
import asyncio
import json
import re
import statistics
import sys
import threading
import time
from contextlib import suppress

from lab.ports import free_port
from lab.serving import ServerProcess
from localspec.api import Finished, LaunchOptions, Message, ReplyOptions, Request, SamplingParams
from localspec.plugins.bench.prompts import bundled, per_workload
from localspec.plugins.remote import client as remote
from localspec.plugins.remote.client import Client


class DelayingProxy:
    """Passes bytes on in both directions, each after half of a round trip; `trip_s` may be changed at any time."""

    def __init__(self, host: str, port: int, target: tuple[str, int]) -> None:
        self.trip_s, self._target = 0.0, target
        self._where = host, port
        started = threading.Event()
        threading.Thread(target=lambda: asyncio.run(self._run(started)), daemon=True).start()
        started.wait()

    async def _run(self, started: threading.Event) -> None:
        server = await asyncio.start_server(self._accept, *self._where)
        started.set()
        await server.serve_forever()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        far_reader, far_writer = await asyncio.open_connection(*self._target)
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
            piece = await reader.read(1 << 16)
            queue.put_nowait((time.monotonic() + self.trip_s / 2, piece))
            if not piece:
                await delivery
                return


async def answer(client: Client, prompt: str, tokens: int) -> tuple[str, float, str]:
    """Return the text, tokens a second behind the first, and how drafting went."""
    options = ReplyOptions(SamplingParams(temperature=0), max_tokens=tokens, seed=1)
    events = list[object]()
    await client.answer(Request(1, (Message.user(prompt),), options), events.extend)
    (done,) = (each for each in events if isinstance(each, Finished))
    reply = done.reply
    drafted = f"{reply.acceptance.accepted}/{reply.acceptance.drafted} gain {reply.gain_ratio}"
    return reply.text, reply.tokens_per_s or 0.0, drafted


async def measure(args: argparse.Namespace, url: str, proxy: DelayingProxy) -> None:
    """Ask both sides at every delay, and print the figures."""
    sides = {
        "off": Client(LaunchOptions(server=url, draft="off"), ("temperature",)),
        "auto": Client(LaunchOptions(server=url, draft_model=args.draft_model), ("temperature",)),
    }
    for each in sides.values():
        print(*(await each.open()).notes, sep="\n", file=sys.stderr)
    kinds = args.kinds.split(",")
    prompts = [each for each in per_workload(bundled(), args.answers) if each.workload in kinds]
    for delay in map(float, args.delays.split(",")):
        proxy.trip_s = delay / 1000
        ratios, equal, rates = dict[str, list[float]](), 0, dict[str, list[float]]()
        for number, prompt in enumerate(prompts):
            speeds, texts, counts = dict[str, float](), set[str](), ""
            for side in ("off", "auto") if number % 2 else ("auto", "off"):
                text, speeds[side], counts = await answer(sides[side], prompt.prompt, args.tokens)
                texts.add(text)
                rates.setdefault(side, []).append(speeds[side])
                print(delay, prompt.workload, side, round(speeds[side], 2), counts, file=sys.stderr)
            equal += len(texts) == 1
            ratios.setdefault(prompt.workload, []).append(speeds["auto"] / speeds["off"])
        medians = {kind: round(statistics.median(each), 3) for kind, each in ratios.items()}
        usual = {side: round(statistics.median(each), 2) for side, each in rates.items()}
        print(json.dumps({"ms": delay, "ratio": medians, "equal": equal, "tokens_per_s": usual}))
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
    parser.add_argument("--serve", default="--exact --parallel 1")
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
