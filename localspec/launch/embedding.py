"""Embedding: a model that is here is loaded to make vectors of texts, or to rank them."""

import time
from collections.abc import Callable
from dataclasses import replace

from localspec.decoding.cancel import CancelFlag
from localspec.engine.embedding import LoadedEmbedder
from localspec.engine.protocol import Loading
from localspec.errors import ModelUnavailable
from localspec.llama.buffer_log import together
from localspec.llama.embedder import Embedder
from localspec.llama.model import LlamaModel
from localspec.messages import Held
from localspec.models.gguf import read_model
from localspec.models.registry import load_registry
from localspec.models.store import LoadedFiles
from localspec.options import LaunchOptions
from localspec.plan.facts import free_memory, name_models
from localspec.plan.fit import PairLoad

_USUAL_N_CTX = 512


def load_embedder(
    options: LaunchOptions,
    others: Held | None,
    cancel: CancelFlag,
    report: Callable[[Loading], None],
) -> LoadedEmbedder:
    """Load the target of a request, as far as the memory that is free holds it.

    Args:
        options: say what, and how.
        others: what others hold that could be let go, see `Load`.
        cancel: stops it, and then the passes of what was loaded.
        report: gets how far it is.

    Raises:
        NoRoom: there would be more room without those others.
        Cancelled: `cancel` was set.
        ModelUnavailable: it is not here.
        ModelFileError: its file is no sound GGUF.
        ModelLoadError: it does not fit, or llama.cpp cannot load it.
    """
    started_s, name = time.monotonic(), options.target or ""
    path = name_models([name], load_registry(), offline=True)[0].path
    if path is None:
        raise ModelUnavailable(f"{name} is not on this machine: run `localspec pull {name}`")
    header, load = replace(read_model(path), name=name), options.load
    if options.fit:
        usual = replace(load, n_ctx=_USUAL_N_CTX, n_batch=_USUAL_N_CTX)
        pair, free = PairLoad.of(header, options=usual), free_memory()
        if others is not None:
            pair.require_room(free, others, 1)
        plan = pair.fit(free)
        if plan is not None and plan.gpus and load.gpu_layers is None:
            load = replace(load, gpu_layers=plan.target_layers)
    files = LoadedFiles()
    files.note(path)
    loaded = LlamaModel(path, load, cancel, lambda share: report(Loading(name, share)))
    try:
        embedder = Embedder(loaded, cancel)
    except BaseException:
        loaded.close()
        raise
    taken = together([loaded.allocated, embedder.allocated])
    held = Held({place: usage.total_bytes for place, usage in taken.items()})
    load_s = time.monotonic() - started_s
    return LoadedEmbedder(embedder, cancel, name, load_s, held, files.check)
