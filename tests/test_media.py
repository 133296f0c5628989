"""Pictures and sounds in messages: what is taken, and what is refused in one line."""

import base64
import io
import struct
from collections.abc import Callable
from itertools import product

import pytest
from PIL import Image

from localspec import media
from localspec.errors import UsageError
from localspec.media import check_sound, media_kind, picture, sound_seconds
from localspec.messages import MEDIA, MediaPart, Message, TextPart, from_json, to_json
from tests.support.media import picture_file, sound_file


def file_of(image: Image.Image, kind: str = "PNG", **more: object) -> bytes:
    file = io.BytesIO()
    image.save(file, kind, **more)
    return file.getvalue()


def png(width: int = 3, height: int = 2, color: tuple[int, int, int] = (200, 10, 30)) -> bytes:
    return file_of(Image.new("RGB", (width, height), color))


def huge() -> bytes:
    """Return a white picture of black and white, 8 MB if it were decoded, with more pixels than are taken."""
    return file_of(Image.new("1", (8001, 8001)))


def url(data: bytes, kind: str = "image/png") -> str:
    return f"data:{kind};base64,{base64.b64encode(data).decode()}"


def read(*parts: object, role: str = "user") -> Message:
    return from_json({"role": role, "content": list(parts)})


def words(text: str) -> dict[str, object]:
    return {"type": "text", "text": text}


def shown(address: str) -> dict[str, object]:
    return {"type": "image_url", "image_url": {"url": address}}


def played(data: str) -> dict[str, object]:
    return {"type": "input_audio", "input_audio": {"data": data, "format": "wav"}}


def test_a_message_has_its_parts_in_order() -> None:
    sound = base64.b64encode(b"RIFF\x24\0\0\0WAVEfmt ").decode()
    message = read(
        words("before"), shown(url(png())), words("between "), words("them"), played(sound)
    )
    kinds = [each.kind if isinstance(each, MediaPart) else each for each in message.parts]
    assert kinds == [TextPart("before"), "image", TextPart("between them"), "audio"]
    assert message.text == "beforebetween them"
    first, second = message.media
    assert to_json(message)["content"] == f"before{first.marker}between them{second.marker}"
    assert first.marker[0] == first.marker[-1] == MEDIA
    # What a model reads changes between them.
    part = MediaPart.of(png(), "a.png")
    assert part.data_url == url(part.data)
    message = Message("user", (TextPart("a"), TextPart("b"), part, TextPart("c")))
    assert message.changed(str.upper).parts == (TextPart("AB"), part, TextPart("C"))


@pytest.mark.parametrize(
    ("data", "word"),
    [
        (b"words", "neither"),
        (b"", "neither"),
        (huge, "8001 x 8001 pixels"),
        (png(201, 1), "200 times"),
        (png(1, 30_000), "200 times"),
        (b"\x89PNG\r\n\x1a\n" + bytes(9), "damaged"),
        (b"BM" + bytes(1 << 25), "at most"),
    ],
)
def test_what_cannot_be_read_is_refused_in_one_line(
    data: bytes | Callable[[], bytes], word: str
) -> None:
    file = data if isinstance(data, bytes) else data()
    with pytest.raises(UsageError, match=word) as error:
        MediaPart.of(file, "a\x1b[31m.png")
    assert "\n" not in str(error.value)
    assert "\x1b" not in str(error.value)


def test_pillows_own_bound_on_pixels_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 2)
    with pytest.raises(UsageError, match=r"a\.png has too many pixels"):
        MediaPart.of(png(), "a.png")


def test_a_truncated_picture_and_one_with_damaged_tags_are_refused() -> None:
    whole = png(9, 9)
    damaged = [whole[:at] for at in range(0, len(whole) - 20, 7)]
    for each in (*damaged, file_of(Image.new("RGB", (3, 2)), exif=b"MM\0*\0\0\0")):
        with pytest.raises(UsageError, match="damaged"):
            picture(each, "a.png")


def test_pixels_stand_upright_on_white_in_their_shades() -> None:
    turned = Image.Exif()
    turned[0x0112] = 6  # a camera that was held upright
    made = file_of(Image.new("RGB", (4, 2)), "JPEG", exif=turned)
    assert picture(made, "a.jpg")[:2] == (2, 4)
    seen_through = [
        Image.new("RGBA", (1, 1), (1, 2, 3, 0)),
        Image.new("LA", (1, 1), (0, 0)),
        Image.new("P", (1, 1)),  # one colour of the palette
        Image.new("L", (1, 1)),
        Image.new("RGB", (1, 1)),
    ]
    for image in seen_through:
        named = {"P": 0, "L": 0, "RGB": (0, 0, 0)}.get(image.mode)
        made = file_of(image) if named is None else file_of(image, transparency=named)
        assert picture(made, "a.png") == (1, 1, b"\xff\xff\xff")
    for alpha, shade in ((255, 0), (128, 127), (0, 255)):
        made = file_of(Image.new("RGBA", (1, 1), (0, 0, 0, alpha)))
        assert picture(made, "a.png").rgb == bytes([shade] * 3)
    made = file_of(Image.new("RGBA", (2, 1), (9, 9, 9, 0)), "WEBP", lossless=True)
    assert picture(made, "a.webp").rgb == bytes([255] * 6)
    shades = Image.new("I;16", (2, 1))
    for at, shade in enumerate((0x4321, 0xFFFF)):
        shades.putpixel((at, 0), shade)
    assert picture(file_of(shades), "x").rgb == bytes([0x43] * 3 + [0xFF] * 3)


