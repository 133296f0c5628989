"""Pictures and sounds in a real target's sequences: the rows that mtmd's own helper gives, whatever shares, fails or returns."""

import struct
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.model import Logits, Pass, Role
from localspec.errors import ContextOverflow, ModelLoadError, PassFailed
from localspec.llama import encoder as encoders
from localspec.llama.cells import cells_of, joined
from localspec.llama.encoder import Encoder
from localspec.llama.model import LlamaModel
from localspec.llama.sequence import LlamaContext
from localspec.llama.sequences import LlamaSequences
from localspec.messages import MediaPart
from localspec.options import LoadOptions
from tests.support.checks import refuses
from tests.support.media import picture_file, sound_file

pytestmark = pytest.mark.weights
Patch = pytest.MonkeyPatch
Made = Callable[[str], "Seeing"]
Models = Callable[[str], tuple[Path, Path]]
OPTIONS = LoadOptions(n_ctx=1024, max_rows=8, n_batch=64, gpu_layers=0).exact()
_PICTURES = (3, 10, 18, 13, 19)
"""Of the made ones, which are small."""


class Seeing:
    """A target, its encoder, and a prompt with a picture or a sound between text."""

    def __init__(self, kind: str, target: Path, path: Path) -> None:
        self.kind, self.path = kind, path
        self.cancel = CancelFlag()
        self.model = LlamaModel(target, OPTIONS)
        self.encoder = Encoder(self.model, path, OPTIONS, self.cancel)

    def part(self, number: int = 0) -> MediaPart:
        if self.kind == "sound":
            return MediaPart.of(sound_file(number), f"{number}.wav")
        return MediaPart.of(picture_file(_PICTURES[number]), f"{number}.png")

    def text(self, text: str) -> list[int]:
        return self.model.vocabulary.tokenize(text, add_special=False, parse_special=True)

    def prompt(self, *numbers: int) -> list[int]:
        tokens = self.text("<|im_start|>user\nLook at this: ")
        for number in numbers:
            tokens += [*self.encoder.tokens(self.part(number)), *self.text(" and then")]
        return [*tokens, *self.text(" say what it is.<|im_end|>\n<|im_start|>assistant\n")]

    def context(self) -> LlamaContext:
        return LlamaContext(self.model, self.cancel, encoder=self.encoder)

    def row(self, context: LlamaContext, tokens: Sequence[int]) -> Logits:
        row: Logits = context.logits(tokens, 1)[0].copy()
        return row


@pytest.fixture(scope="module")
def made(seeing_models: Models) -> Iterator[Made]:
    known: dict[str, Seeing] = {}

    def get(kind: str) -> Seeing:
        if kind not in known:
            known[kind] = Seeing(kind, *seeing_models(kind))
        return known[kind]

    yield get
    for each in known.values():
        each.model.close()


@pytest.mark.first(1)
@pytest.mark.parametrize("kind", ["grid", "tiles"])
def test_branches_and_passes_of_one_width_stand_at_positions(made: Made, kind: str) -> None:
    seeing, alone = made(kind), made(kind).context()
    made_of, encoder = (seeing.model, seeing.cancel, OPTIONS, 1, 8), seeing.encoder
    lone, prompt = LlamaSequences(*made_of, branches=2, encoder=encoder), seeing.prompt(1)
    lone.views[0].prefill(prompt[:-1])
    tokens = [*prompt, 10, 20, 30]
    (rows,) = lone.together([(0, Pass(Role.TARGET, tokens, 4, branches=(len(prompt),)))])
    for row, text in zip(rows, (tokens[:-3], tokens[:-2], tokens[:-1], [*prompt, 30]), strict=True):
        assert np.corrcoef(row, seeing.row(alone, text))[0, 1] > 0.9999
    lone.close()
    fixed = LlamaSequences(*made_of, encoder=encoder)
    fixed.fix_width(4)
    (rows,) = fixed.together([(0, Pass(Role.TARGET, tokens, 2))])
    assert np.corrcoef(rows[1], seeing.row(alone, tokens))[0, 1] > 0.9999
    fixed.close()
    alone.close()


