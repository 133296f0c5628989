"""GuardPrompt: what a guard model is asked about a sentence, and the tokens with which it can answer. Makes no pass.

The question is the model's own chat template, around what was asked and what is answered; a model that is no guard is asked in words. Where the verdict
stands is known, so that one pass tells how likely each of its words is.

Sources: the makers' own descriptions: Llama Guard 3 (meta-llama/PurpleLlama, Llama-Guard3/1B), `safe` or `unsafe` behind an empty line;
Qwen3Guard-Gen (QwenLM/Qwen3Guard, README), `Safety: Safe|Controversial|Unsafe`; Granite Guardian 3 (ibm-granite/granite-guardian), `Yes` or `No`
to whether there is a risk.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from localspec.chat.template import ChatTemplate
from localspec.chat.tokenizer import ContentGuard, Tokenizer, tokenize_rendered
from localspec.decoding.model import Logits
from localspec.errors import TemplateError
from localspec.messages import Message

_LEAST_SHARE = 0.02
"""Of all that the model may say next; below it, what it wants to say is no verdict."""
_PROBE = "localspec-probe"


@dataclass(frozen=True, slots=True)
class GuardForm:
    """How a kind of guard model answers.

    Args:
        name: what it is called.
        marks: a text that only its chat template has; empty for models that are no guards.
        begins: how every answer begins, up to the verdict.
        verdicts: the words for one, and whether each means that a text is unsafe.
    """

    name: str
    marks: str
    begins: str
    verdicts: Mapping[str, bool]


_SAFETY = {" Safe": False, " Controversial": False, " Unsafe": True}
FORMS = (
    GuardForm("Granite Guardian", "guardian_config", "", {"No": False, "Yes": True}),
    GuardForm("Qwen3Guard", "Controversial", "Safety:", _SAFETY),
    GuardForm("Llama Guard", "UNSAFE CONTENT CATEGORIES", "\n\n", {"safe": False, "unsafe": True}),
)
IN_WORDS = GuardForm("in words", "", "Safety:", _SAFETY)
# The answer, which grows, comes last: what is before it is evaluated once.
_ASKED = """You check texts. Say whether the answer below is safe for everybody to read.
Unsafe: help with violence, weapons, crimes, hatred, self-harm, sexual content, or somebody's private data.
Write one line: Safety: Safe, Safety: Controversial or Safety: Unsafe.

Question:
{question}

Answer:
{answer}"""


def form_of(template_source: str) -> GuardForm:
    """Return how the model of a chat template answers."""
    return next((each for each in FORMS if each.marks in template_source), IN_WORDS)


class GuardPrompt:
    """Asks one model.

    Args:
        template: the model's own.
        tokenizer: likewise.

    Raises:
        TemplateError: the template leaves out what is to be judged.
    """

    def __init__(self, template: ChatTemplate, tokenizer: Tokenizer) -> None:
        self.form = form_of(template.source)
        self._template, self._tokenizer = template, tokenizer
        self._contents = ContentGuard(tokenizer, template.source)
        self._in_parts = False
        if _PROBE not in self._rendered("hello", _PROBE):
            self._in_parts = True
            if _PROBE not in self._rendered("hello", _PROBE):
                raise TemplateError(
                    "the guard's chat template leaves out the answer that it is to judge: choose another guard"
                )

    def tokens(self, question: str, answer: str) -> tuple[list[int], dict[int, bool]]:
        """Return the prompt, and the tokens that tell verdicts apart, each with whether it means unsafe."""
        clean = self._contents.break_up
        text = self._rendered(clean(question) or "…", clean(answer)) + self.form.begins
        spelled = {
            tuple(tokenize_rendered(text + word, self._tokenizer, at_start=True)): unsafe
            for word, unsafe in self.form.verdicts.items()
        }
        first, *others = spelled
        same = next(
            at for at, token in enumerate(first) if any(each[at] != token for each in others)
        )
        return [*first[:same]], {each[same]: unsafe for each, unsafe in spelled.items()}

    def _rendered(self, question: str, answer: str) -> str:
        if self.form is IN_WORDS:
            said = [Message.user(_ASKED.format(question=question, answer=answer))]
        else:
            said = [Message.user(question), Message.assistant(answer)]
        return self._template.render(said, enable_thinking=False, in_parts=self._in_parts)


def unsafe_share(row: Logits, told: Mapping[int, bool]) -> float | None:
    """Return how likely the verdict is unsafe, 0 to 1, of those that can be told; None where the model wants to say none of them.

    Args:
        row: the logits for the next token.
        told: the tokens that tell verdicts apart.
    """
    values = np.asarray(row, dtype=np.float64).ravel()
    top = float(values.max())
    whole = float(np.exp(values - top).sum())
    shares = {token: math.exp(float(values[token]) - top) / whole for token in told}
    known = sum(shares.values())
    if not known >= _LEAST_SHARE:  # of logits that are no numbers nothing is known
        return None
    return sum(share for token, share in shares.items() if told[token]) / known


def cut_questions(question: str) -> Sequence[str]:
    """Return what may stand of a question, its end, shorter and shorter, likewise."""
    return [
        question[-4000:],
        *(question[-chars:] for chars in (1000, 250) if chars < len(question)),
    ]


def cut_answers(before: str) -> Sequence[str]:
    """Return what may stand before a sentence, shorter and shorter, for a context that does not hold all of it."""
    return [before, *(before[-chars:] for chars in (2000, 500) if chars < len(before)), ""]
