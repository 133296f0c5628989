"""Load: a plan becomes a runtime: models, their sequences, what passes cost, and the assistant that answers."""

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import msgspec

from localspec.calibration.calibrated import (
    calibrated,
    calibrated_heads,
    calibrated_widths,
    stored_costs,
)
from localspec.calibration.key import file_identity
from localspec.chat import jinja
from localspec.chat.assistant import Assistant
from localspec.chat.conversation import Segment
from localspec.chat.loaded_models import LoadedModels
from localspec.chat.request import Observer
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.costs import (
    PairCosts,
    PassCosts,
    at_best_of,
    best_count,
    draft_model_could_win,
)
from localspec.decoding.drafters.branches import MOST_BRANCHES
from localspec.decoding.model import Role
from localspec.decoding.policy import Policy
from localspec.decoding.scheduler import Sequences
from localspec.display import MEASURED_AGAIN
from localspec.engine.answering import StateLeftError
from localspec.engine.protocol import Held, Loading, Measuring, StateSaved
from localspec.errors import MemoryShort, ModelChanged, ModelLoadError, PassFailed
from localspec.grammar import Grammars
from localspec.launch.drafting import AUTO, Drafting
from localspec.launch.fit import sequences_that_fit
from localspec.launch.kept_prefixes import KeptPrefixes
from localspec.launch.loaded_files import LoadedFiles
from localspec.launch.plan import TEXT_ONLY, LoadPlan
from localspec.launch.recording import store_megabytes
from localspec.llama.allocated import RAM, together
from localspec.llama.encoder import Encoder
from localspec.llama.model import LlamaModel, give_back_memory
from localspec.llama.safe_widths import FIXED_WIDTH, SafeWidths
from localspec.llama.sequence import LlamaContext, LlamaSequence
from localspec.llama.sequences import LlamaSequences
from localspec.llama.state import StateUnfitError, restore_state, save_state
from localspec.llama.vocabulary import Vocabulary
from localspec.models.architectures import Heads
from localspec.models.fit import PlaceUse
from localspec.models.gguf import read_model
from localspec.models.mmproj import model_that_takes
from localspec.options import LoadOptions
from localspec.resources import Usage
from localspec.storage.files import size_text
from localspec.storage.paths import data_dir

if TYPE_CHECKING:
    from localspec.decoding.drafters.spelling import Spelling
    from localspec.llama.draft_heads import DraftHeads

MOST_SEQUENCES = 64
"""Beyond it no pass was ever measured."""
HOLD_UP_S = 0.4
"""What a prompt may hold up answers that somebody reads."""
_STOPS_WITHIN_S = 0.25
"""What a pass of a prompt may take on a device that cannot stop it, for Esc to be answered soon."""
_CHUNK_STEP = 16
_LEAST_CHUNK = 64
"""Narrower passes mostly read weights: in chunks of 16 or 32, a prompt takes an eighth to a quarter longer."""

_WHY_NOT = (
    "the target keeps a recurrent state, which cannot be rolled back: it runs without drafting"
)

Report = Callable[[Loading | Measuring], None]
"""Gets how far loading or measuring a model is."""
Observe = Callable[[LoadedModels, int], Collection[Observer]]
"""Returns what sees the replies of models, and how many at once there are."""


