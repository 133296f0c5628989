"""LoadOptions: how a model is loaded and its context made."""

from dataclasses import dataclass, replace

from localspec.errors import UsageError

KV_TYPES = {"f32": 0, "f16": 1, "q8_0": 8, "bf16": 30}
"""ggml's type numbers of the KV caches that we offer."""

LOAD_MODES = {"copy": 0, "mmap": 1, "mlock": 2, "direct": 4}
"""llama.cpp's `load_mode` by our name for it."""


# llama.cpp aborts the process on what it cannot count, so the upper bounds matter, too.
_RANGES = {
    "n_ctx": (2, 1 << 24),
    "gpu_layers": (0, 10_000),
    "threads": (1, 512),
    "threads_batch": (1, 512),
    "n_batch": (1, 1 << 16),
    "max_rows": (1, 1 << 12),
}


@dataclass(frozen=True, slots=True)
class LoadOptions:
    """How a model is loaded and its context made.

    Args:
        n_ctx: tokens of context; None takes 4096, or what the model was trained for if less.
        gpu_layers: layers to offload; None offloads all where there is a GPU.
        devices: names of devices to use; empty uses all GPUs.
        threads: CPU threads for passes of one token; None takes the physical cores.
        threads_batch: CPU threads for wider passes, verification among them; None the same.
        kv_type: f16, bf16, f32 or q8_0.
        flash_attention: True or False force it; None decides by device and cache, see `attention`.
        repack: rearrange weights for the CPU's widest kernels: faster, but a wide pass rounds
            differently from a narrow one.
        load_mode: copy, mmap, mlock or direct; None maps the file where its pages are used as they
            are, and copies where repacking would keep a second copy beside the mapped one.
        n_batch: most tokens in one native call; prefill is cut into chunks of it. None takes 128
            on a CPU, where wider chunks cost memory and gain nothing, and 512 with a GPU.
        max_rows: most rows of logits that one pass may ask for.
    """

    n_ctx: int | None = None
    gpu_layers: int | None = None
    devices: tuple[str, ...] = ()
    threads: int | None = None
    threads_batch: int | None = None
    kv_type: str = "f16"
    flash_attention: bool | None = None
    repack: bool = True
    load_mode: str | None = None
    n_batch: int | None = None
    max_rows: int = 16

    def __post_init__(self) -> None:
        for name, (least, most) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise UsageError(f"{name} is {value}: it must be from {least} to {most}")
        if self.kv_type not in KV_TYPES:
            raise UsageError(f"kv_type is {self.kv_type!r}: choose of {', '.join(KV_TYPES)}")
        if self.load_mode is not None and self.load_mode not in LOAD_MODES:
            raise UsageError(f"load_mode is {self.load_mode!r}: choose of {', '.join(LOAD_MODES)}")

    def chunk(self, *, on_gpu: bool) -> int:
        """Return `n_batch`, or what suits where the layers are."""
        return self.n_batch or (512 if on_gpu else 128)

    def attention(self, *, on_gpu: bool) -> bool | None:
        """Return `flash_attention`, or what suits where the layers are; None lets llama.cpp decide.

        On a CPU, llama.cpp's own choice is flash attention, whose passes of 8 tokens and more take
        up to half as long again in a deep context (`docs/measurements/pass-costs.md`). Only a
        quantised cache has no other kernel.
        """
        if self.flash_attention is None and not on_gpu and self.kv_type in {"f16", "f32"}:
            return False
        return self.flash_attention

    @property
    def rounds_by_threads(self) -> bool:
        """Whether rows of a CPU's passes depend on how many threads there are.

        Flash attention shares the cache out among them where it is f16 or f32.
        """
        return bool(self.flash_attention) and self.kv_type in {"f16", "f32"}

    def exact(self) -> "LoadOptions":
        """Return these options with the kernels whose narrow passes round alike on a CPU.

        Without repacking, with flash attention and a bf16 cache, texts of passes up to 4 tokens
        wide were found equal to those of single tokens (`docs/measurements/exact-mode.md`).
        """
        return replace(self, repack=False, flash_attention=True, kv_type="bf16")
