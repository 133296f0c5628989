"""LocalDrafts: what this machine proposes while a server answers, as far as passes there, a round trip and passes here say that it pays.

The policy is the one that weighs drafts beside a target of this machine; its target is the server, of which it sees the tokens.
"""

import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from localspec.api import (
    Draft,
    LaunchOptions,
    LocalspecError,
    Round,
    UsageError,
    data_dir,
    load_registry,
    make_plan,
)
from localspec.decoding.choose import Chooser
from localspec.decoding.costs import PassCosts, window_length
from localspec.decoding.drafters.drafter import Drafter, Plan
from localspec.decoding.drafters.lookup import LookupDrafter
from localspec.decoding.drafters.model import ModelDrafter
from localspec.decoding.drafters.vocab_map import SharedIds
from localspec.decoding.model import LanguageModel, Logits, Pass
from localspec.decoding.noise import Noise
from localspec.decoding.policy import LONGEST_DRAFT, AdaptivePolicy
from localspec.decoding.proposals import checksum
from localspec.decoding.round import Spent, Verdict
from localspec.decoding.scheduler import NO_ROWS
from localspec.engine.drafts import PATH, Confirmed, DraftOpening, DraftProposal, decoded, encoded
from localspec.models.gguf import read_model
from localspec.models.names import look_up
from localspec.models.store import Store
from localspec.models.tokenizer import vocabulary_of

if TYPE_CHECKING:
    from localspec.launch.load import Report, Runtime

_ANSWER_WITHIN_S, _PONG_WITHIN_S = 600.0, 5.0
_END_S = 2.0
_MOST_BYTES, _LONGEST_PASS_S = 16 << 20, 3600.0
"""Of a frame that comes; and what is believed of a server's passes."""
_AHEAD = 24
"""Tokens up to which drafts go on while others are on their way."""
_LEAST_S = 1e-4


@dataclass(slots=True)
class _Chain:
    """What was proposed behind the text as it is confirmed."""

    drafter: str = ""
    tokens: list[int] = field(default_factory=list)
    confidences: list[float] = field(default_factory=list)
    gaps: list[float] = field(default_factory=list)
    passes: int = 0
    spent_s: float = 0.0

    def add(self, draft: Draft) -> None:
        self.drafter = draft.drafter
        self.tokens += draft.tokens
        self.confidences += draft.confidences
        self.gaps += draft.gaps
        self.passes += draft.passes

    def first(self, count: int) -> Draft:
        """Return the draft of the first tokens, with what was spent since the last round."""
        most = slice(min(count, len(self.tokens)))
        found = tuple(self.tokens[most])
        made = tuple(self.confidences[most]), self.drafter, tuple(self.gaps[most])
        return Draft(found, *made, passes=self.passes)

    def follow(self, tokens: Sequence[int]) -> None:
        """Take in what was confirmed: what still stands behind it stays."""
        count = len(tokens)
        right = self.tokens[:count] == [*tokens]
        for each in (self.tokens, self.confidences, self.gaps):
            del each[: count if right else None]
        self.passes, self.spent_s = 0, 0.0


