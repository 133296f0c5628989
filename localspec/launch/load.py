"""Load: a plan becomes a runtime: models, their sequences, what passes cost, and the assistant that answers."""

import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from localspec.calibration.calibrated import (
    calibrated,
    calibrated_heads,
    calibrated_reading,
    calibrated_widths,
    stored_costs,
)
from localspec.chat import jinja
from localspec.chat.assistant import Assistant
from localspec.chat.loaded_models import LoadedModels
from localspec.chat.request import Observer
from localspec.config.recorded import kept_megabytes, why_not_recorded
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.costs import PairCosts, at_best_of
from localspec.decoding.drafters.register import keeping
from localspec.decoding.drafting import Drafting
from localspec.decoding.model import Role
from localspec.decoding.policy import Policy
from localspec.decoding.scheduler import Sequences
from localspec.display import MEASURED_AGAIN
from localspec.engine.protocol import Loading, Measuring
from localspec.errors import ModelLoadError, PassFailed
from localspec.grammar import Grammars
from localspec.llama.backend import initialise
from localspec.llama.buffer_log import RAM, together
from localspec.llama.encoder import Encoder
from localspec.llama.kept_reads import KeptReads
from localspec.llama.model import LlamaModel, ModelThread, give_back_memory
from localspec.llama.native_context import NativeContext, wanted_n_ctx
from localspec.llama.safe_widths import FIXED_WIDTH, SafeWidths
from localspec.llama.sequence import LlamaContext, LlamaSequence
from localspec.llama.sequences import LlamaSequences
from localspec.llama.vocabulary import Vocabulary
from localspec.messages import Held
from localspec.models.architectures import Heads
from localspec.models.mmproj import model_that_takes
from localspec.models.store import LoadedFiles, file_identity
from localspec.options import LoadOptions
from localspec.plan.facts import free_memory
from localspec.plan.fit import PlaceUse
from localspec.plan.load_plan import TEXT_ONLY, LoadPlan
from localspec.plan.payoff import is_idle
from localspec.plan.settle import Settled, branches, price, settle, shared_chunk
from localspec.resources import Usage
from localspec.storage.files import size_text
from localspec.storage.paths import data_dir

if TYPE_CHECKING:
    from localspec.decoding.drafters.vocab_map import VocabMap
    from localspec.llama.draft_heads import DraftHeads
    from localspec.plan.reading import ReadingRule

