"""mtmd's own loop over a prompt with a picture or a sound: what llama.cpp's programs do, by the library that localspec uses."""

import ctypes
import os
from pathlib import Path
from typing import Any

import llama_cpp
import numpy as np
from llama_cpp import mtmd_cpp
from numpy.typing import NDArray

from localspec.media import picture
from localspec.messages import MediaPart

_lib: Any = mtmd_cpp


def reference_rows(
    target: Path, encoder: Path, part: MediaPart, prompt: str
) -> tuple[int, NDArray[np.float32]]:
    """Return the tokens of a prompt and the logits behind it; `part` stands where the marker is."""
    sizes = llama_cpp.llama_model_default_params()
    sizes.n_gpu_layers = 0
    model = llama_cpp.llama_model_load_from_file(os.fsencode(target), sizes)
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_threads, params.n_threads_batch = 4096, 2048, 2, 2
    context = llama_cpp.llama_init_from_model(model, params)
    ways = _lib.mtmd_context_params_default()
    ways.use_gpu, ways.warmup, ways.n_threads, ways.print_timings = False, False, 2, False
    handle = _lib.mtmd_init_from_file(os.fsencode(encoder), model, ways)
    bitmap, chunks = _bitmap(handle, part), _lib.mtmd_input_chunks_init()
    data = prompt.encode()
    text = _lib.mtmd_input_text(text=data, text_len=len(data), add_special=True, parse_special=True)
    bitmaps = (ctypes.c_void_p * 1)(bitmap)
    assert _lib.mtmd_tokenize(handle, chunks, ctypes.byref(text), bitmaps, 1) == 0
    behind = llama_cpp.llama_pos(0)
    failed = _lib.mtmd_helper_eval_chunks(
        handle, context, chunks, 0, 0, 2048, True, ctypes.byref(behind)
    )
    assert not failed
    width = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    row = llama_cpp.llama_get_logits_ith(context, -1)
    rows = np.ctypeslib.as_array(row, (width,)).copy()
    tokens = int(_lib.mtmd_helper_get_n_tokens(chunks))
    _lib.mtmd_input_chunks_free(chunks)
    _lib.mtmd_bitmap_free(bitmap)
    _lib.mtmd_free(handle)
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return tokens, rows


def _bitmap(handle: int, part: MediaPart) -> int:
    if part.kind == "audio":
        data = (ctypes.c_uint8 * len(part.data)).from_buffer_copy(part.data)
        return int(_lib.mtmd_helper_bitmap_init_from_buf(handle, data, len(part.data), False))
    pixels = picture(part.data, part.name)
    rgb = (ctypes.c_uint8 * len(pixels.rgb)).from_buffer_copy(pixels.rgb)
    return int(_lib.mtmd_bitmap_init(pixels.width, pixels.height, rgb))
