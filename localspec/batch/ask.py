"""LineRequest: what a line wants to be answered, in any of the forms in which prompts are written down."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from localspec.batch.completion_body import body_prompt
from localspec.batch.line_options import line_options, own_options
from localspec.batch.prompted import Prompted, conversation_of, raw_prompt, spoken_prompt
from localspec.batch.record import Id, line_seed
from localspec.batch.rows import Row
from localspec.chat.conversation import Conversation
from localspec.display import printable_line
from localspec.errors import UsageError
from localspec.grammar import require_sound
from localspec.options import ReplyOptions

if TYPE_CHECKING:
    from localspec.batch.line_template import LineTemplate  # jinja2 takes its time

DEFAULT_FIELD = "prompt"
_IDS = ("id", "custom_id")
_LONGEST_ID = 512
_NO_TURNS = "messages need the chat template, and --raw goes without it"


@dataclass(frozen=True, slots=True)
class Form:
    """How lines become prompts, and are answered unless they say otherwise.

    Args:
        options: how to answer; a seed among them counts for nothing, each line has its own.
        template: makes the prompt of a line's fields, which are data then, whatever their names; None takes the
            prompt as the line has it.
        field: name of the field with the prompt; None is `prompt`.
        system: system prompt of lines that have none of their own.
        raw: let prompts go to the model as they are, without chat template.
    """

    options: ReplyOptions
    template: "LineTemplate | None" = None
    field: str | None = None
    system: str | None = None
    raw: bool = False

    @property
    def needed(self) -> str | None:
        """The column that a CSV must have."""
        return None if self.template is not None else self.field or DEFAULT_FIELD


@dataclass(frozen=True, slots=True, eq=False)
class LineRequest:
    """What is to be answered.

    Args:
        prompt: a text, or a conversation.
        options: how, the line's own seed included.
        raw: whether a text goes to the model as it is.
        model: what the line calls the model, which is answered by ours all the same.
    """

    prompt: str | Conversation
    options: ReplyOptions
    raw: bool = False
    model: str | None = None


def line_id(row: Row) -> Id:
    """Return the id of a line, a text or a whole number; None where it has none.

    Raises:
        UsageError: it is something else.
    """
    for name in _IDS:
        value = row.fields.get(name)
        if isinstance(value, str) and 0 < len(value) <= _LONGEST_ID:
            return value
        if isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 64:
            return value
        if value is not None and value != "":
            raise UsageError(
                f"{name} is neither a whole number of 64 bits nor a text of up to {_LONGEST_ID} characters"
            )
    return None


def ask_of(row: Row, form: Form, seed: int) -> LineRequest:
    """Return what a line asks for.

    Args:
        row: the line.
        form: of the run.
        seed: of the run.

    Raises:
        UsageError: the line asks for nothing, or for what cannot be had.
        TemplateError: the template fails on it.
    """
    if row.problem:
        raise UsageError(row.problem)
    own = own_options(row.fields)
    told = _told(row.fields, own, form)
    options = replace(form.options, seed=None)
    for said in (row.fields if form.template is None else {}, told.options or {}, own):
        options = line_options(said, options)
    require_sound(options)  # which says what is wrong with a grammar, before anything is evaluated
    if options.seed is None:
        options = replace(options, seed=line_seed(seed, line_id(row), row.number))
    return LineRequest(told.prompt, options, told.raw, told.model)


def _told(fields: Mapping[str, Any], own: Mapping[str, Any], form: Form) -> Prompted:
    """Return the prompt of a line, by the first form that it has."""
    system = form.system if form.template is not None else fields.get("system", form.system)
    system = own.get("system", system)
    if system is not None and not isinstance(system, str):
        raise UsageError("system is not text: write the system prompt as text")
    if form.template is not None:
        return _text(form.template.render(fields), system, form, "what the template made")
    if form.field is None and fields.get("body") is not None:
        told = body_prompt(fields, system)
        if form.raw and not told.raw:
            raise UsageError(_NO_TURNS)
        return told
    if form.field is None and fields.get("messages") is not None:
        return _turns(fields, system, form)
    name = form.field or DEFAULT_FIELD
    if name not in fields:
        had = printable_line(", ".join(fields))[:80] or "nothing"
        raise UsageError(f"the line has no {name!r}, but {had}: --field names another field")
    return _text(fields[name], system, form, repr(name))


def _turns(fields: Mapping[str, Any], system: str | None, form: Form) -> Prompted:
    if fields.get(DEFAULT_FIELD) is not None:
        raise UsageError("prompt and messages cannot be combined: a line has one of them")
    if form.raw:
        raise UsageError(_NO_TURNS)
    return Prompted(conversation_of(fields["messages"], system))


def _text(text: Any, system: str | None, form: Form, what: str) -> Prompted:
    return raw_prompt(text, system, what) if form.raw else spoken_prompt(text, system, what)
