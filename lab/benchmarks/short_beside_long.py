"""How long a short prompt waits for its first token beside a long one that is being read, and what the long one loses.

    python -m lab.benchmarks.short_beside_long [--pair smollm2-135m] [--long 7500] [--short 100] [--each 4] [--minutes 8]

A server with `--parallel 2`. In turns: a long prompt alone; a long one, and while it is read so many short ones, one after the
other with pauses drawn at random. Each is answered with one token, and none was seen before. Told are the seconds of the
short ones beside the long one and alone, those of the long ones, and the median of what neighbours are to each other.
"""

import argparse
import random
import statistics
import threading
import time
from itertools import count

from lab.benchmarks.busy_machine import ask
from lab.benchmarks.workbench import machine
from lab.serving import ServeProcess

_NUMBERS = count(1)


def seconds(address: str, tokens: int) -> float:
    """Return the seconds to the one token that answers a new prompt of about so many tokens."""
    number = next(_NUMBERS)
    words = " ".join(f"{(number * 7 + at) % 97} and" for at in range(tokens // 4))
    start = time.perf_counter()
    ask(address, f"{number}. Which number comes most often? {words} none.", 1)
    return time.perf_counter() - start


def told(name: str, seen: list[float]) -> str:
    """Return a line of a distribution."""
    ordered = sorted(seen)
    ninth = ordered[int(0.9 * (len(ordered) - 1))]
    return f"{name:<28} median {statistics.median(ordered):7.2f}, 90 % {ninth:7.2f}, most {ordered[-1]:7.2f} s ({len(ordered)})"


def main() -> None:
    """Measure in turns, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pair", default="smollm2-135m")
    parser.add_argument("--long", type=int, default=7500)
    parser.add_argument("--short", type=int, default=100)
    parser.add_argument("--each", type=int, default=4, help="short prompts beside a long one")
    parser.add_argument("--minutes", type=float, default=8.0)
    chosen = parser.parse_args()
    print(f"{machine()}; {chosen.pair}", flush=True)
    end_s = time.monotonic() + 60 * chosen.minutes
    flags = ["-m", chosen.pair, "--parallel", "2", "--ctx", "8192", "--draft", "off"]
    server = ServeProcess(flags)
    alone: list[float] = []
    beside: list[float] = []
    short: list[float] = []
    short_alone: list[float] = []
    longest_s = 0.0
    try:
        while time.monotonic() + longest_s < end_s:
            begun_s = time.monotonic()
            alone.append(seconds(server.address, chosen.long))
            short_alone.append(seconds(server.address, chosen.short))
            reading = threading.Thread(
                target=lambda: beside.append(seconds(server.address, chosen.long))
            )
            reading.start()
            for _ in range(chosen.each):
                time.sleep(random.uniform(0.05, 0.15) * alone[-1])
                if reading.is_alive():
                    short.append(seconds(server.address, chosen.short))
            reading.join()
            longest_s = max(longest_s, time.monotonic() - begun_s)
    finally:
        server.close()
    print(told("short beside long", short))
    print(told("short alone", short_alone))
    print(told("long alone", alone))
    print(told("long beside short ones", beside))
    ratio = statistics.median(one / two for one, two in zip(beside, alone, strict=True))
    print(f"long beside ÷ alone, median of neighbours: {ratio:.3f}")


if __name__ == "__main__":
    main()
