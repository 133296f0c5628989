"""Three sittings of ten related edits on one small repository, with the store of what was said and without it.

    python -m lab.benchmarks.store_sittings [--pair qwen2.5-coder-1.5b | --target FILE] [--max-tokens 220]
        [--files] [--exact] [--save FILE [--record]]
    python -m lab.benchmarks.store_sittings --replay FILE [--files] [--costs q4_k_m]
    python -m lab.benchmarks.store_sittings --lookups 10000000 --megabytes 110

The repository is ten functions of `localspec.storage`. Every edit is a conversation of its own that shows one function. Half
of the edits ask for the function again, changed, which is mostly copied from the prompt; the other half ask for its tests,
which no prompt shows. Each is answered greedily by `auto` without a store and by `auto` with one, on the same loaded
weights, in turns; what the second says goes into the store. Policies begin every sitting anew. --files adds the
repository's files to the store before the first sitting.

--save writes down what passes cost, prompts and answers; --record does nothing else. --replay has policies draft for the
answers of such a file, where every pass takes what the file's table of costs says, or one of `lab.simulator.costs`: so passes
and seconds do not depend on what else runs.

--lookups fills a store with so many tokens, of which much is said again, and measures how long looking up takes.
"""

import argparse
import inspect
import json
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass, field, replace
from itertools import takewhile
from pathlib import Path
from random import Random

from lab.benchmarks.workbench import forget, machine, opened
from lab.simulator.costs import PUBLISHED, TABLES
from localspec.chat.conversation import Conversation
from localspec.chat.events import Finished
from localspec.chat.request import Request
from localspec.decoding.choose import Chooser
from localspec.decoding.costs import PairCosts, PassCosts
from localspec.decoding.noise import Noise
from localspec.decoding.policy import LONGEST_DRAFT, Policy
from localspec.decoding.round import Draft, Round, Spent, Verdict
from localspec.decoding.stats import AcceptanceStats
from localspec.launch.drafting import Drafting
from localspec.launch.store import SaidWriter
from localspec.options import LaunchOptions, ReplyOptions, SamplingParams
from localspec.storage import files, locks, paths, tree
from localspec.storage.token_log import TokenLog, of_conversation

