"""Coding agents with their default prompts against `localspec serve`: does each get an answer, without asking twice?

    npm install --prefix AGENTS @anthropic-ai/claude-code @openai/codex opencode-ai @qwen-code/qwen-code
    gguf-new-metadata --chat-template-file qwen.jinja SMOLLM2.gguf smol-tools.gguf
    gguf-set-metadata smol-tools.gguf llama.context_length 32768
    python -m lab.agents AGENTS smol-tools.gguf [claude codex opencode qwen]

`qwen.jinja` is Qwen2.5's chat template: SmolLM2's own knows no tools. A recording proxy stands between an agent and the server:
it notes every request with the seconds to its first byte and to its end, and passes on that a client has gone.
"""

import argparse
import asyncio
import contextlib
import hashlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import httpx
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from lab.ports import free_port
from localspec.serve.answering import unless_gone

_MODEL = "smol-tools"
_QUESTION = "Say hello in one word. Use no tool."
_CONTEXT = 32768
_ANSWER_TOKENS = 1000


@dataclass
class Exchange:
    """One request of an agent: seconds are from its arrival."""

    path: str
    digest: str
    size: int
    status: int = 0
    first_byte_s: float | None = None
    end_s: float | None = None
    complete: bool = False

    def __str__(self) -> str:
        first = "no byte" if self.first_byte_s is None else f"first byte {self.first_byte_s:.1f} s"
        ended = "no end" if self.end_s is None else f"{self.end_s:.1f} s"
        end = f"{'whole' if self.complete else 'left by the client'} {ended}"
        return f"  {self.path} {self.size / 1000:.0f} kB {self.status}, {first}, {end}"


class RecordingProxy:
    """Forwards requests to a server and keeps what happened to each.

    Args:
        server: base URL of the server.
    """

    def __init__(self, server: str) -> None:
        self._client = httpx.AsyncClient(base_url=server, timeout=None)
        self.exchanges: list[Exchange] = []
        methods = ["GET", "POST", "HEAD", "OPTIONS"]
        self.app = Starlette(routes=[Route("/{path:path}", self._forward, methods=methods)])

    async def _forward(self, request: Request) -> StreamingResponse:
        body = await request.body()
        exchange = Exchange(request.url.path, hashlib.sha256(body).hexdigest(), len(body))
        if request.method == "POST":
            self.exchanges.append(exchange)
        began = time.monotonic()
        headers = [(k, v) for k, v in request.headers.items() if k not in {"host", "connection"}]
        target = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        sent = self._client.build_request(request.method, target, headers=headers, content=body)
        answer = await unless_gone(request, self._client.send(sent, stream=True))
        exchange.status = answer.status_code

        async def chunks() -> AsyncIterator[bytes]:
            try:
                with contextlib.suppress(httpx.HTTPError):  # the server stops
                    async for chunk in answer.aiter_raw():
                        exchange.first_byte_s = exchange.first_byte_s or time.monotonic() - began
                        yield chunk
                    exchange.complete = True
            finally:
                exchange.end_s = time.monotonic() - began
                await answer.aclose()

        kept = {"content-type", "content-encoding"}
        headers_back = {k: v for k, v in answer.headers.items() if k.lower() in kept}
        return StreamingResponse(chunks(), answer.status_code, headers_back)


def command_of(agent: str, agents: Path, url: str, home: Path) -> tuple[list[str], dict[str, str]]:
    """Return an agent's command line and what it needs in the environment."""
    program = str(agents / "node_modules" / ".bin" / agent)
    key = "sk-local-0123456789abcdef"
    if agent == "claude":
        return [program, "-p", _QUESTION, "--model", _MODEL], {
            "ANTHROPIC_BASE_URL": url,
            "ANTHROPIC_API_KEY": key,
            "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
            "CLAUDE_CODE_MAX_OUTPUT_TOKENS": str(_ANSWER_TOKENS),
        }
    if agent == "codex":
        provider = f'{{name="local",base_url="{url}/v1",wire_api="responses"}}'
        options = ["-c", "model_provider=local", "-c", f"model_providers.local={provider}"]
        return [program, "exec", "--skip-git-repo-check", *options, "-m", _MODEL, _QUESTION], {}
    if agent == "opencode":
        limit = {"context": _CONTEXT, "output": _ANSWER_TOKENS}
        local = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{url}/v1", "apiKey": key},
            "models": {_MODEL: {"limit": limit, "tool_call": True}},
        }
        settings = home / "opencode.json"
        settings.write_text(json.dumps({"provider": {"local": local}, "autoupdate": False}))
        return [program, "run", "-m", f"local/{_MODEL}", _QUESTION], {
            "OPENCODE_CONFIG": str(settings)
        }
    settings = home / ".qwen" / "settings.json"
    settings.parent.mkdir()
    sampling = {"samplingParams": {"max_tokens": _ANSWER_TOKENS}}
    settings.write_text(json.dumps({"model": {"generationConfig": sampling}}))
    return [program, "-p", _QUESTION], {
        "OPENAI_BASE_URL": f"{url}/v1",
        "OPENAI_API_KEY": key,
        "OPENAI_MODEL": _MODEL,
    }


