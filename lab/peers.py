"""llama-server beside localspec, on the same files, prompts, sampling and threads, in neighbouring runs.

    python -m lab.peers PATH/llama-server [--server-modes server:none,server:draft] -- [what `localspec bench` takes]

Prints the table of `localspec bench` with the server's modes in it, and each of our modes against the best of these,
chosen in hindsight for each kind of text; with `--json` behind `--`, the JSON of `bench`. One process decodes at a time,
and each request is timed here, from sending it to its last token.

Source: `tools/server/README.md` of llama.cpp for `/health` and `/completion`.
"""

import argparse
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import click
import httpx

from lab.ports import free_port
from lab.serving import ServerProcess
from localspec.cli.options import flags, with_settings
from localspec.decoding.cancel import CancelFlag
from localspec.errors import LocalspecError, UsageError
from localspec.llama.devices import offloads
from localspec.options import ReplyOptions
from localspec.plugins.bench.bench import BenchModels, Watchers, run_bench
from localspec.plugins.bench.command import BenchFlags, bench, bench_request
from localspec.plugins.bench.measure import Bench, Result, Runs, prompt_tokens, slot_options
from localspec.plugins.bench.report import ALL, document, figures, table
from localspec.plugins.bench.trial import Arrival, Slot, Trial
from localspec.resources import default_threads, free_ram_bytes
from localspec.storage.paths import shown

MODES: Mapping[str, tuple[str, ...]] = {
    "server:none": (),
    "server:draft": ("--spec-type", "draft-simple"),
    "server:ngram-simple": ("--spec-type", "ngram-simple"),
    "server:ngram-mod": ("--spec-type", "ngram-mod"),
    "server:ngram-map-k": ("--spec-type", "ngram-map-k"),
}
"""What makes llama-server draft as a mode says, beside its defaults."""
_REMEMBERS = {"server:ngram-mod"}
_ANSWER_TIMEOUT_S = 600.0
_WARM_UP_TOKENS = 16
_ROOM = 2.5  # weights, their repacked copy, and the cache


