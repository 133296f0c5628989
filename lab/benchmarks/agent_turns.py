"""What an agent's next turns cost: how much of a long prompt is read again, beside a running server and after it was restarted.

    python -m lab.benchmarks.agent_turns [--model smollm2-135m|FILE] [--tokens 30000]

The model is served with a context as long as it takes, which its file, a copy, is made to promise; its words are of no account.
A prompt is a billing header with a checksum, a line with the date, files, and a question; what follows adds a turn, changes
its last line, and last the date. The table has the tokens that were read, the seconds to the first token, and the shares of both in the first reading.
"""

import argparse
import os
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx

from lab.benchmarks.workbench import machine
from lab.serving import ServerProcess
from localspec.models.pull import pull

_READY = re.compile(r"serving .* at (http://\S+)/v1")
_TIMEOUT_S = 3600.0
_LENGTH = b"llama.context_length\x04\x00\x00\x00"


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


Row = tuple[str, int, int, float]
"""What was done, tokens of its prompt, those that were read, and seconds to the first token."""


class Agent:
    """A conversation in Anthropic's form.

    Args:
        text: the files in its system prompt.

    Attributes:
        turns: after the system prompt; the last one is the user's.
        said: the last answer.
    """

    def __init__(self, text: str) -> None:
        self._text = text
        self.turns: list[dict[str, str]] = []
        self.said = ""

    def ask(
        self, name: str, client: httpx.Client, time: str, checksum: str = "65abc", day: int = 27
    ) -> Row:
        """Ask for a few tokens, and return what that cost."""
        header = f"x-anthropic-billing-header: cc_version=2.1.42.834; cch={checksum};"
        *before, last = self.turns
        last = {**last, "content": f"{last['content']}\nThe time is {time}."}
        body = {
            "system": f"{header}\nToday is 2026-11-{day}.\n{self._text}",
            "messages": [*before, last],
            "max_tokens": 8,
            "temperature": 0,
        }
        answer = client.post("/v1/messages", json=body).raise_for_status().json()
        self.said = "".join(each.get("text", "") for each in answer["content"]) or "I will look."
        read, cached = (answer["usage"][f"{kind}input_tokens"] for kind in ("", "cache_read_"))
        return name, read + cached, read, answer["timings"]["first_token_s"]


@contextmanager
def serving(model: Path, n_ctx: int) -> Iterator[httpx.Client]:
    """Serve a model, and yield a client."""
    command = [sys.executable, "-m", "localspec", "serve", str(model)]
    command += ["--port", "0", "--ctx", str(n_ctx), "--parallel", "1"]
    server = ServerProcess(command, lambda printed: (m := _READY.search(printed)) and m[1])
    with closing(server), httpx.Client(base_url=server.address, timeout=_TIMEOUT_S) as client:
        yield client


def turns(model: Path, n_ctx: int, text: str) -> Iterator[Row]:
    """Yield turns of an agent, the first reading of its prompt first."""
    agent = Agent(text)
    with serving(model, n_ctx) as client:
        agent.turns.append({"role": "user", "content": "Which file has the sampler?"})
        yield agent.ask("first reading", client, "10:01")
        agent.turns.append({"role": "assistant", "content": agent.said})
        agent.turns.append({"role": "user", "content": f"The file says:\n{text[:1200]}"})
        yield agent.ask("second turn", client, "10:02")
        yield agent.ask("its last line changed", client, "10:03")
    with serving(model, n_ctx) as client:
        yield agent.ask("after a restart, the last line changed", client, "10:04")
        yield agent.ask("a checksum in the first line changed", client, "10:04", "77def")
        yield agent.ask("the date in the second line changed", client, "10:04", "77def", 28)


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
