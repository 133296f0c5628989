"""The wishes of the golden table: what is asked for on which machine, with which models there, and what was measured of them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from localspec.messages import Held
from tests.plan.machines import GB, MACHINES

Kind = Literal["plan", "pull", "doctor", "recommend", "choices", "list"]

CHEAP = ((1, 32), (0.05, 0.055))
"""What passes take where wide ones cost little."""
DEAR = ((1, 32), (0.05, 1.6))
CPU = ((1, 2, 4, 8, 16, 24, 32), (0.0278, 0.0486, 0.0792, 0.1288, 0.1625, 0.2422, 0.287))


@dataclass(frozen=True, slots=True)
class Case:
    """A row's question.

    Args:
        name: says what is special about it; each is there once.
        machine: of `MACHINES`.
        launch: fields of `LaunchOptions`; those of `LoadOptions` stand in `load`.
        here: models of the registry that are on the machine; with a `+` their mmproj file, too.
        wish: `parallel`, `roomy`, `least_ctx` and `others`, where they are not the usual ones.
        costs: seconds of passes by widths, by the model's name and its role; with a third item, how often they are doubted.
        kind: `plan`, or the command whose words are the answer, with its flags.
        flags: of that command.
    """

    name: str
    machine: str
    launch: Mapping[str, Any] = field(default_factory=dict)
    here: tuple[str, ...] = ()
    wish: Mapping[str, Any] = field(default_factory=dict)
    costs: Mapping[str, Any] = field(default_factory=dict)
    kind: Kind = "plan"
    flags: tuple[str, ...] = ()


CODER = ("qwen2.5-coder-1.5b", "qwen2.5-coder-0.5b")
QWEN3 = ("qwen3-8b", "qwen3-0.6b")
LLAMA = ("llama3.1-8b", "llama3.2-1b")
PAIRS = {
    "smollm2-135m": ("smollm2-135m",),
    "qwen2.5-coder-1.5b": CODER,
    "qwen3-8b": QWEN3,
    "llama3.1-8b": LLAMA,
    "qwen3-32b": ("qwen3-32b", "qwen3-1.7b"),
    "qwen3.5-4b": ("qwen3.5-4b",),
    "qwen3-30b-a3b-2507": ("qwen3-30b-a3b-2507",),
}


def _pairs_on_machines() -> Iterator[Case]:
    """Every pair on machines that hold it well, hold it partly, and do not hold it."""
    for pair, here in PAIRS.items():
        for machine in MACHINES:
            yield Case(f"{pair} on {machine}", machine, {"pair": pair}, here)


def _own(name: str, machine: str = "16 GB", target: str = "big.gguf", **more: Any) -> Case:
    """Return a case with files of the user's own."""
    fields = {each: more.pop(each) for each in ("wish", "costs", "here") if each in more}
    load = more.pop("load", None)
    launch = {"target": target, **more, **({"load": load} if load else {})}
    return Case(name, machine, launch, **fields)


