"""LoadedModels: what an assistant needs of the models, whoever loaded them."""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from localspec.chat.reply_options import ReplyOptions
from localspec.chat.tokenizer import Tokenizer
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.constraint import Automaton
from localspec.decoding.model import LanguageModel


@dataclass(frozen=True, slots=True, eq=False)
class LoadedModels:
    """What an assistant needs of the models, whoever loaded them.

    Args:
        target: decides every token.
        draft_model: proposes, where the policy may want it.
        tokenizer: the target's; the draft model's means the same.
        eog: ids that end a generation.
        suppressed: ids that are never generated, as the target's file demands.
        template_source: the target's chat template; None where its file has none.
        target_name: how messages and figures call the target.
        draft_model_name: likewise the draft model.
        cancel: stops whatever pass is running.
        close: frees everything.
        truncate_s: tells the seconds that the target, and the draft model, spent so far on removing what they had
            cached; where nobody counts them, they are 0.
        grammar: makes an automaton over the target's ids of what options say of an answer's look; None where nobody can.
    """

    target: LanguageModel
    draft_model: LanguageModel | None
    tokenizer: Tokenizer
    eog: Collection[int]
    suppressed: Collection[int]
    template_source: str | None
    target_name: str
    draft_model_name: str | None
    cancel: CancelFlag
    close: Callable[[], None]
    truncate_s: Callable[[], tuple[float, float]] = lambda: (0.0, 0.0)
    grammar: Callable[[ReplyOptions], Automaton[Any]] | None = None
