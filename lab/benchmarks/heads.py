"""What heads draft on made models, and what llama-server does on the same files: texts, and how much is drafted and accepted.

Models of some kilobytes with random weights: no figure of theirs says what real heads earn. Greedy, kernels of `--exact` here and
there. From the root of a checkout: `python -m lab.benchmarks.heads llama-server [--replies 200]`.
"""

import argparse
import tempfile
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import NamedTuple

import httpx

from lab.benchmarks.workbench import machine, opened
from lab.peers import PeerServer
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from tests.llama import tiny_models
from tests.llama.tiny_gguf import TOKENS

_TOKENS, _CTX, _CHUNK = 100, 1024, 128
_FEW = range(0, 256, 2)
Write = Callable[[Path, float], Path]


class Kind(NamedTuple):
    """A kind of heads: what llama-server calls it, how many tokens a round, the files' writers."""

    name: str
    spec: str
    length: int
    target: Write
    heads: Callable[[Path], Path]


def _llama(path: Path, counts: float) -> Path:
    return tiny_models.write_llama(path, counts, marked=True)


def _qwen35(path: Path, counts: float) -> Path:
    return tiny_models.write_qwen35(path, counts, marked=True)


def _block(kind: str = "dflash", **how: object) -> Callable[[Path], Path]:
    return lambda path: tiny_models.write_dflash(path, kind=kind, **how)  # type: ignore[arg-type]


_KINDS = (
    Kind("DFlash, llama", "draft-dflash", 7, _llama, _block()),
    Kind("DFlash, qwen35", "draft-dflash", 7, _qwen35, _block(mrope=True)),
    Kind("DFlash, half the ids", "draft-dflash", 7, _llama, _block(ids=_FEW)),
    Kind("DFlash 2", "draft-dflash", 7, _llama, _block("dflash2")),
    Kind("DSpark", "draft-dspark", 8, _llama, _block("dspark")),
    Kind("DSpark, bonus first", "draft-dspark", 7, _llama, _block("dspark", anchored=False)),
    Kind(
        "Gemma 4's assistant", "draft-mtp", 3, tiny_models.write_gemma4, tiny_models.write_assistant
    ),
)


class Drafted(NamedTuple):
    """What came of a prompt: ids, and how many tokens were drafted and accepted."""

    tokens: tuple[int, ...]
    drafted: int
    accepted: int


def ours(target: Path, heads: Path, draft: str, prompts: Sequence[str]) -> list[Drafted]:
    """Return what localspec writes and drafts."""
    launch = LaunchOptions(
        target=str(target),
        draft_model=str(heads),
        draft=draft,
        exact=True,
        fit=False,
        load=LoadOptions(n_ctx=_CTX, threads=1, n_batch=_CHUNK),
    )
    options = ReplyOptions(seed=1, max_tokens=_TOKENS, sampling=SamplingParams(temperature=0))
    assistant = opened(launch).assistant
    with closing(assistant):
        replies = [assistant.reply(prompt, options) for prompt in prompts]
    done = [(reply, reply.acceptance) for reply in replies]
    return [Drafted(_less_end(reply.tokens), had.drafted, had.accepted) for reply, had in done]


def theirs(
    server: Path, kind: Kind, target: Path, heads: Path, prompts: Sequence[str]
) -> list[Drafted]:
    """Return what llama-server writes and drafts."""
    flags = ["-m", str(target), "--spec-draft-model", str(heads), "--spec-type", kind.spec]
    flags += ["--spec-draft-n-max", str(kind.length), "--spec-draft-p-min", "0", "--no-warmup"]
    flags += ["-c", str(_CTX), "-t", "1", "-np", "1", "-fa", "on", "--no-repack"]
    flags += ["-b", str(_CHUNK), "-ub", str(_CHUNK)]
    flags += [*("-ctk", "bf16", "-ctv", "bf16"), *("-ctkd", "bf16", "-ctvd", "bf16")]
    with closing(PeerServer(server, flags)) as peer:
        return [_completed(peer.address, prompt) for prompt in prompts]


def _completed(address: str, prompt: str) -> Drafted:
    """Request an answer in one piece: a stream leaves out ids whose bytes are no text by themselves."""
    body = {"prompt": prompt, "temperature": 0, "n_predict": _TOKENS, "cache_prompt": False}
    response = httpx.post(
        f"{address}/completion", json={**body, "return_tokens": True}, timeout=120
    ).json()
    timings = response["timings"]
    drafted, accepted = timings.get("draft_n", 0), timings.get("draft_n_accepted", 0)
    return Drafted(_less_end(response["tokens"]), drafted, accepted)


def _less_end(tokens: Sequence[int]) -> tuple[int, ...]:
    """Return ids without the one that ends a reply: llama-server keeps it to itself."""
    return tuple(tokens[:-1] if tokens and tokens[-1] == TOKENS - 1 else tokens)


def _counted(drafts: Sequence[Drafted]) -> str:
    return f"{sum(each.accepted for each in drafts)} of {sum(each.drafted for each in drafts)}"


def main() -> None:
    """Run, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("server", type=Path)
    parser.add_argument("--replies", type=int, default=200)
    parser.add_argument("--counts", type=float, nargs="+", default=[0.005])
    given = parser.parse_args()
    prompts = [
        f"Text {n * n + 17} goes on, and then {chr(97 + n % 26) * (n % 5 + 1)}."
        for n in range(given.replies)
    ]
    print(f"{machine()}; {len(prompts)} replies of {_TOKENS} tokens\n")
    print(
        "| heads | layers count | same text | auto | accepted | llama-server | same text, drafted and accepted |"
    )
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        for kind in _KINDS:
            heads = kind.heads(Path(folder, "heads.gguf"))
            for counts in given.counts:
                target = kind.target(Path(folder, "target.gguf"), counts)
                plain, by_heads, auto = (
                    ours(target, heads, draft, prompts)
                    for draft in ("off", f"heads:{kind.length}", "auto")
                )
                peer = theirs(given.server, kind, target, heads, prompts)
                same, same_auto = (
                    sum(a.tokens == b.tokens for a, b in zip(plain, other, strict=True))
                    for other in (by_heads, auto)
                )
                alike = sum(a == b for a, b in zip(by_heads, peer, strict=True))
                row = [kind.name, f"{counts:g}", f"{same}", f"{same_auto}", _counted(by_heads)]
                print(f"| {' | '.join([*row, _counted(peer), str(alike)])} |", flush=True)


if __name__ == "__main__":
    main()
