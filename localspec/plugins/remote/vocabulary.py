"""The vocabulary of a server's model, by a file that is here: ids of texts that do not go there, and what ids mean to a draft model with others."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from localspec.api import LocalspecError, data_dir, load_registry
from localspec.models.gguf import read_model
from localspec.models.inventory import inventory
from localspec.models.pairs import LEAST_SHARED_PERCENT, percent_across
from localspec.models.store import Store
from localspec.models.tokenizer import vocabulary_of
from localspec.options import LoadOptions

if TYPE_CHECKING:
    from localspec.llama.model import LlamaModel
    from localspec.llama.token_map import TokenMap


@dataclass(eq=False)
class ServerVocabulary:
    """A vocabulary by its mark; a file that has it is looked for, and read, when it is first asked for.

    Args:
        mark: see `vocabulary_of`.
        likely: the file that is looked at first.
    """

    mark: str
    likely: Path | None = None
    _model: "LlamaModel | None" = None

    def file(self) -> Path | None:
        """Return a model's file with it; None where there is none here."""
        here = (each.path for each in inventory(load_registry(), Store(data_dir())))
        for path in dict.fromkeys((self.likely, *here)):
            with suppress(LocalspecError, OSError):
                if path is not None and vocabulary_of(read_model(path).tokenizer) == self.mark:
                    return path
        return None

    def model(self) -> "LlamaModel | None":
        """Return a model without weights that has it; None where there is none here."""
        if self._model is None and (path := self.file()) is not None:
            from localspec.llama.model import LlamaModel  # noqa: PLC0415 - few need it

            self._model = LlamaModel(path, LoadOptions(), bare=True)
        return self._model

    def ids(self, text: str) -> tuple[int, ...] | None:
        """Return the ids of a text; None where no file here has them."""
        model = self.model()
        if model is None:
            return None
        return tuple(model.vocabulary.tokenize(text, add_special=False, parse_special=False))

    def why_not(self, draft_model: Path) -> str:
        """Return why a draft model with another vocabulary cannot draft across; empty where it can."""
        path = self.file()
        if path is None:
            return ", and no model that is here has that"
        percent = percent_across(read_model(path), read_model(draft_model))
        if percent < LEAST_SHARED_PERCENT:
            return f", and {percent:.1f} % of its tokens are the same"
        return ""

    def across(self, draft_model: "LlamaModel") -> "TokenMap":
        """Return what ids of a draft model with another vocabulary mean; `why_not` was asked before."""
        from localspec.llama.token_map import TokenMap  # noqa: PLC0415 - few pairs have two

        model = self.model()
        assert model is not None, "a file has it"  # noqa: S101
        return TokenMap(model.vocabulary, draft_model.vocabulary)