@pytest.mark.parametrize(
    ("parts", "word"),
    [
        ([shown("https://example.org/a.png")], None),
        ([shown("file:///etc/passwd")], None),
        ([shown("data:image/png;base64,!!")], None),
        ([played("é")], None),
        # Pictures and sounds of the whole message are counted.
        ([shown(url(png())), words("x"), shown(url(b"words"))], "^picture 2 of the message is "),
        ([shown(url(png())), words("x"), played("aaaa")], "^sound 1 of the message is "),
    ],
)
def test_nothing_is_fetched_and_nothing_damaged_is_taken(
    parts: list[object], word: str | None
) -> None:
    with pytest.raises(UsageError, match=word):
        read(*parts)
    with pytest.raises(UsageError, match="only messages of the user"):
        read(shown(url(png())), role="assistant")


def test_a_picture_is_shrunk_within_a_size() -> None:
    for number, within in product(range(20), ((32, 16), (16, 8), (1, 16))):
        width, height, rgb = picture(picture_file(number), "x", within)
        assert width <= within[0]
        assert height <= within[1]
        assert len(rgb) == 3 * width * height


def flac(rate: int, count: int) -> bytes:
    return b"fLaC\0\0\0\x22" + bytes(10) + (rate << 44 | count).to_bytes(8, "big") + bytes(16)


def wav(rate: int, form: int = 1, frame: int = 2, channels: int = 1, bits: int = 16) -> bytes:
    chunk = struct.pack("<HHIIHH", form, channels, rate, 1 << 30, frame, bits)
    return b"RIFF\0\0\0\0WAVEfmt \x10\0\0\0" + chunk + b"data\xff\xff\xff\xff" + bytes(8000)


def mp3(
    frames: int, head: bytes = b"\xff\xf3\x18\xc0", size: int = 36, before: bytes = b""
) -> bytes:
    """Return silence: of 36 milliseconds a frame, without a header of another."""
    return before + (head + bytes(size - 4)) * frames


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (flac(16_000, 32_000), "minutes"),
        (flac(3_999, 99), "samples a second"),
        (flac(400_000, 99), "samples a second"),
        (flac(16_000, 0), "header"),
        (b"ID3\4\0\0\0\0\0\0" + flac(8000, 16_000), "minutes"),
        (b"ID3\4\0\0\0\0\1\0" + bytes(128) + b"OggS", "header"),
        (b"ID3\4", "header"),
        (wav(8000) + bytes(16_000), "minutes"),
        # A second takes as few bytes as any of its fields says.
        (wav(8000, frame=4) + bytes(16_000), "minutes"),
        (wav(8000, bits=32) + bytes(16_000), "minutes"),
        (wav(3_999), "samples a second"),
        (wav(384_001), "samples a second"),
        (mp3(30), "minutes"),
        (mp3(12, before=b"ID3\4\0\0\0\0\0\1\0") + mp3(30), "minutes"),
        # Frames of 36 bytes behind headers that claim 160 kbit/s and have none of their kind behind them.
        ((b"\xff\xf3\xe8\xc0" + mp3(18) + b"\0") * 4, "minutes"),
        (mp3(9, head=b"\xff\xf3\x08\xc0"), "header"),  # says no size
        (b"\xff" * 9_000, "header"),
        (mp3(1)[:11], "header"),
        (b"\xff\xfb", "header"),
        (wav(8000, form=2), "header"),
        (b"RIFF\0\0\0\0WAVE", "header"),
    ],
)
def test_a_sound_that_is_too_long_or_says_nothing_is_not_decoded(
    data: bytes, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(media, "MOST_SECONDS", 1)
    with pytest.raises(UsageError, match=words) as raised:
        check_sound(data, "x")
    assert "\n" not in str(raised.value)
    for sound in (flac(16_000, 9), wav(8000), mp3(9), b"ID3\4\0\0\0\0\0\1\0" + mp3(9)):
        check_sound(sound, "x")


def test_the_length_of_a_sound_is_that_of_its_header_or_of_its_frames() -> None:
    for number, length in ((0, 0.1), (4, 3.3), (9, 40.0)):
        assert sound_seconds(sound_file(number)) == pytest.approx(length, rel=0.01)
    assert sound_seconds(flac(44_100, 1 << 41 | 15 << 36 | 44_100 * 3)) == 3.0
    assert sound_seconds(wav(8000) + bytes(8000)) == 1.0, "a header may say more than there is"
    for other in (b"ID3\x04", b"", b"fLaC", b"RIFF\x24\0\0\0WAVEdata\4\0\0\0abcd"):
        assert sound_seconds(other) is None
    assert media_kind(b"RIFF\0\0\0\0WEBP") == "image"
    assert media_kind(b"RIFF\0\0\0\0AVI ") is None
    assert media_kind(b"ID3\x04") == "audio"
    assert sound_seconds(mp3(1000)) == pytest.approx(36.0)
    tagged, junk = mp3(100, before=bytes(7)) + b"TAG" + bytes(125), b"\xff\0junk"
    assert sound_seconds(tagged) == pytest.approx(3.6, abs=0.1)
    assert sound_seconds(mp3(100) + junk + mp3(100)) == pytest.approx(7.2, abs=0.1)
    for head, size, seconds in (
        (b"\xff\xfb\x90\0", 417, 1152 / 44_100),
        (b"\xff\xfb\x92\0", 418, 1152 / 44_100),  # padded
        (b"\xff\xe3\x18\xc0", 72, 576 / 8000),
        (b"\xff\xfd\x14\0", 96, 1152 / 48_000),
        (b"\xff\xff\x12\0", 36, 384 / 44_100),
    ):
        assert sound_seconds(mp3(50, head, size)) == pytest.approx(50 * seconds), head
