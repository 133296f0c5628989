"""`localspec chat`: the terminal assistant."""

from typing import Any

import click

from localspec.cli.hands import tools_option
from localspec.cli.options import (
    SectionedCommand,
    complete_models,
    gate_option,
    option_flags,
    own_option,
)
from localspec.cli.prompt import is_model, named, require_model
from localspec.cli.question import continue_option, docs_options, system_options
from localspec.errors import UsageError


@click.command(cls=SectionedCommand)
@click.argument("word", metavar="[MODEL]", required=False, shell_complete=complete_models)
@option_flags("models", "exact", draft_length="Tokens to draft at a time.")
@continue_option
@click.option(
    "--plain",
    is_flag=True,
    help="Print lines, no screens: for screen readers, pipes and dumb terminals.",
)
@system_options
@option_flags(
    "sampling",
    "structure",
    "context",
    "device",
    max_tokens="Stop each answer after N tokens.",
    seed="Same seed, same text. Default: random for each answer.",
)
@docs_options
@tools_option()
@gate_option
@own_option
@click.option("-q", "--quiet", is_flag=True, help="With --plain: print no figures and no notices.")
def chat(word: str | None, **flags: Any) -> int:
    """Chat in the terminal with MODEL, or with your default model.

    Conversations are kept; `--continue` resumes the last one, `--continue 5` another one. F1 lists the keys, `/` the commands.

    When piped, each line is a separate question; put three double quotes around a question of
    several lines. Answers then go to stdout, everything else to stderr.
    """
    if flags["go_on"] and not flags["go_on"].removeprefix("#").isdecimal():
        from localspec.models.registry import load_registry  # noqa: PLC0415 - the start does without

        if word is None and is_model(flags["go_on"], load_registry()):
            word, flags["go_on"] = flags["go_on"], ""
    if word is not None:
        if named(flags):
            raise UsageError(f"{word!r} and an option both name a model: give one of them")
        flags["model"] = require_model(word)
    from localspec.cli.chat_fronts import start_chat  # noqa: PLC0415 - a conversation, which --help does without

    return start_chat(flags)
