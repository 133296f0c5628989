"""Pictures and sounds in every interface, by the makers' own clients, and what is refused of them."""

import gc
import io
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from localspec.messages import MediaPart, Message, TextPart, ToolResult
from localspec.plugins.serve import bodies as limits
from localspec.toolbox.folder import Folder
from tests.plugins.serve.clients import ollama
from tests.plugins.serve.media_files import encoded, png, url_of, wav
from tests.plugins.serve.serving import (
    CHAT,
    COUNT,
    GENERATE,
    MESSAGES,
    RESPONSES,
    TALK,
    TEXT,
    Served,
    error_in,
    served,
    user,
)
from tests.test_media import huge
from tests.waiting import until

CAT = "A cat."
SCRIPT = {
    "answers": {"~~~": CAT, "How many": "Two.", "1285216": "It is large."},
    "otherwise": ["Hello."],
    "sees": True,
    "hears": True,
    "n_ctx": 6000,
    "parallel": 2,
}
WORDS = "What is this?"


def image_url(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url, "detail": "low"}}


def input_image(url: str) -> dict[str, Any]:
    return {"type": "input_image", "image_url": url}


def input_audio(data: bytes) -> dict[str, Any]:
    return {"type": "input_audio", "input_audio": {"data": encoded(data), "format": "wav"}}


def block(url: str) -> dict[str, Any]:
    if not url.startswith("data:"):
        return {"type": "image", "source": {"type": "url", "url": url}}
    source = {"type": "base64", "media_type": "image/png", "data": url.partition(",")[2]}
    return {"type": "image", "source": source}


def asking(url: str, text: str = WORDS) -> dict[str, dict[str, Any]]:
    """Return a body for every interface that takes pictures: with one, and a question."""
    text_part = {"type": "text", "text": text}
    messages = [user([block(url), text_part])]
    image = url.partition(",")[2] or url
    return {
        CHAT: {"messages": [user([image_url(url), text_part])]},
        RESPONSES: {"input": [user([input_image(url), {"type": "input_text", "text": text}])]},
        MESSAGES: {"messages": messages, "max_tokens": 99},
        COUNT: {"messages": messages},
        TALK: {"messages": [{**user(text), "images": [image]}], "stream": False},
        GENERATE: {"prompt": text, "images": [image], "stream": False},
    }


def question(server: Served) -> tuple[Any, ...]:
    last: tuple[Any, ...] = server.asked[-1].messages[-1].parts  # type: ignore[union-attr]
    return last


@pytest.fixture(scope="module")
def llama(server: Served) -> Iterator[Any]:
    with ollama.Client(host=server.url) as client:
        yield client


def test_texts_and_pictures_stay_in_their_order(server: Served) -> None:
    texts = [{"type": "text", "text": text} for text in ("Before. ", "How many?")]
    first, second = url_of(png(1)), url_of(png(2))
    for path, part in ((CHAT, image_url), (MESSAGES, block)):
        content = [texts[0], part(first), texts[1], part(second)]
        answer = server.post(path, messages=[user(content)], max_tokens=99)
        assert "Two." in answer.text
        kinds = [
            each.text if isinstance(each, TextPart) else each.data for each in question(server)
        ]
        assert kinds == ["Before. ", png(1), "How many?", png(2)]
        names = [each.name for each in question(server) if isinstance(each, MediaPart)]
        assert names == ["picture 1 of message 1", "picture 2 of message 1"]