@pytest.mark.first(1)
@pytest.mark.parametrize("kind", ["grid", "tiles"])
def test_it_outlives_the_process(made: Made, kind: str, monkeypatch: Patch) -> None:
    seeing = made(kind)
    prompt, before, after = seeing.prompt(1), seeing.context(), seeing.context()
    row = seeing.row(before, prompt)
    held = before.cached
    cells = cells_of(before.native.copied(before.number), len(held))
    again = Encoder(seeing.model, seeing.path, OPTIONS)
    stretches = [(memoryview(b"".join(cells.stretch(0, len(held)))), len(held))]
    state = joined(cells.layout, stretches, len(held), after.native.streams, cells.tail)
    assert after.native.put_back(after.number, state)
    assert after.assume(held)
    assert again.tokens(seeing.part(1)) == seeing.encoder.tokens(seeing.part(1))
    monkeypatch.setattr(Encoder, "chunk", None)  # nothing is encoded
    assert after.common_prefix(prompt) == len(prompt)
    assert np.corrcoef(seeing.row(after, prompt), row)[0, 1] > 0.9999
    again.close()


@pytest.mark.slow
def test_a_cancel_stops_encoding_and_nothing_is_half_held(made: Made, monkeypatch: Patch) -> None:
    seeing = made("sound")
    prompt, context, looks = seeing.prompt(8), seeing.context(), list[bool]()
    expected = seeing.row(context, prompt)
    context.truncate(0)
    seeing.encoder._encoded.clear()
    monkeypatch.setattr(encoders, "_NODES", 2)
    look = Encoder._look

    def counted(self: Encoder, node: object, ask: bool, data: object) -> bool:
        looks.append(ask)
        if len(looks) == 9:
            seeing.cancel.set()
        return look(self, node, ask, data)

    monkeypatch.setattr(Encoder, "_look", counted)
    other = Encoder(seeing.model, seeing.path, OPTIONS, seeing.cancel)
    stopped = LlamaContext(seeing.model, seeing.cancel, encoder=other)
    looks.clear()
    other.tokens(seeing.part(8))
    with pytest.raises(Cancelled):
        stopped.logits(prompt, 1)
    assert len(looks) < 14, "it stopped soon"
    begin = next(at for at, token in enumerate(prompt) if token < 0)
    assert stopped.n_cached <= begin
    seeing.cancel.clear()
    assert np.array_equal(seeing.row(stopped, prompt), expected)
    other.close()


@pytest.mark.slow
def test_what_was_encoded_long_ago_is_encoded_again(made: Made, monkeypatch: Patch) -> None:
    seeing, context = made("tiles"), made("tiles").context()
    prompt = seeing.prompt(0, 2)
    row = seeing.row(context, prompt)
    monkeypatch.setattr(encoders, "_MOST_BYTES", 1)
    context.truncate(0)
    seeing.encoder._encoded.clear()
    assert np.array_equal(seeing.row(context, prompt), row)
    assert len(seeing.encoder._encoded) == 1
    context.truncate(0)
    monkeypatch.setattr(encoders, "_MOST_FILE_BYTES", 1)
    seeing.encoder.tokens(seeing.part(3))
    with pytest.raises(PassFailed, match="ask again"):
        seeing.row(context, prompt)
    rows = [seeing.row(each, seeing.prompt(0)) for each in (context, seeing.context())]
    assert np.array_equal(rows[0], rows[1])


def test_a_sound_of_no_numbers_fails_alone(made: Made) -> None:
    hearing = made("sound")
    file = struct.pack("<4sI8sIHHIIHH4sI", b"RIFF", 4036, b"WAVEfmt ", 16, 3, 1, 16000, 64000, 4, 32,
                       b"data", 4000)  # fmt: skip
    part = MediaPart.of(file + struct.pack("<f", float("nan")) * 16000, "nan.wav")
    head = hearing.text("<|im_start|>user\nLook at this: ")
    question, context = [*head, *hearing.text("The capital of France is")], hearing.context()
    expected = hearing.row(context, question)
    for _ in range(2):
        with pytest.raises(PassFailed, match="another file"):
            context.logits([*head, *hearing.encoder.tokens(part), *hearing.text(" hello")], 1)
        assert np.allclose(hearing.row(context, question), expected, atol=1e-3)


