"""Pictures and sounds in a real target's sequences: the rows that mtmd's own helper gives, whatever shares, fails or returns."""

import ctypes
import io
import struct
import subprocess
import sys
import wave
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.model import Logits, Pass, Role
from localspec.errors import ContextOverflow, LocalspecError, ModelLoadError, PassFailed, UsageError
from localspec.llama import encoder as encoders
from localspec.llama.batch import Part
from localspec.llama.encoder import Encoder
from localspec.llama.media_ids import positions
from localspec.llama.model import LlamaModel
from localspec.llama.native import mtmd, native
from localspec.llama.sequence import LlamaContext
from localspec.llama.sequences import LlamaSequences
from localspec.llama.state import restore_state, save_state
from localspec.messages import MediaPart
from localspec.options import LoadOptions
from tests.support.media import picture_file, sound_file

pytestmark = pytest.mark.weights
OPTIONS = LoadOptions(n_ctx=1024, max_rows=8, n_batch=64, gpu_layers=0).exact()
_PICTURES = (3, 10, 18, 13, 19)
"""Of the made ones, which are small."""
KINDS = (
    "tiles",
    "grid",
    *(pytest.param(each, marks=pytest.mark.slow) for each in ("plain", "whole", "sound")),
)


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
def made(
    seeing_models: Callable[[str], tuple[Path, Path]],
) -> Iterator[Callable[[str], Seeing]]:
    known: dict[str, Seeing] = {}

    def get(kind: str) -> Seeing:
        if kind not in known:
            known[kind] = Seeing(kind, *seeing_models(kind))
        return known[kind]

    yield get
    for each in known.values():
        each.model.close()


@pytest.mark.parametrize("kind", KINDS)
def test_a_row_behind_a_picture_is_what_mtmd_itself_gives(
    made: Callable[[str], Seeing], kind: str
) -> None:
    seeing = made(kind)
    number = 8 if kind == "sound" else 4
    tokens, context = seeing.prompt(number), seeing.context()
    row = seeing.row(context, tokens)
    assert np.array_equal(seeing.row(context, tokens), row)
    expected = by_mtmd(seeing, number)
    assert np.corrcoef(row, expected)[0, 1] > 0.99999
    other = seeing.row(context, seeing.prompt(1))
    assert np.corrcoef(row, other)[0, 1] < 0.9999, "a picture counts"


def by_mtmd(seeing: Seeing, number: int) -> Logits:
    """Return the row after a prompt by mtmd's helper, which evaluates the whole of it."""
    lib, part, context = mtmd(), seeing.part(number), LlamaContext(seeing.model)
    chunks = lib.mtmd_input_chunks_init()
    data = (ctypes.c_uint8 * len(part.data)).from_buffer_copy(part.data)
    bitmap = lib.mtmd_helper_bitmap_init_from_buf(seeing.encoder.handle, data, len(data), False)
    marker = lib.mtmd_default_marker().decode()
    text = f"<|im_start|>user\nLook at this: {marker} and then say what it is.<|im_end|>\n<|im_start|>assistant\n"
    given = lib.mtmd_input_text(text.encode(), len(text), False, True)
    bitmaps = (ctypes.c_void_p * 1)(bitmap)
    assert lib.mtmd_tokenize(seeing.encoder.handle, chunks, ctypes.byref(given), bitmaps, 1) == 0
    end = ctypes.c_int32(0)
    result = lib.mtmd_helper_eval_chunks(
        seeing.encoder.handle, context.native.handle, chunks, 0, 0, 64, True, ctypes.byref(end)
    )
    assert result == 0
    lib.mtmd_bitmap_free(bitmap)
    lib.mtmd_input_chunks_free(chunks)
    count = native.llama_vocab_n_tokens(native.llama_model_get_vocab(seeing.model.handle))
    row = np.ctypeslib.as_array(native.llama_get_logits_ith(context.native.handle, -1), (count,))
    expected: Logits = row.copy()
    context.close()
    return expected