async def run_agent(
    agent: str, agents: Path, proxy: RecordingProxy, url: str, limit_s: int
) -> bool:
    """Run one agent in an empty home, print what came of it, and return whether it was answered without asking twice."""
    with tempfile.TemporaryDirectory() as name:
        home = Path(name)
        (home / "work").mkdir()
        command, extra = command_of(agent, agents, url, home)
        environment = {**_inherited(os.environ), "HOME": name, **extra}
        version = subprocess.run(
            [command[0], "--version"], capture_output=True, text=True, check=False, env=environment
        )
        del proxy.exchanges[:]
        began = time.monotonic()
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=home / "work",
            env=environment,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
        try:
            out, err = await asyncio.wait_for(process.communicate(), limit_s)
        except TimeoutError:
            # An agent's own children hold its output open: the whole group goes.
            os.killpg(process.pid, signal.SIGKILL)
            out, err = await process.communicate()
        took_s = time.monotonic() - began
    answered = [each for each in proxy.exchanges if each.complete and each.status == 200]
    given_up = len(proxy.exchanges) - len(answered)
    repeated = len(proxy.exchanges) - len({each.digest for each in proxy.exchanges})
    # So small a model seldom ends by itself, and agents then end with a code of their own: it is printed, and judged is the server.
    good = bool(answered) and not given_up and not repeated
    counts = f"{len(proxy.exchanges)} requests, {given_up} refused or given up, {repeated} repeated"
    verdict = f"{'good' if good else 'FAILED'}, code {process.returncode}, {took_s:.0f} s"
    print(f"{agent} {version.stdout.strip()}: {verdict}, {counts}")
    for each in proxy.exchanges:
        print(each)
    print(f"  answer: {out.decode(errors='replace').strip()[-200:]!r}")
    if not good:
        print(f"  stderr: {err.decode(errors='replace').strip()[-600:]!r}")
    return good


def _inherited(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment without what would lead an agent elsewhere."""
    foreign = ("ANTHROPIC", "OPENAI", "CLAUDE", "CODEX", "OPENCODE", "QWEN", "XDG_")
    return {k: v for k, v in environment.items() if not k.startswith(foreign)}


@contextlib.asynccontextmanager
async def _serving(model: Path, port: int, folder: Path) -> AsyncIterator[None]:
    """Serve a file under the name that agents ask for, with a data directory of its own."""
    program, log = (sys.executable, "-m", "localspec"), folder / "serve.log"
    environment = {**os.environ, "LOCALSPEC_DATA_DIR": str(folder / "data")}
    naming = [*program, "import", str(model), "--name", _MODEL]
    subprocess.run(naming, check=True, env=environment, stdout=subprocess.DEVNULL)
    command = [
        *(*program, "serve", _MODEL, "--draft", "off"),
        # So small a model may go on for ever; agents take an answer that was cut off for a failure.
        *("--ctx", str(_CONTEXT), "--port", str(port), "--parallel", "2", "--stop-loops"),
        *("-n", str(_ANSWER_TOKENS)),
    ]
    with log.open("wb") as written:
        process = subprocess.Popen(command, stdout=written, stderr=written, env=environment)
    try:
        async with httpx.AsyncClient() as client:
            for _ in range(300):
                with contextlib.suppress(httpx.HTTPError):
                    if (await client.get(f"http://127.0.0.1:{port}/health")).status_code == 200:
                        break
                await asyncio.sleep(0.2)
            else:
                raise SystemExit(f"the server does not start:\n{log.read_text()[-500:]}")
        yield
    finally:
        process.terminate()
        process.wait()


async def _main(agents: Path, model: Path, names: list[str], limit_s: int) -> int:
    with tempfile.TemporaryDirectory() as folder:
        port, front = free_port(), free_port()
        async with _serving(model, port, Path(folder)):
            proxy = RecordingProxy(f"http://127.0.0.1:{port}")
            server = uvicorn.Server(
                uvicorn.Config(proxy.app, port=front, log_level="error", lifespan="off")
            )
            serving = asyncio.create_task(server.serve())
            url = f"http://127.0.0.1:{front}"
            good = [await run_agent(name, agents, proxy, url, limit_s) for name in names]
            server.should_exit = True
            await serving
    return 0 if all(good) else 1


def main() -> None:
    """Read the command line and run the agents."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("agents", type=Path, help="folder of `npm install --prefix`")
    parser.add_argument("model", type=Path, help="GGUF file with a template that has tools")
    parser.add_argument("names", nargs="*", default=["claude", "codex", "opencode", "qwen"])
    parser.add_argument("--limit", type=int, default=1800, help="seconds an agent may take")
    given = parser.parse_args()
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    raise SystemExit(asyncio.run(_main(given.agents, given.model, given.names, given.limit)))


if __name__ == "__main__":
    main()
