"""Uses the engine as a chat does, for hours, and watches whether anything grows or gets slower.

Turns, stops, switches of models, states saved and put back, contexts filled to the brim and shifted, the history, and a batch
beside it. SmolLM2 on one thread; `--minutes` says how long. From the root of a checkout:

    python -m lab.benchmarks.endurance --minutes 120 > endurance.jsonl
    python -m lab.benchmarks.endurance --database

A sample a minute (`--every` seconds), then the medians of the first and the last third of them. `--pause` is how long the user reads
before the next thing that they do, in the mean. Another program takes time from wall clocks, but hardly CPU seconds from a
process: a probe's are those of the engine.
"""

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from localspec.decoding.round import StopReason
from localspec.engine.client import EngineClient
from localspec.engine.protocol import (
    EngineDied,
    Failed,
    Ready,
    ReplyDone,
    ReplyEvents,
    StateLeft,
    StateRestored,
    StateSaved,
)
from localspec.history.archive import History
from localspec.history.export import as_json, as_markdown
from localspec.messages import Message
from localspec.models.pull import pull
from localspec.options import LaunchOptions, LoadOptions, ReplyOptions, SamplingParams
from tests.engine import talking
from tests.engine.talking import hear, hear_all, hear_of

_WORDS = [
    "river",
    "stone",
    "light",
    "paper",
    "garden",
    "window",
    "winter",
    "bread",
    "engine",
    "letter",
    "music",
    "island",
]
_PROBE = [Message.user("Count from one to twenty in words.")]
_PROBE_OPTIONS = ReplyOptions(SamplingParams(temperature=0), max_tokens=24)
# Looks, of 5 ms each: the machine may be busy, or stopped, for minutes.
_PATIENCE = 200_000
_TICKS = os.sysconf("SC_CLK_TCK")


def status(pid: int) -> dict[str, int]:
    """Return what a process holds: kilobytes resident and of its own, threads, descriptors."""
    text = Path(f"/proc/{pid}/status").read_text()
    named = dict(line.split(":", 1) for line in text.splitlines())
    return {
        "rss_kb": int(named["VmRSS"].split()[0]),
        "anon_kb": int(named["RssAnon"].split()[0]),
        "threads": int(named["Threads"]),
        "fds": len(list(Path(f"/proc/{pid}/fd").iterdir())),
    }