@dataclass(frozen=True, slots=True, eq=False)
class Runtime:
    """What was loaded.

    Args:
        assistant: answers with it.
        drafting: what it can draft with.
        costs: of the pair's passes; also of a draft model that was left out. None if unknown.
        target: the target's first sequence.
        identity: tells apart what models evaluated: of the same pictures, another encoder makes something else.
        held: the memory that it holds.
    """

    assistant: Assistant
    drafting: Drafting
    costs: PairCosts | None
    target: LlamaSequence
    identity: str
    held: Held = field(default_factory=Held)

    def policy(self, mode: str, slot: int) -> Policy:
        """Return what drafts by a mode for a sequence, see `Loaded`."""
        return self.drafting.policy(mode, slot)

    def save(self, directory: Path, remembered: tuple[Segment, ...]) -> StateSaved:
        """Write what is evaluated, see `Loaded`."""
        extra = {"remembered": [[each.text, each.tokens] for each in remembered]}
        try:
            self.assistant.models.check()
            size_bytes = save_state(self.target, directory, self.identity, extra)
        except (StateUnfitError, ModelChanged) as error:
            raise StateLeftError(str(error)) from error
        return StateSaved(str(directory), self.target.n_cached, size_bytes)

    def restore(self, directory: Path) -> tuple[int, tuple[Segment, ...]]:
        """Put back what was evaluated, see `Loaded`."""
        try:
            self.assistant.models.check()
            extra = restore_state(self.target, directory, self.identity)
        except (StateUnfitError, ModelChanged) as error:
            raise StateLeftError(str(error)) from error
        try:
            return self.target.n_cached, segments_of(extra["remembered"])
        except (KeyError, msgspec.ValidationError):
            self.target.truncate(0)
            raise StateLeftError("it is damaged") from None


def segments_of(remembered: object) -> tuple[Segment, ...]:
    """Return what a state remembers of texts; raises ValidationError."""
    pairs = msgspec.convert(remembered, list[tuple[str, tuple[int, ...]]])
    return tuple(Segment(text, tokens) for text, tokens in pairs)


def load(
    plan: LoadPlan,
    cancel: CancelFlag | None = None,
    report: Report = lambda _notice: None,
    *,
    parallel: int | None = 1,
    at_most: bool = False,
    hold_up_s: float | None = None,
    observe: Observe | None = None,
    keep: bool = False,
) -> Runtime:
    """Load the models, and measure what their passes cost where that is not known.

    Args:
        plan: what to load.
        cancel: stops loading, and later every reply.
        report: called while models are loaded, and while their passes are measured.
        parallel: how many requests are answered at once; None takes what the costs of passes and the
            memory suggest.
        at_most: whether fewer will do where memory is short.
        hold_up_s: seconds that a prompt may hold up those who are being answered, with each chunk of it;
            None cuts prompts as if they were alone, and so does `exact`.
        observe: returns what sees the replies.
        keep: keep what is evaluated for later runs; never under `exact`, where it would have to be evaluated in the same
            chunks.

    Raises:
        Cancelled: `cancel` was set while loading.
        ModelLoadError: llama.cpp refuses a file or a context, or there is no memory for so many sequences.
    """
    jinja.start()  # it takes about 50 ms, which loading hides
    loading = _Loading(
        plan, cancel or CancelFlag(), report, hold_up_s, keep, list(plan.notes), at_most
    )
    try:
        return loading.runtime(parallel, observe)
    except BaseException:
        loading.close()
        raise


