"""What the chat's screens cost: the start, streaming, opening a long conversation, a keystroke.

    python -m lab.benchmarks.chat_screens [start|streaming|opening|echo] ...

Needs no weights: the engine is the tests' double, which speaks the real protocol from a process of its
own. The screens run in a real pseudo-terminal of 120 x 40, whose other end this script reads, and all
CPU times are the screens' process alone.
"""

import resource
import statistics
import sys
import tempfile
import termios
import time
from pathlib import Path

from tests.tui.terminal import CHAT, ROOT, Terminal

RUNS = 10
CODE = "Here it is:\n\n```python\n" + Path(__file__).read_text()[:4000] + "\n```\n"
TOKENS_PER_S = 45
CHARS_PER_TOKEN = 4


def chat(folder: Path, script: dict[str, object]) -> Terminal:
    """Start the chat on the double."""
    source = CHAT.format(root=str(ROOT), folder=str(folder), script=script)
    return Terminal(sys.executable, "-c", source)


def start() -> None:
    """CPU and wall time of `localspec chat`, the real command, until a key that was typed at once is echoed."""
    cpus, walls = [], []
    for _ in range(RUNS):
        with tempfile.TemporaryDirectory() as folder:
            command = (sys.executable, "-m", "localspec", "chat", "smollm2-135m", "--offline")
            terminal = Terminal(*command, LOCALSPEC_DATA_DIR=folder)
            while termios.tcgetattr(terminal.fd)[3] & termios.ECHO:  # the terminal's own echo
                time.sleep(0.01)
            terminal.type("ZQZ")
            walls.append(terminal.until("ZQZ"))
            cpus.append(terminal.cpu_s())
            terminal.close()
    print(
        f"a key is echoed after {statistics.median(cpus):.2f} s of CPU (most {max(cpus):.2f}), "
        f"{statistics.median(walls):.2f} s on the clock, median of {RUNS}"
    )


def streaming() -> None:
    """Share of a core that the screens take while 1,000 tokens of code stream in."""
    with tempfile.TemporaryDirectory() as folder:
        pass_s = 1 / (TOKENS_PER_S * CHARS_PER_TOKEN)
        terminal = chat(Path(folder), {"otherwise": [CODE], "pass_s": pass_s})
        terminal.until("context 0%")
        terminal.type("code?\r")
        terminal.until("Here it is")
        start_s, cpu_s = time.monotonic(), terminal.cpu_s()
        terminal.until(" tokens ·", timeout_s=120)
        seconds, cpu_s = time.monotonic() - start_s, terminal.cpu_s() - cpu_s
        print(
            f"streaming {len(CODE)} characters in {seconds:.0f} s: {cpu_s / seconds:.1%} of a core"
        )
        terminal.close()


def opening(messages: int = 500) -> None:
    """Wall time from the start of the program to the end of a long conversation on the screen."""
    from localspec.history.archive import History
    from localspec.messages import Message

    with tempfile.TemporaryDirectory() as folder:
        history = History(Path(folder))
        conversation, parent = history.create(), None
        for each in range(messages // 2):
            parent = history.add_user(
                conversation, parent, Message.user(f"Question {each}: " + "why? " * 20)
            )
            reply = history.begin_reply(conversation, parent)
            answer = f"Answer {each}.\n\n- one\n- two\n\n" + CODE[:600] + "\n```\n"
            reply.finish(Message.assistant(answer))
            parent = reply.message
        history.close()
        walls, cpus = [], []
        for _ in range(RUNS):
            terminal = chat(Path(folder), {})
            walls.append(terminal.until(f"Question {messages // 2 - 1}"))
            cpus.append(terminal.cpu_s())
            terminal.close()
        print(
            f"{messages} messages: on the screen {statistics.median(walls):.2f} s after the start "
            f"({statistics.median(cpus):.2f} s of CPU), median of {RUNS}"
        )


def echo() -> None:
    """Wall time from a key to its echo while code streams in."""
    with tempfile.TemporaryDirectory() as folder:
        terminal = chat(Path(folder), {"otherwise": [CODE * 3], "pass_s": 0.0055})
        terminal.until("context 0%")
        terminal.type("code?\r")
        terminal.until("Here it is")
        delays = []
        for each in range(60):
            key = "QZXJ"[each % 4]
            while terminal.read(0.0):
                pass
            start_s = time.monotonic()
            terminal.type(key)
            while key.encode() not in terminal.read(0.5):
                pass
            delays.append(1000 * (time.monotonic() - start_s))
            time.sleep(0.05)
        delays.sort()
        print(
            f"a key's echo while streaming: median {statistics.median(delays):.0f} ms, "
            f"95 % within {delays[int(0.95 * len(delays))]:.0f} ms, most {delays[-1]:.0f} ms"
        )
        terminal.close()


MEASURES = {"start": start, "streaming": streaming, "opening": opening, "echo": echo}

if __name__ == "__main__":
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for name in sys.argv[1:] or MEASURES:
        MEASURES[name]()
