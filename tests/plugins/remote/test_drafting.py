"""This machine drafts for a server: the text is the server's, passes are saved, and what cannot draft says why before it is loaded."""

import secrets
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from websockets.sync.server import ServerConnection, serve

from localspec.decoding.costs import PairCosts, PassCosts
from localspec.decoding.drafters.model import _CHANCES
from localspec.engine.drafts import Confirmed, DraftOpening, encoded
from localspec.engine.protocol import Loading, Measuring
from localspec.errors import UsageError
from localspec.options import LaunchOptions, SamplingParams
from localspec.plugins.remote import drafting, vocabulary
from localspec.plugins.remote.drafting import LocalDrafts, local_drafts
from localspec.plugins.remote.vocabulary import ServerVocabulary
from tests.engine.scripted import END, N_VOCAB, NEVER, TOKENIZER, ScriptedModel, script_of
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


def answered(server: Served, drafts: LocalDrafts, question: str = "count") -> dict[str, Any]:
    assert until(lambda: not drafts._free.locked())  # the answer before has ended
    name = secrets.token_hex(16)
    drafts.begin(name)
    reply: dict[str, Any] = server.chat(question, localspec={"drafts": name}).json()
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


@pytest.mark.parametrize(("ahead", "least", "most"), [(True, 1500, 2000), (False, 100, 700)])
def test_a_long_prompt_is_read_while_the_server_reads_it(
    server: Served, *, ahead: bool, least: int, most: int
) -> None:
    """To catch up with it later would take more than drafts gain; of a server that shares these cores, its end is."""
    knows = runtime(SCRIPT)
    drafts = LocalDrafts(f"{server.url}/v1", {}, knows, N_VOCAB, ahead=ahead)
    assert text_of(answered(server, drafts, f"{'word ' * 300}count")) == ANSWER
    assert least < knows.assistant.models.targets.views[0].n_cached < most


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


def test_a_prediction_is_looked_up_here_and_not_sent(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    drafts = LocalDrafts(f"{server.url}/v1", {}, None, 0, ahead=True, vocabulary=TOKENS)
    ids = drafts.ids(ANSWER)
    begin = drafts.begin
    monkeypatch.setattr(drafts, "begin", lambda name: begin(name, ids))
    # It says the same three times, so that it could copy two thirds from itself.
    assert accepted(server, drafts, 0.8 * len(ids))
    assert ANSWER not in str(server.request)
    nobody = LocalDrafts(f"{server.url}/v1", {}, None, 0, ahead=True, vocabulary=NOBODY)
    with pytest.raises(UsageError, match="no model here has the server's vocabulary"):
        nobody.ids(ANSWER)


def test_a_right_token_of_a_round_of_one_counts_as_right() -> None:
    """A server that did not wait for it confirms it alone."""
    prompt = [2, *TOKENIZER.tokenize("user\ncount", add_special=False, parse_special=False)]
    prompt += [3, 110, 2, 13, 110]
    answer = TOKENIZER.tokenize(ANSWER, add_special=False, parse_special=False)[:60]

    def tell(link: ServerConnection) -> None:
        opening = DraftOpening(tuple(prompt), 1, SamplingParams(temperature=0), (0.01, 0.011))
        link.send(encoded(opening))
        for at, token in enumerate(answer):
            link.send(encoded(Confirmed(len(prompt) + at, (token,), width=1)))
            time.sleep(0.01)
        link.close()

    with serve(tell, "127.0.0.1", 0) as fake:
        threading.Thread(target=fake.serve_forever, daemon=True).start()
        port = fake.socket.getsockname()[1]
        url = f"http://127.0.0.1:{port}/v1"
        drafts = LocalDrafts(url, {}, runtime(SCRIPT), N_VOCAB, ahead=False)
        drafts.begin("x")
        assert until(lambda: not drafts._free.locked())
    assert drafts._kept is not None
    assert drafts._kept.model is not None
    assert drafts._kept.model._by_gap.chance(4) > _CHANCES[4]


def test_an_answer_right_behind_another_is_drafted_for(server: Served) -> None:
    drafts = LocalDrafts(f"{server.url}/v1", {}, runtime(SCRIPT), N_VOCAB, ahead=True)
    count = 0
    for _ in range(3):
        assert until(lambda: not drafts._free.locked())
        drafts._free.acquire()
        threading.Timer(0.05, drafts._free.release).start()
        name = secrets.token_hex(16)
        drafts.begin(name)
        reply = server.chat("count", localspec={"drafts": name}).json()
        assert text_of(reply) == ANSWER
        count += reply["speculation"]["by_drafter"].get("client", {}).get("accepted", 0)
    assert count


def test_a_server_that_takes_no_drafts_costs_nothing(server: Served) -> None:
    drafts = LocalDrafts("http://127.0.0.1:9/v1", {}, None, 0, ahead=True)
    drafts.begin("nobody")
    assert until(lambda: not drafts._free.locked())


class Tokens(ServerVocabulary):
    """The script's own; `here` is whether a file has it."""

    here = True

    def ids(self, text: str) -> tuple[int, ...] | None:
        ids = TOKENIZER.tokenize(text, add_special=False, parse_special=False)
        return tuple(ids) if self.here else None


TOKENS, NOBODY = Tokens("toy"), Tokens("toy")
NOBODY.here = False


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
def test_what_cannot_draft_says_why_before_it_is_loaded_where_it_was_wanted(
    monkeypatch: pytest.MonkeyPatch, own: str | None, words: str
) -> None:
    drafts, line = judged(monkeypatch, own)
    assert (drafts.name, line) == ("", ""), "the line under an answer has what was drafted"
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
    """Nor is anything of it given to the draft model, but for a prompt that it can take."""

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
    assert small.assistant.models.targets.views[0].cells in ([], [1])


@pytest.mark.parametrize(
    ("mark", "percent", "end"),
    [
        ("other-9", 0, ", and no model that is here has that"),
        ("abc-100", 12.34, ", and 12.3 % of its tokens are the same"),
    ],
)
def test_across_vocabularies_a_named_model_says_why_not(
    monkeypatch: pytest.MonkeyPatch, mark: str, percent: float, end: str
) -> None:
    """The server's own is read from a file that has it."""
    marks = {"x.gguf": "def-100", "y.gguf": mark}
    monkeypatch.setattr(vocabulary, "inventory", lambda *_: [SimpleNamespace(path=Path("y.gguf"))])
    for module in (drafting, vocabulary):
        monkeypatch.setattr(
            module, "read_model", lambda path: SimpleNamespace(tokenizer=marks[path.name])
        )
        monkeypatch.setattr(module, "vocabulary_of", lambda tokenizer: tokenizer)
    monkeypatch.setattr(vocabulary, "percent_across", lambda *_: percent)
    monkeypatch.setattr(drafting, "_file", lambda _name: Path("x.gguf"))
    launch = LaunchOptions(server="http://big:8080", draft_model="other")
    address = "http://big:8080/v1", dict[str, str]()
    with pytest.raises(UsageError) as caught:
        local_drafts(launch, "big", "abc-100", address, lambda _notice: None, ahead=True)
    assert str(caught.value).endswith(f"another vocabulary than big there{end}")
