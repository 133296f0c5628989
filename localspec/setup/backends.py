"""Backends that llama.cpp can be built for: CMake's options, what the library calls them, and what a build needs."""

from dataclasses import dataclass

CPU = "cpu"


@dataclass(frozen=True, slots=True)
class BackendKind:
    """One kind of GPU, or none.

    Args:
        name: what `--for` takes.
        title: as people call it.
        option: of CMake.
        called: what a build that has it calls it, in small letters.
        core_minutes: what compiling takes on one core.
        measured: whether anybody measured that.
    """

    name: str
    title: str
    option: str
    called: frozenset[str]
    core_minutes: int
    measured: bool = False


# In the order of preference where a machine has several.
BACKENDS = {
    each.name: each
    for each in (
        BackendKind("cuda", "CUDA", "-DGGML_CUDA=ON", frozenset({"cuda"}), 74, measured=True),
        BackendKind("metal", "Metal", "-DGGML_METAL=ON", frozenset({"metal", "mtl"}), 8),
        BackendKind("rocm", "ROCm", "-DGGML_HIP=ON", frozenset({"rocm", "hip"}), 60),
        BackendKind(
            "vulkan", "Vulkan", "-DGGML_VULKAN=ON", frozenset({"vulkan"}), 21, measured=True
        ),
        BackendKind(CPU, "the CPU", "", frozenset({"cpu"}), 6, measured=True),
    )
}
RPC_OPTION, RPC = "-DGGML_RPC=ON", "rpc"