def test_openais_client_sends_pictures_and_streams(client: Any) -> None:
    said = asking(url_of(png(3)))[CHAT]["messages"]
    given = {"model": "a-pair", "messages": said}
    done = client.chat.completions.create(**given)
    assert done.choices[0].message.content == CAT
    plain = client.chat.completions.create(model="a-pair", messages=[user(WORDS)])
    assert done.usage.prompt_tokens == plain.usage.prompt_tokens + 5
    stream = client.chat.completions.create(**given, stream=True)
    assert "".join(each.choices[0].delta.content or "" for each in stream) == CAT
    # A second turn evaluates nothing of the picture again.
    said += [{"role": "assistant", "content": CAT}, user("Sure?")]
    again = client.chat.completions.create(**given)
    assert again.usage.prompt_tokens_details.cached_tokens >= done.usage.prompt_tokens
    given = {"model": "a-pair", "input": asking(url_of(png(3)))[RESPONSES]["input"]}
    assert client.responses.create(**given).output_text == CAT
    with client.responses.stream(**given) as events:
        kinds = [each.type for each in events]
        assert events.get_final_response().output_text == CAT
    assert kinds[-1] == "response.completed"


def test_anthropics_client_sends_pictures_streams_and_counts(claude: Any) -> None:
    given = {"model": "a-pair", "messages": asking(url_of(png(4)))[MESSAGES]["messages"]}
    done = claude.messages.create(**given, max_tokens=99)
    assert done.content[0].text == CAT
    with claude.messages.stream(**given, max_tokens=99) as stream:
        assert "".join(stream.text_stream) == CAT
    counted = claude.messages.count_tokens(**given).input_tokens
    assert counted == done.usage.input_tokens + done.usage.cache_read_input_tokens
    plain = claude.messages.count_tokens(model="a-pair", messages=[user(WORDS)])
    assert counted == plain.input_tokens + 5


def test_ollamas_client_sends_pictures_and_streams(llama: Any, tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(png(5))
    for image in (file, str(file), png(5), encoded(png(5))):
        done = llama.chat("a-pair", [{**user(WORDS), "images": [image]}])
        assert done.message.content == CAT
        assert llama.generate("a-pair", WORDS, images=[image]).response == CAT
    stream = llama.chat("a-pair", [{**user(WORDS), "images": [png(5)]}], stream=True)
    assert "".join(each.message.content for each in stream) == CAT
    assert llama.generate("a-pair", "How many?", images=[png(5), png(6)]).response == "Two."


RESULT = [{"type": "text", "text": "Done."}, block(url_of(png(7)))]
USE = {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "f", "input": {}}]}
OUTPUT = [{"type": "input_text", "text": "Done."}, input_image(url_of(png(7)))]
RESPONSES_RESULTS = [
    user("Look."),
    *({"type": "function_call", "call_id": each, "name": "f", "arguments": "{}"} for each in "12"),
    {"type": "function_call_output", "call_id": "1", "output": OUTPUT},
    {"type": "function_call_output", "call_id": "2", "output": "Done, too."},
]


@pytest.mark.parametrize("sees", [True, False])
def test_pictures_of_results_follow_them_where_the_model_sees(sees: bool) -> None:
    results = {"type": "tool_result", "tool_use_id": "1", "content": RESULT}
    rows: list[tuple[str, dict[str, Any]]] = [
        (MESSAGES, {"messages": [user("Look."), USE, user([results])], "max_tokens": 99}),
        (RESPONSES, {"input": RESPONSES_RESULTS}),
    ]
    with served({"otherwise": ["Hello."], "calls": True, "sees": sees, "n_ctx": 6000}) as server:
        for path, body in rows:
            answer = server.post(path, **body)
            assert answer.status_code == 200, answer.text
            *_, last = messages = server.request.messages
            results_ = [p.text for m in messages for p in m.parts if isinstance(p, ToolResult)]
            note = "[a picture: it follows]" if sees else "[not text: left out]"
            assert results_ == [f"Done.\n{note}", "Done, too."][: len(results_)]
            assert [each.data for each in last.media] == ([png(7)] if sees else [])
            assert last.role == ("user" if sees else "tool")


def test_a_model_that_reads_text_alone_says_what_to_do() -> None:
    with served({"otherwise": ["Hello."]}) as server:
        for path, body in asking(url_of(png())).items():
            for stream in {False, path == CHAT}:
                word = "a-pair reads text only: attach pictures with one that sees, such as seer"
                server.refuse(path, word, **{**body, **({"stream": True} if stream else {})})
        assert server.chat("hello").status_code == 200
    with served({"sees": True}) as server:
        server.refuse(CHAT, "takes no sounds", messages=[user([input_audio(wav())])])