@dataclass(slots=True, eq=False)
class _Loading:
    """The models of a plan, as far as they are loaded."""

    plan: LoadPlan
    cancel: CancelFlag
    report: Report
    hold_up_s: float | None
    keep: bool
    notes: list[str]
    at_most: bool = False
    start_s: float = field(default_factory=time.perf_counter)
    models: list[LlamaModel] = field(default_factory=list)
    encoder: Encoder | None = None
    files: LoadedFiles = field(default_factory=LoadedFiles)
    identity: str = ""

    def close(self) -> None:
        """Free the weights and every context, and give their memory back to the system."""
        for model in reversed(self.models):
            model.close()
        give_back_memory()

    def runtime(self, parallel: int | None, observe: Observe | None) -> Runtime:
        """Load everything; see `load`."""
        plan = self.plan
        mtp = plan.heads is not None and plan.heads.is_mtp
        target = self._model(plan.target, plan.options, mtp=mtp)
        self._load_encoder(target)
        options = self._trained_for(target, plan.options)
        if parallel == 1:
            branches = self._branches(target)
            targets = LlamaSequences(
                target,
                self.cancel,
                options,
                1,
                max(options.max_rows, FIXED_WIDTH if plan.exact else 1),
                branches=branches,
                pass_s=self._pass_s,
                encoder=self.encoder,
            )
            most_removed = targets.native.most_removed
        else:
            most_removed, options = self._for_several(target, options)
        can_draft = most_removed > 0
        if not can_draft and plan.options.max_rows > 1:
            self.notes.append(_WHY_NOT)
        draft_model = self._draft_model(options) if can_draft and plan.heads is None else None
        costs, exact = self._costs(target, draft_model, can_draft, parallel)
        if parallel != 1:
            parallel = self._count(target, draft_model, options, parallel, costs, exact)
            if draft_model is not None and self._is_idle(costs, parallel):
                self._let_go(draft_model)
                draft_model = None
            exact = _of_several(exact, target, parallel)
            rows = MOST_SEQUENCES if exact is None else max(exact.longest, exact.fixed)
            targets = LlamaSequences(
                target,
                self.cancel,
                options,
                parallel,
                rows,
                sharing=not plan.exact,
                pass_s=self._pass_s,
                encoder=self.encoder,
            )
            most_removed = targets.native.most_removed
        if exact is not None and exact.fixed:
            costs = self._fixed_width(targets, costs, exact)
            plan = self.plan
        longest = self._longest(targets, most_removed, exact)
        draft_models: LlamaSequences | DraftHeads | None = None
        if draft_model is not None and longest == 0:
            self._let_go(draft_model)
            draft_model = None
        if longest > 0 and plan.heads is not None:
            draft_models, costs = self._heads(plan.heads, target, targets.views, options, costs)
        elif draft_model is not None:
            small = replace(options, n_ctx=targets.views[0].n_ctx, max_rows=1)
            draft_models = self._draft_sequences(draft_model, small, parallel)
        taken = self._taken(targets, draft_models)
        # Several sequences were not planned.
        self.notes += unforeseen(plan.uses if parallel == 1 else (), taken)
        runtime = self._assembled(targets, draft_models, costs, longest, parallel, observe)
        encoders = {} if self.encoder is None else self.encoder.allocated
        held = Held({name: each.total_bytes for name, each in encoders.items()})
        return replace(runtime, held=held + held_of(taken, plan, on_gpu=target.on_gpu))

    def _load_encoder(self, target: LlamaModel) -> None:
        path = self.plan.encoder.path
        if path is None:
            return
        try:
            name = file_identity(path)
            identity = self.files.note(path)
            self.encoder = Encoder(target, path, self.plan.options, self.cancel, name)
            self.identity += f" {identity}"
        except ModelLoadError as error:
            if self.plan.encoder.named:
                raise
            self.notes.append(f"{TEXT_ONLY}: {error}")

    @property
    def _pass_s(self) -> float | None:
        """Seconds that a pass of a prompt may take where none can be stopped; None where no answer waits, or no bit may depend on time."""
        return None if self.plan.exact or self.hold_up_s is None else _STOPS_WITHIN_S

    def _assembled(
        self,
        targets: LlamaSequences,
        draft_models: "LlamaSequences | DraftHeads | None",
        costs: PairCosts | None,
        longest: int,
        parallel: int,
        observe: Observe | None,
    ) -> Runtime:
        plan, vocabulary = self.plan, targets.views[0].model.vocabulary
        past, observers = None, tuple[Observer, ...]()
        if (megabytes := store_megabytes()) is not None:
            from localspec.launch.store import open_store  # noqa: PLC0415 - few have one

            past, observers = open_store(vocabulary, megabytes)
        has_heads = draft_models is not None and plan.heads is not None
        spelling = None
        if draft_models is not None:
            spelling = _spelling(vocabulary, draft_models, plan.shared_vocab)
        drafting = Drafting(
            count=parallel,
            draft_models=draft_models,
            spelling=spelling,
            eog=vocabulary.eog,
            costs=costs,
            longest=longest,
            past=past,
            has_heads=has_heads,
            branches=0 if targets.native.pass_width else targets.native.most_branches,
        )
        known = plan.left_out or costs
        models = LoadedModels(
            targets=targets,
            draft_models=draft_models,
            tokenizer=vocabulary,
            eog=vocabulary.eog,
            suppressed=vocabulary.suppressed(),
            template_source=targets.views[0].model.chat_template,
            tool_template_source=targets.views[0].model.tool_template,
            target_name=plan.name(Role.TARGET),
            draft_model_name=None if draft_models is None else plan.name(Role.DRAFT_MODEL) or None,
            cancel=self.cancel,
            close=self.close,
            grammar=Grammars(vocabulary),
            fim=vocabulary.fim(),
            media=self.encoder,
            model_for=self._model_for,
            costs=None if known is None else known.target,
            check=self.files.check,
        )
        prefixes = None
        if self.keep and not plan.exact:
            prefixes = KeptPrefixes(
                data_dir() / "prefixes", targets.views, self.identity, self.files.check
            )
        assistant = Assistant(
            models,
            [drafting.policy(plan.modes[0], slot) for slot in range(parallel)],
            observers=(*(observe(models, parallel) if observe else ()), *observers),
            notes=tuple(self.notes),
            load_s=time.perf_counter() - self.start_s,
            shared_chunk=None if plan.exact else shared_chunk(costs, self.hold_up_s),
            prefixes=prefixes,
        )
        return Runtime(assistant, drafting, known, targets.views[0], self.identity)

    def _model_for(self, kind: Literal["image", "audio"]) -> str | None:
        """Return what takes pictures, or sounds, where this target does not: itself, loaded otherwise, or another model."""
        return self.plan.encoder.takes.get(kind) or model_that_takes(kind)

    def _taken(
        self, targets: LlamaSequences, draft_models: "LlamaSequences | DraftHeads | None"
    ) -> dict[str, Usage]:
        """Return what llama.cpp allocated, by places."""
        contexts = [targets.native.allocated]
        if draft_models is not None:
            contexts.append(draft_models.native.allocated)
        return together([*(model.allocated for model in self.models), *contexts])

    def _model(
        self,
        path: Path,
        options: LoadOptions,
        lora: Path | None = None,
        *,
        mtp: bool = False,
        is_heads: bool = False,
    ) -> LlamaModel:
        name = self.plan.names[path]
        identity = self.files.note(path)
        if lora is not None:
            self.files.note(lora)
        self.identity = self.identity or identity  # the target comes first
        model = LlamaModel(
            path,
            options,
            self.cancel,
            lambda share: self.report(Loading(name, share)),
            lora,
            mtp=mtp,
            is_heads=is_heads,
            corrections=self.plan.corrections.get(path),
            normal=self.plan.normal.get(path),
        )
        self.models.append(model)
        return model

    def _trained_for(
        self, model: LlamaModel, options: LoadOptions, *, notes: bool = True
    ) -> LoadOptions:
        """Return the options with no more context than a model was trained for."""
        if options.n_ctx is None or options.n_ctx <= model.n_ctx_train:
            return options
        if notes:
            self.notes.append(
                f"the context is {model.n_ctx_train} tokens, not {options.n_ctx}: "
                "the target was trained for no more"
            )
        return replace(options, n_ctx=model.n_ctx_train)

    def _branches(self, target: LlamaModel) -> int:
        """Return how many branches a pass of a lone sequence may have.

        Kernels of a GPU add up what is masked and what is not in an order of their own, and no width was measured with
        branches; those of a CPU leave out what is masked.
        """
        plan = self.plan
        drafts = plan.draft_model is not None and plan.heads is None
        wanted = drafts and any(mode.kind == AUTO for mode in plan.modes)
        return MOST_BRANCHES if wanted and not (plan.exact and target.on_gpu) else 0

    def _for_several(self, model: LlamaModel, options: LoadOptions) -> tuple[int, LoadOptions]:
        """Find out on a small context how many tokens of a pass can be removed again; return that, and how to make sequences.

        Each has one row of its own, and snapshots, if they are needed, for the longest draft.
        """
        few = replace(options, n_ctx=256, max_rows=min(2, options.max_rows))
        context = LlamaContext(model, self.cancel, few)
        try:
            rows = 1 if context.native.can_truncate else options.snapshots + 1
            return context.native.most_removed, replace(options, max_rows=rows)
        finally:
            context.close()

    def _draft_model(self, options: LoadOptions) -> LlamaModel | None:
        path = self.plan.draft_model
        if path is None:
            return None
        options = self.plan.draft_options or options
        return self._model(path, options, self.plan.draft_lora)

    def _give_up_heads(self, error: ModelLoadError | PassFailed) -> None:
        """Go on without heads; raises the error where they were wanted by name."""
        if self.plan.needs_heads:
            raise error
        self.notes.append(f"the heads do not draft: {error}")
        self.plan = self.plan.undrafted()

    def _heads(
        self,
        heads: Heads,
        target: LlamaModel,
        targets: Sequence[LlamaSequence],
        options: LoadOptions,
        costs: PairCosts | None,
    ) -> "tuple[DraftHeads | None, PairCosts | None]":
        """Return the heads that follow the target's sequences, and what the pair costs; no heads where none were wanted by name and they are of no use."""
        from localspec.llama.heads import LlamaHeads  # noqa: PLC0415 - few targets have some
        from localspec.llama.place_heads import PlaceHeads  # noqa: PLC0415 - likewise

        model, path = target, self.plan.draft_model
        own: DraftHeads | None = None
        try:
            if not heads.is_mtp:
                assert path is not None, "they are in a file"  # noqa: S101
                model = self._model(path, self.plan.draft_options or options, is_heads=True)
            if heads.block is not None or heads.shares_cache:
                own = PlaceHeads(model, targets, self.cancel, options, heads.layers, heads.block)
            else:
                own = LlamaHeads(
                    model,
                    targets,
                    self.cancel,
                    options,
                    heads.layers,
                    heads.count,
                    of_outputs=heads.of_outputs,
                )
            if costs is not None:
                costs = self._with_heads(costs, own)
        except (ModelLoadError, PassFailed) as error:
            self._give_up_heads(error)
            pays = False
        else:
            pays = costs is None or not self._is_idle(costs, len(targets))
        if pays:
            return own, costs
        if own is not None:
            own.close()
        if model is not target:
            self._let_go(model)
        return None, costs

    def _with_heads(self, costs: PairCosts, heads: "DraftHeads") -> PairCosts:
        name = self.plan.name(Role.DRAFT_MODEL) or self.plan.name(Role.TARGET)
        measured = calibrated_heads(heads, self._measuring(f"heads of {name}"))
        assert self.plan.heads is not None, "they are its heads"  # noqa: S101
        sure, of_block = costs.sure and measured.sure, self.plan.heads.block is not None
        at_best = at_best_of(self.plan.heads.accepted)
        return PairCosts(costs.target, measured.costs, sure, of_block, at_best)

    def _draft_sequences(
        self, model: LlamaModel, options: LoadOptions, parallel: int
    ) -> LlamaSequences | None:
        options = self._trained_for(model, options, notes=False)
        sequences = LlamaSequences(
            model, self.cancel, options, parallel, parallel, pass_s=self._pass_s
        )
        if sequences.native.can_truncate:
            return sequences
        self.notes.append(
            "the draft model keeps a recurrent state, which cannot be rolled back: it is not used"
        )
        self._let_go(model)
        return None

    def _measuring(self, name: str) -> Callable[[float], None]:
        return lambda share: self.report(Measuring(name, share))

    def _fixed_width(
        self, targets: LlamaSequences, costs: PairCosts | None, exact: SafeWidths
    ) -> PairCosts | None:
        """Let every pass have so many tokens at least; return what passes cost then.

        Heads do not read rows of padded passes: unless a mode names them, the plan is without them.
        """
        least = exact.fixed
        targets.fix_width(least, exact.most)
        if self.plan.heads is not None and not any(mode.needs_heads for mode in self.plan.modes):
            self.plan = self.plan.undrafted()
        if costs is None:
            return None
        table = costs.target
        seconds = {1: table.of(least), least: table.of(least)}
        seconds |= {w: table.of(w) for w in table.widths if least < w <= exact.most}
        return replace(costs, target=PassCosts((*seconds,), (*seconds.values(),)))

    def _longest(self, targets: LlamaSequences, most_removed: int, exact: SafeWidths | None) -> int:
        """Return how many tokens a draft may have, and note what `exact` leaves of them."""
        if most_removed == 0:
            return 0
        plan, safe = self.plan, MOST_SEQUENCES
        if exact is not None:
            safe = 1 if exact.fixed and plan.heads is not None else exact.longest
        longest = min(safe, targets.most_rows, most_removed + 1) - 1
        if exact is not None:
            self.notes.append(self._price(min(longest, plan.options.max_rows - 1), exact))
        return longest

    def _let_go(self, model: LlamaModel) -> None:
        self.models.remove(model)
        model.close()

    def _costs(
        self,
        target: LlamaModel,
        draft_model: LlamaModel | None,
        can_draft: bool,
        parallel: int | None,
    ) -> tuple[PairCosts | None, SafeWidths | None]:
        """Return what passes cost, if anything depends on it, and how wide they may be, if that is limited."""
        plan, costs, exact = self.plan, None, None
        drafts = can_draft and plan.options.max_rows > 1
        if parallel != 1 or (drafts and any(mode.kind == AUTO for mode in plan.modes)):
            measured = calibrated(
                target,
                draft_model,
                self.cancel,
                lambda role, share, again: self._measuring(
                    plan.name(role) + MEASURED_AGAIN * again
                )(share),
            )
            costs = measured.costs
            self.notes += measured.notes
        if plan.exact:  # without drafts, too: all passes have the width that drafts need
            measuring = self._measuring(f"{plan.name(Role.TARGET)} for --exact")
            exact = calibrated_widths(target, self.cancel, measuring)
        return costs, exact

    def _count(
        self,
        target: LlamaModel,
        draft_model: LlamaModel | None,
        options: LoadOptions,
        wanted: int | None,
        costs: PairCosts | None,
        exact: SafeWidths | None,
    ) -> int:
        """Return how many sequences there are to be."""
        assert costs is not None, "they are measured for several"  # noqa: S101
        # Padded passes are of one sequence each, so that several gain nothing.
        safe = MOST_SEQUENCES if exact is None else 1 if exact.fixed else exact.longest
        holds = MOST_SEQUENCES
        if self.plan.fit:
            plan, small = self.plan, None
            if plan.draft_model is not None and (draft_model is not None or plan.heads is not None):
                small = read_model(plan.draft_model)
            header, draft_options = read_model(target.path), plan.draft_options
            fits = sequences_that_fit(header, options, small, draft_options, plan.heads)
            holds = holds if fits is None else min(fits, holds)
        if wanted is not None and wanted > holds >= 1 and self.at_most:
            self.notes.append(f"{wanted} answers at a time do not fit into the free memory")
            wanted = holds
        if wanted is not None and wanted > holds:
            n_ctx = options.n_ctx or min(4096, target.n_ctx_train)
            raise MemoryShort(
                f"{wanted} sequences of {n_ctx} tokens do not fit into the free memory, "
                f"{holds} would: give a smaller --parallel or --ctx"
            )
        number = wanted or best_count(costs.target, max(1, min(holds, safe)))
        self.notes.append(
            f"{number} answers at a time"
            if number > 1
            else "one line at a time: more would gain nothing"
        )
        return number

    def _is_idle(self, costs: PairCosts | None, parallel: int) -> bool:
        """Say whether only `auto` wants the draft model or the heads, and they never pay beside so many."""
        plan = self.plan
        wanted = any(mode.needs_draft_model or mode.needs_heads for mode in plan.modes)
        return not wanted and not (
            costs is not None and draft_model_could_win(costs, plan.longest_draft, parallel)
        )

    def _price(self, longest: int, exact: SafeWidths) -> str:
        """Return what `--exact` does to drafts, and what it costs, as far as it was ever measured."""
        plan, usual, width = self.plan, LoadOptions(), exact.fixed or 1
        default = replace(
            plan.options,
            **{each: getattr(usual, each) for each in ("repack", "flash_attention", "kv_type")},
        )
        wanted = plan.options.max_rows > 1
        text = exact_drafts(longest, exact) if wanted else "exact: no drafts"
        ends = "", " without --exact"
        for options, n_tokens, join, end in zip(
            (plan.options, default),
            (width, 1),
            ("; a plain token takes", ", and"),
            ends,
            strict=True,
        ):
            stored = stored_costs(plan.target, options, Role.TARGET)
            if stored is None:
                # Only the costs of exact passes are known.
                text += (
                    ", and less without --exact: how much is known after a run without it"
                    * bool(end)
                )
                break
            text += f"{join} {1000 * stored.costs.of(n_tokens):.1f} ms{end}"
        return text


