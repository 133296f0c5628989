"""What `localspec batch` was asked for, and the receipt that its answers will have."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from localspec import __version__
from localspec.batch.ask import Form
from localspec.batch.receipt import Receipt, options_digest
from localspec.batch.resumed import Resumption
from localspec.batch.rows import Format
from localspec.launch.plan import LoadPlan
from localspec.llama.build import build
from localspec.models.gguf import model_files
from localspec.models.store import model_sha256
from localspec.options import LaunchOptions
from localspec.storage.paths import data_dir

if TYPE_CHECKING:
    from localspec.gates.gate import Gate


@dataclass(frozen=True, slots=True)
class Asked:
    """What the command line asks for.

    Args:
        launch: what to answer with.
        form: how lines become prompts; its options have the seed, if one was given.
        input_format: of the lines.
        output_format: of the records.
        resumption: how to take up an output; None where it has to be new.
        ordered: whether records keep the order of the lines.
        quiet: say nothing but errors.
        workload: what kind of text the answers are; None guesses.
        parallel: how many lines to answer at a time; None takes what pays.
        own: load the models here, whoever has them in memory.
        gate: says what may be written of the answers; None lets everything through.
    """

    launch: LaunchOptions
    form: Form
    input_format: Format
    output_format: Format
    resumption: Resumption | None
    ordered: bool
    quiet: bool
    workload: str | None = None
    parallel: int | None = 1
    own: bool = False
    gate: "Gate | None" = None

    @property
    def options(self) -> str:
        """The digest of all that a line is answered by.

        What drafts, how many lines are answered at a time, and on which device, is not in it: it
        may round differently, which `--exact` rules out, but asks for nothing else.
        """
        form, loading = self.form, self.launch.load
        return options_digest(
            {
                **asdict(form.options),
                "seed": None,  # the receipt has it beside this
                "template": None if form.template is None else form.template.source,
                "field": form.field,
                "system": form.system,
                "raw": form.raw,
                "exact": self.launch.exact,
                "ctx": loading.n_ctx,
                "kv_type": loading.kv_type,
                # Without one a receipt is what it was before there were gates.
                **({} if self.gate is None else {"gate": self.gate.origin}),
            }
        )


def receipt_of(
    asked: Asked, plan: LoadPlan, seed: int, on_share: Callable[[str, float], None]
) -> Receipt:
    """Return what the records will be made with.

    Args:
        asked: by the command line.
        plan: the models.
        seed: of the run.
        on_share: is told a model's name and the share of it that is hashed; may raise to stop it.

    Raises:
        LocalspecError: a model's file cannot be read.
    """
    names, root, llama = plan.names, data_dir(), build()
    hashes = [
        None
        if file is None
        else model_sha256(model_files(file), root, lambda share: on_share(names[file], share))  # noqa: B023
        for file in (plan.target, plan.draft_model)
    ]
    return Receipt(
        seed=seed,
        target=hashes[0] or "",
        draft_model=hashes[1],
        build=f"localspec {__version__}, llama-cpp-python {llama.version} ({', '.join(llama.backends)})",
        options=asked.options,
    )