@pytest.mark.parametrize("kind", KINDS)
def test_several_sequences_drafts_and_turns_give_what_each_gives_alone(
    made: Callable[[str], Seeing], kind: str
) -> None:
    seeing = made(kind)
    several = LlamaSequences(seeing.model, seeing.cancel, OPTIONS, 3, 8, encoder=seeing.encoder)
    prompts = [seeing.prompt(1, 2), seeing.prompt(1), seeing.prompt()]
    rows = [several.together([(slot, Pass(Role.TARGET, each, 1))])[0][0].copy()
            for slot, each in enumerate(prompts)]  # fmt: skip
    for prompt, row in zip(prompts, rows, strict=True):
        alone = seeing.context()
        assert row.argmax() == seeing.row(alone, prompt).argmax()
        alone.close()
    drafted = [[*each, int(row.argmax()), 30, 40] for each, row in zip(prompts, rows, strict=True)]
    asked = [(slot, Pass(Role.TARGET, each, 2)) for slot, each in enumerate(drafted)]
    before = [view.n_cached for view in several.views]
    answers = [
        each.copy()
        for each in several.together([(s, Pass(r.role, r.tokens[:-1], 2)) for s, r in asked])
    ]
    assert [view.n_cached - b for view, b in zip(several.views, before, strict=True)] == [2, 2, 2]
    for view, prompt, answer in zip(several.views, drafted, answers, strict=True):
        one = view.logits(prompt[:-2], 1)[0]
        assert np.corrcoef(one, answer[0])[0, 1] > 0.9999
    # A second turn evaluates nothing of the picture, and another slot copies it.
    longer = [*prompts[0], *seeing.text("It is a picture.<|im_end|>\n")]
    assert several.missing(0, Pass(Role.TARGET, longer, 1)) < 12
    several.views[2].logits(longer, 1)
    assert several.views[2].skipped == len(longer) - positions(longer)
    several.close()


@pytest.mark.parametrize("kind", ["tiles", "grid"])
def test_branches_and_passes_of_one_width_stand_where_the_positions_are(
    made: Callable[[str], Seeing], kind: str
) -> None:
    seeing, alone = made(kind), made(kind).context()
    lone = LlamaSequences(
        seeing.model, seeing.cancel, OPTIONS, 1, 8, branches=2, encoder=seeing.encoder
    )
    prompt = seeing.prompt(1)
    lone.views[0].prefill(prompt[:-1])
    n_past = len(prompt)
    tokens = [*prompt, 10, 20, 30]
    request = Pass(Role.TARGET, tokens, 4, branches=(n_past,))
    (rows,) = lone.together([(0, request)])
    for row, text in zip(rows, (tokens[:-3], tokens[:-2], tokens[:-1], [*prompt, 30]), strict=True):
        assert np.corrcoef(row, seeing.row(alone, text))[0, 1] > 0.9999
    lone.close()
    fixed = LlamaSequences(seeing.model, seeing.cancel, OPTIONS, 1, 8, encoder=seeing.encoder)
    fixed.fix_width(4)
    (rows,) = fixed.together([(0, Pass(Role.TARGET, tokens, 2))])
    assert np.corrcoef(rows[1], seeing.row(alone, tokens))[0, 1] > 0.9999
    fixed.close()
    alone.close()