def _of_drafting() -> Iterator[Case]:
    pair = {"pair": "qwen2.5-coder-1.5b"}
    for mode in (
        "off",
        "auto",
        "lookup",
        "lookup:8",
        "model",
        "model:5",
        "heads",
        "model:99",
        "psychic",
    ):
        yield Case(f"draft {mode}", "8 GB", {**pair, "draft": mode}, CODER)
    yield Case(
        "draft length of lookup", "8 GB", {**pair, "draft": "lookup", "draft_length": 4}, CODER
    )
    yield Case(
        "off, and model to compare",
        "8 GB",
        {**pair, "draft": "off", "further": ("model:2",)},
        CODER,
    )
    yield Case(
        "model where the pair has none",
        "8 GB",
        {"pair": "smollm2-135m", "draft": "model"},
        PAIRS["smollm2-135m"],
    )
    yield _own("model where none is named", draft="model")
    yield _own("own pair", draft_model="small.gguf")
    yield _own("own pair, by model", draft_model="small.gguf", draft="model")
    yield _own(
        "draft model nobody needs is not looked at", draft_model="nowhere.gguf", draft="lookup"
    )
    yield _own("own pair of another vocabulary", draft_model="other.gguf")
    yield _own("own pair of an alien vocabulary", draft_model="strange.gguf")
    yield _own("draft model with a short context", draft_model="short.gguf", load={"n_ctx": 8192})
    yield _own("draft model that cannot roll back", draft_model="recurrent.gguf")
    yield _own("target that cannot roll back", target="recurrent.gguf", draft_model="small.gguf")
    yield _own("adapter", draft_model="small.gguf", draft_lora="lora.gguf")
    yield _own("adapter by model", draft_model="small.gguf", draft_lora="lora.gguf", draft="model")
    yield _own(
        "adapter of another architecture", draft_model="small.gguf", draft_lora="lora-qwen.gguf"
    )
    yield _own("adapter that is none", draft_model="small.gguf", draft_lora="control.gguf")
    yield _own("adapter without a draft model", draft_lora="lora.gguf")
    for name, seconds, doubts in (
        ("cheap", 0.005, 0), ("dear", 0.05, 0), ("dear, not sure", 0.05, 1), ("nearly too dear", 0.0425, 0),
        ("nearly too dear, not sure", 0.0425, 1), ("near break-even, not sure", 0.046, 2),
    ):  # fmt: skip
        small = ((1, 32), (seconds, 2 * seconds), doubts)
        costs: Mapping[str, Any] = {"target big.gguf": CHEAP, "draft small.gguf": small}
        yield _own(f"measured draft model, {name}", draft_model="small.gguf", costs=costs)
        if "sure" not in name:
            yield _own(
                f"measured draft model, {name}, 4 at a time",
                draft_model="small.gguf",
                costs=costs,
                wish={"parallel": 4},
            )
    dear = {"target big.gguf": DEAR, "draft small.gguf": ((1, 32), (0.05, 0.1))}
    yield _own(
        "measured draft model, dear, wanted", draft_model="small.gguf", draft="model", costs=dear
    )
    yield _own(
        "measured draft model, dear, as many as pay",
        draft_model="small.gguf",
        costs=dear,
        wish={"parallel": None},
    )
    yield _own(
        "measured draft model, dear, on a GPU",
        "32 GB, GPU of 24",
        draft_model="small.gguf",
        costs=dear,
    )
    yield _own("target alone measured", draft_model="small.gguf", costs={"target big.gguf": DEAR})
    only_target = (CODER[0],)
    for name, costs in (
        ("known as CPUs are", {}),
        ("measured cheap", {"target qwen2.5-coder-1.5b": CHEAP}),
        ("measured dear", {"target qwen2.5-coder-1.5b": DEAR}),
        ("measured cheap, in doubt", {"target qwen2.5-coder-1.5b": (*CHEAP, 1)}),
    ):
        yield Case(f"draft model not here, {name}", "16 GB", pair, only_target, costs=costs)
        yield Case(f"pair not here, {name}", "16 GB", pair, (), costs=costs)
    other = {"target llama3.2-1b": CHEAP}
    yield Case(
        "pair not here, another model was measured", "16 GB", pair, ("llama3.2-1b",), costs=other
    )
    yield Case("pair not here, on a GPU", "16 GB, GPU of 8", pair)
    yield Case("pair not here, by model", "16 GB", {**pair, "draft": "model"})
    yield Case("pair not here, that pays on CPUs", "16 GB", {"pair": "qwen3-8b"})
    yield Case(
        "draft model not here, pays and is noted", "16 GB", {"pair": "qwen3-8b"}, ("qwen3-8b",)
    )
    yield Case(
        "draft model not here, named",
        "16 GB",
        {"pair": "smollm2-1.7b", "draft_model": "smollm2-360m"},
        ("smollm2-1.7b",),
    )
    yield Case("pair near break-even", "8 GB", {"pair": "smollm2-1.7b"})


