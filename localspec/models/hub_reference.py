"""`user/repo:QUANT`: how people name a model on the Hugging Face hub. Asks nobody."""

import re
from dataclasses import dataclass
from pathlib import Path

from localspec.models.registry_file import HUB_NAME

DEFAULT_QUANT = "Q4_K_M"
_LONGEST = 200


@dataclass(frozen=True, slots=True)
class HubReference:
    """A repository of the hub and a quantisation; None means Q4_K_M, or what there is only one of."""

    repo: str
    quant: str | None

    @property
    def text(self) -> str:
        """The reference as a user may write it."""
        return f"{self.repo}:{self.quant}" if self.quant else self.repo


def hub_reference(text: str) -> HubReference | None:
    """Return what `user/repo:QUANT` means, with or without `hf.co/`; None for anything else.

    What ends in `.gguf` or exists in the working directory is a file.
    """
    match = re.fullmatch(HUB_NAME, text)
    if match is None or len(text) > _LONGEST:
        return None
    if text.lower().endswith(".gguf") or Path(text).exists():
        return None
    return HubReference(match["repo"], match["quant"])
