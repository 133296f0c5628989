"""The constraint that a reply's options ask for: a grammar that begins where the answer does."""

# ruff: noqa: PLC0415 - most answers are free

from typing import TYPE_CHECKING, Any

from localspec.chat.conversation import Conversation
from localspec.chat.loaded_models import LoadedModels
from localspec.chat.thinking import tag_pieces
from localspec.decoding.constraint import AnswerConstraint, Automaton, Constraint
from localspec.errors import UsageError
from localspec.options import ReplyOptions

if TYPE_CHECKING:
    from localspec.chat.calling import Calling


def answer_constraint(
    options: ReplyOptions,
    models: LoadedModels,
    conversation: Conversation | None,
    prompt_tokens: int,
    calling: "Calling | None" = None,
) -> Constraint | None:
    """Return what binds the reply to a prompt; None where it is free.

    Args:
        options: say what the answer has to look like.
        models: spell it.
        conversation: whose last prompt it is; None where the prompt is a text as it is, and nobody thinks.
        prompt_tokens: number of its ids.
        calling: the calls that the reply may have; None where no functions are offered.

    Raises:
        UsageError: this reply cannot be bound, or not by this grammar or schema.
    """
    rule = _rule(options, models, calling)
    if rule is None:
        return None
    if conversation is None:
        return AnswerConstraint(rule, prompt_tokens)
    if conversation.goes_on:
        if options.answer_grammar is None and calling is not None and not calling.offer.required:
            return AnswerConstraint(rule, prompt_tokens)
        raise UsageError(
            "a grammar, or a required call, is a whole answer, but the last message has begun this one: remove that message"
        )
    tags, opened = conversation.thinking_tags
    if not tags:
        return AnswerConstraint(rule, prompt_tokens)
    from localspec.chat.after_thinking import AfterThinking

    pieces = tag_pieces(tags, models.tokenizer)
    thinking = AfterThinking(rule, tags, opened, models.tokenizer, pieces, models.eog)
    return AnswerConstraint(thinking, prompt_tokens)


def _rule(
    options: ReplyOptions, models: LoadedModels, calling: "Calling | None"
) -> Automaton[Any] | None:
    """Return what the answer has to look like: a text of the grammar, valid calls, or either of them."""
    bound = options.answer_grammar is not None
    if not bound and calling is None:
        return None
    if bound and options.stop:
        raise UsageError(
            "a stop text would cut off an answer that follows a grammar: remove one of them"
        )
    if models.grammar is None or not models.eog:
        raise UsageError(
            f"{models.target_name} cannot follow a grammar: it has no token that ends an answer"
        )
    if calling is None:
        return models.grammar(options)
    dialect, offer = calling.dialect, calling.offer
    asked = (dialect.form, calling.tools, offer, dialect.control)
    if offer.required:
        return models.grammar.of_calls(*asked)
    if not bound:
        return models.grammar.of_answers(*asked)
    if not offer.names:
        return models.grammar(options)
    from localspec.grammar.combined import Either

    return Either(models.grammar(options), models.grammar.of_calls(*asked))
