"""Writes a head as llama.cpp reads it: a GGUF of the architecture `eagle3`."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from localspec.storage.files import sync_directory
from localspec_student.head import NAMES
from localspec_student.target import Target

_BLOCK = 32
_Q8_0 = gguf.GGMLQuantizationType.Q8_0


def write_head(target: Target, state: Mapping[str, Any], path: Path) -> None:
    """Replace a file by a head's; matrices are of 8 bits where blocks divide their rows.

    Args:
        target: whose tokenizer the file has, too.
        state: of the head, see `train.load`.
        path: the file.

    Raises:
        OSError: the disk does not take it.
    """
    shape, partial = target.shape, path.with_suffix(".partial")
    try:
        writer = gguf.GGUFWriter(partial, "eagle3")
        writer.add_name("EAGLE-3 head trained by localspec-student")
        writer.add_context_length(shape.n_ctx)
        writer.add_embedding_length(shape.width)
        writer.add_feed_forward_length(shape.inner)
        writer.add_block_count(1)
        writer.add_head_count(shape.n_head)
        writer.add_head_count_kv(shape.n_kv)
        writer.add_key_length(shape.dim)
        writer.add_value_length(shape.dim)
        writer.add_layer_norm_rms_eps(shape.eps)
        writer.add_rope_dimension_count(shape.rotated)
        writer.add_rope_freq_base(shape.base)
        writer.add_array("eagle3.target_layers", [*shape.layers])
        writer.add_uint32("eagle3.target_hidden_size", shape.width)
        writer.add_bool("eagle3.norm_before_fc", True)
        for name, field in target.fields("tokenizer."):
            inner = field.types[1] if field.types[0] == gguf.GGUFValueType.ARRAY else None
            writer.add_key_value(name, field.contents(), field.types[0], sub_type=inner)
        for name, its in NAMES.items():
            weights = state["weights"][name].detach().float().numpy()
            if weights.ndim > 1 and weights.shape[1] % _BLOCK == 0:
                packed = gguf.quants.quantize(weights, _Q8_0)
                writer.add_tensor(f"{its}.weight", packed, raw_dtype=_Q8_0)
            else:
                writer.add_tensor(f"{its}.weight", weights.astype(np.float32))
        # Ids themselves, not differences to their places.
        writer.add_tensor("d2t", state["ids"].numpy().astype(np.int64))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        with partial.open("rb") as stream:
            os.fsync(stream.fileno())
        partial.replace(path)
        sync_directory(path.parent)
    finally:
        partial.unlink(missing_ok=True)
