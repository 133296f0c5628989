"""`python -m localspec.launch.guard_child MODEL [offline]`: the process of a guard model.

It reads one JSON object a line, `{"id", "question", "before", "text"}`, and says `{"id", "unsafe"}`: how likely the text is unsafe, null where
the model says no verdict; of a long text before that `{"working"}`, piece by piece. It ends with its stdin. Every verdict is one pass over what is new since the last.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

from localspec.chat.guard_prompt import GuardPrompt, cut_answers, cut_questions, unsafe_share
from localspec.chat.template import ChatTemplate
from localspec.decoding.cancel import CancelFlag
from localspec.decoding.model import LanguageModel
from localspec.errors import LocalspecError
from localspec.launch.plan import make_plan
from localspec.llama.context import LlamaContext
from localspec.llama.model import LlamaModel
from localspec.models.transfer import Progress
from localspec.options import LaunchOptions, LoadOptions
from localspec.resources import default_threads

_N_CTX = 4096
_MOST, _BEFORE = 2000, 4000
"""Characters that are judged at once, and that are read before them."""


class Guarding:
    """Judges texts with a model.

    Args:
        prompt: what the guard is asked.
        context: the guard.
        on_piece: is told when a piece of a long text was judged.
    """

    def __init__(
        self,
        prompt: GuardPrompt,
        context: LanguageModel,
        on_piece: Callable[[], None] = lambda: None,
    ) -> None:
        self._prompt, self._context, self._on_piece = prompt, context, on_piece

    @property
    def form(self) -> str:
        """How the model is asked."""
        return self._prompt.form.name

    def unsafe(self, question: str, before: str, text: str) -> float | None:
        """Return how likely a text is unsafe, 0 to 1; None where there is no verdict.

        A long one is judged in pieces, each behind those before it: it is as unsafe as the worst of them.
        """
        fitting = self._fitting(question, before, text) if len(text) <= _MOST else None
        if fitting is not None:
            tokens, told = fitting
            return unsafe_share(self._context.logits(tokens, 1), told)
        worst, middle = 0.0, len(text) // 2
        for start, end in ((0, middle), (middle, len(text))) if middle else ():
            behind = (before + text[:start])[-_BEFORE:]
            share = self.unsafe(question, behind, text[start:end])
            if share is None:
                return None
            worst = max(worst, share)
            self._on_piece()
        return worst if middle else None

    def _fitting(
        self, question: str, before: str, text: str
    ) -> tuple[list[int], dict[int, bool]] | None:
        """Return what the guard is asked, with as much around the text as its context holds; None where not even the text fits."""
        for asked in cut_questions(question):
            for kept in cut_answers(before):
                tokens, told = self._prompt.tokens(asked, kept + text)
                if len(tokens) < self._context.n_ctx:
                    return tokens, told
        return None


def guarding_of(model: LlamaModel, on_piece: Callable[[], None] = lambda: None) -> Guarding:
    """Return what judges with a model that is loaded; see `Guarding`.

    Raises:
        TemplateError: it has no chat template, or one that leaves out what is to be judged.
        ModelLoadError: there is no memory for its context.
    """
    words = model.vocabulary
    template = ChatTemplate(
        model.chat_template, words.bos_text, words.eos_text, model=str(model.path)
    )
    return Guarding(GuardPrompt(template, words), LlamaContext(model, CancelFlag()), on_piece)


def _say(**said: Any) -> None:
    print(json.dumps(said), flush=True)


def _fetching(progress: Progress) -> None:
    _say(download=[progress.name, progress.done_bytes, progress.total_bytes, progress.source])


def main() -> None:
    """Load the model that is named, and judge until stdin ends."""
    name, *rest = sys.argv[1:]
    # Beside the model that it watches, which has all cores: half of them, or each would wait for the other.
    load = LoadOptions(n_ctx=_N_CTX, threads=max(1, default_threads() // 2), max_rows=1)
    try:
        options = LaunchOptions(target=name, draft="off", load=load, offline="offline" in rest)
        plan = make_plan(options, _fetching)
        guarding = guarding_of(LlamaModel(plan.target, plan.options), lambda: _say(working=True))
    except LocalspecError as error:
        _say(failed=type(error).__name__, reason=str(error))
        return
    _say(ready=guarding.form)
    for line in sys.stdin:
        asked = json.loads(line)
        said = guarding.unsafe(asked["question"], asked["before"], asked["text"])
        _say(id=asked["id"], unsafe=said)


if __name__ == "__main__":
    main()
