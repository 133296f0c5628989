"""LaunchOptions: which models to load, how, and what drafts."""

from dataclasses import dataclass, field, replace
from typing import ClassVar

from localspec.errors import UsageError
from localspec.options.load import LAYERS, LoadOptions
from localspec.options.option import check, option

_LONGEST_DRAFT = 63


@dataclass(frozen=True, slots=True)
class Abilities:
    """What an engine can do.

    Args:
        local_files: load files of this machine: their names, encoders and best sampling are known here.
        draft: draft as a request says.
        resize: load again with another context.
        stop_loops: stop an answer that repeats itself.
        at: the URL of the server that lacks the others, for messages.
    """

    local_files: bool = True
    draft: bool = True
    resize: bool = True
    stop_loops: bool = True
    at: str = ""

    def has(self, ability: str) -> bool:
        """Return whether it has an ability; an empty name is one that every engine has."""
        return not ability or bool(getattr(self, ability))

    def require(self, ability: str, what: str, remedy: str = "") -> None:
        """Raise UsageError where it lacks an ability, which something is for."""
        if not self.has(ability):
            raise UsageError(f"{what} is not available with a remote server ({self.at}){remedy}")


def abilities(server: str | None) -> Abilities:
    """Return what the engine can do that a server on the network is, or where there is none, one of this machine."""
    if server is None:
        return Abilities()
    return Abilities(local_files=False, draft=False, resize=False, stop_loops=False, at=server)


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """What to load, by the names that users give; a pair and a target exclude each other. What it says of a flag is its help.

    Args:
        pair: Pair of target and draft model. Default: your default model, or smollm2-135m.
        target: Target model alone, instead of a pair: a name or a GGUF file.
        draft_model: Draft model: a name or a GGUF file.
        draft: How to draft: auto, off, lookup, model, store, client, heads or forced. Changes the speed, and the text only by rounding; with --exact, not at all. Default: auto.
        draft_length: Tokens to draft at a time. Default: 3 with model or heads, 15 with lookup.
        load: how to load.
        exact: Give exactly the same text with any --draft; slower.
        offline: Do not use the network.
        fit: Reduce GPU layers, drafting or context to fit in free memory, or refuse to load; --no-fit loads anyway.
        further: more modes that the pair has to be ready for, as a comparison needs them.
        draft_lora: LoRA adapter for the draft model: a GGUF file.
        mmproj: GGUF file (mmproj) with the model's image and audio encoders; off reads text only. Default: the model's own.
        workers: Also use the devices of these workers, other machines that run `localspec worker`.
        draft_devices: Devices for the draft model, as with --device. Default: the target's, but for workers'.
        server: Answer with the model of this OpenAI-compatible server instead: vLLM, SGLang, llama-server, LM Studio, localspec serve. Default: off.
        server_key_file: File with the server's API key. Default: the variable LOCALSPEC_SERVER_KEY.
        prompt_cache: Cache what models read on disk, for later questions and programs; --no-prompt-cache neither writes nor uses it.
        draft_gpu_layers: Layers of the draft model to put on the GPU. Default: auto (as --gpu-layers, or all with --draft-device).

    Raises:
        UsageError: a value is of the wrong type, or out of its range, or two cannot be combined.
    """

    NEEDS: ClassVar = "local_files"

    pair: str | None = option(None, "models", "NAME", needs="")
    target: str | None = option(None, "models", "REF", needs="")
    draft_model: str | None = option(None, "models", "REF", needs="")
    draft: str = option("auto", "models", "MODE", needs="")
    draft_length: int | None = option(
        None,
        *("models", "K"),
        least=1,
        most=_LONGEST_DRAFT,
        range_text=f"from 1 to {_LONGEST_DRAFT}; --draft off turns drafting off",
    )
    load: LoadOptions = field(default_factory=LoadOptions)
    exact: bool = option(False, "exact")
    offline: bool = option(False, "device", needs="")
    fit: bool = option(True, "device")
    further: tuple[str, ...] = option(())
    draft_lora: str | None = option(None, "models", "FILE")
    mmproj: str | None = option(None, "models", "FILE|off")
    workers: tuple[str, ...] = option((), "device", "HOST:PORT,...", commas=True)
    draft_devices: tuple[str, ...] = option(
        (), "device", "NAME,…", name="draft_device", commas=True
    )
    draft_gpu_layers: int | None = option(
        None, "device", "N|auto", unset="auto", takes=LAYERS, least=0, most=10_000
    )

    prompt_cache: bool = option(True, "context")
    server: str | None = option(None, "server", "URL", unset="off", needs="")
    server_key_file: str | None = option(None, "server", "FILE", needs="")

    @property
    def can(self) -> Abilities:
        """What the engine can do that this is for."""
        return abilities(self.server)

    @property
    def reads_text_only(self) -> bool:
        """Whether no encoder is loaded, whatever there is."""
        return self.mmproj == "off"

    @property
    def target_load(self) -> LoadOptions:
        """How the target is loaded."""
        return self.load.exact() if self.exact else self.load

    def draft_load(self, load: LoadOptions) -> LoadOptions:
        """Return how the draft model is loaded beside a target that is loaded so.

        It is small, so that layers alone are shared out among its devices, by their free memory.
        """
        layers = self.draft_gpu_layers
        if layers is None and not self.draft_devices:
            layers = load.gpu_layers
        return replace(
            load,
            devices=self.draft_devices or load.devices,
            gpu_layers=layers,
            split="none" if load.split == "none" else "layers",
            tensor_split=None,
        )

    def __post_init__(self) -> None:
        check(self)
        if self.pair is not None and self.target is not None:
            raise UsageError(
                f"pair {self.pair} and target {self.target} cannot be combined: give one of them"
            )
        if self.exact and self.load.kv_type == "f32":
            raise UsageError(
                "--exact takes a bf16 or a quantised cache, but --kv-type is f32: remove one of them"
            )
