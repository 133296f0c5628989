"""Pictures and sounds over HTTP on real weights with made encoders; what clients send of them stands in test_media."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.command import PLAIN
from tests.plugins.serve.media_files import encoded, png, url_of, wav
from tests.plugins.serve.serving import CHAT, user
from tests.plugins.serve.test_process import serving

pytestmark = pytest.mark.slow
Models = Callable[[str], tuple[Path, Path]]
WORDS, LIMIT = "What is this?", 12
BEFORE = 10
"""Tokens of the template before a picture, at least."""
SHADES = (0, 90, 180, 255)


def seeing(models: Models, kind: str) -> AbstractContextManager[httpx.Client]:
    """Serve a made model."""
    target, encoder = models(kind)
    words = ("--mmproj", str(encoder), "--ctx", "2048", "--temperature", "0", "--exact")
    return serving(str(target), *words, "--parallel", "4", where=PLAIN)


def told(client: httpx.Client, *parts: dict[str, Any], **more: Any) -> tuple[str, dict[str, Any]]:
    said = [user([*parts, {"type": "text", "text": WORDS}])]
    answer = client.post(CHAT, json={"messages": said, "max_tokens": LIMIT, **more})
    assert answer.status_code == 200, answer.text
    body = answer.json()
    return body["choices"][0]["message"]["content"], body["usage"]


def able(client: httpx.Client) -> list[str]:
    found: list[str] = client.get("/v1/models").json()["data"][0]["capabilities"]
    return found


def image(shade: int) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url_of(png(shade, 96))}}


def test_pictures_are_told_apart_and_answered_side_by_side(seeing_models: Models) -> None:
    with seeing(seeing_models, "tiles") as client:
        assert "vision" in able(client)
        alone = [told(client, image(each)) for each in SHADES]
        texts = [text for text, _ in alone]
        with ThreadPoolExecutor(len(SHADES)) as threads:
            beside = threads.map(lambda shade: told(client, image(shade))[0], SHADES)
            assert list(beside) == texts
        assert told(client, image(0), image(255))[0] == told(client, image(0), image(255))[0]
        assert told(client, image(0))[0] == texts[0]
        seen = alone[0][1]["prompt_tokens"] - told(client)[1]["prompt_tokens"]
        assert seen > 3
        # A second turn evaluates nothing of the picture again; of the text behind it, --exact does.
        said = [user([image(0), {"type": "text", "text": WORDS}])]
        said += [{"role": "assistant", "content": texts[0]}, user("Sure?")]
        again = client.post(CHAT, json={"messages": said, "max_tokens": 2}).json()["usage"]
        cached = again["prompt_tokens_details"]["cached_tokens"]
        assert cached >= seen + BEFORE, (cached, seen, again)


def test_a_sound_is_heard(seeing_models: Models) -> None:
    with seeing(seeing_models, "sound") as client:
        assert "audio" in able(client)
        sound = {"type": "input_audio", "input_audio": {"data": encoded(wav(40)), "format": "wav"}}
        text, usage = told(client, sound)
        assert usage["prompt_tokens"] > told(client)[1]["prompt_tokens"] + 3
        assert told(client, sound)[0] == text
