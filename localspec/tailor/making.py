"""Candidates become files; disk and memory are looked at before."""

from pathlib import Path
from secrets import token_hex

import numpy as np
from numpy.typing import NDArray

from localspec.decoding.cancel import CancelFlag
from localspec.errors import LocalspecError
from localspec.llama.quantize import quantise
from localspec.models.cut_head import write_cut
from localspec.models.gguf import read_model
from localspec.models.transfer import SourceFailedError, require_space
from localspec.options import LoadOptions
from localspec.tailor.adapted import write_adapted
from localspec.tailor.candidates import Candidate
from localspec.tailor.room import require_memory_to_make


def make(candidate: Candidate, workshop: Path, options: LoadOptions, cancel: CancelFlag) -> Path:
    """Return the file of a candidate, with its whole head: made in the workshop, unless it is taken as it is.

    Raises:
        Cancelled: the flag was set.
        LocalspecError: it cannot be made, or there is no room for it.
    """
    if not candidate.recipe:
        return candidate.source
    source = read_model(candidate.source)
    adapted_bytes = 0 if candidate.lora is None else 4 * source.size_bytes
    try:
        require_space(workshop, candidate.size_bytes + adapted_bytes)
    except SourceFailedError as error:
        raise LocalspecError(f"{candidate.label} {error}: make room") from None
    require_memory_to_make(source, options)
    file, made_of = _new(workshop), candidate.source
    if candidate.lora is not None:
        made_of = _new(workshop)
        write_adapted(candidate.source, candidate.lora, made_of)
    quantise(made_of, file, candidate.kept, cancel, candidate.made, candidate.left_out)
    if candidate.lora is not None:
        made_of.unlink()
    return file


def cut(file: Path, ids: NDArray[np.int64], workshop: Path) -> Path:
    """Give a made file a head of these ids in place of its own; return the new one.

    Raises:
        OSError: the disk does not take it.
    """
    made = _new(workshop)
    write_cut(file, made, ids)
    file.unlink()
    return made


def _new(workshop: Path) -> Path:
    return workshop / f"{token_hex(4)}.gguf"
