"""Encoder: pictures and sounds become chunks of a prompt, by llama.cpp's mtmd and a file of the model's own (mmproj).

A file is decoded, cut into chunks and counted when its ids are asked for, and encoded when a sequence evaluates it. What was
encoded last stays in memory.
"""

import ctypes
import hashlib
import os
import weakref
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.errors import ModelLoadError, PassFailed, UsageError
from localspec.llama.backend import capture_log, clear_log, last_complaint
from localspec.llama.batch import Batch, Part
from localspec.llama.buffer_log import RAM, allocated
from localspec.llama.crash_report import blaming
from localspec.llama.devices import REMOTE, placed_on
from localspec.llama.media_ids import media_ids
from localspec.llama.model import LlamaModel
from localspec.llama.native import mtmd, native
from localspec.media import check_sound, picture
from localspec.messages import MediaPart
from localspec.options import LoadOptions
from localspec.resources import Usage, default_threads

_SECTIONS = 4
"""Numbers of a position in M-RoPE."""
_NODES = 32
"""Nodes of an encoder's graph between two looks at the flag: about a layer."""
_MOST_BYTES = 64 << 20
"""Of embeddings that are kept."""
_MOST_FILE_BYTES = 512 << 20
"""Of files that are kept, to be encoded when a sequence has lost what it evaluated of them."""
_MOST_OPEN_BYTES = 256 << 20
"""Of decoded files that are kept until all their chunks are encoded."""
_SIZES = ((4096, 4096), (8192, 512), (512, 8192))
"""Of pictures, in pixels, of which one has the largest chunk that there can be."""


@dataclass(frozen=True, slots=True, eq=False)
class MediaChunk:
    """What goes into a pass for one chunk.

    Args:
        embeddings: shape (tokens, width).
        causal: whether a token sees those alone that come before it; else all of the chunk are of one pass.
        places: positions in M-RoPE where the chunk begins at 0, shape (4, tokens); None elsewhere.
        moves: by how much they grow with the position that it begins at.
    """

    embeddings: NDArray[np.float32]
    causal: bool
    places: NDArray[np.int32] | None = None
    moves: NDArray[np.int32] | None = None

    def piece(self, part: Part, start: int, end: int) -> Part:
        """Return what a pass evaluates of some tokens of the chunk.

        Args:
            part: the whole chunk, by its ids.
            start: of the first token.
            end: behind the last, or behind all.
        """
        tokens, rows = part.tokens[start:end], self.embeddings[start:end]
        if self.places is None or self.moves is None:
            return replace(part, tokens=tokens, embeddings=rows, n_past=part.n_past + start)
        positions = (self.places + part.n_past * self.moves)[:, start:end]
        skipped = part.skipped + start
        return replace(part, tokens=tokens, embeddings=rows, positions=positions, skipped=skipped)


@dataclass(frozen=True, slots=True, eq=False)
class _MediaFile:
    """What is known of a picture or a sound.

    Args:
        part: it.
        ids: what stands for it in a prompt, with the text that its chunks have around them.
        chunks: the ids of each of its chunks.
    """

    part: MediaPart
    ids: list[int]
    chunks: tuple[tuple[int, ...], ...]