def _spelling(
    vocabulary: Vocabulary, draft_models: Sequences, shared_vocab: int
) -> "Callable[[], Spelling]":
    """Return what says for a sequence what the ids of those that draft mean."""
    if isinstance(draft_models, LlamaSequences) and not shared_vocab:
        # Few pairs have two vocabularies.
        from localspec.llama.token_map import TokenMap  # noqa: PLC0415

        return TokenMap(vocabulary, draft_models.views[0].model.vocabulary).spelling
    from localspec.decoding.drafters.spelling import SharedIds  # noqa: PLC0415 - only who drafts

    same = shared_vocab if isinstance(draft_models, LlamaSequences) else vocabulary.n_vocab
    return partial(SharedIds, same)


def _of_several(exact: SafeWidths | None, target: LlamaModel, parallel: int) -> SafeWidths | None:
    """Return how wide passes of several sequences may be; on a GPU, padded ones were never measured with several."""
    if exact is None or parallel == 1 or not target.on_gpu:
        return exact
    return replace(exact, fixed=0, most=0, price=0.0)


def exact_drafts(longest: int, exact: SafeWidths) -> str:
    """Return in a line what `--exact` leaves of drafts of up to `longest` tokens."""
    if exact.longest == 1:
        text = (
            "exact: nothing is drafted, as passes of two tokens round otherwise than those of one"
        )
        dear = f", and padding them to two would make each take {exact.price:.1f} times as long"
        return text + dear * (exact.price > 1)
    text = f"exact: drafts of up to {longest} tokens"
    return text + f", in passes of {exact.fixed} tokens or more" * bool(exact.fixed)


