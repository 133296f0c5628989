"""What the benchmark scripts share: prompts, a loaded pair, and one generation at a time.

The scripts measure what `docs/measurements/` and the README claim; run them on a machine that
does nothing else. They import localspec as any program would.
"""

import os
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from localspec.decoding.drafter import Drafter, NoDrafter
from localspec.decoding.generate import Limits, drive
from localspec.decoding.lookup_drafter import LookupDrafter
from localspec.decoding.model_drafter import ModelDrafter
from localspec.decoding.timings import Timings
from localspec.llama.pair import Pair, open_pair

from localspec.bench.prompts import Prompt, bundled
from localspec.chat.conversation import Conversation
from localspec.chat.template import ChatTemplate
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.choose import Chooser
from localspec.decoding.model import LanguageModel, Logits, Role
from localspec.decoding.noise import Noise
from localspec.decoding.policy import FixedPolicy
from localspec.decoding.stats import AcceptanceStats
from localspec.llama.context import LlamaContext
from localspec.models.pull import pull
from localspec.options import LoadOptions, SamplingParams


def prompts() -> list[Prompt]:
    """Return the prompts that `localspec bench` has, too: ten of each of six kinds."""
    return bundled()


def one_of_each(index: int = 0) -> list[Prompt]:
    """Return the prompt at `index` of every kind."""
    kinds: dict[str, list[Prompt]] = {}
    for prompt in prompts():
        kinds.setdefault(prompt.workload, []).append(prompt)
    return [of_kind[index] for of_kind in kinds.values()]


def machine() -> str:
    """Return one line that names the machine."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line for line in cpuinfo.read_text().splitlines() if line.startswith("model name")]
        model = names[0].split(":")[1].strip() if names else model
    return (
        f"{model}, {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}"
    )


class Primed:
    """A target that remembers what a prompt's last row was, so that no run prefills it twice.

    The cache is cut back to the prompt, which keeps the very bits that its first evaluation
    left there; so a run starts exactly as if it had evaluated the prompt itself.
    """

    def __init__(self, context: LlamaContext) -> None:
        self._context = context
        self._prompt: list[int] = []
        self._row: Logits | None = None
        self.n_ctx, self.n_vocab = context.n_ctx, context.n_vocab

    def prime(self, prompt: list[int]) -> None:
        """Evaluate a prompt afresh and remember its last row."""
        self._context.truncate(0)
        self._prompt, self._row = prompt, None
        self._row = self._context.logits(prompt, rows=1).copy()

    def logits(self, tokens: Sequence[int], rows: int) -> Logits:
        """Return the remembered row for the prompt, and ask the context for anything else."""
        if self._row is not None and rows == 1 and list(tokens) == self._prompt:
            self._context.truncate(len(self._prompt))
            return self._row
        return self._context.logits(tokens, rows)

    def common_prefix(self, tokens: Sequence[int]) -> int:
        """Return what the context says."""
        return self._context.common_prefix(tokens)

    def prefill(self, tokens: Sequence[int]) -> int:
        """Let the context prefill."""
        return self._context.prefill(tokens)

    def truncate(self, n_past: int) -> None:
        """Let the context truncate."""
        self._context.truncate(n_past)


@dataclass(slots=True)
class Run:
    """What one generation came to."""

    tokens: list[int]
    text: str
    timings: Timings
    acceptance: AcceptanceStats = field(default_factory=AcceptanceStats)

    @property
    def tokens_per_s(self) -> float:
        """Tokens after the first per second of decoding."""
        return (len(self.tokens) - 1) / self.timings.decode_s if len(self.tokens) > 1 else 0.0


@dataclass(slots=True)
class Bench:
    """A loaded pair, and the prompt that is primed."""

    pair: Pair
    template: ChatTemplate
    target: Primed
    prompt: list[int] = field(default_factory=list)

    def prime(self, text: str, system: str | None = None) -> None:
        """Make a prompt the current one."""
        conversation = Conversation(system)
        conversation.append_user(text)
        self.prompt = conversation.prompt_tokens(self.template, self.pair.target.model.vocabulary)
        self.target.prime(self.prompt)

    def generate(
        self, mode: str, length: int, sampling: SamplingParams, seed: int, max_tokens: int
    ) -> Run:
        """Answer the current prompt; `mode` is off, model or lookup."""
        vocabulary = self.pair.target.model.vocabulary
        models: dict[Role, LanguageModel] = {Role.TARGET: self.target}
        drafter: Drafter = NoDrafter()
        if mode == "lookup":
            drafter = LookupDrafter(vocabulary.eog)
        if mode == "model" and self.pair.draft_model is not None:
            small = self.pair.draft_model
            small.truncate(0)
            models[Role.DRAFT_MODEL] = small
            drafter = ModelDrafter(
                small.n_ctx, min(small.n_vocab, self.target.n_vocab), vocabulary.eog
            )
        timings = Timings(time.perf_counter)
        run = Run([], "", timings)
        for confirmed in drive(
            self.prompt,
            models,
            FixedPolicy(drafter, length),
            Chooser(sampling, Noise(seed)),
            Limits(max_tokens, vocabulary.eog),
            timings,
        ):
            run.tokens += confirmed.tokens
            if confirmed.round is not None:
                draft, verdict = confirmed.round.draft, confirmed.round.verdict
                accepted = min(verdict.accepted, len(confirmed.tokens))
                run.acceptance.add(
                    draft.drafter, len(draft.tokens), accepted, len(confirmed.tokens)
                )
        run.text = b"".join(vocabulary.piece(t) for t in run.tokens).decode(errors="replace")
        return run


def open_bench(pair_name: str, options: LoadOptions, *, with_draft_model: bool = True) -> Bench:
    """Fetch and load a pair by name."""
    paths = pull(pair_name)
    draft_model = paths[1] if with_draft_model and len(paths) > 1 else None
    pair = open_pair(paths[0], draft_model, options, CancelFlag())
    model = pair.target.model
    vocabulary = model.vocabulary
    template = ChatTemplate(model.chat_template, vocabulary.bos_text, vocabulary.eos_text)
    return Bench(pair, template, Primed(pair.target))