REPOSITORY = (files, locks, paths, tree)
FUNCTIONS = (
    files.private_directory,
    files.write_atomic,
    files.read_bounded,
    files.free_bytes,
    files.size_text,
    locks.try_lock,
    paths.first_time,
    paths.read_named,
    tree.fuzzy,
    tree.list_files,
)
EDITS = (
    "Add a line at its beginning that logs its name and arguments with `logging.debug`.",
    (
        "Add a check at its beginning that raises `TypeError` if the first argument is None, and log its name and arguments "
        "with `logging.debug`."
    ),
    (
        "Add a check at its beginning that raises `TypeError` if the first argument is None, log its name and arguments with "
        "`logging.debug`, and log what it returns."
    ),
)
TESTS = (
    "Write three short tests for it with pytest.",
    "Write five short tests for it with pytest; one of them has an empty argument.",
    "Write three short tests for it with pytest, and two for what it raises.",
)
MODES = ("without", "with")
COSTS = {**TABLES, **PUBLISHED}
Key = tuple[int, str, str]
"""Sitting, kind and mode."""


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit as it was recorded: ids of its prompt, and of the answer."""

    sitting: int
    kind: str
    prompt: list[int]
    tokens: list[int]


@dataclass(slots=True)
class Sum:
    """What the answers of one sitting and kind took."""

    tokens: int = 0
    passes: int = 0
    seconds: float = 0.0
    drafted: dict[str, int] = field(default_factory=dict)
    accepted: dict[str, int] = field(default_factory=dict)

    def add(self, tokens: int, seconds: float, acceptance: AcceptanceStats) -> None:
        """Add an answer."""
        self.tokens += tokens
        self.passes += acceptance.rounds
        self.seconds += seconds
        for name, stats in acceptance.by_drafter.items():
            if stats.drafted:
                self.drafted[name] = self.drafted.get(name, 0) + stats.drafted
                self.accepted[name] = self.accepted.get(name, 0) + stats.accepted

    def of(self, name: str) -> str:
        """Return how much of what a drafter drafted was accepted."""
        return f"{self.accepted.get(name, 0)} of {self.drafted.get(name, 0)}"


def questions(sitting: int, count: int) -> list[tuple[str, str]]:
    """Return kind and text of the questions of a sitting, the kinds in turns."""
    asked = []
    for at, function in enumerate(FUNCTIONS[:count]):
        kind, what = ("edit", EDITS) if at % 2 == 0 else ("tests", TESTS)
        again = "Print the whole function." if kind == "edit" else "Print only the code."
        text = f"```python\n{inspect.getsource(function)}```\n{what[sitting]} {again}"
        asked.append((kind, text))
    return asked


def sittings(arguments: argparse.Namespace, log_path: Path) -> None:
    """Answer everything, and print a table."""
    runtime = opened(
        LaunchOptions(
            pair=None if arguments.target else arguments.pair,
            target=arguments.target,
            draft="auto",
            exact=arguments.exact,
        )
    )
    speaker, vocabulary = runtime.assistant, runtime.target.model.vocabulary
    assert runtime.costs is not None
    log = TokenLog(log_path, 1, vocabulary.n_vocab, arguments.megabytes)
    repository = [
        vocabulary.tokenize(inspect.getsource(module), add_special=False, parse_special=False)
        for module in REPOSITORY
    ]
    if arguments.files:
        for number, ids in enumerate(repository):
            log.append(f"file {number}", ids)
    speaker.observers = (SaidWriter(log, vocabulary.piece),)
    options = ReplyOptions(SamplingParams(temperature=0), max_tokens=arguments.max_tokens)
    sums, said, different, edits = dict[Key, Sum](), 0, 0, list[Edit]()
    for sitting in range(len(EDITS)):
        policies = {
            "without": replace(runtime.drafting, past=None).policy("auto"),
            "with": replace(runtime.drafting, past=log).policy("auto"),
        }
        for kind, text in questions(sitting, len(FUNCTIONS)):
            replies = {}
            for mode in MODES[: 1 if arguments.record else 2]:
                conversation = Conversation()
                conversation.append_user(text)
                prompt = speaker.prompt_tokens(conversation)
                said += mode == "with"
                stored = said if mode == "with" else None
                forget(runtime)
                request = Request(0, conversation.messages, options, conversation=stored)
                *_, last = speaker.events(request, conversation, policies[mode])
                assert isinstance(last, Finished)
                reply = replies[mode] = last.reply
                sums.setdefault((sitting, kind, mode), Sum()).add(
                    reply.completion_tokens, reply.decode_s, reply.acceptance
                )
            edits.append(Edit(sitting, kind, prompt, [*replies["without"].tokens]))
            different += any(each.tokens != replies["without"].tokens for each in replies.values())
    print(f"{machine()}; {speaker.models.target_name}; {different} texts differ")
    report(sums)
    if arguments.save:
        target = runtime.costs.target
        document = {
            "widths": target.widths,
            "seconds": target.seconds,
            "n_vocab": vocabulary.n_vocab,
            "eog": sorted(vocabulary.eog),
            "repository": repository,
            "edits": [asdict(each) for each in edits],
        }
        Path(arguments.save).write_text(json.dumps(document))
    speaker.close()


def report(sums: dict[Key, Sum]) -> None:
    """Print a table."""
    print(
        "| sitting | kind | tokens | passes without, with | seconds without, with "
        "| looked up without, with: accepted of drafted | from the store |"
    )
    print("|---|---|---|---|---|---|---|")
    for sitting in range(len(EDITS)):
        for kind in ("edit", "tests"):
            off, on = (sums.get((sitting, kind, mode), Sum()) for mode in MODES)
            print(
                f"| {sitting + 1} | {kind} | {off.tokens} | {off.passes}, {on.passes} ({_change(off.passes, on.passes)}) "
                f"| {off.seconds:.1f}, {on.seconds:.1f} ({_change(off.seconds, on.seconds)}) "
                f"| {off.of('lookup')}, {on.of('lookup')} | {on.of('store')} |"
            )


def replayed(path: Path, log_path: Path, table: str | None, *, with_files: bool) -> None:
    """Let policies draft for recorded answers, and print a table."""
    document = json.loads(path.read_text())
    costs = PassCosts(tuple(document["widths"]), tuple(document["seconds"]))
    costs = costs if table is None else COSTS[table].target
    log = TokenLog(log_path, 1, document["n_vocab"])
    for number, text in enumerate(document["repository"] if with_files else ()):
        log.append(f"file {number}", text)
    sums = dict[Key, Sum]()
    drafting = Drafting(1, None, None, document["eog"], PairCosts(costs), LONGEST_DRAFT)
    edits = [Edit(**each) for each in document["edits"]]
    for sitting in range(len(EDITS)):
        policies = {
            "without": drafting.policy("auto"),
            "with": replace(drafting, past=log).policy("auto"),
        }
        for number, edit in enumerate(edits):
            if edit.sitting == sitting:
                for mode, policy in policies.items():
                    stats = AcceptanceStats()
                    seconds = drafted(edit, policy, costs, stats)
                    sums.setdefault((sitting, edit.kind, mode), Sum()).add(
                        len(edit.tokens), seconds, stats
                    )
                log.append(of_conversation(number), edit.tokens)
    report(sums)


def drafted(edit: Edit, policy: Policy, costs: PassCosts, stats: AcceptanceStats) -> float:
    """Have a policy draft for an answer; return the seconds of its passes."""
    chooser, seconds = Chooser(SamplingParams(temperature=0), Noise(0)), 0.0
    text, said = [*edit.prompt, edit.tokens[0]], 1
    policy.begin(text, chooser)
    while said < len(edit.tokens):
        plan, draft = policy.plan(text, len(edit.tokens) - said), Draft()
        if plan.draft_length:
            try:
                next(plan.drafter.propose(text, plan, chooser))
            except StopIteration as ended:
                draft = ended.value
        follows = edit.tokens[said:]
        same = sum(
            1
            for _ in takewhile(
                lambda pair: pair[0] == pair[1], zip(draft.tokens, follows, strict=False)
            )
        )
        accepted = min(same, len(follows) - 1)
        confirmed = tuple(follows[: accepted + 1])
        verify_s = costs.of(len(draft.tokens) + 1)
        verdict = Verdict(accepted, confirmed[-1])
        done = Round(draft, verdict, confirmed, Spent(verify_s=verify_s))
        policy.learn(done)
        stats.add(done)
        text += confirmed
        said, seconds = said + len(confirmed), seconds + verify_s
    policy.end()
    return seconds


def _change(before: float, after: float) -> str:
    return f"{100 * (after / before - 1):+.1f} %" if before else "none"


def lookups(n_tokens: int, path: Path, megabytes: int) -> None:
    """Fill a store, and print what looking up, adding and forgetting take."""
    draw = Random(0)
    phrases = [
        [draw.randrange(30_000) for _ in range(draw.randrange(3, 30))] for _ in range(50_000)
    ]
    log, tail = TokenLog(path, megabytes=megabytes), list[int]()
    start, text, left = time.perf_counter(), list[int](), n_tokens
    while left > 0:
        text = []
        while len(text) < min(20_000, left):
            text += phrases[min(int(draw.paretovariate(0.6)), len(phrases)) - 1]
            if draw.random() < 0.1:
                text.append(draw.randrange(30_000))
        left -= len(text)
        tail += text if left < 200_000 else []
        log.append(of_conversation(left), text)
    added_s = time.perf_counter() - start
    asked = [tail[at - 16 : at] for at in draw.sample(range(16, len(tail)), 20_000)]
    asked += [draw.sample(each, len(each)) for each in asked[:5000]]
    took = []
    for each in asked:
        start = time.perf_counter()
        log.find(each)
        took.append(1e6 * (time.perf_counter() - start))
    cuts = statistics.quantiles(took, n=1000)
    start = time.perf_counter()
    log.forget(of_conversation(left))
    forgot_s = time.perf_counter() - start
    print(machine(), log.figures(), f"{path.stat().st_size / 1e6:.1f} MB")
    print(
        f"looking up: median {statistics.median(took):.1f} µs, 99 % {cuts[989]:.1f}, 99.9 % {cuts[998]:.1f}, most {max(took):.0f}; "
        f"adding: {1e6 * added_s / n_tokens:.1f} µs a token; forgetting {len(text)} tokens: {forgot_s:.2f} s"
    )


def main() -> None:
    """Measure what the arguments say."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--pair", default="qwen2.5-coder-1.5b")
    parser.add_argument("--target")
    parser.add_argument("--max-tokens", type=int, default=220)
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--replay")
    parser.add_argument("--costs", choices=COSTS)
    parser.add_argument("--files", action="store_true")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--megabytes", type=int, default=64)
    parser.add_argument("--lookups", type=int)
    parser.add_argument("--save")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "said"
        if arguments.lookups:
            lookups(arguments.lookups, path, arguments.megabytes)
        elif arguments.replay:
            replayed(Path(arguments.replay), path, arguments.costs, with_files=arguments.files)
        else:
            sittings(arguments, path)


if __name__ == "__main__":
    main()