def shared_chunk(costs: PairCosts | None, hold_up_s: float | None) -> int | None:
    """Return how many tokens of a prompt are evaluated in so many seconds, but no fewer than are worth a pass."""
    if hold_up_s is None:
        return None
    if costs is None:
        return _LEAST_CHUNK
    widest = max(costs.target.widths)
    steps = int(hold_up_s * widest / costs.target.of(widest) / _CHUNK_STEP)
    return max(_LEAST_CHUNK, _CHUNK_STEP * steps)


def unforeseen(planned: Sequence[PlaceUse], allocated: Mapping[str, Usage]) -> Iterator[str]:
    """Yield where llama.cpp took more than planned and kept free, a sentence each.

    Weights are left out: they are what the file's header says, and of a mapped file llama.cpp logs the whole range that it
    maps, parts of which may be weights that are on a GPU.

    Args:
        planned: what a plan takes of each place.
        allocated: what llama.cpp logged, by the same names.
    """
    for use in planned:
        taken = _without_weights(allocated.get(use.place.name, Usage()))
        expected = _without_weights(use.target) + _without_weights(use.draft_model)
        if taken > expected + use.place.headroom_bytes:
            yield (
                f"caches and scratch take {size_text(taken)} of {use.place.name}, and {size_text(expected)} were planned: "
                "if memory runs short, use a smaller --ctx or --gpu-layers"
            )


def held_of(allocated: Mapping[str, Usage], plan: LoadPlan, *, on_gpu: bool) -> Held:
    """Return the memory that a pair holds; of mapped weights in RAM what was planned, see `unforeseen`."""
    places = {name: usage.total_bytes for name, usage in allocated.items()}
    if plan.options.loading(on_gpu=on_gpu) == "copy" or RAM not in allocated:
        return Held(places)
    mapped = allocated[RAM].weights_bytes
    if plan.uses:
        use = plan.uses[0]
        mapped = min(mapped, use.target.weights_bytes + use.draft_model.weights_bytes)
    places[RAM] = _without_weights(allocated[RAM]) + mapped
    return Held(places, mapped)


def _without_weights(taken: Usage) -> int:
    return taken.total_bytes - taken.weights_bytes