@pytest.mark.parametrize("kind", ["tiles", "grid"])
def test_what_was_evaluated_of_a_picture_outlives_the_process(
    made: Callable[[str], Seeing], kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seeing = made(kind)
    prompt, before, after = seeing.prompt(1), seeing.context(), seeing.context()
    row = seeing.row(before, prompt)
    save_state(before, tmp_path / "state", "a", {})
    again = Encoder(seeing.model, seeing.path, OPTIONS)
    restore_state(after, tmp_path / "state", "a")
    assert again.tokens(seeing.part(1)) == seeing.encoder.tokens(seeing.part(1))
    monkeypatch.setattr(Encoder, "chunk", None)  # nothing is encoded
    assert after.common_prefix(prompt) == len(prompt)
    assert np.corrcoef(seeing.row(after, prompt), row)[0, 1] > 0.9999
    again.close()


def test_a_cancel_stops_encoding_and_passes_of_a_picture_and_nothing_is_half_held(
    made: Callable[[str], Seeing], monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert stopped.n_cached <= prompt.index(next(each for each in prompt if each < 0))
    seeing.cancel.clear()
    assert np.array_equal(seeing.row(stopped, prompt), expected)
    stopped.truncate(0)
    decode, pieces = stopped.native.decode, list[Part]()

    def within_chunk(parts: Sequence[Part]) -> None:
        pieces.extend(each for each in parts if each.embeddings is not None)
        if len(pieces) == 2:
            seeing.cancel.set()
        decode(parts)

    monkeypatch.setattr(stopped.native, "n_batch", 8)
    monkeypatch.setattr(stopped.native, "decode", within_chunk)
    with pytest.raises(Cancelled):
        stopped.logits(prompt, 1)
    assert len(pieces) == 2
    assert pieces[1].skipped + pieces[1].n_past > pieces[0].n_past, "within a chunk"
    assert stopped.n_cached <= prompt.index(next(each for each in prompt if each < 0))
    monkeypatch.undo()
    seeing.cancel.clear()
    assert np.array_equal(seeing.row(stopped, prompt), expected)
    other.close()


def test_what_was_encoded_long_ago_is_encoded_again(
    made: Callable[[str], Seeing], monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert np.array_equal(
        seeing.row(context, seeing.prompt(0)), seeing.row(seeing.context(), seeing.prompt(0))
    )


def test_a_sound_of_no_numbers_fails_alone(made: Callable[[str], Seeing]) -> None:
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


def test_files_that_take_turns_are_decoded_once(
    made: Callable[[str], Seeing], monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_model_without_encoder_reads_placeholders(made: Callable[[str], Seeing]) -> None:
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


def silence(samples: int) -> bytes:
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(2)
        sound.setframerate(16_000)
        sound.writeframes(bytes(2 * samples))
    return file.getvalue()


def test_bad_files_are_one_line(made: Callable[[str], Seeing], smollm2_path: Path) -> None:
    seeing, hearing = made("tiles"), made("sound")
    sounds = (silence(0), silence(1), b"ID3", b"fLaC", b"RIFF    WAVE", silence(9)[:40])
    bad: list[tuple[Callable[[], object], type[LocalspecError], str]] = [
        (lambda: seeing.encoder.tokens(hearing.part()), UsageError, "hears no sounds"),
        (lambda: hearing.encoder.tokens(seeing.part()), UsageError, "sees no pictures"),
        (lambda: seeing.encoder.tokens(cut(seeing.part())), UsageError, "damaged"),
        (lambda: hearing.encoder.tokens(cut(hearing.part(), 44)), UsageError, "."),
        *(
            (partial(hearing.encoder.tokens, MediaPart("audio", "x", data)), UsageError, ".")
            for data in sounds
        ),
        (lambda: Encoder(seeing.model, smollm2_path, OPTIONS), ModelLoadError, "cannot use"),
    ]
    for call, kind, words in bad:
        with pytest.raises(kind, match=words) as raised:
            call()
        assert "\n" not in str(raised.value)
    small = LlamaContext(seeing.model, options=replace(OPTIONS, n_ctx=64), encoder=seeing.encoder)
    with pytest.raises(ContextOverflow):
        small.logits(seeing.prompt(1), 1)


@pytest.mark.parametrize("name", ["attention.head_count", "patch_size", "image_size"])
def test_a_file_that_llama_cpp_gives_up_over_is_blamed(
    seeing_models: Callable[[str], tuple[Path, Path]], name: str, tmp_path: Path
) -> None:
    target, sound = seeing_models("tiles")
    key, data, wrong = f"clip.vision.{name}".encode(), sound.read_bytes(), tmp_path / "wrong.gguf"
    at = data.index(key) + len(key) + 4  # behind its type
    wrong.write_bytes(data[:at] + struct.pack("<I", 3) + data[at + 4 :])
    command = [sys.executable, "-c", _GIVES_UP, str(target), str(wrong)]
    ended = subprocess.run(command, capture_output=True, check=False, text=True)
    assert (ended.returncode, ended.stdout) == (1, "")
    assert ended.stderr.startswith(f"localspec: llama.cpp gave up over {wrong}: ")
    assert ended.stderr.endswith("leave it out with --mmproj off\n")
    assert ended.stderr.count("\n") == 1


_GIVES_UP = """
import sys
from pathlib import Path
from localspec.llama.batch import Part
from localspec.llama.encoder import Encoder
from localspec.llama.model import LlamaModel
from localspec.messages import MediaPart
from localspec.options import LoadOptions
from tests.support.media import picture_file
options = LoadOptions(n_ctx=512, gpu_layers=0)
encoder = Encoder(LlamaModel(Path(sys.argv[1]), options), Path(sys.argv[2]), options)
ids = encoder.tokens(MediaPart.of(picture_file(3), "x.png"))
print(len(ids))
"""


def cut(part: MediaPart, length: int | None = None) -> MediaPart:
    """Return the beginning of a file."""
    return MediaPart(part.kind, part.name, part.data[: length or len(part.data) // 2])
