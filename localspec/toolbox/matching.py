"""Run as a program: finds a regular expression in texts. It is a process of its own, since one may take for ever.

Standard input is a JSON object a line: first the expression, then a name and a text of each file. Standard output gets
`name:line: text`. It is started by its path and imports the standard library alone.
"""

import json
import re
import sys

_MOST_CHARS = 200


def main() -> None:
    """Find it, and write where."""
    lines = sys.stdin.buffer
    asked = json.loads(lines.readline())
    pattern, most = re.compile(asked["pattern"]), asked["most"]
    for each in lines:
        file = json.loads(each)
        for number, line in enumerate(file["text"].splitlines(), 1):
            if pattern.search(line):
                print(f"{file['name']}:{number}: {line.strip()[:_MOST_CHARS]}", flush=True)
                most -= 1
                if not most:
                    return


if __name__ == "__main__":
    main()
