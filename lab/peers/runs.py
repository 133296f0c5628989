"""Runs of llama-server beside our own: the same files, tokens, sampling, cache type and threads.

One process decodes at a time, and each request is timed here, from sending it to its last token.
A server stays up between requests, except in a mode that remembers earlier texts.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path

from lab.peers.server import PeerServer
from lab.peers.setting import PeerSetting
from localspec.bench.bench import BenchModels
from localspec.bench.measure import slot_options
from localspec.bench.trial import Arrival, Slot, Trial
from localspec.llama.devices import offloads
from localspec.options import ReplyOptions
from localspec.resources import default_threads, free_ram_bytes

_REMEMBERS = {"server:ngram-mod"}
_WARM_UP_TOKENS = 16
_ROOM = 2.5  # weights, their repacked copy, and the cache


@contextmanager
def open_runs(
    program: Path,
    loaded: BenchModels,
    prompts: Sequence[Sequence[int]],
    asked: ReplyOptions,
    is_cancelled: Callable[[], bool],
) -> Iterator["PeerRuns"]:
    """Answer prompts by servers that are started as our own models are loaded.

    Args:
        program: llama-server.
        loaded: our own models.
        prompts: token ids of every prompt.
        asked: how every answer is made.
        is_cancelled: asked while waiting.
    """
    plan, options = loaded.plan, loaded.plan.options
    setting = PeerSetting(
        program=program,
        target=plan.target,
        draft_model=plan.draft_model,
        n_ctx=loaded.assistant.models.target.n_ctx,
        options=options,
        threads=options.threads or default_threads(),
        n_batch=options.chunk(on_gpu=offloads(options)),
    )
    with closing(PeerRuns(setting, prompts, asked, is_cancelled)) as runs:
        yield runs


class PeerRuns:
    """Answers prompts by servers, one of each mode; `close` ends them.

    Args:
        setting: how they are started.
        prompts: token ids of every prompt.
        asked: how every answer is made.
        is_cancelled: asked while waiting.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        setting: PeerSetting,
        prompts: Sequence[Sequence[int]],
        asked: ReplyOptions,
        is_cancelled: Callable[[], bool],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._setting = setting
        self._prompts = prompts
        self._asked = asked
        self._is_cancelled = is_cancelled
        self._clock = clock
        self._servers: dict[str, PeerServer] = {}

    def run(self, slot: Slot) -> Trial:
        """Answer, and return what came of it.

        Raises:
            LocalspecError: the server does not start, or breaks off.
            Cancelled: the run was cancelled.
        """
        server = self._server(slot.mode)
        try:
            return self._ask(server, slot, self._prompts[slot.prompt], self._asked.max_tokens)
        finally:
            if slot.mode in _REMEMBERS:
                self._end(slot.mode)

    def warm_up(self, modes: Sequence[str]) -> None:
        """Start the servers that stay, and let each answer briefly."""
        for mode in modes:
            self._ask(
                self._server(mode), Slot(0, 0.0, 0, mode, 0), self._prompts[0], _WARM_UP_TOKENS
            )
            if mode in _REMEMBERS:
                self._end(mode)

    def close(self) -> None:
        """End every server."""
        for mode in list(self._servers):
            self._end(mode)

    def _server(self, mode: str) -> PeerServer:
        if mode not in self._servers:
            self._make_room()
            server = PeerServer(
                self._setting.program, self._setting.flags(mode), self._is_cancelled
            )
            self._servers[mode] = server
            if mode in _REMEMBERS:  # a fresh one is as cold as ours was before its warm-up
                self._ask(server, Slot(0, 0.0, 0, mode, 0), self._prompts[0][:8], 4)
        return self._servers[mode]

    def _make_room(self) -> None:
        """End servers as long as the memory that is free does not hold another one."""
        needed = _ROOM * self._setting.target.stat().st_size
        while self._servers and (free_ram_bytes() or needed) < needed:
            self._end(next(iter(self._servers)))

    def _end(self, mode: str) -> None:
        server = self._servers.pop(mode, None)
        if server is not None:
            server.close()

    def _ask(
        self, server: PeerServer, slot: Slot, prompt: Sequence[int], max_tokens: int | None
    ) -> Trial:
        options, start = slot_options(self._asked, slot), self._clock()
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
        last: dict[str, object] = {}
        for chunk in server.complete(request):
            new = chunk.get("tokens") or []
            tokens += new
            if new:
                arrivals.append(Arrival(len(tokens), self._clock() - start))
            last = chunk
        timings = last.get("timings")
        timings = timings if isinstance(timings, dict) else {}
        predicted = last.get("tokens_predicted")
        n_tokens = predicted if isinstance(predicted, int) else len(tokens)
        if not arrivals or n_tokens > len(tokens):  # the token that ended it is not streamed
            arrivals.append(Arrival(max(1, n_tokens), self._clock() - start))
        return Trial(
            slot=slot,
            tokens=tuple(tokens),
            arrivals=tuple(arrivals),
            prefill_s=float(timings.get("prompt_ms", 0.0)) / 1000,
            rounds=(),
            drafted=int(timings.get("draft_n", 0)),
            accepted=int(timings.get("draft_n_accepted", 0)),
        )