def cpu_s(pid: int) -> float:
    """Return the CPU seconds that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


@dataclass(slots=True)
class Use:
    """A user, who talks, stops, switches.

    Args:
        model: the file to load.
        folder: gets history, states and batches.
        seed: of what is done.
        pause_s: how long nothing is done between two things, in the mean.
    """

    model: Path
    folder: Path
    seed: int = 0
    pause_s: float = 0.0
    done: Counter[str] = field(default_factory=Counter)
    turns: list[Message] = field(default_factory=list)
    client: EngineClient = field(default_factory=EngineClient)
    chance: random.Random = field(default_factory=random.Random)
    history: History = field(init=False)
    conversation: int = 0
    leaf: int | None = None
    batch: "subprocess.Popen[bytes] | None" = None

    def __post_init__(self) -> None:
        self.chance.seed(self.seed)
        self.history = History.open(self.folder / "history")
        self.client.start()
        self.switch()
        self.begin()

    def begin(self) -> None:
        """Begin a new conversation."""
        self.turns, self.leaf = [], None
        self.conversation = self.history.create()
        self.done["conversations"] += 1

    def switch(self) -> None:
        """Load another set-up in place of the one that is loaded."""
        draft = self.chance.choice(["lookup", "off", "auto", "model:2"])
        n_ctx = self.chance.choice([512, 1024])
        small = str(self.model) if draft.startswith("model") else None
        self.client.load(
            LaunchOptions(
                target=str(self.model),
                draft_model=small,
                draft=draft,
                load=LoadOptions(n_ctx=n_ctx, threads=1, gpu_layers=0),
            )
        )
        last = hear_of(self.client, Ready)[-1]
        assert isinstance(last, Ready), last
        self.done["switches"] += 1

    def turn(self, *, stop: bool = False) -> None:
        """Ask something, and keep the answer; a stopped one as far as it went."""
        question = " ".join(self.chance.choices(_WORDS, k=self.chance.randint(2, 60)))
        self.leaf = self.history.add_user(self.conversation, self.leaf, Message.user(question))
        self.turns.append(Message.user(question))
        options = ReplyOptions(
            seed=self.chance.getrandbits(32), max_tokens=self.chance.randint(4, 48)
        )
        recorder = self.history.begin_reply(self.conversation, self.leaf, "smollm2")
        asked = self.client.ask(self.turns, options, drop_oldest=True)
        if stop:
            hear(
                self.client, lambda m: isinstance(m, ReplyEvents | ReplyDone | Failed | EngineDied)
            )
            self.client.cancel(asked)
        heard = hear_all(self.client, asked)
        last = heard[-1]
        assert isinstance(last, ReplyDone), last
        self.done["shifted contexts"] += last.dropped_turns > 0
        recorder.feed(last.message.text)
        recorder.finish(last.message)
        self.leaf = recorder.message
        self.turns.append(last.message)
        self.done["stops" if last.reply.stop_reason is StopReason.CANCELLED else "turns"] += 1
        self.done["full contexts"] += last.reply.stop_reason is StopReason.CONTEXT_FULL

    def shelve(self) -> None:
        """Have the state saved, and put back."""
        place = str(self.folder / "states" / "one")
        self.client.save_state(place)
        saved = hear_of(self.client, StateSaved, StateLeft)[-1]
        if isinstance(saved, StateSaved):
            self.client.restore_state(place)
            assert isinstance(hear_of(self.client, StateRestored, StateLeft)[-1], StateRestored)
            self.done["states"] += 1

    def answer_a_batch(self) -> None:
        """Start a batch beside all this, if none runs."""
        if self.batch is not None:
            if self.batch.poll() is None:
                return
            assert self.batch.returncode == 0, self.batch.returncode
            self.done["batches"] += 1
        lines = [json.dumps({"prompt": word, "max_tokens": 8}) for word in _WORDS[:4]]
        (self.folder / "in.jsonl").write_text("\n".join(lines))
        (self.folder / "out.jsonl").unlink(missing_ok=True)
        command = [sys.executable, "-m", "localspec", "batch", str(self.folder / "in.jsonl")]
        command += ["-o", str(self.folder / "out.jsonl"), "--target", str(self.model), "--quiet"]
        command += ["--threads", "1", "--gpu-layers", "0", "--draft", "lookup"]
        self.batch = subprocess.Popen(command, stdin=subprocess.DEVNULL)

    def act(self) -> None:
        """Do something, after a while."""
        if self.pause_s:
            time.sleep(self.chance.expovariate(1 / self.pause_s))
        dice = self.chance.random()
        if dice < 0.70:
            self.turn()
        elif dice < 0.85:
            self.turn(stop=True)
        elif dice < 0.92:
            self.shelve()
        elif dice < 0.95:
            self.switch()
        elif dice < 0.97:
            self.begin()
        elif dice < 0.98:
            self.answer_a_batch()
        else:
            assert self.history.branch(self.conversation) is not None
            self.history.conversations("river", limit=20)
            self.done["searches"] += 1

    def probe(self) -> dict[str, float]:
        """Measure a greedy answer to one question, with nothing known from before."""
        assert self.client.pid is not None
        self.client.load(
            LaunchOptions(
                target=str(self.model),
                draft="off",
                load=LoadOptions(n_ctx=512, threads=1, gpu_layers=0),
            )
        )
        hear_of(self.client, Ready)
        before = cpu_s(self.client.pid)
        last = hear_all(self.client, self.client.ask(_PROBE, _PROBE_OPTIONS))[-1]
        assert isinstance(last, ReplyDone), last
        start = time.perf_counter()
        self.history.conversations(limit=20)
        listing_s = time.perf_counter() - start
        # Of the same state: what a load leaves is part of what is watched.
        held = {f"engine {name}": value for name, value in status(self.client.pid).items()}
        own = {f"chat {name}": value for name, value in status(os.getpid()).items()}
        return {
            "probe_cpu_s": round(cpu_s(self.client.pid) - before, 2),
            "probe_wall_s": round(last.reply.prefill_s + last.reply.decode_s, 3),
            "list_ms": round(1000 * listing_s, 2),
            "engine total_cpu_s": round(cpu_s(self.client.pid), 1),
            **held,
            **own,
        }


def endure(minutes: float, seed: int, every_s: float, pause_s: float) -> None:
    """Use it for so long, and print a sample now and then and what came of it."""
    talking.PATIENCE = _PATIENCE
    (model, *_) = pull("smollm2-135m")
    samples: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as folder:
        use = Use(model, Path(folder), seed, pause_s)
        start = time.monotonic()
        next_s = 0.0
        while (elapsed_s := time.monotonic() - start) < 60 * minutes:
            if elapsed_s >= next_s:
                next_s = elapsed_s + every_s
                samples.append({"minute": round(elapsed_s / 60, 1), **use.probe()})
                print(json.dumps({**samples[-1], **use.done}), flush=True)
                use.switch()
            use.act()
        samples.append({"minute": round(minutes, 1), **use.probe()})
        use.client.close()
        use.history.close()
        if use.batch is not None:
            use.batch.wait()
    third = max(1, (len(samples) - 1) // 3)
    print(json.dumps({"done": use.done}))
    # The first minute still fills caches.
    for name in samples[0]:
        before = statistics.median(each[name] for each in samples[1 : 1 + third])
        after = statistics.median(each[name] for each in samples[-third:])
        print(f"{name:16} first third {before:10.2f}   last third {after:10.2f}")


def database(n_turns: int) -> None:
    """Time a history of so many turns, in conversations of fifty and in a single one."""
    chance = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        for per_conversation in (50, n_turns):
            place = Path(folder, str(per_conversation))
            history = History.open(place)
            for begun in range(0, n_turns, per_conversation):
                number, leaf = history.create(), None
                for turn in range(per_conversation // 2):
                    words = " ".join(chance.choices(_WORDS, k=100))
                    leaf = history.add_user(
                        number, leaf, Message.user(f"turn {begun + 2 * turn} {words}")
                    )
                    recorder = history.begin_reply(number, leaf, "toy")
                    recorder.finish(Message.assistant(words[::-1]))
                    leaf = recorder.message
            history.close()
            timed: dict[str, float] = {}

            def clocked(name: str, start: float, into: dict[str, float] = timed) -> None:
                into[name] = round(1000 * (time.perf_counter() - start), 1)

            start = time.perf_counter()
            history = History.open(place)
            clocked("open", start)
            start = time.perf_counter()
            listed = history.conversations()
            clocked("list", start)
            start = time.perf_counter()
            assert history.conversations("river garden")
            clocked("search for what is everywhere", start)
            start = time.perf_counter()
            assert len(history.conversations(f"{n_turns - 2}")) == 1
            clocked("search for what is once", start)
            start = time.perf_counter()
            branch = history.branch(listed[0].id)
            clocked("open the newest", start)
            start = time.perf_counter()
            exported = as_markdown(listed[0], branch) + as_json(listed[0], branch)
            clocked("export it, twice", start)
            history.close()
            size = (place / "history.db").stat().st_size
            print(
                f"{n_turns} turns, {per_conversation} a conversation, {size / 1e6:.1f} MB "
                f"(export {len(exported) / 1e6:.1f} MB), ms: {json.dumps(timed)}"
            )


def main() -> None:
    """Run."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=120)
    parser.add_argument("--every", type=float, default=60, help="seconds between samples")
    parser.add_argument("--pause", type=float, default=0, help="seconds between two things done")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--database", action="store_true", help="time a large history instead")
    parser.add_argument("--turns", type=int, default=10_000)
    asked = parser.parse_args()
    if asked.database:
        database(asked.turns)
    else:
        endure(asked.minutes, asked.seed, asked.every, asked.pause)


if __name__ == "__main__":
    main()
