"""LoadOptions: how a model is loaded and its context made."""

from dataclasses import dataclass, replace
from typing import ClassVar

from localspec.errors import UsageError
from localspec.options.option import check, cut, option

QUANTISED_KV_TYPES = {"q8_0": 8, "q5_1": 7, "q5_0": 6, "q4_1": 3, "q4_0": 2, "iq4_nl": 20}
"""ggml's type numbers of the quantised KV caches, the widest first."""

KV_TYPES = {"f32": 0, "f16": 1, "bf16": 30, **QUANTISED_KV_TYPES}
"""ggml's type numbers of the KV caches that llama.cpp has."""

_MOST_SNAPSHOTS = 7
"""What passes of eight tokens need, beyond which kernels change on GPUs; each takes as much memory as the state."""

_PLAIN_CHUNK = 256
"""Tokens of a prompt's pass by plain weights: in 128 reading takes a tenth longer, in 512 as long (`docs/measurements/pass-costs.md`)."""

HEADS_MEMORY = 512
"""Tokens of each sequence of which a target's rows are kept for its heads; at most twice as many."""

_HEADS_BATCH, _HEADS_ROWS, _MORE_ROWS = 64, 11, 4
"""Tokens of a pass of heads, and rows of logits: for one sequence, and for each other one."""

SPLITS = {"layers": 1, "tensor": 3, "none": 0}
"""llama.cpp's `split_mode` by our name for it."""

USUAL_N_CTX = 4096
"""Tokens of context where none were asked for, of a model that was trained for so many."""

_LARGEST_SHARE = 1e9
LAYERS = "a number of layers or 'auto'"

LOAD_MODES = {"copy": 0, "mmap": 1, "mlock": 2, "direct": 4}
"""llama.cpp's `load_mode` by our name for it."""


