"""A plug-in of pytest for llama-server's own tests: one model for all of them, and another server where that is asked for.

Only how a server is started is adapted; `__main__` says by variables which, and reads what became of each test.
"""

import json
import os
import subprocess
import tempfile
import time
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

utils: Any = import_module("utils")  # of the tests
requests: Any = import_module("requests")
_MODEL, _RESULTS = os.environ["SUITE_MODEL"], Path(os.environ["SUITE_RESULTS"])
_OURS, _FRESH = os.environ["SUITE_SERVER"] == "localspec", bool(os.environ.get("SUITE_FRESH"))
_NAMES = ("test", "gpt-4.1", "gpt-3.5-turbo", "gpt-3.5-turbo-instruct", "davinci-002", "codellama70b", "text-embedding-3-small")  # fmt: skip
"""What the tests call a model, for which llama-server does not look: `localspec import` gives it these names, as its page says."""
_REQUEST_S, _MOST_CHARS = 60.0, 400
_own_start, _own_stop = utils.ServerProcess.start, utils.ServerProcess.stop
_OURS_LINE = (os.environ["SUITE_PYTHON"], "-m", "localspec")
_kept: dict[int, tuple[list[str], Any]] = {}


@cache
def _name(name: str) -> None:
    line = [*_OURS_LINE, "import", _MODEL, "--name", name]
    subprocess.run(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)


def _name_all() -> None:
    for each in _NAMES if _OURS else ():
        _name(each)


def _line(server: Any) -> list[str]:
    """Return what starts `localspec serve` as a test wants its server."""
    slots = server.n_slots or 1
    alias = server.model_alias or "test"
    _name(alias)
    line = [*_OURS_LINE, "serve", alias, "--quiet", "--no-prompt-cache"]
    line += ["--port", str(server.server_port), "--draft", "off", "--parallel", str(slots)]
    line += ["--threads", "1", "--temperature", str(server.temperature), "--seed", str(server.seed)]
    if server.n_ctx:
        line += ["--ctx", str(server.n_ctx // slots)]
    if server.n_predict and server.n_predict > 0:
        line += ["--max-tokens", str(server.n_predict)]
    if server.media_path:
        line += ["--media-path", server.media_path]
    for origin in (server.cors_origins or "").split(","):
        line += ["--cors", origin] if origin else []
    if server.api_key:
        file = Path(tempfile.gettempdir(), f"suite-{server.server_port}.keys")
        file.write_text(server.api_key)
        line += ["--api-key-file", str(file)]
    return line


def _start_ours(server: Any, timeout_seconds: float) -> None:
    line = _line(server)
    before = _kept.pop(server.server_port, None)
    if before is not None and before[0] == line and before[1].poll() is None and not _FRESH:
        process = before[1]
    else:
        if before is not None:
            _end(before[1])
        process = subprocess.Popen(line, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _kept[server.server_port] = line, process
    server.process = process
    utils.server_instances.add(server)
    end_s = time.monotonic() + timeout_seconds
    headers = {"Authorization": f"Bearer {server.api_key}"} if server.api_key else {}
    while time.monotonic() < end_s:
        try:
            url = f"http://127.0.0.1:{server.server_port}/health"
            if requests.get(url, headers=headers, timeout=5).status_code == 200:
                return
        except requests.RequestException:
            pass
        if process.poll() is not None:
            raise RuntimeError(f"the server ended with {process.returncode}")
        time.sleep(0.05)
    raise TimeoutError("the server did not start")


def _start(server: Any, timeout_seconds: float = 120) -> None:
    server.model_hf_repo = server.model_hf_file = server.model_url = None
    server.model_file = _MODEL
    server.n_threads = server.n_threads or 1  # more only wait for each other beside other work
    if _OURS:
        _start_ours(server, timeout_seconds)
    else:
        _own_start(server, timeout_seconds)


def _stop(server: Any) -> None:
    if not _OURS:
        _own_stop(server)
        return
    utils.server_instances.discard(server)
    server.process = None


def _end(process: Any) -> None:
    process.terminate()
    try:
        process.wait(20)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


utils.ServerProcess.start, utils.ServerProcess.stop = _start, _stop
utils.ServerPreset.load_all = staticmethod(_name_all)
_own_request = requests.Session.request


def _request(session: Any, method: Any, url: Any, **given: Any) -> Any:
    given["timeout"] = min(given.get("timeout") or _REQUEST_S, _REQUEST_S)
    return _own_request(session, method, url, **given)


requests.Session.request = _request


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Write down what became of a test."""
    if report.when != "call" and not (report.when == "setup" and report.outcome != "passed"):
        return
    crash = getattr(report.longrepr, "reprcrash", None)
    words = "" if crash is None else " ".join(crash.message.split())[:_MOST_CHARS]
    place = "" if crash is None else f"{Path(crash.path).name}:{crash.lineno}"
    with _RESULTS.open("a") as file:
        row = {"id": report.nodeid, "outcome": report.outcome, "words": words, "place": place}
        file.write(json.dumps(row) + "\n")


def pytest_sessionfinish() -> None:
    """End the servers that were kept."""
    for _, process in _kept.values():
        _end(process)