class LocalDrafts:
    """Proposes for one answer at a time.

    Args:
        base: the address of the server's interface, which ends in `/v1`.
        headers: of a request there, the key among them.
        runtime: the draft model, loaded as a model of its own; None looks up alone.
        n_vocab: ids from there on mean nothing to one of them.
        ahead: whether to go on while proposals are on their way: beside a server on this machine that takes its cores.
    """

    def __init__(
        self,
        base: str,
        headers: Mapping[str, str],
        runtime: "Runtime | None",
        n_vocab: int,
        *,
        ahead: bool,
    ) -> None:
        self._url = f"ws{base.removesuffix('/v1').removeprefix('http')}{PATH}"
        self._headers, self._runtime, self._n_vocab, self._ahead = headers, runtime, n_vocab, ahead
        self._free = threading.Lock()

    @property
    def name(self) -> str:
        """The draft model's name; empty without one."""
        return "" if self._runtime is None else self._runtime.assistant.models.target_name

    def begin(self, name: str) -> None:
        """Propose for the answer of a name, in a thread, until it ends; what goes wrong costs drafts alone."""
        if self._free.acquire(blocking=False):
            threading.Thread(target=self._run, args=(name,), daemon=True).start()

    def close(self) -> None:
        """Free the draft model; while it drafts for an answer that does not end, that is left to the end of this process."""
        if self._free.acquire(timeout=_END_S) and self._runtime is not None:
            self._runtime.assistant.close()

    def _run(self, name: str) -> None:
        host = urlsplit(self._url).hostname or ""
        proxy: Any = None if host in {"localhost", "127.0.0.1", "::1"} else True
        try:
            with (
                suppress(WebSocketException, OSError, LocalspecError, EOFError),
                connect(
                    self._url + name,
                    additional_headers=self._headers,
                    compression=None,
                    max_size=_MOST_BYTES,
                    proxy=proxy,
                ) as link,
            ):
                self._follow(link)
        finally:
            self._free.release()

    def _follow(self, link: ClientConnection) -> None:
        start_s = time.monotonic()
        link.ping().wait(_PONG_WITHIN_S)
        trip_s = time.monotonic() - start_s
        opening = decoded(link.recv(_ANSWER_WITHIN_S), DraftOpening)
        first = decoded(link.recv(_ANSWER_WITHIN_S), Confirmed)
        if opening is None or first is None or not opening.pass_s:
            return
        if not all(0 < each < _LONGEST_PASS_S for each in opening.pass_s):
            return
        text, chooser = (
            [*opening.prompt, *first.tokens],
            Chooser(opening.sampling, Noise(opening.seed)),
        )
        pass_s = (opening.pass_s[0], *(each + trip_s for each in opening.pass_s[1:]))
        costs = PassCosts(tuple(range(1, len(pass_s) + 1)), pass_s)
        drafters = self._drafters(costs)
        if min(text) < 0:  # of pictures and sounds, which a draft model would have to see
            drafters = drafters[:1]
        policy = AdaptivePolicy(costs, min(LONGEST_DRAFT, len(pass_s) - 1), drafters)
        policy.begin(text, chooser)
        self._propose(link, policy, text, chooser)

    def _drafters(self, costs: PassCosts) -> list[Drafter]:
        runtime = self._runtime
        if runtime is None:
            return [LookupDrafter(())]
        models = runtime.assistant.models
        drafters: list[Drafter] = [LookupDrafter(models.eog)]
        if runtime.costs is not None:
            own, view = runtime.costs.target, models.targets.views[0]
            fresh = window_length(costs, own, view.n_ctx)
            ids = SharedIds(min(self._n_vocab, view.n_vocab))
            drafters.append(ModelDrafter(view, ids, models.eog, own, fresh))
        return drafters

    def _propose(
        self, link: ClientConnection, policy: AdaptivePolicy, text: list[int], chooser: Chooser
    ) -> None:
        """Propose, learn what came of it, and so on; ended by the connection."""
        chain, since_s, plan = _Chain(), time.monotonic(), policy.plan(text, 1 << 20)
        may_grow = self._extend(link, plan, text, chain, chooser)
        while True:
            try:
                frame = link.recv(timeout=0 if may_grow else None)
            except TimeoutError:
                may_grow = self._extend(link, plan, text, chain, chooser)
                continue
            told = decoded(frame, Confirmed)
            if told is None or told.at != len(text) or min(told.tokens, default=-1) < 0:
                return
            now_s = time.monotonic()
            policy.learn(_round_of(told, chain, now_s - since_s, overlaps=self._ahead))
            since_s = now_s
            text += told.tokens
            chain.follow(told.tokens)
            plan = policy.plan(text, 1 << 20)
            may_grow = bool(chain.tokens) or self._extend(link, plan, text, chain, chooser)
            may_grow = may_grow and self._ahead

    def _extend(
        self,
        link: ClientConnection,
        plan: Plan,
        text: Sequence[int],
        chain: _Chain,
        chooser: Chooser,
    ) -> bool:
        """Propose more behind a chain; return whether further tokens may be drafted while these are on their way."""
        if not plan.draft_length or len(chain.tokens) >= _AHEAD:
            return False
        if not _takes_passes(plan):  # they cost nothing here, and the server weighs them
            if chain.tokens:
                return False
            plan = replace(plan, draft_length=LONGEST_DRAFT)
        start_s, prefix = time.monotonic(), [*text, *chain.tokens]
        draft = self._made(plan.drafter.propose(prefix, plan, chooser))
        chain.spent_s += time.monotonic() - start_s
        chain.add(draft)
        if draft.tokens:
            proposal = DraftProposal(len(prefix), checksum(prefix), draft.tokens)
            link.send(encoded(proposal))
        return bool(draft.tokens) and _takes_passes(plan) and self._ahead

    def _made(self, draft: Generator[Pass, Logits, Draft]) -> Draft:
        """Make the passes of a draft."""
        view: LanguageModel | None = None
        if self._runtime is not None:
            view = self._runtime.assistant.models.targets.views[0]
        rows = None
        try:
            while True:
                request = next(draft) if rows is None else draft.send(rows)
                assert view is not None, "lookups ask for no pass"  # noqa: S101
                tokens, rows = list(request.tokens), NO_ROWS
                if not request.rows:
                    view.prefill(tokens)
                    continue
                rows = view.logits(tokens, request.rows)
                while request.more is not None and (token := request.more(rows)) is not None:
                    tokens.append(token)
                    rows = view.logits(tokens, 1)
        except StopIteration as end:
            made: Draft = end.value
            return made


