"""What llama.cpp's own programs answer about a picture or a sound: llama-server, and llama-mtmd-cli beside it."""

import os
import subprocess
from base64 import b64encode
from pathlib import Path

import httpx
import pytest

from lab.peers import PeerServer
from localspec.messages import MediaPart

SERVER = Path(os.environ.get("LOCALSPEC_LLAMA_SERVER", os.devnull))
needs_peers = pytest.mark.skipif(
    not SERVER.is_file(), reason="LOCALSPEC_LLAMA_SERVER names no llama-server"
)
_FLAGS = ("-c", "4096", "-t", "2", "-ngl", "0", "--jinja")


def started(target: Path, encoder: Path) -> PeerServer:
    """Return a llama-server with a model that sees or hears."""
    files = ("-m", str(target), "--mmproj", str(encoder))
    return PeerServer(SERVER, [*files, *_FLAGS, "-np", "1", "-cram", "0"])


def server_answer(
    server: PeerServer, part: MediaPart, question: str, max_tokens: int
) -> tuple[str, int]:
    """Return what a server answers greedily, and the tokens of the prompt."""
    data = b64encode(part.data).decode()
    url = f"data:image/{part.name.rpartition('.')[2]};base64,{data}"
    seen = {"type": "image_url", "image_url": {"url": url}}
    heard = {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}
    content = [seen if part.kind == "image" else heard, {"type": "text", "text": question}]
    body = {
        "messages": [{"role": "user", "content": content}],
        "temperature": 0,
        "max_tokens": max_tokens,
        "cache_prompt": False,
    }
    answer = httpx.post(f"{server.address}/v1/chat/completions", json=body, timeout=600)
    document = answer.raise_for_status().json()
    return document["choices"][0]["message"]["content"], document["usage"]["prompt_tokens"]


def cli_answer(target: Path, encoder: Path, part: Path, question: str, max_tokens: int) -> str:
    """Return what llama-mtmd-cli answers greedily about a file."""
    program = SERVER.with_name("llama-mtmd-cli")
    flag = "--audio" if part.suffix == ".wav" else "--image"
    files = ("-m", str(target), "--mmproj", str(encoder), flag, str(part))
    ways = (*_FLAGS, "--temp", "0", "-n", str(max_tokens), "-p", question)
    environment = {**os.environ, "LD_LIBRARY_PATH": str(program.parent)}
    done = subprocess.run(
        [program, *files, *ways],
        capture_output=True,
        text=True,
        errors="replace",
        check=True,
        env=environment,
    )
    return done.stdout
