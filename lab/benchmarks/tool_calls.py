"""Calls of functions: are they valid, is it the right function, what does the lazy grammar change, what do forced tokens save.

    python -m lab.benchmarks.tool_calls [--pair qwen2.5-coder-1.5b | --target FILE] [--tasks 100] [--first 0] [--exact]
        [--modes free,bound,forced,required,required-forced] [--temperature 0] [--max-tokens 200] [--threads N] --save FILE

Every task of tool_tasks.toml is asked in every mode: free, without any grammar; bound, with the lazy grammar and no drafts;
forced, with the grammar and what it forces drafted; and the last two once more where one call is required. A call counts as
valid if its arguments are JSON that jsonschema takes. What an answer without a call wrote as JSON in its words counts apart:
`chat` and `run` take it for a call. Texts with and without drafts are compared.

Each answer is appended to FILE as a line of JSON; what is there is not asked again, so a run that ended goes on. A task's
prompt is evaluated once, for its first mode, and its last token for each. A greedy answer without a call and without a token
that the lazy grammar forbids is the answer of bound and forced, too, and is not asked for again.
"""

import argparse
import json
import tomllib
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count, islice
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
from numpy.typing import NDArray

from lab.benchmarks.workbench import forget, machine, opened
from localspec.calls import Tool
from localspec.calls.policy import CallPolicy, ToolChoice
from localspec.chat.assistant import Assistant
from localspec.chat.conversation import Conversation
from localspec.chat.events import CallDone
from localspec.chat.written_calls import written_calls
from localspec.decoding.drafters.forced import ForcedDrafter
from localspec.decoding.policy.policy import FixedPolicy, Policy, plain_policy
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams

TASKS = Path(__file__).with_name("tool_tasks.toml")
MOST_OFFERED = 6
FORCED_LENGTH = 12
MODES = ("free", "bound", "forced", "required", "required-forced")
SAME = (("bound", "forced"), ("required", "required-forced"))
Record = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """A question, the functions that are offered for it, and the right one."""

    question: str
    tools: tuple[Tool, ...]
    right: str


def tasks() -> list[Task]:
    """Return the tasks, a function's own ones never next to each other."""
    known = tomllib.loads(TASKS.read_text())["tools"]
    tools = [
        Tool(
            name,
            {
                "type": "object",
                "properties": each["properties"],
                "required": each["required"],
            },
            each["description"],
        )
        for name, each in known.items()
    ]
    asked = [
        (row, at, question)
        for at, name in enumerate(known)
        for row, question in enumerate(known[name]["questions"])
    ]
    found = []
    for number, (_, at, question) in enumerate(sorted(asked)):
        count = 1 + number % MOST_OFFERED
        offered = [tools[(at + step) % len(tools)] for step in range(count)]
        # The right one stands at every place as often.
        turn = number // MOST_OFFERED % count
        found.append(Task(question, (*offered[turn:], *offered[:turn]), tools[at].name))
    return found