def _takes_passes(plan: Plan) -> bool:
    return plan.forecast is not None and plan.forecast.step_s > 0


def _round_of(told: Confirmed, chain: _Chain, took_s: float, *, overlaps: bool) -> Round:
    """Return a round of the server's as the policy sees it."""
    draft = chain.first(told.verified)
    accepted = 0
    for one, other in zip(draft.tokens, told.tokens, strict=False):
        if one != other:
            break
        accepted += 1
    accepted = min(accepted, len(told.tokens) - 1)
    verify_s = max(_LEAST_S, took_s - (0.0 if overlaps else chain.spent_s))
    spent = Spent(draft_s=chain.spent_s, verify_s=verify_s)
    return Round(draft, Verdict(accepted, told.tokens[-1]), told.tokens, spent)


def local_drafts(
    options: LaunchOptions,
    model: str,
    vocabulary: str,
    address: tuple[str, Mapping[str, str]],
    report: "Report",
    *,
    ahead: bool,
) -> tuple[LocalDrafts, str]:
    """Return what drafts here for a model of a server, and a line about that; its draft model is loaded only if its ids mean the same.

    Args:
        options: what was asked for.
        model: its name there.
        vocabulary: see `vocabulary_of`; empty where the server does not say.
        address: of the server, and the headers of a request.
        report: gets how far loading is.
        ahead: as for `LocalDrafts`.

    Raises:
        LocalspecError: the draft model that was named cannot be used.
    """
    make: Callable[[Any, int], LocalDrafts] = lambda runtime, n_vocab: LocalDrafts(  # noqa: E731
        *address, runtime, n_vocab, ahead=ahead
    )
    alone = make(None, 0)
    if options.draft.partition(":")[0] == "lookup":
        return alone, ""
    name = options.draft_model or _usual_draft_model(model)
    why = f"no draft model is known for {model}: name one with --draft-model" if not name else ""
    path = _file(name) if name else None
    if name and path is None:
        why = f"the draft model {name} is not here: run `localspec pull {name}`"
    elif path is not None:
        own = vocabulary_of(read_model(path).tokenizer)
        if own != vocabulary:
            why = f"the draft model {name} has another vocabulary than {model} there"
    if why and (options.draft_model or options.draft != "auto"):
        raise UsageError(f"nothing drafts here: {why}")
    if why:
        return alone, f"drafts are looked up alone: {why}"
    from localspec.launch.load import load  # noqa: PLC0415 - few servers are drafted for

    plan = make_plan(LaunchOptions(target=name, draft="auto", offline=True))
    runtime = load(plan, None, report)
    return make(runtime, int(vocabulary.rpartition("-")[2])), f"{name} drafts here"


def _usual_draft_model(model: str) -> str | None:
    """Return the draft model of a pair by its name, or by that of its target."""
    pairs = load_registry().pairs
    named = [pairs[model]] if model in pairs else []
    others = [each for each in pairs.values() if each.target == model]
    return next((each.draft_model for each in (*named, *others) if each.draft_model), None)


def _file(name: str) -> Path | None:
    with suppress(LocalspecError):
        found = look_up(name, load_registry(), offline=True)
        return found if isinstance(found, Path) else Store(data_dir()).path_of(found)
    return None