def _of_heads() -> Iterator[Case]:
    mtp = {"target": "mtp.gguf"}
    yield Case("MTP layers", "16 GB", mtp)
    yield Case("MTP layers, wanted", "16 GB", {**mtp, "draft": "heads"})
    yield Case("MTP layers, exact", "16 GB", {**mtp, "exact": True})
    yield Case("MTP layers, draft off", "16 GB", {**mtp, "draft": "off"})
    yield Case(
        "MTP layers before a draft model that is not named",
        "16 GB",
        {**mtp, "draft_model": "small.gguf"},
    )
    yield Case(
        "MTP layers, and a draft model is wanted",
        "16 GB",
        {**mtp, "draft_model": "small.gguf", "draft": "model"},
    )
    yield Case("MTP layers on a GPU", "16 GB, GPU of 8", mtp)
    yield Case(
        "MTP layers on a GPU that is small",
        "64 GB, GPUs of 24 and 12",
        {**mtp, "load": {"gpu_layers": 5}},
    )
    yield Case("MTP layers that do not fit", "4 GB", mtp)
    yield Case(
        "MTP layers that cost too much",
        "16 GB",
        mtp,
        costs={"target mtp.gguf": DEAR, "heads mtp.gguf": CHEAP},
    )
    yield Case("three MTP layers", "16 GB", {"target": "three-mtp.gguf"})
    yield Case("three MTP layers, exact", "16 GB", {"target": "three-mtp.gguf", "exact": True})
    yield Case("MTP layers that are only promised", "16 GB", {"target": "promises.gguf"})
    yield Case(
        "MTP layers that are only promised, wanted",
        "16 GB",
        {"target": "promises.gguf", "draft": "heads"},
    )
    yield Case(
        "older file without MTP layers",
        "16 GB",
        {"pair": "qwen3.5-4b"},
        ("qwen3.5-4b:Q4_K_M-plain",),
    )
    yield _own("EAGLE-3 heads", draft_model="eagle3.gguf")
    yield _own("EAGLE-3 heads, wanted", draft_model="eagle3.gguf", draft="heads:3")
    yield _own("EAGLE-3 heads, as a draft model", draft_model="eagle3.gguf", draft="model")
    yield _own(
        "EAGLE-3 heads with an adapter",
        draft_model="eagle3.gguf",
        draft_lora="lora.gguf",
        draft="heads",
    )
    yield _own("EAGLE-3 heads of another width", draft_model="eagle3.gguf", target="small.gguf")
    yield _own("EAGLE-3 heads as the target", target="eagle3.gguf")
    yield _own(
        "EAGLE-3 heads that do not fit", "4 GB", draft_model="eagle3.gguf", load={"n_ctx": 1024}
    )
    yield _own("EAGLE-3 heads on a GPU", "32 GB, GPU of 24", draft_model="eagle3.gguf")
    yield _own("heads wanted of a model", draft_model="small.gguf", draft="heads")
    yield _own("heads wanted without any", draft="heads")
    costs = {"target big.gguf": DEAR, "heads eagle3.gguf": CHEAP}
    yield _own("EAGLE-3 heads that cost too much", draft_model="eagle3.gguf", costs=costs)
    eagle3 = ("qwen3-8b", "qwen3-8b-eagle3")
    yield Case(
        "EAGLE-3 heads of the registry",
        "16 GB",
        {"target": "qwen3-8b", "draft_model": "qwen3-8b-eagle3"},
        eagle3,
    )
    for kind in ("dflash", "dspark"):
        yield _own(f"{kind} block", target="qwen3.gguf", draft_model=f"{kind}.gguf")
    yield _own("dflash block that costs too much", target="qwen3.gguf", draft_model="dflash.gguf", costs={
        "target qwen3.gguf": DEAR, "heads dflash.gguf": CHEAP,
    })  # fmt: skip
    yield _own("assistant of Gemma 4", target="gemma4.gguf", draft_model="assistant.gguf")
    yield _own(
        "assistant of Gemma 4, exact",
        target="gemma4.gguf",
        draft_model="assistant.gguf",
        exact=True,
    )
    yield _own("assistant of another model", target="big.gguf", draft_model="assistant.gguf")


