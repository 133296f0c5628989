"""Pictures and sounds that cannot be taken: one line of `run`, and no answer; one that moves is its first picture."""

import io
from collections.abc import Callable
from pathlib import Path

import pytest
from PIL import Image

from tests.cli.command import PLAIN, Done, assert_one_complaint, localspec
from tests.llama.tiny_models import write_llama
from tests.support.encoders import write_encoder
from tests.support.media import picture_file

Models = Callable[[str], tuple[Path, Path]]


def run(target: Path, encoder: Path, *files: Path) -> Done:
    models = ("--target", str(target), "--mmproj", str(encoder), "--draft", "off")
    attached = [word for file in files for word in ("-f", str(file))]
    limits = ("--max-tokens", "6", "--temperature", "0", "--ctx", "2048")
    return localspec("run", *PLAIN, *models, *limits, *attached, "What is this?")


@pytest.mark.parametrize(
    ("kind", "name", "data"),
    [
        ("tiles", "cut.png", picture_file(4)[:20_000]),
        ("sound", "cut.wav", b"RIFF\xff\xff\xff\xffWAVEfmt \x10" + bytes(300)),
    ],
)
def test_what_cannot_be_taken_is_one_line(
    seeing_models: Models, tmp_path: Path, kind: str, name: str, data: bytes
) -> None:
    file = tmp_path / name
    file.write_bytes(data)
    assert_one_complaint(run(*seeing_models(kind), file), 2, name, "damaged")


def test_an_encoder_of_another(seeing_models: Models, smollm2_path: Path, tmp_path: Path) -> None:
    target, _ = seeing_models("plain")
    other = write_encoder("plain", write_llama(tmp_path / "tiny.gguf"), tmp_path / "other.gguf")
    photo = tmp_path / "photo.png"
    photo.write_bytes(picture_file(3))
    assert_one_complaint(run(target, other, photo), 4, "other.gguf", "width 64")
    done = run(smollm2_path, seeing_models("tiles")[1], photo)
    assert_one_complaint(done, 2, "lacks tokens of the encoder", "--mmproj")


@pytest.mark.slow
def test_a_picture_that_moves_is_its_first(seeing_models: Models, tmp_path: Path) -> None:
    first = Image.open(io.BytesIO(picture_file(10))).convert("P")
    still, moving = tmp_path / "s.png", tmp_path / "m.gif"
    first.save(still)
    first.save(moving, save_all=True, append_images=[Image.new("P", first.size, 9)])
    texts = [run(*seeing_models("tiles"), file).out for file in (still, moving)]
    assert texts[0]
    assert texts[0] == texts[1]
