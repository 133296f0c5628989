"""`run`, `chat` and `batch` with a server as their engine."""

import json
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from localspec.chat.request import Request
from localspec.engine import sync
from localspec.engine.protocol import Load
from localspec.engine.sync import ParallelRequests, entered, run_sync
from localspec.launch.engine import open_engine
from localspec.messages import Message
from localspec.options import LaunchOptions
from localspec.plugins.remote.client import KEY
from localspec.session.conversation import History
from tests.cli.command import Done, assert_one_complaint, localspec, started, succeed
from tests.plugins.remote.double import (
    STOP,
    Asked,
    Double,
    delta,
    double,
    event,
    hang,
    said,
    streamed,
    words,
)
from tests.test_media import png, url
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow

SECRET = "sk-" + "5ecret" * 5
FINE = streamed(words("Hi", " you"), STOP)


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A data directory of its own, and no model in it."""
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))


@pytest.fixture
def server() -> Iterator[Double]:
    with double(FINE) as made:
        yield made


def run(server: Double, *words_: str, **how: Any) -> Done:
    return localspec("run", "--server", server.url, *words_, **how)


def test_run_prints_the_answer_and_in_a_line_what_does_not_hold(server: Double) -> None:
    done = run(server, "Hello")
    assert (done.code, done.out) == (0, "Hi you\n")
    note, figures = done.err.splitlines()
    assert f"answered by llama-server at {server.url}: without exactness" in note
    assert "m · 3 tokens" in figures
    document = json.loads(run(server, "--json", "m", "Hello").out)
    assert (document["text"], document["model"]["target"]) == ("Hi you", "m")
    assert document["usage"] == {"prompt_tokens": 7, "completion_tokens": 3}
    assert server.chats()[1]["messages"] == [{"role": "user", "content": "Hello"}]
    env = {"LOCALSPEC_SERVER": server.url, "LOCALSPEC_OWN": "off"}
    assert localspec("run", "-q", "Hello", env=env) == Done(0, "Hi you\n", "")


def test_sampling_is_the_server_s_unless_the_user_says_something(server: Double) -> None:
    run(server, "--temperature", "0.8", "Hello")
    run(server, "Hello", env={"LOCALSPEC_TOP_K": "40", "LOCALSPEC_THREADS": "2"})
    first, second = server.chats()
    assert (first["temperature"], second["top_k"]) == (0.8, 40)
    assert "top_k" not in first


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (("--draft", "lookup"), "--draft"),
        (("--exact",), "--exact"),
        (("--gpu-layers", "3"), "--gpu-layers"),
        (("--stop-loops",), "--stop-loops"),
        (("--own",), "--own and --server"),
        (("--regex", "a"), "regex cannot be had from llama-server"),
        (("-m", "other"), "has no other: it has m"),
    ],
)
def test_what_is_for_models_of_this_machine_is_refused(
    server: Double, flags: tuple[str, ...], word: str
) -> None:
    done = run(server, "-q", *flags, "Hello")
    assert done.code in {2, 3}
    assert_one_complaint(done, done.code, word)
    assert server.chats() == []


@pytest.mark.parametrize("verb", [("bench",), ("serve", "--port", "0")])
def test_verbs_that_need_a_model_of_this_machine_say_so(verb: tuple[str, ...]) -> None:
    env = {"LOCALSPEC_SERVER": "http://127.0.0.1:9", "LOCALSPEC_OWN": "off"}
    done = localspec(*verb, env=env)
    assert done.code == 2
    assert "LOCALSPEC_SERVER=off" in done.err
    done = localspec("run", "--own", "--offline", "-m", "none.gguf", "Hello", env=env)
    assert "none.gguf" in done.err, "--own puts it aside"


@pytest.mark.parametrize(
    ("script", "code", "out", "word"),
    [
        (streamed(words("So"), then=lambda handler: handler.cut()), 1, "So\n", "run this again"),
        (streamed(words("So"), b"data: {\n\n"), 1, "So", "no part of an answer"),
        (said({"error": "x"}, 401), 2, "", "--server-key-file"),
        (said(b"<html>", 200, "text/html"), 2, "", "OpenAI-compatible"),
    ],
)
def test_a_server_that_fails_is_a_line(script: Any, code: int, out: str, word: str) -> None:
    with double(script) as server:
        done = run(server, "Hello")
    assert (done.code, done.out) == (code, out)
    assert word in done.err.splitlines()[-1]
    assert "Traceback" not in done.err


def test_ctrl_c_and_a_kill_end_a_wait_for_a_server_that_hangs(server: Double) -> None:
    def hanging(path: str) -> list[Asked]:
        return [each for each in server.asked if each.path == path]

    for route in ("/v1/chat/completions", "/v1/models"):
        server.scripts[route] = hang
        asked = len(hanging(route))
        with started("run", "--server", server.url, "-q", "Hello") as process:
            assert until(lambda: len(hanging(route)) > asked)  # noqa: B023 - called at once
            process.send_signal(signal.SIGINT)
            assert process.wait(PATIENCE_S) == 130
        assert server.vanished.wait(PATIENCE_S)
        server.vanished.clear()
    with started("run", "--server", server.url, "-q", "Hello") as process:
        assert until(lambda: len(hanging("/v1/models")) > asked + 1)
        process.kill()
        assert server.vanished.wait(PATIENCE_S)


def test_the_key_is_in_no_output_and_no_history(server: Double, tmp_path: Path) -> None:
    env = {KEY: SECRET}
    done = succeed("run", "--server", server.url, "--keep", "Hello", env=env)
    more = run(server, "--draft", "off", "Hello", env=env)
    shown = localspec("config", "show", env={**env, "LOCALSPEC_SERVER": server.url})
    assert server.asked[-1].headers["authorization"] == f"Bearer {SECRET}"
    for each in (done, more, shown):
        assert SECRET not in each.out + each.err
    files = [each for each in (tmp_path / "data").rglob("*") if each.is_file()]
    assert any(each.name == "history.db" for each in files)
    assert not any(SECRET.encode() in each.read_bytes() for each in files)


def test_a_conversation_goes_on_at_a_server_and_keeps_its_own_model(
    server: Double, tmp_path: Path
) -> None:
    succeed("run", "--server", server.url, "--keep", "Hello")
    path = tmp_path / "data/history"
    with closing(History(path)) as history:
        history.update(1, pair="smollm2-135m")
    succeed("run", "--server", server.url, "-c", "1", "And now?")
    lines = b"And then?\n/history 1\nStill?\n"
    done = succeed("chat", "--plain", "--server", server.url, "-c", "1", stdin=lines)
    assert done.out.count("Hi you") >= 2
    said_ = [each["content"] for each in server.chats()[-1]["messages"]][::2]
    assert said_ == ["Hello", "And now?", "And then?", "Still?"]
    with closing(History(path)) as history:
        assert history.conversation(1).pair == "smollm2-135m"


def test_a_picture_goes_on_in_run_chat_and_batch_also_after_a_kill(
    server: Double, tmp_path: Path
) -> None:
    (tmp_path / "my photo.png").write_bytes(png())
    (tmp_path / "talk.wav").write_bytes(b"RIFF\x24\0\0\0WAVEfmt ")
    picture = {"type": "image_url", "image_url": {"url": url(png())}}
    to_server = ("--server", server.url)

    def question(number: int, at: int = 0) -> list[dict[str, Any]]:
        content = server.chats()[number]["messages"][at]["content"]
        return [{"type": "text", "text": content}] if isinstance(content, str) else content

    fine, server.scripts["/v1/chat/completions"] = server.scripts["/v1/chat/completions"], hang
    files = (f"-f{tmp_path / 'my photo.png'}", f"-f{tmp_path / 'talk.wav'}")
    with started("run", *to_server, "--keep", *files, "What is it?") as process:
        assert until(server.chats)
        process.kill()
    server.scripts["/v1/chat/completions"] = fine
    chat = b'Compare @"my photo.png"\n'
    for stdin, (verb, *words_) in (
        (png(), ["run", "-f", "-", "-c", "1", "Another."]),
        (b"", ["run", "-c", "1", "And now?"]),
        (chat, ["chat", "--plain", "-c", "1"]),
    ):
        succeed(verb, *to_server, *words_, stdin=stdin, cwd=tmp_path)
    assert [each["type"] for each in question(0)] == ["image_url", "input_audio", "text"]
    assert question(1) == [picture, {"type": "text", "text": "Another."}], "in its place"
    assert question(2) == question(1)
    assert question(2, 2) == [{"type": "text", "text": "And now?"}]
    assert question(3, 4) == [picture, {"type": "text", "text": 'Compare @"my photo.png"'}]
    by_name = {**picture, "image_url": {"url": "my photo.png"}}
    lines = [{"messages": [{"role": "user", "content": [each]}]} for each in (picture, by_name)]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, lines)))
    succeed("batch", *to_server, "in.jsonl", cwd=tmp_path)
    assert question(4) == question(5) == [picture]
    forms = (png()[20:60], png().hex().encode()[40:120], url(png()).encode()[60:120])
    kept = [each for each in (tmp_path / "data").rglob("*") if each.is_file()]
    held = {each.parent.name for each in kept if any(form in each.read_bytes() for form in forms)}
    assert held == {"media"}, "and neither records nor index nor rows"
    with closing(History(tmp_path / "data/history")) as history:
        (first, second), *_ = [[each for each in history.messages(1) if not each.parent]]
        assert [each.kind for each in first.message.media] == ["image", "audio"]
        assert second.message.media[0].data == png()
        history.delete(1)
    assert not [*(tmp_path / "data/history/media").iterdir()]


def test_a_chat_in_lines_goes_on_after_a_server_that_fails() -> None:
    dies = streamed(words("So"), then=lambda handler: handler.cut())
    lines = b"One\nTwo\n/lens\n/stats\n/set draft off\n/model\n/model other\nThree\n"
    with double([dies, FINE]) as server:
        done = localspec("chat", "--plain", "--server", server.url, stdin=lines)
    assert done.out == "SoHi you\nHi you\n"
    news = [each for each in done.err.splitlines() if not each.startswith("localspec: 3 tokens")]
    told = "answered by, broke off, , lens, sends no rounds, draft, m of, has no other"
    for word, line in zip(told.split(", "), news[:8], strict=True):
        assert word in line, news


def test_a_conversation_that_drafted_is_summarised_and_goes_on_at_a_server(tmp_path: Path) -> None:
    models = {"data": [{"id": "m"}]}
    with double(FINE, v1_models=said(models)) as server:
        succeed("run", "--server", server.url, "--keep", "Hello")
        with closing(History(tmp_path / "data/history")) as history:
            history.update(1, settings='{"draft": "off"}')
        lines = b"Two\n/compact\n/set draft auto\n/set temperature 0\n/set temperature 0.8\nThree\n"
        done = localspec("chat", "--plain", "--server", server.url, "-c", "1", stdin=lines)
        assert "cannot be had" not in done.err, done.err
        assert done.out.count("Hi you") >= 3, done.err
        localspec("chat", "--plain", "--server", server.url, "-c", "1", stdin=b"Four\n")
    _, two, summary, three, four = server.chats()
    assert summary["max_tokens"] == 1024
    assert "temperature" not in two
    assert three["temperature"] == four["temperature"] == 0.8


def test_tools_are_called_and_their_results_answered(tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "note.txt").write_text("the river is blue")
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings/tools.toml").write_text('allow = ["read_file"]\n')
    function = {"name": "read_file", "arguments": '{"path": "note.txt"}'}
    call = event(delta(tool_calls=[{"index": 0, "id": "c1", "function": function}]))
    calls = streamed(call, event(delta("tool_calls")), STOP)
    with double([calls, streamed(words("Blue."), STOP)]) as server:
        env = {"LOCALSPEC_CONFIG_DIR": str(tmp_path / "settings")}
        done = run(server, "--tools", "-f", "note.txt", "What colour?", cwd=folder, env=env)
    assert done.out == "Blue.\n", done.err
    result = server.chats()[1]["messages"][-1]
    assert (result["role"], result["tool_call_id"]) == ("tool", "c1")
    assert "the river is blue" in result["content"]
    assert '<file name="note.txt">' in server.chats()[0]["messages"][0]["content"]


def batch(server: Double, folder: Path, *words_: str) -> tuple[str, ...]:
    files = (str(folder / "in.jsonl"), "-o", str(folder / "out.jsonl"))
    return ("batch", *files, "--server", server.url, *words_)


def has_lines(path: Path, least: int) -> bool:
    return path.exists() and path.read_bytes().count(b"\n") >= least


def test_a_batch_survives_kills_and_a_server_that_fails_some_lines(tmp_path: Path) -> None:
    count = 100
    lines = [{"id": f"n{each}", "prompt": f"Say {each}."} for each in range(count)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))

    def echo(handler: Any) -> None:
        text = handler.double.asked[-1].body["messages"][0]["content"]
        asked = [each["messages"][0]["content"] for each in handler.double.chats()]
        if text == "Say 7.":
            said({"error": {"message": "bad line"}}, 400)(handler)
        elif text == "Say 11." and asked.count(text) < 3:
            said({"error": "busy"}, 429)(handler)
        else:
            time.sleep(0.005)
            streamed(words("you: ", text), STOP)(handler)

    with double(echo) as server:
        flags = batch(server, tmp_path, "--resume", "-q")
        for least in (20, 40, 41, 70):
            with started(*flags) as process:
                assert until(partial(has_lines, tmp_path / "out.jsonl", least))
                process.kill()
        done = localspec(*flags, "--parallel", "3")
    assert done.code == 5, done.err
    records = [json.loads(each) for each in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [each["id"] for each in records] == [each["id"] for each in lines]
    wrong = {each["id"]: each["error"]["message"] for each in records if "error" in each}
    assert list(wrong) == ["n7"]
    assert "bad line" in wrong["n7"]
    assert records[11]["text"] == "you: Say 11."
    assert len({each["seed"] for each in records if "seed" in each}) == count - 1
    receipt = records[0]["receipt"]
    assert receipt["target"] == "m"
    assert server.url in receipt["build"]


def test_a_batch_whose_server_dies_says_how_to_go_on(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"prompt": "a"}\n{"prompt": "b"}\n')
    with double([FINE, lambda handler: handler.cut()]) as server:
        done = localspec(*batch(server, tmp_path, "-q"))
    assert_one_complaint(done, 1, "broke off", "use --resume")
    assert (tmp_path / "out.jsonl").read_text().count("\n") == 1


def test_what_lines_and_flags_set_is_sent_and_a_receipt_knows_the_flags(tmp_path: Path) -> None:
    lines = [
        {"prompt": "a", "temperature": 0.8},
        {"prompt": "b"},
        {"prompt": "c", "reply_options": {"top_k": 40}},
    ]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(each) + "\n" for each in lines))
    with double(FINE) as server:
        succeed(*batch(server, tmp_path, "-q"))
        fields = [{*each} & {"temperature", "top_k"} for each in server.chats()]
        assert fields == [{"temperature"}, set(), {"top_k"}]
        done = localspec(*batch(server, tmp_path, "-q", "--resume", "--temperature", "0.8"))
    assert_one_complaint(done, done.code, "other options")


def test_a_batch_asks_a_busy_server_again_when_it_says_so(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text('{"prompt": "a"}\n')
    busy = said({"error": "many"}, 429, **{"retry-after": "1"})
    with double([busy, busy, FINE]) as server:
        begun_s = time.monotonic()
        done = succeed(*batch(server, tmp_path))
        took_s = time.monotonic() - begun_s
    assert len(server.chats()) == 3
    assert took_s > 2
    assert done.err.count("is busy") == 1, done.err


def test_a_line_fails_and_the_next_is_asked_where_a_server_stays_busy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(sync, "_MOST_BUSY_S", 1.0)
    busy = said({"error": "many"}, 429, **{"retry-after": "900"})
    with double([busy, busy, FINE]) as server:
        requests = (Request(at, (Message.user("a"),)) for at in (1, 2))
        with entered(open_engine(Load(LaunchOptions(server=server.url)))) as engine:
            run_sync(engine.loaded())
            first, second = ParallelRequests(engine).outcomes(requests, lambda: False)
    assert "many" in str(first.error)
    assert second.reply is not None


def test_a_prediction_is_for_a_server_that_drafts_and_does_not_go_there(tmp_path: Path) -> None:
    file = tmp_path / "module.py"
    file.write_text("NEVER_SENT = 1\n")
    with double(FINE) as server:
        done = run(server, "-q", "--prediction", str(file), "Hello")
        assert_one_complaint(done, 2, "a prediction cannot be had from a server")
        done = run(server, "-q", "--prediction", str(tmp_path / "none.py"), "Hello")
        assert_one_complaint(done, 2, "there is no file")
    own = {"data": [{"id": "m", "owned_by": "localspec", "meta": {"vocabulary": "ab-9"}}]}
    with double(FINE, v1_models=said(own)) as server:
        done = run(server, "-q", "--prediction", str(file), "Hello")
        assert_one_complaint(done, 2, "no model here has the server's vocabulary")
        assert run(server, "--draft", "off", "--prediction", str(file), "Hello").code == 0
        body = {"messages": [{"role": "user", "content": "Hello"}]}
        predicted = {"prediction": {"type": "content", "content": "NEVER_SENT"}}
        line = {"custom_id": "a", "body": {**body, **predicted}}
        (tmp_path / "in.jsonl").write_text(json.dumps(line))
        words_ = "batch", "in.jsonl", "-o", "out.jsonl", "--server", server.url, "--draft", "off"
        succeed(*words_, cwd=tmp_path)
        assert "NEVER_SENT" not in str(server.asked)