def _of_encoders() -> Iterator[Case]:
    yield Case(
        "encoder of the registry", "8 GB", {"pair": "gemma3-4b"}, ("gemma3-4b+", "gemma3-270m")
    )
    yield Case(
        "encoder of the registry, on a GPU",
        "16 GB, GPU of 8",
        {"pair": "gemma3-4b"},
        ("gemma3-4b+", "gemma3-270m"),
    )
    yield Case(
        "encoder of the registry that does not fit",
        "4 GB",
        {"pair": "gemma3-4b"},
        ("gemma3-4b+", "gemma3-270m"),
    )
    yield Case(
        "encoder of the registry that is not here",
        "8 GB",
        {"pair": "gemma3-4b"},
        ("gemma3-4b", "gemma3-270m"),
    )
    yield Case(
        "encoder of the registry, off",
        "8 GB",
        {"pair": "gemma3-4b", "mmproj": "off"},
        ("gemma3-4b+", "gemma3-270m"),
    )
    yield _own("encoder beside its model", target="seeing/big.gguf")
    yield _own("encoder beside its model, off", target="seeing/big.gguf", mmproj="off")
    yield _own("encoder beside its model, too large", target="hugely/big.gguf")
    yield _own(
        "encoder beside its model, too large, unless nothing is to fit",
        target="hugely/big.gguf",
        fit=False,
    )
    yield _own("encoder that is named", mmproj="sees.gguf")
    yield _own("encoder of sounds that is named", mmproj="hears.gguf")
    yield _own("encoder of another model", mmproj="sees-narrow.gguf")
    yield _own("encoder that is named and too large", mmproj="sees-hugely.gguf")
    yield _own("encoder that is a model", mmproj="small.gguf")
    yield _own("encoder that is not there", mmproj="nowhere.gguf")
    yield _own("encoder beside a draft model", target="seeing/big.gguf", draft_model="small.gguf")
    yield _own("encoder as the target", target="sees.gguf")


def _of_loading() -> Iterator[Case]:
    for kind in ("f32", "bf16", "q8_0", "q4_0", "iq4_nl"):
        yield _own(f"cache of {kind}", draft_model="small.gguf", load={"kv_type": kind})
        yield _own(f"cache of {kind}, context of 32768", load={"kv_type": kind, "n_ctx": 32768})
    for n_ctx in (512, 2048, 8192, 65536, 262144):
        yield _own(f"context of {n_ctx}", "8 GB", draft_model="small.gguf", load={"n_ctx": n_ctx})
        yield _own(
            f"context of {n_ctx} on a GPU",
            "16 GB, GPU of 8",
            draft_model="small.gguf",
            load={"n_ctx": n_ctx},
        )
    yield _own("exact", exact=True, draft_model="small.gguf")
    yield _own(
        "exact with a cache of q8_0", exact=True, draft_model="small.gguf", load={"kv_type": "q8_0"}
    )
    yield _own("exact on a GPU", "16 GB, GPU of 8", exact=True, draft_model="small.gguf")
    yield _own("exact, draft off", exact=True, draft="off")
    yield _own("exact and f32", exact=True, load={"kv_type": "f32"})
    gpu, two = "16 GB, GPU of 8", "64 GB, GPUs of 24 and 12"
    yield _own("no layer on a GPU", gpu, load={"gpu_layers": 0}, draft_model="small.gguf")
    yield _own("nine layers on a GPU", gpu, load={"gpu_layers": 9}, draft_model="small.gguf")
    yield _own(
        "draft model on the CPU",
        gpu,
        draft_devices=("CPU",),
        draft_model="small.gguf",
        draft="model",
    )
    yield _own(
        "draft model on the other GPU",
        two,
        load={"devices": ("CUDA0",)},
        draft_devices=("CUDA1",),
        draft_model="small.gguf",
    )
    yield _own(
        "four layers of the draft model on a GPU",
        gpu,
        draft_gpu_layers=4,
        draft_model="small.gguf",
        draft="model",
    )
    yield _own("device that is not there", gpu, load={"devices": ("CUDA7",)})
    yield _own("split by tensors", two, load={"split": "tensor"}, draft_model="small.gguf")
    yield _own("split by tensors with one GPU", gpu, load={"split": "tensor"})
    yield _own("split not at all", two, load={"split": "none"})
    yield _own("split three to one", two, load={"tensor_split": "3,1"})
    yield _own("split in three", two, load={"tensor_split": "1,1,1"})
    yield _own("experts on the CPU", gpu, "experts.gguf", load={"cpu_moe": True})
    yield _own("experts on both", "32 GB, GPU of 24", "experts.gguf")
    yield _own("cache on the CPU", gpu, load={"kv_offload": False})
    yield _own("mapped", load={"load_mode": "mmap"})
    yield _own("narrow chunks", load={"n_batch": 32})
    yield _own("flash attention", load={"flash_attention": True})
    yield _own("without flash attention on a GPU", gpu, load={"flash_attention": False})
    yield _own("not made to fit", "4 GB", draft_model="small.gguf", fit=False)
    yield _own("not made to fit, on a GPU", gpu, draft_model="small.gguf", fit=False)
    yield _own(
        "free memory unknown", "16 GB, free unknown", draft_model="small.gguf", wish={"roomy": True}
    )
    yield _own("header that says little", target="toy.gguf", draft_model="toy.gguf")
    worker: dict[str, Any] = {"workers": ("127.0.0.1:50052",)}
    yield _own("worker", "8 GB, worker of 24", draft_model="small.gguf", **worker)
    yield _own("worker, heads in a file", "8 GB, worker of 24", draft_model="eagle3.gguf", **worker)
    yield _own("worker, split by tensors", "8 GB, worker of 24", load={"split": "tensor"}, **worker)


