"""This machine drafts for a server: the text is the server's, passes are saved, and what cannot draft says why before it is loaded."""

import secrets
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from websockets.sync.server import ServerConnection, serve

from localspec.decoding.costs import PairCosts, PassCosts
from localspec.engine.protocol import Loading, Measuring
from localspec.errors import UsageError
from localspec.options import LaunchOptions
from localspec.plugins.remote import drafting
from localspec.plugins.remote.drafting import LocalDrafts, local_drafts
from tests.engine.scripted import END, N_VOCAB, NEVER, ScriptedModel, script_of
from tests.plugins.serve.serving import Served, served
from tests.plugins.serve.test_drafts import ANSWER, SCRIPT, text_of
from tests.waiting import until

SLOW = {**SCRIPT, "pass_s": 0.01, "costs": {"target": [[1, 16], [0.01, 0.011]]}}
"""Passes beside which a round trip on a busy machine is short."""
WRONG = {"answers": {"count": "Something else altogether, which is never what it says. " * 5}}


@pytest.fixture(scope="module")
def server() -> Iterator[Served]:
    with served(SLOW) as made:
        yield made


def runtime(script: dict[str, Any], step_s: float = 1e-4) -> Any:
    """Return a draft model that says what a script says."""
    models = SimpleNamespace(
        targets=SimpleNamespace(views=[ScriptedModel(script_of(script), 4000, NEVER)]),
        eog={END},
        target_name="small",
    )
    costs = PairCosts(PassCosts((1, 32), (step_s, 32 * step_s)))
    return SimpleNamespace(assistant=SimpleNamespace(models=models), costs=costs)


def answered(server: Served, drafts: LocalDrafts) -> dict[str, Any]:
    assert until(lambda: not drafts._free.locked())  # the answer before has ended
    name = secrets.token_hex(16)
    drafts.begin(name)
    reply: dict[str, Any] = server.chat("count", localspec={"drafts": name}).json()
    return reply


def accepted(server: Served, drafts: LocalDrafts, least: float) -> bool:
    """Return whether so many of its tokens are accepted in a few answers, each of them the right one."""
    count = 0
    for _ in range(6):
        reply = answered(server, drafts)
        assert text_of(reply) == ANSWER
        count += reply["speculation"]["by_drafter"].get("client", {}).get("accepted", 0)
        if count >= least:
            return True
    return False


@pytest.mark.parametrize("ahead", [False, True])
def test_a_model_that_knows_the_answer_saves_passes(server: Served, *, ahead: bool) -> None:
    drafts = LocalDrafts(f"{server.url}/v1", {}, runtime(SCRIPT), N_VOCAB, ahead=ahead)
    assert accepted(server, drafts, len(ANSWER) / 2)


def test_one_that_is_wrong_gives_up_and_changes_nothing(server: Served) -> None:
    drafts = LocalDrafts(f"{server.url}/v1", {}, runtime(WRONG), N_VOCAB, ahead=True)
    wrong = drafts._runtime
    assert wrong is not None
    assert [text_of(answered(server, drafts)) for _ in range(2)] == [ANSWER] * 2
    assert wrong.assistant.models.targets.views[0].n_cached


def test_one_that_takes_longer_than_the_server_drafts_nothing(server: Served) -> None:
    slow = runtime(SCRIPT, step_s=1.0)
    drafts = LocalDrafts(f"{server.url}/v1", {}, slow, N_VOCAB, ahead=True)
    assert text_of(answered(server, drafts)) == ANSWER
    view = slow.assistant.models.targets.views[0]
    assert view.n_cached == 0  # no pass of it was made


def test_without_a_model_the_text_is_looked_up(server: Served) -> None:
    """The answer says the same three times."""
    drafts = LocalDrafts(f"{server.url}/v1", {}, None, 0, ahead=True)
    assert accepted(server, drafts, len(ANSWER) / 4)


def test_a_server_that_takes_no_drafts_costs_nothing(server: Served) -> None:
    drafts = LocalDrafts("http://127.0.0.1:9/v1", {}, None, 0, ahead=True)
    drafts.begin("nobody")
    assert until(lambda: not drafts._free.locked())


def judged(monkeypatch: pytest.MonkeyPatch, own: str | None, **options: Any) -> tuple[Any, str]:
    """Judge a draft model with a vocabulary, or one that is not here; nothing is loaded."""
    monkeypatch.setattr(drafting, "_file", lambda _name: None if own is None else Path("x.gguf"))
    monkeypatch.setattr(drafting, "read_model", lambda _path: SimpleNamespace(tokenizer=own))
    monkeypatch.setattr(drafting, "vocabulary_of", lambda tokenizer: tokenizer)

    def report(_notice: Loading | Measuring) -> None:
        raise AssertionError("it is loaded")

    launch = LaunchOptions(server="http://big:8080", **options)
    address = "http://big:8080/v1", dict[str, str]()
    return local_drafts(launch, "qwen2.5-coder-7b", "abc-100", address, report, ahead=True)


@pytest.mark.parametrize(
    ("own", "words"),
    [
        ("def-100", "qwen2.5-coder-0.5b has another vocabulary than qwen2.5-coder-7b there"),
        (None, "qwen2.5-coder-0.5b is not here: run `localspec pull qwen2.5-coder-0.5b`"),
    ],
)
def test_what_cannot_draft_says_why_before_it_is_loaded(
    monkeypatch: pytest.MonkeyPatch, own: str | None, words: str
) -> None:
    drafts, line = judged(monkeypatch, own)
    assert line == f"drafts are looked up alone: the draft model {words}"
    assert drafts.name == ""
    for options in ({"draft": "model"}, {"draft_model": "qwen2.5-coder-0.5b"}):
        with pytest.raises(UsageError, match=words.partition(":")[0]):
            judged(monkeypatch, own, **options)
    assert judged(monkeypatch, own, draft="lookup")[1] == ""


@pytest.mark.parametrize(
    "frames",
    [
        ["nonsense"],
        ['{"prompt": [1], "seed": 1, "sampling": {}, "pass_s": [0.0]}', '{"at": 1, "tokens": [1]}'],
        ['{"prompt": [1], "seed": 1, "sampling": {}, "pass_s": [-1]}', '{"at": 1, "tokens": [1]}'],
        [
            '{"prompt": [-5], "seed": 1, "sampling": {}, "pass_s": [1, 1]}',
            '{"at": 1, "tokens": [7]}',
        ],
        [
            '{"prompt": [1], "seed": 1, "sampling": {}, "pass_s": [1, 1]}',
            *('{"at": 1, "tokens": [7]}', '{"at": 2, "tokens": [-7]}'),
        ],
        [
            '{"prompt": [1], "seed": 1, "sampling": {}, "pass_s": [1, 1]}',
            *('{"at": 1, "tokens": [7]}', '{"at": 9, "tokens": [7]}'),
        ],
    ],
)
def test_a_server_that_says_nonsense_gets_no_drafts(frames: list[str]) -> None:
    """Nor is anything of it given to the draft model that it could not take."""

    def tell(link: ServerConnection) -> None:
        for each in frames:
            link.send(each)
        link.close()

    small = runtime(WRONG)
    with serve(tell, "127.0.0.1", 0) as fake:
        threading.Thread(target=fake.serve_forever, daemon=True).start()
        port = fake.socket.getsockname()[1]
        drafts = LocalDrafts(f"http://127.0.0.1:{port}/v1", {}, small, N_VOCAB, ahead=True)
        drafts.begin("x")
        assert until(lambda: not drafts._free.locked())
    assert small.assistant.models.targets.views[0].n_cached == 0