def test_each_owner_has_a_picture_decoded_and_encoded_of_its_own(
    made: Made, monkeypatch: Patch
) -> None:
    seeing, steps, rows = made("grid"), list[str](), []
    encoder = Encoder(seeing.model, seeing.path, OPTIONS)

    def noted(name: str, step: Callable[[object], object], what: object) -> object:
        steps.append(name)
        return step(what)

    all_steps = ["_decoded", "_encode"]
    for name in all_steps:
        monkeypatch.setattr(encoder, name, partial(noted, name, getattr(encoder, name)))
    for owner, taken in (("ann", all_steps), ("bob", all_steps), ("ann", []), ("", all_steps)):
        steps.clear()
        ids = [each for each in encoder.tokens(seeing.part(1), owner) if each < 0]
        rows.append(encoder.chunk(ids).embeddings)
        assert steps == taken, owner
    assert all(np.array_equal(each, rows[0]) for each in rows)
    encoder.close()


def test_files_that_take_turns_are_decoded_once(made: Made, monkeypatch: Patch) -> None:
    seeing = made("tiles")
    encoder, reads = Encoder(seeing.model, seeing.path, OPTIONS), list[str]()
    decoded = Encoder._decoded

    def counted(self: Encoder, part: MediaPart) -> object:
        reads.append(part.name)
        return decoded(self, part)

    monkeypatch.setattr(Encoder, "_decoded", counted)
    for part in (seeing.part(1), seeing.part(2)):
        encoder.tokens(part)
    files = [list(each.chunks) for each in encoder._files.values()]
    assert min(map(len, files)) > 1
    in_turn = [each for pair in zip(*files, strict=False) for each in pair]
    for chunk in in_turn:
        encoder.chunk(chunk)
    assert len(reads) == 2
    monkeypatch.setattr(encoders, "_MOST_OPEN_BYTES", 1)
    encoder._encoded.clear()
    for chunk in in_turn:
        encoder.chunk(chunk)
        assert len(encoder._open) <= 1
    encoder.close()


def test_a_model_without_encoder_reads_placeholders(made: Made) -> None:
    seeing = made("grid")
    prompt, context = seeing.prompt(1), LlamaContext(seeing.model)
    line = seeing.model.vocabulary.placeholder
    assert seeing.model.vocabulary.piece(line) == b"\n"
    row = context.logits(prompt, 1)[0].copy()
    other = LlamaContext(seeing.model)
    plain = [line if each < 0 else each for each in prompt]
    assert np.array_equal(other.logits(plain, 1)[0], row)
    assert context.cached == tuple(prompt)
    assert seeing.model.vocabulary.piece(-5) == b""


def test_bad_files_are_one_line(made: Made, smollm2_path: Path) -> None:
    seeing, hearing = made("tiles"), made("sound")
    refuses("hears no sounds", seeing.encoder.tokens, hearing.part())
    refuses("sees no pictures", hearing.encoder.tokens, seeing.part())
    data, heard = seeing.part().data, hearing.part().data
    refuses("damaged", seeing.encoder.tokens, MediaPart("image", "x", data[: len(data) // 2]))
    for sound in (heard[:40], b"ID3", b"fLaC", b"RIFF    WAVE"):
        refuses(".", hearing.encoder.tokens, MediaPart("audio", "x", sound))
    with pytest.raises(ModelLoadError, match="cannot use"):
        Encoder(seeing.model, smollm2_path, OPTIONS)
    small = LlamaContext(seeing.model, options=replace(OPTIONS, n_ctx=64), encoder=seeing.encoder)
    with pytest.raises(ContextOverflow):
        small.logits(seeing.prompt(1), 1)


def test_a_sound_of_too_few_samples_goes_no_further(made: Made, monkeypatch: Patch) -> None:
    """Mtmd ends the process over it: what it says of the size of a whole sound is changed here."""
    hearing = made("sound")
    encoder = Encoder(hearing.model, hearing.path, OPTIONS)
    monkeypatch.setattr(encoder._mtmd, "mtmd_bitmap_get_n_bytes", lambda _: 4)
    refuses("damaged", encoder.tokens, hearing.part())
    encoder.close()