class Encoder:
    """Makes ids of pictures and sounds, and embeddings of ids.

    Make it before the contexts that are to evaluate them, and give it to them.

    Args:
        model: the target.
        path: its mmproj file, whose header was already found sound.
        options: how to compute.
        cancel: stops loading and encoding when set.
        identity: what the file is, such as its sha256; found out if it is empty.

    Attributes:
        path: of the mmproj file.
        sees: whether it takes pictures.
        hears: whether it takes sounds.
        most_at_once: tokens of the largest chunk that has to be evaluated in one pass; 0 where any can be split.
        allocated: what weights and scratch took, by places.

    Raises:
        Cancelled: `cancel` was set.
        ModelLoadError: llama.cpp refuses the file, or it is of another model.
    """

    def __init__(
        self,
        model: LlamaModel,
        path: Path,
        options: LoadOptions,
        cancel: CancelFlag | None = None,
        identity: str = "",
    ) -> None:
        self.model, self.path = model, path
        self._cancel = CancelFlag() if cancel is None else cancel
        try:
            self._mtmd = mtmd()
        except ImportError as error:
            raise ModelLoadError(f"this build of llama.cpp has no encoders: {error}") from error
        if not identity:
            with path.open("rb") as file:
                identity = hashlib.file_digest(file, "sha256").hexdigest()
        self._identity = identity
        self._nodes, self._stopped = 0, False
        # Another machine's would have every tensor sent to it.
        gpus = [each for each in placed_on(options) if each.backend != REMOTE]
        self._device = gpus[0] if gpus and model.on_gpu else None
        # Its tensors may have other shapes than its header says, which llama.cpp finds by assertions.
        self._blaming = partial(
            blaming,
            f"llama.cpp gave up over {path}: the file does not fit this llama.cpp, or memory ran out; leave it out with --mmproj off",
        )
        with self._blaming():
            handle = self._load(options)
        self._handle: int | None = handle
        self._free = weakref.finalize(self, self._mtmd.mtmd_free, handle)
        model.adopt(self)
        self.sees = bool(self._mtmd.mtmd_support_vision(handle))
        self.hears = bool(self._mtmd.mtmd_support_audio(handle))
        self._mrope = bool(self._mtmd.mtmd_decode_use_mrope(handle))
        self._width = int(native.llama_model_n_embd_inp(model.handle))
        self.allocated = self._sizes()
        self._files = OrderedDict[str, _MediaFile]()
        self._of_chunk: dict[tuple[int, ...], str] = {}
        self._encoded = OrderedDict[tuple[int, ...], MediaChunk]()
        self._open = OrderedDict[str, _Chunks]()
        whole = self.sees and self._mtmd.mtmd_decode_use_non_causal(handle, None)
        with self._blaming():
            self.most_at_once = self._largest() if whole else 0

    def batch(self, tokens: int, sequences: int) -> Batch:
        """Return room for a pass over so many tokens of chunks, of one of so many sequences."""
        sections = _SECTIONS if self._mrope else 1
        return Batch(tokens, sequences, width=self._width, with_tokens=False, sections=sections)

    def tokens(self, part: MediaPart, owner: str = "") -> list[int]:
        """Return what stands for a picture or a sound in a prompt: negative ids, with the text that is to be around them.

        Args:
            part: it.
            owner: whose it is. Each has its own ids of a file, so that no time tells one what others sent.

        Raises:
            UsageError: the model takes no such files, or this one cannot be decoded.
        """
        if not (self.sees if part.kind == "image" else self.hears):
            other = "hears, but sees no pictures" if self.hears else "sees, but hears no sounds"
            raise UsageError(f"this model {other}: leave {part.name} out")
        key = f"{part.sha256} {owner}".rstrip()
        file = self._files.get(key)
        if file is None:
            with self._blaming():
                file = self._files[key] = self._read(part, key)
            self._forget_files()
        self._files.move_to_end(key)
        return list(file.ids)

    def chunk(self, tokens: Sequence[int]) -> MediaChunk:
        """Return what goes into a pass for the chunk of these ids.

        Raises:
            Cancelled: the flag was set.
            PassFailed: llama.cpp failed, or the picture was never given to `tokens`, or is long forgotten.
        """
        ids = tuple(tokens)
        result = self._encoded.get(ids)
        if result is None:
            with self._blaming():
                result = self._encoded[ids] = self._encode(ids)
            used = sum(each.embeddings.nbytes for each in self._encoded.values())
            while used > _MOST_BYTES and len(self._encoded) > 1:
                used -= self._encoded.popitem(last=False)[1].embeddings.nbytes
        self._encoded.move_to_end(ids)
        return result

    def close(self) -> None:
        """Free the encoder; closing twice is harmless."""
        self._open.clear()
        self._encoded.clear()
        self._handle = None
        self._free()

    @property
    def handle(self) -> int:
        """The pointer that mtmd gave.

        Raises:
            PassFailed: it was closed.
        """
        if self._handle is None:
            raise PassFailed(f"{self.path} was closed: load the model again")
        return self._handle

    def _load(self, options: LoadOptions) -> int:
        model, lib = self.model, self._mtmd
        capture_log(lib.mtmd_helper_log_set)
        clear_log()
        params = lib.mtmd_context_params_default()
        params.use_gpu = self._device is not None
        params.device = None if self._device is None else self._device.handle
        params.print_timings = False
        params.n_threads = options.threads_batch or options.threads or default_threads()
        # Kept, since ctypes drops a callback that nothing refers to.
        self._callbacks = (
            native.ggml_backend_sched_eval_callback(self._look),
            lib.mtmd_progress_callback(lambda _share, _data: not self._cancel.is_set),
        )
        params.cb_eval, params.progress_callback = self._callbacks
        handle = lib.mtmd_init_from_file(os.fsencode(self.path), model.handle, params)
        if handle:
            return int(handle)
        if self._cancel.is_set:
            raise Cancelled
        detail = _reason()
        raise ModelLoadError(f"llama.cpp cannot use {self.path} with {model.path}: {detail}")

    def _look(self, _node: object, ask: bool, _data: object) -> bool:
        """Have ggml stop to ask behind every so many nodes, and return then whether it is to go on."""
        if ask:
            self._nodes += 1
            return self._nodes % _NODES == 0
        self._stopped = self._stopped or self._cancel.is_set
        return not self._stopped

    def _sizes(self) -> dict[str, Usage]:
        """Return what the log says of scratch; weights are as large as the file, since none is converted."""
        sizes = allocated()
        place = RAM if self._device is None else self._device.name
        weights = Usage(weights_bytes=self.path.stat().st_size)
        return {**sizes, place: sizes.get(place, Usage()) + weights}

    def _largest(self) -> int:
        """Return the tokens of the largest chunk of a picture that has to be evaluated in one pass."""
        bitmaps = [self._mtmd.mtmd_bitmap_init(*size, None) for size in _SIZES]
        chunks = [self._chunks(each, "a picture").all for each in bitmaps]
        return max(each.tokens for some in chunks for each in some if each.media)

    def _read(self, part: MediaPart, key: str) -> _MediaFile:
        """Decode a file, and find out what stands for it."""
        chunks = self._decoded(part)
        ids, all_of_them = list[int](), list[tuple[int, ...]]()
        for number, each in enumerate(chunks.all):
            if not each.media:
                ids += each.text
                continue
            identity = f"{key} {self._identity} {number}"
            its = media_ids(identity, each.tokens, each.positions)
            ids += its
            all_of_them.append(tuple(its))
            self._of_chunk[all_of_them[-1]] = key
        self._keep_open(key, chunks)
        return _MediaFile(part, ids, tuple(all_of_them))

    def _forget_files(self) -> None:
        used = sum(len(each.part.data) for each in self._files.values())
        while used > _MOST_FILE_BYTES and len(self._files) > 1:
            key, file = self._files.popitem(last=False)
            self._open.pop(key, None)
            used -= len(file.part.data)
            for ids in file.chunks:
                del self._of_chunk[ids]

    def _keep_open(self, key: str, chunks: "_Chunks") -> None:
        """Keep a decoded file until its last chunk is encoded, or others need its room."""
        self._open[key] = chunks
        used = sum(each.size for each in self._open.values())
        while used > _MOST_OPEN_BYTES and len(self._open) > 1:
            used -= self._open.popitem(last=False)[1].size

    def _decoded(self, part: MediaPart) -> "_Chunks":
        """Return the chunks of a file."""
        clear_log()
        if part.kind == "image":
            width, height, rgb = picture(part.data, part.name)
            bitmap = self._mtmd.mtmd_bitmap_init(width, height, _pointer(rgb))
            del rgb  # before mtmd makes room
        else:
            check_sound(part.data, part.name)
            bitmap = self._mtmd.mtmd_helper_bitmap_init_from_buf(
                self.handle, _pointer(part.data), len(part.data), False
            )
            # Of fewer samples mtmd ends the process.
            if bitmap and self._mtmd.mtmd_bitmap_get_n_bytes(bitmap) <= ctypes.sizeof(
                ctypes.c_float
            ):
                self._mtmd.mtmd_bitmap_free(bitmap)
                bitmap = None
        if not bitmap:
            raise UsageError(f"{part.name} is damaged: it cannot be decoded; give another file")
        return self._chunks(bitmap, part.name)

    def _chunks(self, bitmap: int, name: str) -> "_Chunks":
        """Return what mtmd makes of a bitmap, which is freed."""
        try:
            return _Chunks(self._mtmd, self.handle, bitmap, self._mrope, name)
        finally:
            self._mtmd.mtmd_bitmap_free(bitmap)

    def _encode(self, ids: tuple[int, ...]) -> MediaChunk:
        key = self._of_chunk.get(ids)
        if key is None:
            raise PassFailed("a picture or a sound of this prompt is no longer known: ask again")
        file = self._files[key]
        if key not in self._open:
            self._keep_open(key, self._decoded(file.part))
        self._open.move_to_end(key)
        media = [each for each in self._open[key].all if each.media]
        chunk = media[file.chunks.index(ids)]
        clear_log()
        self._nodes, self._stopped = 0, self._cancel.is_set
        failed = self._stopped or self._mtmd.mtmd_encode_chunk(self.handle, chunk.pointer)
        if self._stopped:
            raise Cancelled
        if failed:
            detail = _reason()
            raise PassFailed(f"llama.cpp could not encode {file.part.name}: {detail}")
        rows = self._mtmd.mtmd_get_output_embd(self.handle)
        embeddings = np.ctypeslib.as_array(rows, (chunk.tokens, self._width)).copy()
        # Else every later answer in its cells has none either.
        if not np.isfinite(embeddings).all():
            raise PassFailed(f"{file.part.name} has no finite embeddings: give another file")
        if chunk is media[-1]:
            del self._open[key]
        return replace(chunk.places, embeddings=embeddings)