def test_what_a_model_takes_is_listed(server: Served, client: Any, llama: Any) -> None:
    able = ["completion", "vision", "audio"]
    for model in (client.models.retrieve("a-pair"), client.models.list().data[0]):
        assert model.capabilities == able
        assert model.architecture["input_modalities"] == ["text", "image", "audio"]
    assert set(able) <= set(llama.show("a-pair").capabilities)
    assert set(able) <= set(server.client.get("/api/tags").json()["models"][0]["capabilities"])
    with served({}) as blind:
        assert blind.client.get("/v1/models").json()["data"][0]["capabilities"] == ["completion"]


def test_nothing_is_fetched(server: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    resolved: list[Any] = []
    resolve = socket.getaddrinfo

    def note(host: Any, *rest: Any, **more: Any) -> Any:
        resolved.append(host)
        return resolve(host, *rest, **more)

    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        monkeypatch.setattr(socket, "getaddrinfo", note)
        here = f"127.0.0.1:{port}/a.png"
        fetched = (f"http://{here}", "https://upload.example.org/a.png")
        odd = (f"http://localhost:{port}/a.png", f"HTTPS://{here}", f"ftp://{here}", f"//{here}")
        for url in (*fetched, *odd, f"file://{here}", f"data:http://{here}"):
            for path in (CHAT, RESPONSES, MESSAGES, COUNT):
                server.refuse(path, "is not fetched" if url in fetched else "", **asking(url)[path])
        for path in (TALK, GENERATE):
            server.refuse(path, "is not fetched", **asking(fetched[0])[path])
        monkeypatch.undo()
        other.settimeout(0.3)
        with pytest.raises(TimeoutError):
            other.accept()
    assert {*resolved} <= {"127.0.0.1"}, "that of the server, which the test's own client asks"


def test_only_files_below_the_folder_are_opened(tmp_path: Path) -> None:
    folder, outside = tmp_path / "given", tmp_path / "secret.png"
    (folder / "deep down").mkdir(parents=True)
    outside.write_bytes(png(9))
    for name in ("a.png", "deep down/b.png"):
        (folder / name).write_bytes(png(8))
    (folder / "inside.png").symlink_to("a.png")
    (folder / "out.png").symlink_to(outside)
    (folder / "up").symlink_to(tmp_path)
    os.mkfifo(folder / "pipe.png")
    (folder / "text.png").write_text("hello")
    with served(SCRIPT, folder=Folder(folder)) as server:
        inside = ("a.png", "a.png?", "inside.png", "deep%20down/b.png", "./deep down/../a.png")
        whole = (
            str(folder / "a.png"),
            f"localhost{folder}/a.png",
            f"LocalHost{folder}/a.png?size=2",
        )
        for name in (*inside, *whole):
            for path in (CHAT, RESPONSES, MESSAGES, COUNT):
                answer = server.post(path, **asking(f"file://{name}")[path])
                assert answer.status_code == 200, (name, answer.text)
                assert question(server)[0].data == png(8)
        up = ("../secret.png", "%2e%2e/secret.png", "up/secret.png", "deep%20down/../../secret.png")
        for name, word in [
            *(
                (each, "outside the folder")
                for each in (*up, "out.png", str(outside), "/etc/passwd")
            ),
            ("pipe.png", "not a regular file"),
            ("deep%20down", "not a regular file"),
            ("none.png", "check its name"),
            ("", "is not a file name"),
            ("a%00.png", "is not a file name"),
            ("text.png", "neither a picture"),
        ]:
            error = server.refuse(CHAT, word, **asking(f"file://{name}")[CHAT])
            assert str(folder) not in error["message"], "where the folder is, is not told"
        monkey = [image_url("file://a.png")] * 3
        assert server.post(CHAT, messages=[user(monkey)]).status_code == 200
    with served(SCRIPT) as server:
        server.refuse(CHAT, "--media-path", **asking(f"file://{folder}/a.png")[CHAT])


def test_files_and_pixels_are_limited_together(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a.png").write_bytes(png())
    width, height = Image.open(io.BytesIO(png())).size
    with served(SCRIPT) as server:
        server.refuse(CHAT, "8001 x 8001 pixels", **asking(url_of(huge()))[CHAT])
    limits_ = {"MOST_FILE_BYTES": 2 * len(png()), "MOST_PIXELS_TOGETHER": 2 * width * height}
    urls = ("file://a.png", url_of(png()))
    for (name, most), url in zip(limits_.items(), urls, strict=True):
        with monkeypatch.context() as patch, served(SCRIPT, folder=Folder(tmp_path)) as server:
            patch.setattr(f"localspec.plugins.serve.media_parts.{name}", most)
            for count, status in ((2, 200), (3, 413)):
                answer = server.post(CHAT, messages=[user([image_url(url)] * count)])
                assert answer.status_code == status, answer.text


@pytest.fixture
def small_bodies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MOST_BODY_BYTES", 1 << 16)
    monkeypatch.setattr(limits, "MOST_LARGE_BYTES", 1 << 20)


def noise(size: int) -> bytes:
    file = io.BytesIO()
    side = int((size / 3) ** 0.5)
    Image.frombytes("RGB", (side, side), os.urandom(3 * side * side)).save(file, "PNG")
    return file.getvalue()


@pytest.mark.usefixtures("small_bodies")
def test_only_pictures_make_a_body_larger() -> None:
    with served(SCRIPT) as server:
        for path, body in asking(url_of(noise(1 << 18))).items():
            assert server.post(path, **body).status_code == 200, path
        server.refuse(CHAT, "1 MB", 413, **asking(url_of(noise(1 << 20)))[CHAT])
        text = "x" * (1 << 17)
        hello = {"messages": [user("x")]}
        rows: list[tuple[str, dict[str, Any]]] = [
            *asking(url_of(png()), text).items(),
            (CHAT, {"messages": [[]] * (1 << 16)}),
            (CHAT, {**hello, "data": [""] * (1 << 16)}),
            (CHAT, {**hello, "images": [1.5] * (1 << 16)}),
            (TEXT, {"prompt": "x", "data": encoded(noise(1 << 17))}),
        ]
        for path, body in rows:
            server.refuse(path, "", 413, **body)
        assert server.chat("hello").status_code == 200


@pytest.mark.usefixtures("small_bodies")
def test_few_bodies_are_large_at_a_time() -> None:
    slow = {**SCRIPT, "answers": {"~~~": "x" * 200}, "pass_s": 0.02}
    body = {**asking(url_of(noise(1 << 17)))[CHAT], "max_tokens": 200}
    with served(slow, most=20) as server:
        with server.asking(*[{"text": body["messages"][0]["content"], "max_tokens": 200}] * 4):
            refused = server.post(CHAT, **body)
            assert refused.status_code == 429
            assert "as large" in error_in(refused.json())["message"]
            assert int(refused.headers["retry-after"]) > 0
            assert server.post(CHAT, **asking(url_of(png()))[CHAT], max_tokens=1).status_code == 200
            server.pool.entries[0].backend._engine.stop()
        assert until(lambda: server.post(CHAT, **body | {"max_tokens": 1}).status_code == 200)


@pytest.mark.first(1)
@pytest.mark.parametrize("stream", [False, True])
def test_a_refused_request_leaves_nothing_in_memory(stream: bool) -> None:
    def held() -> int:
        return sum(isinstance(each, Message) and bool(each.media) for each in gc.get_objects())

    gc.collect()
    gc.disable()  # it comes late where a few objects are large
    try:
        with served({"otherwise": ["Hello."]}) as server:
            before = held()
            for _ in range(3):
                server.refuse(CHAT, "text only", **asking(url_of(png()))[CHAT], stream=stream)
            server.asked.clear()
            assert until(lambda: held() == before)
    finally:
        gc.enable()
