"""Pictures and sounds: what is asked of their headers, before any decoder has them."""

import io

from PIL import Image

from localspec.media import check_sound
from localspec.messages import MediaPart
from tests.support.media import picture_file, sound_file

_SMALL = (0, 2, 13, 18)
_TURNED = Image.Exif()
_TURNED[0x0112] = 6


def _saved(form: str, **options: object) -> bytes:
    file, first = io.BytesIO(), Image.open(io.BytesIO(picture_file(18)))
    first.save(file, form, **options)
    return file.getvalue()


SEEDS = (
    *map(picture_file, _SMALL),
    picture_file(18, "JPEG"),
    _saved("GIF", save_all=True, append_images=[Image.new("L", (57, 57), 90)]),
    _saved("BMP"),
    *(_saved(form, exif=_TURNED) for form in ("JPEG", "PNG", "WEBP")),
    sound_file(0),
    sound_file(1)[:2000],
)


def run(data: bytes) -> None:
    part = MediaPart.of(data, "a.png")
    if part.kind == "audio":
        check_sound(part.data, part.name)