@dataclass(frozen=True, slots=True, eq=False)
class _MediaPiece:
    """Text or a chunk of a picture or a sound.

    Args:
        pointer: mtmd's.
        text: its ids, of text alone.
        tokens: how many.
        positions: how many they take.
        places: what goes into its pass, without embeddings.
    """

    pointer: int
    text: list[int]
    tokens: int
    positions: int
    places: MediaChunk

    @property
    def media(self) -> bool:
        """Whether it is of a picture or a sound."""
        return not self.text

    @property
    def causal(self) -> bool:
        """Whether it can be evaluated in several passes."""
        return self.places.causal


class _Chunks:
    """What mtmd makes of a bitmap.

    Attributes:
        all: in their order.
        size: about how many bytes they hold: four for each of the bitmap's, whose bytes become numbers.

    Raises:
        UsageError: it makes nothing of it.
    """

    def __init__(self, lib: Any, encoder: int, bitmap: int, mrope: bool, name: str) -> None:
        self._lib, self._encoder, self._mrope, self._name = lib, encoder, mrope, name
        pointer = lib.mtmd_input_chunks_init()
        weakref.finalize(self, lib.mtmd_input_chunks_free, pointer)
        part = lib.mtmd_input_part(bitmap=bitmap)
        parts = (ctypes.POINTER(lib.mtmd_input_part) * 1)(ctypes.pointer(part))
        if lib.mtmd_tokenize_from_parts(encoder, pointer, parts, 1, False) != 0:
            detail = _reason()
            raise UsageError(f"{name} cannot be shown to this model: {detail}")
        self.size = 4 * int(lib.mtmd_bitmap_get_n_bytes(bitmap))
        count = lib.mtmd_input_chunks_size(pointer)
        self.all = [self._piece(lib.mtmd_input_chunks_get(pointer, at)) for at in range(count)]

    def _piece(self, pointer: int) -> _MediaPiece:
        lib, tokens = self._lib, int(self._lib.mtmd_input_chunk_get_n_tokens(pointer))
        nothing = np.empty((0, 0), np.float32)
        if lib.mtmd_input_chunk_get_type(pointer) == lib.MTMD_INPUT_CHUNK_TYPE_TEXT:
            text = lib.mtmd_input_chunk_get_tokens_text(pointer, ctypes.byref(ctypes.c_size_t()))
            ids = text[:tokens]
            if min(ids) < 0:  # where mtmd looks for a token in vain
                raise UsageError(
                    f"{self._name} cannot be shown to this model, which lacks tokens of the encoder: give its own with --mmproj, or off"
                )
            return _MediaPiece(pointer, ids, tokens, tokens, MediaChunk(nothing, causal=True))
        positions = int(lib.mtmd_input_chunk_get_n_pos(pointer))
        causal = not lib.mtmd_decode_use_non_causal(self._encoder, pointer)
        places = moves = None
        if self._mrope:
            places, moves = self._places(pointer, tokens)
        # A picture's place may also depend on how many there are before it (HunyuanVL).
        if not 0 < positions <= tokens or (moves is not None and not moves[:3].all()):
            raise UsageError(f"{self._name} cannot be shown to this model: its encoder is unknown")
        return _MediaPiece(
            pointer, [], tokens, positions, MediaChunk(nothing, causal, places, moves)
        )

    def _places(self, pointer: int, tokens: int) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """Return positions of a chunk that begins at 0, and by how much they grow with its beginning."""
        image = self._lib.mtmd_input_chunk_get_tokens_image(pointer)
        if not image:
            rows = np.tile(np.arange(tokens, dtype=np.int32), (_SECTIONS, 1))
            return rows, np.ones_like(rows)
        two = np.zeros((2, tokens, _SECTIONS), np.int32)
        for begin in range(2):
            place = two[begin].ctypes.data_as(ctypes.POINTER(self._lib.mtmd_decoder_pos))
            self._lib.mtmd_helper_image_get_decoder_pos(image, begin, place)
        # llama.cpp has rows before columns.
        first, second = two[:, :, (0, 2, 1, 3)].transpose(0, 2, 1)
        return np.ascontiguousarray(first), np.ascontiguousarray(second - first)


def _pointer(data: bytes) -> Any:
    """Return where the bytes stand, which are not copied."""
    return ctypes.cast(ctypes.c_char_p(data), ctypes.POINTER(ctypes.c_uint8))


def _reason() -> str:
    """Return what llama.cpp last complained about, without the name of its function."""
    return last_complaint().rpartition("error: ")[2] or "no reason given"