HOLD_UP_S = 0.4
"""What a prompt may hold up answers that somebody reads."""
_STOPS_WITHIN_S = 0.25
"""What a pass of a prompt may take on a device that cannot stop it, for Esc to be answered soon."""
_RECURRENT = "keeps a recurrent state, which cannot be rolled back"
_LOOK_S = 0.05
_AT_FIRST = 256
"""Tokens of a context that stands in for that of weights which are still being repacked; nothing is evaluated in it."""
T = TypeVar("T")

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
        held: the memory that it holds.
    """

    assistant: Assistant
    drafting: Drafting
    costs: PairCosts | None
    target: LlamaSequence
    held: Held = field(default_factory=Held)

    def policy(self, mode: str, slot: int) -> Policy:
        """Return what drafts by a mode for a sequence, see `Loaded`."""
        return self.drafting.policy(mode, slot)


def load(
    plan: LoadPlan,
    cancel: CancelFlag | None = None,
    report: Report = lambda _notice: None,
    *,
    at_most: bool = False,
    hold_up_s: float | None = None,
    observe: Observe | None = None,
    prompt_cache: bool = False,
    at_once: bool = False,
    weights: ModelThread | None = None,
) -> Runtime:
    """Load the models, and measure what their passes cost where that is not known.

    Args:
        plan: what to load.
        cancel: stops loading, and later every reply.
        report: called while models are loaded, and while their passes are measured.
        at_most: whether fewer will do where memory is short.
        hold_up_s: seconds that a prompt may hold up those who are being answered, with each chunk of it;
            None cuts prompts as if they were alone, and so does `exact`.
        observe: returns what sees the replies.
        prompt_cache: keep what is read for later runs.
        at_once: return as soon as a prompt can be read, and repack weights behind, where a plain copy reads.
        weights: of the target, which are being loaded already; None if they are not.

    Raises:
        Cancelled: `cancel` was set while loading.
        ModelLoadError: llama.cpp refuses a file or a context, or there is no memory for so many sequences.
    """
    jinja.start()  # it takes about 50 ms, which loading hides
    how = hold_up_s, prompt_cache, list(plan.notes), at_most, at_once, weights, observe
    loading = _Loading(plan, cancel or CancelFlag(), report, *how)
    try:
        return loading.runtime()
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
    prompt_cache: bool
    notes: list[str]
    at_most: bool = False
    at_once: bool = False
    weights: ModelThread | None = None
    observe: Observe | None = None
    start_s: float = field(default_factory=time.perf_counter)
    models: list[LlamaModel] = field(default_factory=list)
    encoder: Encoder | None = None
    files: LoadedFiles = field(default_factory=LoadedFiles)
    identity: str = ""
    plain_model: LlamaModel | None = None
    repacked: "Future[LlamaModel] | None" = None
    others: Executor | None = None
    ends: CancelFlag = field(default_factory=CancelFlag)
    may_repack: threading.Event = field(default_factory=threading.Event)

    def close(self) -> None:
        """Free the weights and every context, and give their memory back to the system."""
        self.ends.set()
        self.may_repack.set()
        if self.others is not None:
            self.others.shutdown()
        for model in reversed(self.models):
            model.close()
        give_back_memory()

    def runtime(self) -> Runtime:
        """Load everything; see `load`."""
        plan = self.plan
        mtp = plan.heads is not None and plan.heads.is_mtp
        if self._begins_plain():
            load = partial(
                self._loaded, plan.target, plan.options, self.ends, on_progress=self._pauses
            )
            self.may_repack.set()
            self.repacked = self._beside(load)
            self._identify(plan.target)
            target = self._plain_copy(self.cancel)
        else:
            target = self._model(plan.target, plan.options, mtp=mtp)
        self._load_encoder(target)
        options = self._trained_for(target, plan.options)
        sequences = partial(
            LlamaSequences, target, self.cancel, pass_s=self._pass_s, encoder=self.encoder
        )
        if plan.parallel == 1:
            rows = max(options.max_rows, FIXED_WIDTH if plan.exact else 1)
            most_branches = branches(plan, on_gpu=target.on_gpu)
            at_first = options if self.repacked is None else replace(options, n_ctx=_AT_FIRST)
            targets = sequences(at_first, 1, rows, branches=most_branches)
            most_removed = targets.native.most_removed
        else:
            most_removed, options = self._for_several(target, options)
        can_draft = most_removed > 0
        if not can_draft and plan.options.max_rows > 1:
            self.notes.append(f"the target {_RECURRENT}: it runs without drafting")
        draft_model = None
        if can_draft and plan.heads is None and plan.draft_model is not None:
            own = plan.draft_options or options
            draft_model = self._model(plan.draft_model, own, plan.draft_lora)
        rule = self._reading_rule(target)
        settled = self._settled(target, draft_model, options, can_draft=can_draft)
        count, exact = self.plan.parallel or 1, settled.exact
        if plan.parallel != 1:
            targets = sequences(options, count, settled.most_rows, sharing=not plan.exact)
            most_removed = targets.native.most_removed
        if exact is not None and exact.fixed:
            targets.fix_width(exact.fixed, exact.most)
        self._add_reader(rule, targets, options)
        longest = min(settled.longest, targets.most_rows - 1, most_removed)
        if exact is not None and most_removed:
            self.notes.append(self._price(longest, exact))
        draft_models: LlamaSequences | DraftHeads | None = None
        costs = settled.costs
        if longest > 0 and self.plan.heads is not None:
            heads = self.plan.heads
            draft_models, costs = self._heads(heads, target, targets.views, options, costs)
        elif draft_model is not None and self.plan.draft_model is not None:
            small = replace(options, n_ctx=targets.views[0].n_ctx, max_rows=1)
            draft_models = self._draft_sequences(draft_model, small, count, longest)
        return self._assembled(targets, draft_models, costs, longest)

    def _held(
        self, targets: LlamaSequences, draft_models: "LlamaSequences | DraftHeads | None"
    ) -> Held:
        """Return the memory that is taken, and note what of it was not planned."""
        contexts = [targets.native.allocated]
        contexts += [] if draft_models is None else [draft_models.native.allocated]
        taken = together([*(model.allocated for model in self.models), *contexts])
        # Several sequences were not planned.
        self.notes += unforeseen(self.plan.uses if len(targets.views) == 1 else (), taken)
        encoders = {} if self.encoder is None else self.encoder.allocated
        held = Held({name: each.total_bytes for name, each in encoders.items()})
        return held + held_of(taken, self.plan, on_gpu=targets.views[0].model.on_gpu)

    def _settled(
        self,
        target: LlamaModel,
        draft_model: LlamaModel | None,
        options: LoadOptions,
        *,
        can_draft: bool,
    ) -> Settled:
        """Measure what passes cost, if anything depends on it, and how wide they may be, if that is limited; return what is made of it."""
        plan, costs, exact = self.plan, None, None
        if plan.parallel != 1 or (can_draft and plan.options.max_rows > 1 and plan.is_adaptive):

            def progress(role: Role, share: float, again: bool) -> None:
                self.report(Measuring(plan.name(role) + MEASURED_AGAIN * again, share))

            measured = calibrated(target, draft_model, self.cancel, progress)
            costs = measured.costs
            self.notes += measured.notes
        if plan.exact:  # without drafts, too: all passes have the width that drafts need
            measuring = self._progress(Measuring, f"{plan.name(Role.TARGET)} for --exact")
            exact = calibrated_widths(target, self.cancel, measuring)
        if draft_model is None and plan.heads is None:
            plan = replace(plan, draft_model=None)
        free = free_memory() if plan.fit and plan.parallel != 1 else None
        if free is not None and free.ram_bytes is not None and plan.plain is not None:
            free = replace(free, ram_bytes=free.ram_bytes - plan.plain.held_bytes)
        settled = settle(
            plan, options, costs, exact, free, on_gpu=target.on_gpu, at_most=self.at_most
        )
        self.plan = settled.plan
        self.notes += settled.plan.notes[len(plan.notes) :]
        if draft_model is not None and self.plan.draft_model is None:
            self._let_go(draft_model)
        return settled

    def _measured_before(self) -> PairCosts | None:
        """Return what passes cost where nothing here depends on it, for what is told of an answer; None unless it is known already."""
        stored = stored_costs(self.plan.target, self.plan.options, Role.TARGET)
        return None if stored is None else PairCosts(stored.costs, sure=stored.sure)

    def _begins_plain(self) -> bool:
        """Return whether a plain copy is loaded first: it reads a prompt while the rest is loaded, of which all is measured."""
        plan = self.plan
        if plan.plain is None or plan.plain.rule is None or not self.at_once:
            return False
        if plan.parallel != 1 or plan.drafts_by_passes:
            return False
        drafts = plan.options.max_rows > 1 and plan.is_adaptive
        stored = stored_costs(plan.target, plan.options, Role.TARGET) if drafts else None
        return not drafts or (stored is not None and stored.sure)

    def _reading_rule(self, target: LlamaModel) -> "ReadingRule | None":
        """Return which prompts a plain copy reads; of one that gains nothing, nothing is left in the plan."""
        plan, plain = self.plan, self.plan.plain
        if plain is None or plain.rule is not None:
            return None if plain is None else plain.rule
        from localspec.plan.reading import rule_of  # noqa: PLC0415 - measured once

        measuring = self._progress(Measuring, f"{plan.name(Role.TARGET)} for reading")
        costs = partial(calibrated_reading, plan.target, cancel=self.cancel, on_progress=measuring)
        own = costs(plan.options, lambda: target)
        other = costs(plain.options, partial(self._plain_copy, self.cancel))
        rule = rule_of(plain, plan.options, own.costs, other.costs)
        if rule is None:
            self.plan = replace(plan, plain=None)
            if self.plain_model is not None:
                self._let_go(self.plain_model)
                self.plain_model = None
        return rule

    def _plain_copy(self, cancel: CancelFlag) -> LlamaModel:
        """Return the plain copy of the target; it is loaded once."""
        if self.plain_model is None:
            self.plain_model = self._loaded(self.plan.target, self.plan.options, cancel, plain=True)
        return self.plain_model

    def _read_first(self) -> LlamaModel:
        """Return the plain copy for a prompt, and repack nothing more before it is read: it has all cores."""
        self.may_repack.clear()
        return self._plain_copy(self.ends)

    def _pauses(self, _share: float) -> None:
        """Hold up repacking, between two tensors, while a first prompt is read."""
        self.may_repack.wait()

    def _beside(self, make: Callable[[], T]) -> "Future[T]":
        """Have something made in a thread."""
        initialise()  # which no two threads do at once
        if self.others is None:
            self.others = ThreadPoolExecutor(1, thread_name_prefix="localspec-loads")
        return self.others.submit(make)

    def _behind(
        self, repacked: "Future[LlamaModel]", targets: LlamaSequences, options: LoadOptions
    ) -> Callable[[], NativeContext | None]:
        """Return what waits for the context of the repacked weights, see `LlamaSequences`."""
        first = targets.native

        def made() -> NativeContext:
            rows = targets.native.max_rows
            return NativeContext(repacked.result(), self.cancel, options, rows, beside=first)

        context = self._beside(made)

        def waited() -> NativeContext | None:
            self.may_repack.set()
            try:
                while not context.done():
                    wait([context], _LOOK_S)
                    if self.cancel.is_set:
                        raise Cancelled
                return context.result()
            except ModelLoadError:
                return None

        return waited

    def _add_reader(
        self, rule: "ReadingRule | None", targets: LlamaSequences, options: LoadOptions
    ) -> None:
        """Let sequences of the target have their prompts read by a plain copy, by its rule if it has one."""
        if rule is None:
            return
        # Few models have two speeds.
        from localspec.llama.prompt_reader import PromptReader  # noqa: PLC0415

        load: Callable[[], LlamaModel] = partial(self._plain_copy, self.ends)
        if self.plain_model is None:
            load = self._beside(load).result
        if self.repacked is not None:
            load = self._read_first
            targets.views[0].n_ctx = wanted_n_ctx(targets.views[0].model, options)
        keeps, n_ctx = len(targets.views) > 1, targets.views[0].n_ctx
        targets.reader = PromptReader(
            load, rule.takes, self.cancel, options.plain(), targets.native, n_ctx, keeps=keeps
        )
        if self.repacked is not None:
            targets.behind = self._behind(self.repacked, targets, options)

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
    ) -> Runtime:
        plan, held, parallel = self.plan, self._held(targets, draft_models), len(targets.views)
        vocabulary = targets.views[0].model.vocabulary
        shared, observers = dict[str, Any](), tuple[Observer, ...]()
        if self.observe is not None and (why_not := why_not_recorded()) is not None:
            self.notes.append(why_not)
        for entry in keeping():
            megabytes = kept_megabytes(entry.setting)
            kept = None if megabytes is None else entry.kept.open_shared(vocabulary, megabytes)
            if kept is not None:
                shared[entry.name] = kept[0]
                observers += kept[1]
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
            shared=shared,
            has_heads=has_heads,
            branches=0 if targets.native.pass_width else targets.native.most_branches,
        )
        known = plan.left_out or costs or self._measured_before()
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
            # Itself, loaded otherwise, or another model.
            model_for=lambda kind: plan.encoder.takes.get(kind) or model_that_takes(kind),
            costs=known,
            check=self.files.check,
            longest=targets.views[0].model.n_ctx_train,
        )
        reads = None
        if self.prompt_cache:
            reads = KeptReads(
                data_dir() / "reads",
                targets.views,
                self.identity,
                self.files.check,
                vocabulary.eog,
                exact=plan.exact,
                reads_plain=targets.reader is not None,
            )
        assistant = Assistant(
            models,
            [drafting.policy(plan.modes[0], slot) for slot in range(parallel)],
            observers=(*(self.observe(models, parallel) if self.observe else ()), *observers),
            notes=tuple(self.notes),
            load_s=time.perf_counter() - self.start_s,
            shared_chunk=None if plan.exact else shared_chunk(costs, self.hold_up_s),
            reads=reads,
            exact=plan.exact,
        )
        return Runtime(assistant, drafting, known, targets.views[0], held)

    def _model(
        self, path: Path, options: LoadOptions, lora: Path | None = None, **how: bool
    ) -> LlamaModel:
        """Return a model that is reported and noted as it is loaded."""
        self._identify(path)
        if lora is not None:
            self.files.note(lora)
        name = self.plan.names[path]
        report = self._progress(Loading, name)
        if self.weights is not None:
            model, self.weights = self.weights.model(report), None
            self.models.append(model)
            return model
        return self._loaded(path, options, self.cancel, on_progress=report, lora=lora, **how)

    def _loaded(
        self, path: Path, options: LoadOptions, cancel: CancelFlag, **how: Any
    ) -> LlamaModel:
        model = LlamaModel(path, options, cancel, **self.plan.told(path), **how)
        self.models.append(model)
        return model

    def _identify(self, path: Path) -> None:
        """Note what a file is; the first is the target's."""
        identity = self.files.note(path)
        if not self.identity:
            changes = self.plan.corrections.get(path)
            self.identity = f"{identity} {sorted(changes.items())}" if changes else identity

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

    def _for_several(self, model: LlamaModel, options: LoadOptions) -> tuple[int, LoadOptions]:
        """Find out on a small context how many tokens of a pass can be removed again; return that, and how to make sequences.

        Each has one row of its own, and snapshots, if they are needed, for the longest draft.
        """
        few = replace(options, n_ctx=256, max_rows=min(2, options.max_rows))
        with closing(LlamaContext(model, self.cancel, few)) as context:
            rows = 1 if context.native.can_truncate else options.snapshots + 1
            return context.native.most_removed, replace(options, max_rows=rows)

    def _heads(
        self,
        heads: Heads,
        target: LlamaModel,
        targets: Sequence[LlamaSequence],
        options: LoadOptions,
        costs: PairCosts | None,
    ) -> "tuple[DraftHeads | None, PairCosts | None]":
        """Return the heads that follow the target's sequences, and what the pair costs; no heads where none were wanted by name and they are of no use."""
        from localspec.llama.block_heads import BlockHeads  # noqa: PLC0415 - likewise
        from localspec.llama.heads import LlamaHeads  # noqa: PLC0415 - few targets have some

        model, path = target, self.plan.draft_model
        own: DraftHeads | None = None
        try:
            if not heads.is_mtp:
                assert path is not None, "they are in a file"  # noqa: S101
                model = self._model(path, self.plan.draft_options or options, is_heads=True)
            made_of = model, targets, self.cancel, options, heads.layers
            if heads.block is not None or heads.shares_cache:
                own = BlockHeads(*made_of, heads.block)
            else:
                own = LlamaHeads(*made_of, heads.count, of_outputs=heads.of_outputs)
            if costs is not None:
                costs = self._with_heads(costs, own)
        except (ModelLoadError, PassFailed) as error:
            if self.plan.needs_heads:
                raise
            self.notes.append(f"the heads do not draft: {error}")
            self.plan, pays = self.plan.undrafted(), False
        else:
            pays = costs is None or not is_idle(self.plan, costs, len(targets))
        if pays:
            return own, costs
        if own is not None:
            own.close()
        if model is not target:
            self._let_go(model)
        return None, costs

    def _with_heads(self, costs: PairCosts, heads: "DraftHeads") -> PairCosts:
        name = self.plan.name(Role.DRAFT_MODEL) or self.plan.name(Role.TARGET)
        measured = calibrated_heads(heads, self._progress(Measuring, f"heads of {name}"))
        assert self.plan.heads is not None, "they are its heads"  # noqa: S101
        sure, of_block = costs.sure and measured.sure, self.plan.heads.block is not None
        at_best = at_best_of(self.plan.heads.accepted)
        return PairCosts(costs.target, measured.costs, sure, of_block, at_best)

    def _draft_sequences(
        self, model: LlamaModel, options: LoadOptions, parallel: int, longest: int
    ) -> LlamaSequences | None:
        if longest == 0:
            self._let_go(model)
            return None
        options = self._trained_for(model, options, notes=False)
        sequences = LlamaSequences(
            model, self.cancel, options, parallel, parallel, pass_s=self._pass_s
        )
        if sequences.native.can_truncate:
            return sequences
        self.notes.append(f"the draft model {_RECURRENT}: it is not used")
        self._let_go(model)
        return None

    def _progress(
        self, kind: type[Loading] | type[Measuring], name: str
    ) -> Callable[[float], None]:
        return lambda share: self.report(kind(name, share))

    def _let_go(self, model: LlamaModel) -> None:
        self.models.remove(model)
        model.close()

    def _price(self, longest: int, exact: SafeWidths) -> str:
        """Return what `--exact` does to drafts, and what it costs, as far as it was ever measured."""
        plan, usual = self.plan, LoadOptions()
        changes = {each: getattr(usual, each) for each in ("repack", "flash_attention", "kv_type")}
        ways = (plan.options, exact.fixed or 1), (replace(plan.options, **changes), 1)
        stored = [(stored_costs(plan.target, way, Role.TARGET), width) for way, width in ways]
        # What was measured beside other programs says nothing of the difference.
        known = (each.costs.of(n) if each and each.sure else None for each, n in stored)
        exact_s, usual_s = known
        longest = min(longest, plan.options.max_rows - 1)
        return price(longest, exact, exact_s, usual_s, drafts=plan.options.max_rows > 1)


def _spelling(
    vocabulary: Vocabulary, draft_models: Sequences, shared_vocab: int
) -> "Callable[[], VocabMap]":
    """Return what says for a sequence what the ids of those that draft mean."""
    if isinstance(draft_models, LlamaSequences) and not shared_vocab:
        # Few pairs have two vocabularies.
        from localspec.llama.token_map import TokenMap  # noqa: PLC0415

        return TokenMap(vocabulary, draft_models.views[0].model.vocabulary).spelling
    from localspec.decoding.drafters.vocab_map import SharedIds  # noqa: PLC0415 - only who drafts

    same = shared_vocab if isinstance(draft_models, LlamaSequences) else vocabulary.n_vocab
    return partial(SharedIds, same)


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
