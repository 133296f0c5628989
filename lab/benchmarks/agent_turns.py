"""What an agent's next turns cost: how much of a long prompt is read again, beside a running server and after it was restarted.

    python -m lab.benchmarks.agent_turns [--model smollm2-135m|FILE] [--tokens 30000]

The model is served with a context as long as it takes, which its file, a copy, is made to promise; its words are of no account.
A prompt is a billing header with a checksum, a line with the date, files, and a question; what follows changes a line late in
it, adds a turn, and last changes the date. The table has the tokens that were read, the seconds to the first token, and the share of both in the first reading.
"""

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx

from lab.benchmarks.workbench import machine
from lab.serving import ServerProcess
from localspec.models.pull import pull

_READY = re.compile(r"serving .* at (http://\S+)/v1")
_TIMEOUT_S = 3600.0
_LENGTH = b"llama.context_length\x04\x00\x00\x00"
_PROGRAM = "import sys; from localspec.cli.main import main; sys.exit(main())"


def longer(path: Path, n_ctx: int, directory: Path) -> Path:
    """Return a copy of a model's file that promises a longer context."""
    raw = bytearray(path.read_bytes())
    at = raw.index(_LENGTH) + len(_LENGTH)
    raw[at : at + 4] = n_ctx.to_bytes(4, "little")
    made = directory / "long.gguf"
    made.write_bytes(raw)
    return made


def files(characters: int) -> str:
    """Return so much source text of this package."""
    paths = sorted((Path(__file__).parents[2] / "localspec").rglob("*.py"))
    return "\n".join(each.read_text() for each in paths)[:characters]


class Agent:
    """A conversation in Anthropic's form, and what its turns cost."""

    def __init__(self, text: str) -> None:
        self._text = text
        self.turns: list[dict[str, Any]] = []

    def ask(self, client: httpx.Client, *, time: str, checksum: str, date: str) -> dict[str, Any]:
        """Ask for a few tokens; return the answer."""
        header = f"x-anthropic-billing-header: cc_version=2.1.42.834; cc_entrypoint=cli; cch={checksum};"  # fmt: skip
        *before, last = self.turns
        last = {**last, "content": f"{last['content']}\n<env>the time is {time}</env>"}
        body = {
            "system": f"{header}\nToday is {date}.\n{self._text}",
            "messages": [*before, last],
            "max_tokens": 8,
            "temperature": 0,
        }
        answer = client.post("/v1/messages", json=body)
        answer.raise_for_status()
        done: dict[str, Any] = answer.json()
        return done


def turns(model: Path, n_ctx: int, text: str) -> Iterator[tuple[str, int, int, float]]:
    """Yield what was done, tokens of its prompt, those that were read, and seconds to the first token."""
    command = [sys.executable, "-c", _PROGRAM, "serve", str(model), "--port", "0", "--ctx", str(n_ctx), "--parallel", "1"]  # fmt: skip
    agent, how = Agent(text), {"time": "10:01", "checksum": "65abc", "date": "2026-11-27"}

    def server() -> ServerProcess:
        def address(printed: str) -> str | None:
            match = _READY.search(printed)
            return match[1] if match else None

        return ServerProcess(command, address)

    def row(name: str, client: httpx.Client) -> tuple[str, int, int, float]:
        nonlocal answer
        answer = agent.ask(client, **how)
        usage = answer["usage"]
        read, cached = usage["input_tokens"], usage["cache_read_input_tokens"]
        return name, read + cached, read, answer["timings"]["first_token_s"]

    answer: dict[str, Any] = {}
    for restarted in (False, True):
        running = server()
        with closing(running), httpx.Client(base_url=running.address, timeout=_TIMEOUT_S) as client:
            if not restarted:
                agent.turns.append({"role": "user", "content": "Which file has the sampler?"})
                yield row("first reading", client)
                said = "".join(each.get("text", "") for each in answer["content"]) or "It has."
                result = f"The file says:\n{text[:1200]}"
                agent.turns += [{"role": "assistant", "content": said}, {"role": "user", "content": result}]  # fmt: skip
                how["time"] = "10:02"
                yield row("second turn", client)
                how["time"] = "10:03"
                yield row("its last line changed", client)
            else:
                how["time"] = "10:04"
                yield row("after a restart, last line changed", client)
                how["checksum"] = "77def"
                yield row("checksum in the first line changed", client)
                how["date"] = "2026-11-28"
                yield row("date in the second line changed", client)


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--tokens", type=int, default=30_000)
    given = parser.parse_args()
    n_ctx = (given.tokens * 5 // 4 + 2047) // 1024 * 1024
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as directory:
        path = Path(given.model) if Path(given.model).is_file() else pull(given.model)[0]
        path = longer(path, n_ctx, Path(directory))
        os.environ["LOCALSPEC_DATA_DIR"] = directory
        first: tuple[int, float] | None = None
        print("| what | prompt | read | share | first token s | share |\n|---|---|---|---|---|---|")
        for name, prompt, read, seconds in turns(path, n_ctx, files(given.tokens * 4)):
            first = first or (read, seconds)
            shares = f"{read / first[0]:.1%}", f"{seconds / first[1]:.1%}"
            print(f"| {name} | {prompt} | {read} | {shares[0]} | {seconds:.2f} | {shares[1]} |", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
