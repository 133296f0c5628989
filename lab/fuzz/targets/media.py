"""Pictures and sounds: decoded by Pillow and by mtmd, and cut into chunks by encoders of some kilobytes."""

import io
from functools import cache

from PIL import Image

from lab.fuzz.target import scratch
from lab.synthetic.encoders import write_encoder
from localspec.llama.encoder import Encoder
from localspec.llama.model import LlamaModel
from localspec.messages import MediaPart
from localspec.options import LoadOptions
from tests.llama.tiny_models import write_llama
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
MOST_S = 3.0


@cache
def _encoders() -> dict[str, tuple[Encoder, ...]]:
    options, target = LoadOptions(256, threads=1, gpu_layers=0), write_llama(scratch() / "t.gguf")
    model = LlamaModel(target, options)
    kinds = {"image": ("plain", "whole"), "audio": ("sound",)}
    return {
        sense: tuple(
            Encoder(model, write_encoder(kind, target, scratch() / f"{kind}.gguf"), options)
            for kind in names
        )
        for sense, names in kinds.items()
    }


def run(data: bytes) -> None:
    part = MediaPart.of(data, "a.png")
    for encoder in _encoders()[part.kind]:
        encoder.tokens(part)