def _of_contexts() -> Iterator[Case]:
    for machine in (
        "8 GB",
        "16 GB",
        "128 GB",
        "16 GB, GPU of 8",
        "32 GB, GPU of 24",
        "64 GB, GPUs of 24 and 12",
    ):
        yield _own(f"conversation on {machine}", machine, wish={"roomy": True})
        yield _own(
            f"conversation of a pair on {machine}",
            machine,
            draft_model="small.gguf",
            wish={"roomy": True},
        )
    yield _own(
        "conversation with a cache of q8_0", "8 GB", load={"kv_type": "q8_0"}, wish={"roomy": True}
    )
    yield _own("conversation with heads", draft_model="eagle3.gguf", wish={"roomy": True})
    yield _own("conversation with pictures", target="seeing/big.gguf", wish={"roomy": True})
    yield _own(
        "conversation of a model of short contexts", target="short.gguf", wish={"roomy": True}
    )
    yield _own("conversation, context asked", load={"n_ctx": 6000}, wish={"roomy": True})
    yield _own("conversation, not made to fit", fit=False, wish={"roomy": True})
    for least, machine, load in (
        (4000, "16 GB", None), (9000, "16 GB", None), (30000, "8 GB", None), (30000, "16 GB, GPU of 8", None),
        (500_000, "128 GB", None), (9000, "16 GB", {"n_ctx": 5000}), (24000, "8 GB", {"kv_type": "q8_0"}),
    ):  # fmt: skip
        name = f"long prompt of {least} tokens on {machine}"
        yield _own(name + f", {load}" * bool(load), machine, load=load, wish={"least_ctx": least})
    yield _own(
        "long prompt with a draft model",
        "8 GB",
        draft_model="small.gguf",
        wish={"least_ctx": 20000},
    )
    yield _own("long prompt, not made to fit", "4 GB", fit=False, wish={"least_ctx": 20000})


