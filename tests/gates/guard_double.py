"""A guard's process without a model: `python guard_double.py SCRIPT`, in JSON; every field may be left out.

unsafe      words; a text with one is unsafe
silent      words; a text with one gets no verdict
shares      {word: how likely a text with it is unsafe}
late        {word: seconds}: how long its verdict takes
deadly      word; it dies of a text with it
deaf        word; it never says anything of a text with it
mad         word; it says no JSON of a text with it
works       {word: how often it says that it is at work on a text with it}
hangs       words; at a text with one it stops doing anything
once        a path: it loads once, and then, where that exists, never
second      a path: it loads, but for the second time
fails       [class of localspec.errors, reason]: it cannot be loaded
downloads   bytes that it fetches first
"""

import json
import os
import sys
import time
from pathlib import Path

script = json.loads(sys.argv[1])


def say(**said: object) -> None:
    print(json.dumps(said), flush=True)


def has(words: list[str], text: str) -> bool:
    return any(each in text for each in words)


if "downloads" in script:
    say(download=["a-guard", 1, script["downloads"], "a script"])
if "fails" in script:
    kind, reason = script["fails"]
    say(failed=kind, reason=reason)
    sys.exit()
if "once" in script:
    loaded = Path(script["once"])
    if loaded.exists():
        time.sleep(3600)
    loaded.touch()
if "second" in script:
    starts = Path(script["second"])
    number = len(starts.read_text()) + 1 if starts.exists() else 1
    starts.write_text("x" * number)
    if number == 2:
        time.sleep(3600)
say(ready="in words")
for line in sys.stdin:
    asked = json.loads(line)
    text = asked["text"]
    for word, seconds in script.get("late", {}).items():
        time.sleep(seconds if word in text else 0)
    for word, times in script.get("works", {}).items():
        for _ in range(times if word in text else 0):
            say(working=True)
    if has(script.get("hangs", []), text):
        time.sleep(3600)
    if has(script.get("deadly", []), text):
        os._exit(9)
    if has(script.get("deaf", []), text):
        continue
    if has(script.get("mad", []), text):
        print("safe!", flush=True)
    share = 0.9 if has(script.get("unsafe", []), text) else 0.1
    share = next((told for word, told in script.get("shares", {}).items() if word in text), share)
    say(id=asked["id"], unsafe=None if has(script.get("silent", []), text) else share)
