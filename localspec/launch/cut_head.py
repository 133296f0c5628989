"""The head of a draft model that was cut, read from its file for the model that is loaded."""

from pathlib import Path

from localspec.llama.cut_head import CutHead
from localspec.models.cut_head import read_cut


def cut_head(path: Path) -> CutHead | None:
    """Return the head of a file's model; None where it has a whole one; raises as `read_cut` does."""
    cut = read_cut(path)
    return None if cut is None else CutHead(cut.ids, cut.embedding, cut.type_id, cut.n_embd)
