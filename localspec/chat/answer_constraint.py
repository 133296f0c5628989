"""The constraint that a reply's options ask for: a grammar that begins where the answer does."""

from localspec.chat.after_thinking import AfterThinking
from localspec.chat.conversation import Conversation
from localspec.chat.loaded_models import LoadedModels
from localspec.chat.thinking import tag_pieces
from localspec.decoding.constraint import AnswerConstraint, Constraint
from localspec.errors import UsageError
from localspec.options import ReplyOptions


def answer_constraint(
    options: ReplyOptions,
    models: LoadedModels,
    conversation: Conversation | None,
    prompt_tokens: int,
) -> Constraint | None:
    """Return what binds the reply to a prompt; None where it is free.

    Args:
        options: say what the answer has to look like.
        models: spell it.
        conversation: whose last prompt it is; None where the prompt is a text as it is, and nobody thinks.
        prompt_tokens: number of its ids.

    Raises:
        UsageError: this reply cannot be bound, or not by this grammar or schema.
    """
    if options.answer_grammar is None:
        return None
    if options.stop:
        raise UsageError(
            "a stop text would cut off an answer that follows a grammar: remove one of them"
        )
    if models.grammar is None or not models.eog:
        raise UsageError(
            f"{models.target_name} cannot follow a grammar: it has no token that ends an answer"
        )
    rule = models.grammar(options)
    if conversation is None:
        return AnswerConstraint(rule, prompt_tokens)
    if conversation.goes_on:
        raise UsageError(
            "a grammar applies to a whole answer, but the last message has begun this one: remove that message"
        )
    tags, opened = conversation.thinking_tags
    if not tags:
        return AnswerConstraint(rule, prompt_tokens)
    pieces = tag_pieces(tags, models.tokenizer)
    thinking = AfterThinking(rule, tags, opened, models.tokenizer, pieces, models.eog)
    return AnswerConstraint(thinking, prompt_tokens)
