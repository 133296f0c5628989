"""Texts that come in chunks through a gate."""

from collections.abc import Iterable

from localspec.gates.text_gate import TextGate


def streamed(
    reader: TextGate, chunks: Iterable[str], *, cut: bool = False, most_held: int | None = None
) -> str:
    """Return what passes of a text; check that all of it was taken, and that no more was ever held back than that."""
    visible, taken, size = "", 0, 0
    for chunk in chunks:
        passed, size = reader.feed(chunk), size + len(chunk)
        assert most_held is None or reader.held <= most_held
        visible += "".join(each.text for each in passed)
        taken += sum(each.taken for each in passed)
    passed = reader.flush(cut=cut)
    assert taken + sum(each.taken for each in passed) == size
    return visible + "".join(each.text for each in passed)
