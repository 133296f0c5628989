"""Pictures and sounds over HTTP on real weights with made encoders: the same text for every client, streamed or not."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.command import PLAIN
from tests.plugins.serve.clients import anthropic, ollama, openai
from tests.plugins.serve.media_files import encoded, png, url_of, wav
from tests.plugins.serve.serving import CHAT, user
from tests.plugins.serve.test_process import serving

pytestmark = pytest.mark.slow
Models = Callable[[str], tuple[Path, Path]]
WORDS, LIMIT = "What is this?", 12
BEFORE = 10
"""Tokens of the template before a picture, at least."""
SHADES = (0, 90, 180, 255)


@contextmanager
def seeing(models: Models, kind: str) -> Iterator[tuple[httpx.Client, Any, Any, Any]]:
    """Serve a made model, and yield a plain client and the makers' own."""
    target, encoder = models(kind)
    words = ("--mmproj", str(encoder), "--ctx", "2048", "--temperature", "0", "--exact")
    own = {"api_key": "none", "max_retries": 0}
    with serving(str(target), *words, "--parallel", "4", where=PLAIN) as plain:
        url = str(plain.base_url).rstrip("/")
        with (
            openai.OpenAI(base_url=f"{url}/v1", **own) as gpt,
            anthropic.Anthropic(base_url=url, **own) as claude,
            ollama.Client(host=url) as llama,
        ):
            yield plain, gpt, claude, llama


def told(client: httpx.Client, *parts: dict[str, Any], **more: Any) -> tuple[str, dict[str, Any]]:
    said = [user([*parts, {"type": "text", "text": WORDS}])]
    answer = client.post(CHAT, json={"messages": said, "max_tokens": LIMIT, **more})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    return body["choices"][0]["message"]["content"], body["usage"]


def listed(client: httpx.Client) -> dict[str, Any]:
    model: dict[str, Any] = client.get("/v1/models").json()["data"][0]
    return model


def image(shade: int) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url_of(png(shade, 96))}}


def test_every_client_gets_the_same_text_of_a_picture(seeing_models: Models) -> None:
    with seeing(seeing_models, "grid") as (plain, gpt, claude, llama):
        model = listed(plain)
        assert "vision" in model["capabilities"]
        (text, usage), (_, without) = told(plain, image(90)), told(plain)
        seen = usage["prompt_tokens"] - without["prompt_tokens"]
        assert seen > 3
        said = [user([image(90), {"type": "text", "text": WORDS}])]
        stream = gpt.chat.completions.create(model="", messages=said, max_tokens=LIMIT, stream=True)
        assert "".join(each.choices[0].delta.content or "" for each in stream) == text
        parts = [{"type": "input_image", "image_url": url_of(png(90, 96)), "detail": "auto"}, {"type": "input_text", "text": WORDS}]  # fmt: skip
        done = gpt.responses.create(model="", input=[user(parts)], max_output_tokens=LIMIT)
        assert done.output_text == text
        source = {"type": "base64", "media_type": "image/png", "data": encoded(png(90, 96))}
        blocks = [{"type": "image", "source": source}, {"type": "text", "text": WORDS}]
        given: dict[str, Any] = {"model": "", "messages": [user(blocks)]}
        with claude.messages.stream(**given, max_tokens=LIMIT) as events:
            assert "".join(events.text_stream) == text
        assert claude.messages.count_tokens(**given).input_tokens == usage["prompt_tokens"]
        answer = llama.chat(model["id"], [{**user(WORDS), "images": [png(90, 96)]}], options={"num_predict": LIMIT})  # fmt: skip
        assert answer.message.content == text
        # A second turn evaluates nothing of the picture again; of the text behind it, --exact does.
        said += [{"role": "assistant", "content": text}, user("Sure?")]
        again = plain.post(CHAT, json={"messages": said, "max_tokens": 2}).json()["usage"]
        cached = again["prompt_tokens_details"]["cached_tokens"]
        assert cached >= seen + BEFORE, (cached, seen, usage)


def test_pictures_are_told_apart_and_answered_side_by_side(seeing_models: Models) -> None:
    with seeing(seeing_models, "tiles") as (plain, *_):
        alone = [told(plain, image(each))[0] for each in SHADES]
        with ThreadPoolExecutor(len(SHADES)) as threads:
            beside = list(threads.map(lambda shade: told(plain, image(shade))[0], SHADES))
        assert beside == alone
        assert told(plain, image(0), image(255))[0] == told(plain, image(0), image(255))[0]
        assert told(plain, image(0))[0] == alone[0]


def test_a_sound_is_heard(seeing_models: Models) -> None:
    with seeing(seeing_models, "sound") as (plain, gpt, _, llama):
        model = listed(plain)
        assert "audio" in model["capabilities"]
        sound = {"type": "input_audio", "input_audio": {"data": encoded(wav(40)), "format": "wav"}}
        text, usage = told(plain, sound)
        assert usage["prompt_tokens"] > told(plain)[1]["prompt_tokens"] + 3
        said = [user([sound, {"type": "text", "text": WORDS}])]
        stream = gpt.chat.completions.create(model="", messages=said, max_tokens=LIMIT, stream=True)
        assert "".join(each.choices[0].delta.content or "" for each in stream) == text
        answer = llama.chat(model["id"], [{**user(WORDS), "images": [wav(40)]}], options={"num_predict": LIMIT})  # fmt: skip
        assert answer.message.content == text
