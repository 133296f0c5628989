"""LocalDrafts: what drafts here for a server: which draft model, by its vocabulary, and the connection of an answer."""

import threading
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from websockets.exceptions import WebSocketException
from websockets.sync.client import ClientConnection, connect

from localspec.api import (
    Draft,
    LaunchOptions,
    LocalspecError,
    UsageError,
    data_dir,
    load_registry,
    make_plan,
)
from localspec.decoding.choose import Chooser
from localspec.decoding.costs import PassCosts, window_length
from localspec.decoding.drafters.lookup import LookupDrafter
from localspec.decoding.drafters.model import ModelDrafter
from localspec.decoding.drafters.vocab_map import SharedIds, VocabMap
from localspec.decoding.model import LanguageModel, Logits, Pass
from localspec.decoding.noise import Noise
from localspec.decoding.scheduler import NO_ROWS
from localspec.engine.drafts import PATH, DraftOpening, decoded
from localspec.models.gguf import read_model
from localspec.models.names import look_up
from localspec.models.store import Store
from localspec.models.tokenizer import vocabulary_of
from localspec.plugins.remote.proposing import AnswerDrafts, Drafters
from localspec.plugins.remote.vocabulary import ServerVocabulary

if TYPE_CHECKING:
    from localspec.launch.load import Report, Runtime
    from localspec.llama.token_map import TokenMap

_ANSWER_WITHIN_S, _PONG_WITHIN_S = 600.0, 5.0
_END_S = 2.0
_MOST_BYTES, _LONGEST_PASS_S = 16 << 20, 3600.0
"""Of a frame that comes; and what is believed of a server's passes."""


class LocalDrafts:
    """Proposes for one answer at a time.

    Args:
        base: the address of the server's interface, which ends in `/v1`.
        headers: of a request there, the key among them.
        runtime: the draft model, loaded as a model of its own; None looks up alone.
        n_vocab: ids from there on mean nothing to one of them.
        across: what ids mean where the draft model has other ones than the server's; None where they are the same.
        vocabulary: the server's; None reads no text here.

    Attributes:
        pass_costs: of the server's passes; None before the first answer.
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
        across: "TokenMap | None" = None,
        vocabulary: ServerVocabulary | None = None,
    ) -> None:
        self._across, self._vocabulary = across, vocabulary
        self._url = f"ws{base.removesuffix('/v1').removeprefix('http')}{PATH}"
        self._headers, self._runtime, self._n_vocab, self._ahead = headers, runtime, n_vocab, ahead
        self._free = threading.Lock()
        self._kept: Drafters | None = None
        self.pass_costs: PassCosts | None = None

    @property
    def name(self) -> str:
        """The draft model's name; empty without one."""
        return "" if self._runtime is None else self._runtime.assistant.models.target_name

    def ids(self, text: str) -> tuple[int, ...]:
        """Return the server's ids of a text, which stays here.

        Raises:
            UsageError: no model here has them.
        """
        ids = None if self._vocabulary is None else self._vocabulary.ids(text)
        if ids is None:
            raise UsageError(
                "the prediction is looked up here, and no model here has the server's vocabulary: "
                "pull a small one of its family, or leave it out"
            )
        return ids

    def begin(self, name: str, prediction: Sequence[int] = ()) -> None:
        """Propose for the answer of a name, in a thread, until it ends; what goes wrong costs drafts alone.

        Args:
            name: see `DraftOpening`.
            prediction: ids of a text that the answer is expected to be like.
        """
        taken = self._free.acquire(blocking=False)
        threading.Thread(target=self._run, args=(name, prediction, taken), daemon=True).start()

    def close(self) -> None:
        """Free the draft model; while it drafts for an answer that does not end, that is left to the end of this process."""
        if self._free.acquire(timeout=_END_S) and self._runtime is not None:
            self._runtime.assistant.close()

    def _run(self, name: str, prediction: Sequence[int], taken: bool) -> None:
        # The connection of an answer ends a moment after it.
        if not (taken or self._free.acquire(timeout=_END_S)):
            return
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
                self._follow(link, prediction)
        finally:
            self._free.release()

    def _follow(self, link: ClientConnection, prediction: Sequence[int]) -> None:
        start_s = time.monotonic()
        link.ping().wait(_PONG_WITHIN_S)
        trip_s = time.monotonic() - start_s
        opening = decoded(link.recv(_ANSWER_WITHIN_S), DraftOpening)
        if opening is None or not opening.pass_s or min(opening.prompt, default=0) < 0:
            return  # of pictures and sounds nothing is known here
        if not all(0 < each < _LONGEST_PASS_S for each in opening.pass_s):
            return
        chooser = Chooser(opening.sampling, Noise(opening.seed), prediction=prediction)
        widths = tuple(range(1, len(opening.pass_s) + 1))
        costs = self.pass_costs = PassCosts(widths, opening.pass_s)
        # What drafts has learnt from earlier answers.
        self._kept = self._kept or self._made_drafters(costs)
        answer = AnswerDrafts(
            *(link, opening.prompt, chooser, costs, trip_s, self._kept, self._made),
            ahead=self._ahead,
        )
        answer.read()
        answer.run()

    def _made_drafters(self, costs: PassCosts) -> Drafters:
        runtime = self._runtime
        if runtime is None:
            return Drafters(LookupDrafter(()))
        models, across = runtime.assistant.models, self._across
        eog = models.eog if across is None else across.eog
        if runtime.costs is None:
            return Drafters(LookupDrafter(eog))
        own, view = runtime.costs.target, models.targets.views[0]
        # A server elsewhere that reads the prompt no faster than this machine leaves time for all of it.
        reads_s, there_s = (each.seconds[-1] / each.widths[-1] for each in (own, costs))
        leaves_time = self._ahead and reads_s <= there_s
        fresh = None if leaves_time else window_length(costs, own, view.n_ctx)
        ids: VocabMap = SharedIds(min(self._n_vocab, view.n_vocab))
        ids = ids if across is None else across.spelling()
        return Drafters(LookupDrafter(eog), ModelDrafter(view, ids, eog, own, fresh))

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
    name = options.draft_model or _usual_draft_model(model)
    path = _file(name) if name else None
    there = ServerVocabulary(vocabulary, path)
    alone = LocalDrafts(*address, None, 0, ahead=ahead, vocabulary=there)
    if options.draft.partition(":")[0] == "lookup":
        return alone, ""
    why = f"no draft model is known for {model}: name one with --draft-model" if not name else ""
    across = False
    if name and path is None:
        why = f"the draft model {name} is not here: run `localspec pull {name}`"
    elif path is not None and vocabulary_of(read_model(path).tokenizer) != vocabulary:
        other = there.why_not(path) if options.draft_model else ""
        across = not other and options.draft_model is not None
        if not across:
            why = f"the draft model {name} has another vocabulary than {model} there{other}"
    if why and (options.draft_model or options.draft != "auto"):
        raise UsageError(f"nothing drafts here: {why}")
    if why:  # the line under the answer has what was drafted
        return alone, ""
    from localspec.launch.load import load  # noqa: PLC0415 - few servers are drafted for

    plan = make_plan(LaunchOptions(target=name, draft="auto", offline=True))
    runtime = load(plan, None, report)
    table = there.across(runtime.target.model) if across else None
    n_vocab = int(vocabulary.rpartition("-")[2])
    drafts = LocalDrafts(*address, runtime, n_vocab, ahead=ahead, across=table, vocabulary=there)
    return drafts, f"{name} drafts here{', across vocabularies' * across}"


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
