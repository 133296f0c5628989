"""Calls of functions: are they valid, is it the right function, what does the lazy grammar change, what do forced tokens save.

    python -m lab.benchmarks.tool_calls [--pair qwen2.5-coder-1.5b | --target FILE] [--tasks 100] [--exact]
        [--temperature 0] [--max-tokens 200] [--required] [--threads N] [--save FILE]

Every task of tool_tasks.toml is asked three times: free, without any grammar; bound, with the lazy grammar and no drafts; and
with the grammar and what it forces drafted. A call counts as valid if its arguments are JSON that jsonschema takes. Under
--exact the texts of the last two are compared. --required asks for a call instead of leaving it to the model. --save appends
each answer to a file of JSON lines.
"""

import argparse
import json
import tomllib
from collections import defaultdict
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
from numpy.typing import NDArray

from lab.benchmarks.workbench import forget, machine, opened
from localspec.calls import Tool
from localspec.calls.policy import CallPolicy
from localspec.chat.assistant import Assistant
from localspec.chat.conversation import Conversation
from localspec.chat.events import Reply
from localspec.decoding.drafters.forced import ForcedDrafter
from localspec.decoding.policy.policy import FixedPolicy, Policy, plain_policy
from localspec.decoding.round import OFF
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams

TASKS = Path(__file__).with_name("tool_tasks.toml")
MOST_OFFERED = 6
FORCED_LENGTH = 12
MODES = ("free", "bound", "forced")


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
    tokens: int = 0
    passes: int = 0
    forced: int = 0
    wrong: list[str] = field(default_factory=list)

    def add(self, task: Task, reply: Reply) -> None:
        """Count an answer; its first call is the one that has to be right."""
        self.answers += 1
        self.called += bool(reply.calls)
        self.right += bool(reply.calls) and reply.calls[0].name == task.right
        self.tokens += reply.completion_tokens
        self.passes += reply.acceptance.rounds + 1  # and the prompt's
        self.forced += reply.acceptance.accepted
        schemas = {each.name: each.parameters for each in task.tools}
        for call in reply.calls:
            self.calls += 1
            try:
                jsonschema.validate(json.loads(call.arguments), dict(schemas[call.name]))
            except (ValueError, jsonschema.ValidationError) as error:
                self.wrong.append(f"{task.question} {call}: {str(error).splitlines()[0]}")
            else:
                self.valid += 1

    def line(self, mode: str) -> str:
        """Return it for people."""
        share = f"{self.valid / self.calls:.1%}" if self.calls else "-"
        return (
            f"{mode:7} {self.answers} answers, {self.called} with a call, {self.right} of the right function; "
            f"{self.calls} calls, {self.valid} valid ({share}); {self.tokens} tokens in {self.passes} passes, "
            f"{self.forced} forced"
        )


def asked_for() -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pair")
    parser.add_argument("--target")
    parser.add_argument("--tasks", type=int, default=100)
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--required", action="store_true")
    parser.add_argument("--exact", action="store_true")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--save", type=Path)
    return parser.parse_args()


def speakers(own: Assistant) -> dict[str, tuple[Assistant, Policy]]:
    """Return who answers in each mode, and what drafts."""
    unbound: Any = Unbound()
    free = Assistant(replace(own.models, grammar=unbound), own.policies)
    return {
        "free": (free, plain_policy()),
        "bound": (own, plain_policy()),
        "forced": (own, FixedPolicy(ForcedDrafter(), FORCED_LENGTH)),
    }


def main() -> None:
    """Ask, validate, compare, print."""
    args = asked_for()
    launch = LaunchOptions(
        pair=args.pair or (None if args.target else "qwen2.5-coder-1.5b"),
        target=args.target,
        draft=OFF,
        load=LoadOptions(n_ctx=4096, threads=args.threads),
        exact=args.exact,
        fit=False,
    )
    loaded = opened(launch)
    own = loaded.assistant
    options = ReplyOptions(SamplingParams(temperature=args.temperature), 1, args.max_tokens)
    policy = CallPolicy(choice="required" if args.required else "auto")
    print(f"{machine()}; {own.models.target_name}; temperature {args.temperature}")
    answering, tallies, unequal = speakers(own), defaultdict[str, Tally](Tally), 0
    for task in islice(tasks(), args.tasks):
        replies: dict[str, Reply] = {}
        for mode in MODES:
            speaker, drafting = answering[mode]
            if args.exact:
                forget(loaded)
            conversation = Conversation(tools=task.tools, call_policy=policy)
            conversation.append_user(task.question)
            replies[mode] = speaker.reply(conversation, options, policy=drafting)
            tallies[mode].add(task, replies[mode])
            if args.save is not None:
                save(args.save, mode, task, replies[mode])
        unequal += replies["bound"].tokens != replies["forced"].tokens
    for mode in MODES:
        print(tallies[mode].line(mode))
        for each in tallies[mode].wrong:
            print("  INVALID", each)
    print(f"texts that drafting changed: {unequal} of {tallies['bound'].answers}")
    own.close()


def save(path: Path, mode: str, task: Task, reply: Reply) -> None:
    """Append one answer."""
    calls = [[each.name, each.arguments] for each in reply.calls]
    record = {"mode": mode, "question": task.question, "offered": [t.name for t in task.tools]}
    told = {"right": task.right, "calls": calls, "text": reply.text}
    passes = {"tokens": reply.completion_tokens, "rounds": reply.acceptance.rounds}
    with path.open("a") as file:
        file.write(f"{json.dumps({**record, **told, **passes})}\n")


if __name__ == "__main__":
    main()