class Anything:
    """An automaton that lets everything follow."""

    def start(self) -> int:
        """Return the only state."""
        return 0

    def step(self, state: int, token: int) -> int:
        """Return the same state."""
        return state

    def allows(self, state: int, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return True for each of `ids`, shape (n,)."""
        return np.ones(ids.size, dtype=np.bool_)

    def forced(self, state: int) -> tuple[int, ...]:
        """Return nothing."""
        return ()


class Unbound:
    """Stands for the grammars of a model whose calls nothing binds."""

    def of_answers(self, *_: Any) -> Anything:
        """Return what lets everything follow."""
        return Anything()

    of_calls = of_answers


@dataclass(slots=True)
class Tally:
    """What the answers of one mode came to."""

    answers: int = 0
    called: int = 0
    calls: int = 0
    valid: int = 0
    right: int = 0
    worded: int = 0
    worded_right: int = 0
    tokens: int = 0
    passes: int = 0
    forced: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, task: Task, record: Record) -> None:
        """Count an answer; its first call is the one that has to be right."""
        calls, worded = record["calls"], record["worded"]
        self.answers += 1
        self.called += bool(calls)
        self.right += bool(calls) and calls[0][0] == task.right
        self.worded += bool(worded)
        self.worded_right += bool(worded) and worded[0][0] == task.right
        self.tokens += len(record["tokens"])
        self.passes += record["rounds"] + 1  # and the prompt's
        self.forced += record["accepted"]
        schemas = {each.name: each.parameters for each in task.tools}
        for name, arguments in calls:
            self.calls += 1
            try:
                jsonschema.validate(json.loads(arguments), dict(schemas[name]))
            except (ValueError, jsonschema.ValidationError) as error:
                self.wrong.append(
                    f"{task.question} {name} {arguments}: {str(error).splitlines()[0]}"
                )
            else:
                self.valid += 1

    def line(self, mode: str) -> str:
        """Return it for people."""
        share = f"{self.valid / self.calls:.1%}" if self.calls else "-"
        return (
            f"{mode:15} {self.answers} answers, {self.called} with a call, {self.right} of the right function; "
            f"{self.worded} more in words, {self.worded_right} right; {self.calls} calls, {self.valid} valid ({share}); "
            f"{self.tokens} tokens in {self.passes} passes, {self.forced} forced"
        )


def asked_for() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pair")
    parser.add_argument("--target")
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--save", type=Path, required=True)
    return parser.parse_args()


@dataclass(frozen=True, slots=True)
class Mode:
    """Who answers, what drafts, and whether a call is required."""

    speaker: Assistant
    drafting: Policy
    choice: ToolChoice


def modes_of(own: Assistant, longest: int) -> dict[str, Mode]:
    """Return every mode by its name; drafts have `longest` tokens at most."""
    unbound: Any = Unbound()
    free = Assistant(replace(own.models, grammar=unbound), own.policies)
    forced = FixedPolicy(ForcedDrafter(), min(longest, FORCED_LENGTH))
    made = (
        Mode(free, plain_policy(), "auto"),
        Mode(own, plain_policy(), "auto"),
        Mode(own, forced, "auto"),
        Mode(own, plain_policy(), "required"),
        Mode(own, forced, "required"),
    )
    return dict(zip(MODES, made, strict=True))


def answered(task: Task, mode: Mode, options: ReplyOptions) -> Record:
    """Return what the answer to a task is in a mode."""
    policy = CallPolicy(choice=mode.choice, parallel=mode.choice == "auto")
    conversation = Conversation(tools=task.tools, call_policy=policy)
    conversation.append_user(task.question)
    reply = mode.speaker.reply(conversation, options, policy=mode.drafting)
    turns, numbers = policy.turns([each.name for each in task.tools], []), count()
    told = written_calls(reply.text, task.tools, turns, lambda: str(next(numbers)))
    worded = [each.call for each in told if isinstance(each, CallDone) and not reply.calls]
    return {
        "calls": [[each.name, each.arguments] for each in reply.calls],
        "worded": [[each.name, each.arguments] for each in worded],
        "text": reply.text,
        "tokens": list(reply.tokens),
        "rounds": reply.acceptance.rounds,
        "accepted": reply.acceptance.accepted,
        "seconds": round((reply.first_token_s or 0) + reply.decode_s, 3),
    }


def let_through(own: Assistant, task: Task, record: Record) -> bool:
    """Say whether an answer has no call, and no token that the lazy grammar forbids."""
    dialect, grammars = own.call_dialect, own.models.grammar
    assert grammars is not None, "it can follow one"
    turns = CallPolicy().turns([each.name for each in task.tools], []).turns
    rule = grammars.of_answers(dialect.form, task.tools, turns, dialect.control)
    state = rule.start()
    for token in record["tokens"]:
        if not rule.allows(state, np.array([token]))[0]:
            return False
        state = rule.step(state, token)
    return not record["calls"] and bool(rule.allows(state, np.array([*own.models.eog])).any())


def kept(path: Path, setting: Record) -> dict[tuple[str, str], Record]:
    """Return the answers in a file, by mode and question; one without any begins with the setting."""
    if not path.exists():
        path.write_text(f"{json.dumps(setting)}\n")
    first, *lines = path.read_text().splitlines()
    if json.loads(first) != setting:
        raise SystemExit(f"{path} was begun with {first}: give another file")
    records = [json.loads(each) for each in lines]
    return {(each["mode"], each["question"]): each for each in records}


def counted(
    found: dict[tuple[str, str], Record], asked: list[Task], modes: list[str]
) -> Iterator[str]:
    """Yield the lines that say what all of it came to."""
    for mode in modes:
        tally = Tally()
        for task in asked:
            tally.add(task, found[mode, task.question])
        yield tally.line(mode)
        yield from (f"  INVALID {each}" for each in tally.wrong)
    by_mode: dict[str, list[Any]] = defaultdict(list)
    for mode in modes:
        by_mode[mode] = [found[mode, task.question]["tokens"] for task in asked]
    for plain, drafted in SAME:
        if plain in modes and drafted in modes:
            pairs = zip(by_mode[plain], by_mode[drafted], strict=True)
            unequal = sum(one != other for one, other in pairs)
            yield f"texts of {plain} that drafting changed: {unequal} of {len(asked)}"


def main() -> None:
    """Ask, validate, compare, print."""
    args = asked_for()
    launch = LaunchOptions(
        pair=args.pair or (None if args.target else "qwen2.5-coder-1.5b"),
        target=args.target,
        draft=f"lookup:{FORCED_LENGTH}",  # so that passes have room for drafts
        load=LoadOptions(n_ctx=4096, threads=args.threads),
        exact=args.exact,
        fit=False,
    )
    loaded = opened(launch)
    own = loaded.assistant
    options = ReplyOptions(SamplingParams(temperature=args.temperature), 1, args.max_tokens)
    asked, modes = list(islice(tasks(), args.first, args.first + args.tasks)), args.modes.split(",")
    setting = {
        "machine": machine(),
        "target": own.models.target_name,
        "exact": args.exact,
        "temperature": args.temperature,
        "max_tokens": args.max_tokens,
    }
    print(json.dumps(setting))
    answering = modes_of(own, loaded.drafting.longest)
    found = kept(args.save, setting)
    for task in asked:
        warmed = False
        for mode in [mode for mode in modes if (mode, task.question) not in found]:
            free = found.get(("free", task.question))
            if free and mode in SAME[0] and not args.temperature and let_through(own, task, free):
                record = {**free, "mode": mode, "as": "free"}
            else:
                if not warmed:  # all modes begin with the same cells: whatever differs is theirs
                    forget(loaded)
                    warm(own, task)
                    warmed = True
                record = {"mode": mode, "question": task.question}
                record |= answered(task, answering[mode], options)
            found[mode, task.question] = record
            with args.save.open("a") as file:
                file.write(f"{json.dumps(record)}\n")
    print("\n".join(counted(found, asked, modes)))
    own.close()


def warm(own: Assistant, task: Task) -> None:
    """Evaluate a task's prompt."""
    conversation = Conversation(tools=task.tools)
    conversation.append_user(task.question)
    own.reply(conversation, ReplyOptions(max_tokens=1), policy=plain_policy())


if __name__ == "__main__":
    main()
