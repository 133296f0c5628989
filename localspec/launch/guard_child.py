"""`python -m localspec.launch.guard_child MODEL [offline]`: the process of a guard model.

It reads one JSON object a line, `{"id", "question", "before", "text"}`, and says `{"id", "unsafe"}`: how likely the text is unsafe, null where
the model says no verdict. It ends with its stdin. Every verdict is one pass over what is new since the last.
"""

import json
import sys
from typing import Any

from localspec.chat.guard_prompt import GuardPrompt, cut_answers, unsafe_share
from localspec.chat.template import ChatTemplate
from localspec.decoding.cancel import CancelFlag
from localspec.errors import LocalspecError
from localspec.launch.plan import make_plan
from localspec.llama.context import LlamaContext
from localspec.llama.model import LlamaModel
from localspec.models.transfer import Progress
from localspec.options import LaunchOptions, LoadOptions
from localspec.resources import default_threads

_N_CTX = 4096


class Guarding:
    """Judges texts with a model.

    Args:
        model: the guard.

    Raises:
        TemplateError: it has no chat template, or one that leaves out what is to be judged.
        ModelLoadError: there is no memory for its context.
    """

    def __init__(self, model: LlamaModel) -> None:
        words = model.vocabulary
        template = ChatTemplate(
            model.chat_template, words.bos_text, words.eos_text, model=str(model.path)
        )
        self._prompt = GuardPrompt(template, words)
        self._context = LlamaContext(model, CancelFlag())

    @property
    def form(self) -> str:
        """How the model is asked."""
        return self._prompt.form.name

    def unsafe(self, question: str, before: str, text: str) -> float | None:
        """Return how likely a text is unsafe, 0 to 1; None where there is no verdict."""
        for kept in cut_answers(before):
            tokens, told = self._prompt.tokens(question[-_N_CTX:], kept + text)
            if len(tokens) < self._context.n_ctx:
                return unsafe_share(self._context.logits(tokens, 1), told)
        return None


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
        guarding = Guarding(LlamaModel(plan.target, plan.options))
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