# llama.cpp aborts the process on what it cannot count, so the upper bounds matter, too.
@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a model is loaded and its context made. What it says of a flag is its help.

    Args:
        n_ctx: Context size in tokens. Default: up to 4096, or more in a chat or for a long prompt, if memory allows.
        kv_type: Type of the KV cache; those from q8_0 on save memory and change the text.
        threads: CPU threads. Default: one per physical core.
        gpu_layers: Layers to put on the GPU. Default: auto (all).
        devices: Devices to use, separated by commas: names, 'cpu' or 'auto'. Default: auto (all GPUs).
        threads_batch: CPU threads for wider passes, verification among them; None the same.
        flash_attention: True or False force it, and a quantised cache needs it; None decides by device and cache, see `attention`.
        repack: rearrange weights for the CPU's widest kernels: faster, but a wide pass rounds
            differently from a narrow one.
        load_mode: copy, mmap, mlock or direct; None maps the file where its pages are used as they
            are, and copies where repacking would keep a second copy beside the mapped one.
        n_batch: most tokens in one native call; prefill is cut into chunks of it. None takes 128
            on a CPU, where wider chunks cost memory and gain nothing, and 512 with a GPU.
        max_rows: most rows of logits that one pass may ask for.
        split: How to split a model between devices: by layers, by the tensors of each layer, or not at all.
        tensor_split: Shares of the devices, such as 3,1. Default: by free memory.
        cpu_moe: Keep the experts of MoE models on the CPU.
        kv_offload: Keep the KV cache of GPU layers on the GPU.

    Raises:
        UsageError: a value is of the wrong type, or out of its range, or two cannot be combined.
    """

    NEEDS: ClassVar = "local_files"

    n_ctx: int | None = option(None, "context", "N", name="ctx", least=2, most=1 << 24, needs="")
    kv_type: str = option("f16", "context", choices=tuple(KV_TYPES))
    threads: int | None = option(None, "device", "N", least=1, most=512)
    gpu_layers: int | None = option(
        None, "device", "N|auto", unset="auto", takes=LAYERS, least=0, most=10_000
    )
    devices: tuple[str, ...] = option((), "device", "NAME,…", name="device", commas=True)
    threads_batch: int | None = option(None, least=1, most=512)
    flash_attention: bool | None = option(None)
    repack: bool = option(True)
    load_mode: str | None = option(None, choices=tuple(LOAD_MODES))
    n_batch: int | None = option(None, least=1, most=1 << 16)
    max_rows: int = option(16, least=1, most=1 << 12)
    split: str = option("layers", "device", choices=tuple(SPLITS))
    tensor_split: str | None = option(None, "device", "N,N,…")
    cpu_moe: bool = option(False, "device")
    kv_offload: bool = option(True, "device")

    def __post_init__(self) -> None:
        check(self)
        _ = self.shares
        if self.flash_attention is False and self.kv_type in QUANTISED_KV_TYPES:
            raise UsageError(
                f"kv_type {self.kv_type} needs flash_attention, which is False: leave it out, or take f16"
            )

    @property
    def shares(self) -> tuple[float, ...]:
        """Return `tensor_split` as numbers; empty where it is None.

        Raises:
            UsageError: it is no list of numbers with commas between, none of them negative and one above 0.
        """
        if self.tensor_split is None:
            return ()
        try:
            shares = tuple(float(each) for each in self.tensor_split.split(","))
        except ValueError:
            shares = ()
        if not (all(0 <= each <= _LARGEST_SHARE for each in shares) and any(shares)):
            raise UsageError(
                f"tensor_split is {cut(self.tensor_split)}: it takes a number for each device, such as 3,1"
            )
        return shares

    @property
    def context(self) -> int:
        """Tokens of context: what was asked for, or the usual ones."""
        return self.n_ctx or USUAL_N_CTX

    def loading(self, *, on_gpu: bool) -> str:
        """Return `load_mode`, or what suits where the layers are.

        Repacked weights are a copy: mapping the file beside them doubles the resident memory.
        """
        if self.load_mode is not None:
            return self.load_mode
        return "copy" if self.repack and (self.cpu_moe or not on_gpu) else "mmap"

    def chunk(self, *, on_gpu: bool) -> int:
        """Return `n_batch`, or what suits where the layers are."""
        return self.n_batch or (512 if on_gpu else 128)

    @property
    def snapshots(self) -> int:
        """How many states of a pass a recurrent model keeps beside the last, if it can: so many tokens can be rejected."""
        return max(0, min(self.max_rows - 1, _MOST_SNAPSHOTS, self.chunk(on_gpu=False) - 2))

    def for_heads(self, count: int = 1) -> "LoadOptions":
        """Return how the context of heads is made that draft for so many sequences.

        Their passes are narrow, since some of their graphs compute logits of every token, wanted or not.
        """
        rows = min(_HEADS_BATCH, _HEADS_ROWS + _MORE_ROWS * (count - 1))
        return replace(self, n_batch=_HEADS_BATCH, max_rows=rows)

    def attention(self, *, on_gpu: bool) -> bool | None:
        """Return `flash_attention`, or what suits where the layers are; None lets llama.cpp decide.

        On a CPU, llama.cpp's own choice is flash attention, whose passes of 8 tokens and more take
        up to half as long again in a deep context (`docs/measurements/pass-costs.md`). Only a
        quantised cache has no other kernel.
        """
        if self.flash_attention is None and not on_gpu and self.kv_type in {"f16", "f32"}:
            return False
        return self.flash_attention

    def plain(self) -> "LoadOptions":
        """Return these options for weights as they lie in the file, which is mapped, and read prompts in wider passes."""
        n_batch = self.n_batch or _PLAIN_CHUNK
        return replace(self, repack=False, load_mode="mmap", n_batch=n_batch)

    def exact(self) -> "LoadOptions":
        """Return these options with the kernels whose narrow passes round alike on a CPU.

        Without repacking, with flash attention and a bf16 or quantised cache, passes of up to 7 or 16 tokens of
        most quantised models give the bits of single tokens (`docs/measurements/exact-mode.md`).
        """
        kv_type = self.kv_type if self.kv_type in QUANTISED_KV_TYPES else "bf16"
        return replace(self, repack=False, flash_attention=True, kv_type=kv_type)
