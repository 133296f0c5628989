"""Seeds of lines: each its own, and none dependent on what else is in the file."""

import hashlib
import json

Id = str | int | None


def line_seed(run_seed: int, line_id: Id, number: int) -> int:
    """Return the seed of a line, 32 bits, from the run's and the line's id, or its number without one.

    Lines of the same id have the same seed; the id 5 and the text "5" have not.
    """
    name = f"line {number}" if line_id is None else f"id {json.dumps(line_id)}"
    digest = hashlib.sha256(f"localspec batch\n{run_seed}\n{name}".encode()).digest()
    return int.from_bytes(digest[:4], "big")
