"""Planted secrets on every way out, alone and in rounds as drafting confirms them; five times as many where LOCALSPEC_LONG_TESTS is set."""

import io
import json
import re
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from localspec.batch.request import Form
from localspec.chat.events import Finished, RoundDone, Text
from localspec.chat.request import Request
from localspec.engine.remote_engine import RemoteEngine
from localspec.engine.sync import ParallelRequests, iterate
from localspec.gates.gate import usual_gate
from localspec.history.archive import History
from localspec.launch.observe import _is_secret
from localspec.messages import Message
from localspec.options import LaunchOptions, ReplyOptions
from localspec.options.recording import Switch
from localspec.plugins.serve.http import Guard
from localspec.session.conversation import SavedConversation
from localspec.session.export import exported
from localspec.session.preferences import Preferences
from localspec.telemetry.recorder import Recorder
from localspec.tui import plain
from localspec.tui.plain import Lines
from localspec.tui.session import Session
from tests.batch.toy import run as run_batch
from tests.examples import LONG
from tests.gates.spelling import Spelling, json_of, leaked, secrets_of, texts_of
from tests.plugins.serve.serving import served
from tests.support.checks import on_disk
from tests.support.secrets import FORMATS
from tests.telemetry.talking import PAIR, drafted, first

pytestmark = [pytest.mark.long, pytest.mark.slow]

COUNT = (10 if LONG else 2) * len(FORMATS)
EACH, TURNS = 10, 20
SECRETS = secrets_of(COUNT, seed=21)
TEXTS = texts_of(SECRETS, EACH)
ROUNDS = pytest.mark.parametrize("most", [1, 8], ids=["alone", "drafted"])


def assert_nothing_leaks(seen: str, times: int = 1) -> None:
    assert seen.count("[masked: ") >= times * COUNT
    assert leaked(SECRETS, seen) == []


def test_leak_is_found_whole_and_in_part() -> None:
    for secret in SECRETS:
        assert leaked([secret], f"so {secret.text} it is") == [secret]
        part = secret.body[-9:]
        if secret.rule != "e-mail address" and re.search("[A-Za-z]", part[1:]):
            assert leaked([secret], f"so {part} it is") == [secret]


@ROUNDS
def test_chat_its_history_and_its_exports(tmp_path: Path, most: int) -> None:
    engine = RemoteEngine(find=lambda _: Spelling(TEXTS, most))
    talk = SavedConversation(History(tmp_path / "history"))
    session = Session(
        engine, talk, LaunchOptions(pair="toy"), ReplyOptions(), tmp_path, gate="usual"
    )
    out, err = io.StringIO(), io.StringIO()
    front = Lines(session, Preferences(), out, err, terminal=False)
    lines = list[str]()
    for number in range(len(TEXTS)):
        lines.append(f"text {number}?")
        if (number + 1) % TURNS == 0 or number + 1 == len(TEXTS):
            lines += [f"/export json all-{number}.json", f"/export md all-{number}.md", "/new"]
    try:
        assert plain.run(front, lines) == 0, err.getvalue()
    finally:
        session.close()
    assert_nothing_leaks(out.getvalue())
    assert_nothing_leaks(on_disk(tmp_path).decode(errors="replace"), times=3)
    assert leaked(SECRETS, err.getvalue()) == []


@ROUNDS
def test_run_and_what_it_tells_of_rounds(most: int) -> None:
    seen = list[str]()
    with closing(RemoteEngine.of_server(Spelling(TEXTS, most))) as engine:
        for number in range(len(TEXTS)):
            request = Request(0, (Message.user(f"{number}"),), gate="usual")
            for event in iterate(engine.stream(request)):
                match event:
                    case Text(text=text) | Finished(reply=text):
                        seen.append(text if isinstance(text, str) else text.text)
                    case RoundDone(texts=texts):
                        seen += texts
    assert_nothing_leaks("".join(seen), times=3)


@ROUNDS
def test_batch(tmp_path: Path, most: int) -> None:
    lines = [json.dumps({"prompt": f"text {number}?"}) for number in range(len(TEXTS))]
    (tmp_path / "in.jsonl").write_text("\n".join(lines))
    form, out = Form(ReplyOptions(), gate="usual"), tmp_path / "out.jsonl"
    with closing(RemoteEngine.of_server(Spelling(TEXTS, most), 4)) as engine:
        tally, _ = run_batch(tmp_path / "in.jsonl", out, ParallelRequests(engine), form=form)
    assert tally.answered == len(TEXTS)
    assert_nothing_leaks(out.read_text())


@pytest.mark.parametrize(("stream", "most"), [(False, 8), (True, 1), (True, 8)])
def test_serve(stream: bool, most: int) -> None:
    engine = RemoteEngine(find=lambda _: Spelling(TEXTS, most))
    guard, seen = Guard(hosts={"127.0.0.1", "localhost"}, gate="usual"), list[str]()
    with served({}, guard=guard, engine=engine) as server:
        for number in range(len(TEXTS)):
            done = server.chat(f"text {number}?", stream=stream)
            assert done.status_code == 200, done.text
            events = [each[6:] for each in done.text.split("\n\n") if stream and "{" in each]
            deltas = [json.loads(each)["choices"][0]["delta"] for each in events]
            # The reply's own number is hex by chance: of so many, eight digits in a row are a secret's once in some runs.
            whole = done.text if stream else done.text.replace(done.json()["id"], "")
            seen += [each.get("content") or "" for each in deltas] if stream else [whole]
    assert_nothing_leaks("".join(seen))


@pytest.mark.parametrize("style", ["md", "json"])
def test_exports_of_what_was_kept_ungated(tmp_path: Path, style: str) -> None:
    history = History(tmp_path / "history")
    conversation, last = history.create(system=TEXTS[0]), None
    for text in TEXTS:
        last = history.add_user(conversation, last, Message.user(text))
        reply = history.begin_reply(conversation, last, "toy")
        reply.finish(Message.assistant(text))
        last = reply.message
    told = exported(history, conversation, style, usual_gate().cleaned)
    history.close()
    assert_nothing_leaks(told, times=2)


def test_text_that_telemetry_was_told_to_record(tmp_path: Path) -> None:
    """A reply with a secret in it is recorded without text; the only text is that of the reply without one."""
    random, pieces = Random(3), {0: b"?", 1: b"", 7: b" "}
    recorder = Recorder(
        tmp_path, PAIR, Switch(text=True), lambda token: pieces[token], is_secret=_is_secret
    )
    secrets = [each.text if at % 3 else json_of(each) for at, each in enumerate(SECRETS)]
    for text in [*secrets, "It is 1 + 1."]:
        trace, at, most = recorder.begin("?", [0], greedy=True), 0, random.choice([1, 8])
        trace.note(first())
        while at < len(text):
            start = 100 + at
            for token in range(start, start + random.randint(1, most)):
                size = random.randint(1, 4)
                pieces[token] = text[at : at + size].encode()
                at, last = at + size, token
            count = last + 1 - start
            trace.note(drafted(count, count, token=start))
        trace.end("", 0.1, 0.2)
    recorder.close(600.0)
    told = on_disk(tmp_path)
    assert told.count(b'"pieces"') == 1
