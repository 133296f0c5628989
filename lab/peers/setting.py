"""PeerSetting: how llama-server is started, so that it does what we do."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from localspec.errors import UsageError
from localspec.options import LoadOptions
from localspec.storage.paths import shown

# What makes llama-server draft as a mode says, beside its defaults.
PEER_FLAGS: Mapping[str, tuple[str, ...]] = {
    "server:none": (),
    "server:draft": ("--spec-type", "draft-simple"),
    "server:ngram-simple": ("--spec-type", "ngram-simple"),
    "server:ngram-mod": ("--spec-type", "ngram-mod"),
    "server:ngram-map-k": ("--spec-type", "ngram-map-k"),
}


def peer_program(path: str) -> Path:
    """Return the path of a llama-server.

    Raises:
        UsageError: there is no such file.
    """
    program = Path(path).expanduser()
    if not program.is_file():
        raise UsageError(f"there is no file {shown(program)}: give the path of llama-server")
    return program.absolute()


@dataclass(frozen=True, slots=True)
class PeerSetting:
    """What a server is started with.

    Args:
        program: the binary.
        target: file of the target.
        draft_model: file of the draft model, for `server:draft`.
        n_ctx: tokens of context.
        options: how our own models are loaded.
        threads: CPU threads, for both.
        n_batch: tokens in a chunk of prefill.
    """

    program: Path
    target: Path
    draft_model: Path | None
    n_ctx: int
    options: LoadOptions
    threads: int
    n_batch: int

    def flags(self, mode: str) -> list[str]:
        """Return what makes a server draft as a mode says, and all else as we do it."""
        options, threads = self.options, str(self.threads)
        flags = ["-m", str(self.target), "-c", str(self.n_ctx), "-np", "1", "-cram", "0"]
        flags += ["-t", threads, "-tb", str(options.threads_batch or threads)]
        flags += ["-b", str(self.n_batch), "-ub", str(self.n_batch)]
        flags += ["-ctk", options.kv_type, "-ctv", options.kv_type]
        if options.flash_attention is not None:
            flags += ["-fa", "on" if options.flash_attention else "off"]
        if not options.repack:
            flags.append("--no-repack")
        if options.gpu_layers is not None:
            flags += ["-ngl", str(options.gpu_layers)]
        if options.devices:
            names = [name for name in options.devices if name.lower() != "cpu"]
            flags += ["-dev", ",".join(names) or "none"]
        if options.split != "layers":
            flags += ["-sm", options.split]
        if options.tensor_split is not None:
            flags += ["-ts", options.tensor_split]
        flags += ["--cpu-moe"] if options.cpu_moe else []
        flags += [] if options.kv_offload else ["-nkvo"]
        if mode == "server:draft":
            flags += ["-md", str(self.draft_model), "--spec-draft-n-max", "3"]
            flags += ["-ctkd", options.kv_type, "-ctvd", options.kv_type]
            if options.gpu_layers is not None:
                flags += ["-ngld", str(options.gpu_layers)]
        return [*flags, *PEER_FLAGS[mode]]
