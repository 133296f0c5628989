"""LaunchOptions: which models to load, how, and what drafts."""

from dataclasses import dataclass, field, replace

from localspec.errors import UsageError
from localspec.options.load import LoadOptions
from localspec.options.option import Option, check, declared

_LONGEST_DRAFT = 63


@dataclass(frozen=True, slots=True)
class LaunchOptions:
    """What to load, by the names that users give.

    Args:
        pair: name of a pair; None with `target` None takes the default pair.
        target: a model's name or the path of a GGUF, instead of a pair.
        draft_model: likewise for the draft model; overrides the pair's own.
        draft: `off`, `auto`, `lookup`, `model`, the last two with a length if wanted: `model:3`.
            `auto` drafts only when it is expected to help.
        draft_length: tokens to draft a round by a drafter that is named; None takes the usual.
        load: how to load.
        exact: load with kernels, and draft only so far, that no bit depends on drafting.
        offline: use no network.
        fit: plan for the memory that is free, and refuse what it does not hold.
        further: more modes that the pair has to be ready for, as a comparison needs them.
        draft_lora: file of a LoRA adapter for the draft model.
        workers: addresses of workers whose devices are used, too.
        draft_devices: names of devices for the draft model's layers; empty uses those of the target.
        draft_gpu_layers: layers of the draft model to offload; None offloads all to devices of its own, and else as many
            as of the target.

    Raises:
        UsageError: a value is of the wrong type, or out of its range, or two cannot be combined.
    """

    pair: str | None = declared(
        None,
        Option(
            "Pair of models; smollm2-135m if you have not chosen one.",
            metavar="NAME",
            group="models",
            key=True,
            in_arm=True,
        ),
    )
    target: str | None = declared(
        None,
        Option(
            "Target model, instead of a pair: a name or a GGUF file.",
            metavar="REF",
            group="models",
            key=True,
            in_arm=True,
        ),
    )
    draft_model: str | None = declared(
        None,
        Option(
            "Draft model: a name or a GGUF file.",
            metavar="REF",
            group="models",
            key=True,
            in_arm=True,
        ),
    )
    draft: str = declared(
        "auto",
        Option(
            "How to draft: auto, off, lookup, model, store, heads or forced. Changes the speed, and the text by rounding at most, which --exact rules out.",
            metavar="MODE",
            group="models",
            key=True,
            in_arm=True,
            choices=("auto", "off"),
            open_choice=True,
        ),
    )
    draft_length: int | None = declared(
        None,
        Option(
            "Tokens to draft at a time. Default: 3 with model or heads, 15 with lookup.",
            metavar="K",
            group="models",
            key=True,
            least=1,
            most=_LONGEST_DRAFT,
            range_text=f"from 1 to {_LONGEST_DRAFT}; --draft off turns drafting off",
        ),
    )
    load: LoadOptions = field(default_factory=LoadOptions)
    exact: bool = declared(
        False,
        Option(
            "Give the same bytes with any --draft; slower.",
            group="exact",
            key=True,
            in_arm=True,
        ),
    )
    offline: bool = declared(False, Option("Do not use the network.", group="device", key=True))
    fit: bool = declared(
        True,
        Option(
            "Reduce GPU layers, draft or context to fit free memory, or refuse; --no-fit loads anyway.",
            group="device",
            key=True,
        ),
    )
    further: tuple[str, ...] = declared((), Option())
    draft_lora: str | None = declared(
        None,
        Option(
            "LoRA adapter for the draft model: a GGUF file.",
            metavar="FILE",
            group="models",
            key=True,
            in_arm=True,
        ),
    )
    workers: tuple[str, ...] = declared(
        (),
        Option(
            "Workers whose devices to use, too: `localspec worker` on other machines.",
            metavar="HOST:PORT,...",
            group="device",
            key=True,
            commas=True,
        ),
    )

    draft_devices: tuple[str, ...] = declared(
        (),
        Option(
            "Devices for the draft model's layers, as for --device. Default: those of the target.",
            name="draft_device",
            metavar="NAME,…",
            group="device",
            key=True,
            commas=True,
        ),
    )
    draft_gpu_layers: int | None = declared(
        None,
        Option(
            "Layers of the draft model to put on the GPU. Default: auto, which is as --gpu-layers, or all with --draft-device.",
            metavar="N|auto",
            group="device",
            key=True,
            unset="auto",
            takes="a number of layers or 'auto'",
            least=0,
            most=10_000,
        ),
    )

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
        if self.exact and self.load.kv_type not in {"f16", "bf16"}:
            raise UsageError(
                f"--exact needs a bf16 cache, but --kv-type is {self.load.kv_type}: "
                "remove one of them"
            )