def _of_several() -> Iterator[Case]:
    for parallel in (2, 16, None):
        yield _own(f"{parallel} at a time", draft_model="small.gguf", wish={"parallel": parallel})
        yield _own(
            f"{parallel} at a time on a GPU",
            "16 GB, GPU of 8",
            draft_model="small.gguf",
            wish={"parallel": parallel},
        )
    yield _own(
        "4 at a time with flash attention off",
        load={"flash_attention": False},
        wish={"parallel": 4},
    )
    yield _own("4 at a time, exact", exact=True, wish={"parallel": 4})
    for name, machine, others, parallel in (
        ("nothing", "8 GB", Held(), 1),
        ("a model that could go", "4 GB", Held({"RAM": 6 * GB}), 1),
        ("little that could go", "4 GB", Held({"RAM": GB // 4}), 1),
        ("pages of a file", "8 GB", Held({"RAM": 4 * GB}, 4 * GB), 1),
        ("what 8 sequences miss", "8 GB", Held({"RAM": 9 * GB}), 8),
        ("what 8 sequences do not miss", "8 GB", Held({"RAM": GB // 8}), 8),
        ("a GPU", "16 GB, GPU of 8", Held({"CUDA0": 6 * GB}), 1),
        ("nothing of a GPU", "16 GB, GPU of 8", Held({"RAM": GB}), 1),
    ):
        wish = {"others": others, "parallel": parallel}
        yield _own(f"others hold {name}", machine, wish=wish, draft_model="small.gguf")
    idle = {"target big.gguf": DEAR, "draft small.gguf": DEAR}
    wish = {"others": Held({"RAM": GB})}
    yield _own(
        "others hold what a dear draft model needs",
        "8 GB",
        wish=wish,
        draft_model="small.gguf",
        costs=idle,
    )


def _refused() -> Iterator[Case]:
    for name, launch in (
        ("file that is not there", {"target": "nowhere.gguf"}),
        ("folder", {"target": "seeing"}),
        ("folder by its path", {"target": "./seeing"}),
        ("file that is cut off", {"target": "cut.gguf"}),
        ("file that is no model", {"target": "text.gguf"}),
        ("model of vectors", {"target": "embeds.gguf"}),
        ("name that nobody knows", {"target": "gwen-9"}),
        ("pair that nobody knows", {"pair": "gwen-9"}),
        ("model of the hub without a network", {"target": "user/repo:Q4_0", "offline": True}),
        ("draft model that is not there", {"target": "big.gguf", "draft_model": "nowhere.gguf"}),
        ("draft model that is cut off", {"target": "toy.gguf", "draft_model": "cut.gguf"}),
        ("server", {"target": "big.gguf", "server": "http://127.0.0.1:1"}),
        ("pair and target", {"pair": "qwen3-8b", "target": "big.gguf"}),
    ):  # fmt: skip
        yield Case(name, "16 GB", launch)
    yield Case("default pair", "8 GB", {}, ("smollm2-135m",))
    yield Case("default pair that is not here", "8 GB")


def _of_commands() -> Iterator[Case]:
    for machine in MACHINES:
        if "worker" not in machine:
            for flags in ((), ("--code",)):
                name = " ".join(["recommend", *flags, "on", machine])
                yield Case(name, machine, kind="recommend", flags=flags)
    yield Case("recommend what takes images", "16 GB", kind="recommend", flags=("--images",))
    coder = {"target qwen2.5-coder-1.5b": CPU, "target llama3.1-8b": CHEAP}
    yield Case(
        "recommend where models were measured",
        "16 GB",
        kind="recommend",
        here=(*CODER, *LLAMA),
        costs=coder,
    )
    for machine in ("4 GB", "16 GB", "32 GB, GPU of 24"):
        yield Case(f"choices on {machine}", machine, kind="choices", here=(*CODER, "gemma3-4b+"))
    yield Case("list", "8 GB", kind="list", here=(*CODER, "gemma3-4b+"))
    for pair, machine in (
        ("qwen2.5-coder-1.5b", "8 GB"), ("qwen3-8b", "8 GB"), ("qwen3-32b", "16 GB"), ("gemma3-4b", "16 GB, GPU of 8"),
    ):  # fmt: skip
        for more in ((), ("--with-draft",)):
            name = " ".join(["pull", pair, *more, "on", machine])
            yield Case(name, machine, kind="pull", flags=(pair, *more, "--offline"))
    for pair, here, machine in (
        ("qwen2.5-coder-1.5b", CODER, "8 GB"), ("qwen2.5-coder-1.5b", CODER[:1], "8 GB"), ("llama3.1-8b", LLAMA, "4 GB"),
        ("llama3.1-8b", LLAMA, "16 GB, GPU of 8"), ("gemma3-4b", ("gemma3-4b+", "gemma3-270m"), "4 GB"), ("qwen3-8b", (), "8 GB"),
        ("qwen3.5-4b", ("qwen3.5-4b",), "8 GB"),
    ):  # fmt: skip
        name = f"doctor with {' and '.join(here) or 'nothing'} on {machine}"
        yield Case(name, machine, {"pair": pair}, here, kind="doctor")


CASES = (
    *_pairs_on_machines(), *_of_drafting(), *_of_heads(), *_of_encoders(), *_of_loading(), *_of_contexts(), *_of_several(),
    *_refused(), *_of_commands(),
)  # fmt: skip