class PeerServer(ServerProcess):
    """A llama-server that is ready to answer, on a port of its own; `close` ends it.

    Args:
        program: the binary.
        flags: what it is started with, beside its address.
        timeout_s: how long it may take to become ready.

    Raises:
        LocalspecError: it does not start; with the last line of its log.
    """

    def __init__(self, program: Path, flags: Sequence[str], timeout_s: float = 300.0) -> None:
        port = free_port()
        address = f"http://127.0.0.1:{port}"
        command = [str(program), "--host", "127.0.0.1", "--port", str(port), *flags]
        super().__init__(command, lambda _: address if _is_healthy(address) else None, timeout_s)

    def complete(self, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Send a `/completion` request and yield what the server streams, the last with `stop`.

        Raises:
            LocalspecError: the server refuses, breaks off, or ended.
        """
        chunk: dict[str, Any] = {}
        url, body = f"{self.address}/completion", {**request, "stream": True}
        try:
            with httpx.stream("POST", url, json=body, timeout=_ANSWER_TIMEOUT_S) as response:
                if response.status_code != 200:
                    raise LocalspecError(f"llama-server refuses: {response.read()[:300]!r}")
                for line in response.iter_lines():
                    if line.startswith("data: {"):
                        yield (chunk := json.loads(line[6:]))
        except httpx.HTTPError as error:
            raise LocalspecError(f"llama-server broke off ({error}): {self.last_line()}") from None
        if not chunk.get("stop"):
            raise LocalspecError(f"llama-server broke off: {self.last_line()}")


def _is_healthy(address: str) -> bool:
    try:
        return httpx.get(f"{address}/health", timeout=2).status_code == 200
    except httpx.HTTPError:
        return False


def server_program(path: str) -> Path:
    """Return the path of a llama-server.

    Raises:
        UsageError: there is no such file.
    """
    program = Path(path).expanduser()
    if not program.is_file():
        raise UsageError(f"there is no file {shown(program)}: give the path of llama-server")
    return program.absolute()


def server_flags(mode: str, loaded: BenchModels) -> list[str]:
    """Return what makes a server draft as a mode says, with all else as our own models are loaded."""
    plan, options = loaded.plan, loaded.plan.options
    threads, chunk = options.threads or default_threads(), options.chunk(on_gpu=offloads(options))
    flags = ["-m", str(plan.target), "-c", str(loaded.assistant.models.target.n_ctx)]
    flags += ["-np", "1", "-cram", "0"]
    flags += ["-t", str(threads), "-tb", str(options.threads_batch or threads)]
    flags += ["-b", str(chunk), "-ub", str(chunk)]
    flags += ["-ctk", options.kv_type, "-ctv", options.kv_type]
    if options.flash_attention is not None:
        flags += ["-fa", "on" if options.flash_attention else "off"]
    flags += [] if options.repack else ["--no-repack"]
    if options.gpu_layers is not None:
        flags += ["-ngl", str(options.gpu_layers)]
    if options.devices:
        names = [name for name in options.devices if name.lower() != "cpu"]
        flags += ["-dev", ",".join(names) or "none"]
    flags += ["-sm", options.split] if options.split != "layers" else []
    flags += ["-ts", options.tensor_split] if options.tensor_split is not None else []
    flags += ["--cpu-moe"] if options.cpu_moe else []
    flags += [] if options.kv_offload else ["-nkvo"]
    if mode == "server:draft":
        flags += ["-md", str(plan.draft_model), "--spec-draft-n-max", "3"]
        flags += ["-ctkd", options.kv_type, "-ctvd", options.kv_type]
        flags += ["-ngld", str(options.gpu_layers)] if options.gpu_layers is not None else []
    return [*flags, *MODES[mode]]


@dataclass(eq=False)
class PeerRuns:
    """Answers prompts by servers, one of each mode, started as our own models are loaded; `close` ends them.

    A server stays between requests, except in a mode that remembers earlier texts.

    Args:
        program: llama-server.
        loaded: our own models.
        prompts: token ids of every prompt.
        reply: how every answer is made.
        flags_of: what a server of a mode is started with.
    """

    program: Path
    loaded: BenchModels
    prompts: Sequence[Sequence[int]]
    reply: ReplyOptions
    flags_of: Callable[[str, BenchModels], Sequence[str]] = server_flags
    _servers: dict[str, PeerServer] = field(default_factory=dict)

    def run(self, slot: Slot) -> Trial:
        """Answer, and return the figures.

        Raises:
            LocalspecError: the server does not start, or breaks off.
        """
        try:
            return self._answer(slot, self.prompts[slot.prompt], self.reply.max_tokens)
        finally:
            if slot.mode in _REMEMBERS:
                self._end(slot.mode)

    def warm_up(self, modes: Sequence[str]) -> None:
        """Start the servers that stay, and let each answer briefly."""
        for mode in modes:
            if mode not in _REMEMBERS:
                self._answer(Slot(0, 0.0, 0, mode, 0), self.prompts[0], _WARM_UP_TOKENS)

    def close(self) -> None:
        """End every server."""
        for mode in list(self._servers):
            self._end(mode)

    def _server(self, mode: str) -> PeerServer:
        if mode not in self._servers:
            needed = _ROOM * self.loaded.plan.target.stat().st_size
            while self._servers and (free_ram_bytes() or needed) < needed:
                self._end(next(iter(self._servers)))
            self._servers[mode] = PeerServer(self.program, self.flags_of(mode, self.loaded))
            if mode in _REMEMBERS:  # a fresh one is as cold as ours was before its warm-up
                self._answer(Slot(0, 0.0, 0, mode, 0), self.prompts[0][:8], 4)
        return self._servers[mode]

    def _end(self, mode: str) -> None:
        if mode in self._servers:
            self._servers.pop(mode).close()

    def _answer(self, slot: Slot, prompt: Sequence[int], max_tokens: int | None) -> Trial:
        server, options = self._server(slot.mode), slot_options(self.reply, slot)
        sampling = options.sampling
        request = {
            "prompt": list(prompt),
            "n_predict": -1 if max_tokens is None else max_tokens,
            "temperature": sampling.temperature,
            "samplers": ["penalties", "top_k", "top_p", "min_p", "temperature"],
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "min_p": sampling.min_p,
            "repeat_penalty": sampling.repeat_penalty,
            "seed": options.seed,
            "cache_prompt": False,
            "return_tokens": True,
        }
        arrivals: list[Arrival] = []
        tokens: list[int] = []
        last: dict[str, Any] = {}
        start = time.perf_counter()
        for last in server.complete(request):
            if new := last.get("tokens"):
                tokens += new
                arrivals.append(Arrival(len(tokens), time.perf_counter() - start))
        timings = last.get("timings", {})
        n_tokens = last.get("tokens_predicted", len(tokens))
        if not arrivals or n_tokens > len(tokens):  # the token that ended it is not streamed
            arrivals.append(Arrival(max(1, n_tokens), time.perf_counter() - start))
        return Trial(
            slot=slot,
            tokens=tuple(tokens),
            arrivals=tuple(arrivals),
            prefill_s=float(timings.get("prompt_ms", 0.0)) / 1000,
            rounds=(),
            drafted=int(timings.get("draft_n", 0)),
            accepted=int(timings.get("draft_n_accepted", 0)),
        )


def beside_server(bench: Bench, program: str, modes: Sequence[str]) -> Result:
    """Measure our arms and the modes of a server.

    Raises:
        UsageError: our models are on workers, which serve one program at a time.
        LocalspecError: something cannot be loaded, started or answered.
    """
    if any(arm.launch.workers for arm in bench.arms):
        raise UsageError("llama-server is not measured beside models on workers")
    path = server_program(program)

    def servers(loaded: BenchModels, stack: ExitStack) -> Mapping[str, Runs]:
        if "server:draft" in modes and loaded.plan.draft_model is None:
            raise UsageError("server:draft needs a draft model: add model to --modes")
        tokens = prompt_tokens(loaded.assistant, bench.prompts)
        runs = PeerRuns(path, loaded, tokens, bench.reply)
        stack.callback(runs.close)
        return dict.fromkeys(modes, runs)

    return run_bench(bench, CancelFlag(), Watchers(), others=servers)


def against_best(result: Result) -> list[str]:
    """Return a line for each of our modes and kinds of text: its speed over that of the server's best mode."""
    best: dict[tuple[float, str], tuple[float, str]] = {}
    measured = figures(result)
    for each in measured:
        if each.mode in MODES and each.ratio is not None:
            place = (each.temperature, each.workload)
            best[place] = max(best.get(place, (-math.inf, "")), (each.ratio.mean, each.mode))
    return [
        f"{each.workload} {each.mode}, {each.temperature:g}: {math.exp(ours - theirs):.3f} of {mode}"
        for each in measured
        if each.mode not in MODES and each.workload != ALL
        for theirs, mode in [best[each.temperature, each.workload]]
        for ours in [each.ratio.mean if each.ratio is not None else 0.0]
    ]


def main() -> None:
    """Measure, and print the table."""
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program", help="llama-server")
    parser.add_argument("--server-modes", default="server:none", help=", ".join(MODES))
    given = parser.parse_args(sys.argv[1:split])
    modes = given.server_modes.split(",")
    if unknown := set(modes) - {*MODES}:
        raise UsageError(f"there is no mode {min(unknown)!r}: choose one of {', '.join(MODES)}")
    context = bench.make_context("bench", sys.argv[split + 1 :])
    with context:
        request = flags(measuring=BenchFlags)(with_settings(bench_request))(**context.params)
    result = beside_server(request, given.program, modes)
    if context.params["json_"]:
        print(json.dumps(document(result)))
    else:
        print(f"{table(result)}\n\nagainst the best of the server's modes:")
        print("\n".join(against_best(result)))


if __name__ == "__main__":
    try:
        main()
    except (LocalspecError, click.ClickException) as error:
        sys.exit(str(error))
