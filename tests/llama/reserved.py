"""What llama.cpp itself would allocate for a model: its dry run, and its log of a real load."""

import re
from dataclasses import dataclass
from pathlib import Path

import llama_cpp.llama_cpp as native

from localspec.llama.backend import clear_log, initialise, log_lines
from localspec.options import KV_TYPES, LoadOptions


@dataclass(frozen=True, slots=True)
class Reserved:
    """Bytes by kind, as llama.cpp logs them (in MiB, to a hundredth)."""

    model: float
    kv: float
    compute: float

    @property
    def total(self) -> float:
        return self.model + self.kv + self.compute


def logged() -> Reserved:
    """Return what the log of the last load says."""

    def total(kind: str) -> float:
        found = re.findall(rf"{kind} buffer size += +([\d.]+) MiB", "\n".join(log_lines()))
        return sum(map(float, found)) * 2**20

    return Reserved(total("model"), total("(?:KV|RS)"), total("compute"))


def dry_run(path: Path, options: LoadOptions) -> Reserved:
    """Let llama.cpp plan model and context without allocating what they need.

    Its log gives no size to buffers that it does not allocate, but tells what a cache would take.
    """
    initialise()
    clear_log()
    params = native.llama_model_default_params()
    params.no_alloc = True
    params.load_mode = 0
    params.n_gpu_layers = 0
    params.use_extra_bufts = False
    model = native.llama_model_load_from_file(str(path).encode(), params)
    assert model, "\n".join(log_lines())
    context_params = native.llama_context_default_params()
    context_params.n_ctx = options.n_ctx or 0
    context_params.n_batch = context_params.n_ubatch = options.n_batch or 0
    context_params.n_seq_max = 1
    context_params.n_outputs_max = options.max_rows
    context_params.type_k = context_params.type_v = KV_TYPES[options.kv_type]
    context_params.flash_attn_type = -1 if options.flash_attention else 0
    context = native.llama_init_from_model(model, context_params)
    assert context, "\n".join(log_lines())
    lines = "\n".join(log_lines())
    weights = float(native.llama_model_size(model))
    native.llama_free(context)
    native.llama_model_free(model)
    caches = re.findall(r"llama_kv_cache: size = +([\d.]+) MiB", lines)
    found = logged()
    return Reserved(weights, sum(map(float, caches)) * 2**20, found.compute)
