"""`localspec chat`: the terminal assistant."""

from typing import Any

import click

from localspec.cli import options as cli
from localspec.cli.prompt import DocsFlags, SystemFlags, continue_option
from localspec.cli.tools import ChatFlags, ToolFlags
from localspec.errors import UsageError
from localspec.models.registry import load_registry


@click.command(cls=cli.SectionedCommand)
@click.argument("word", metavar="[MODEL]", required=False, shell_complete=cli.complete_models)
@cli.option_flags(
    "models",
    "server",
    "exact",
    "sampling",
    "structure",
    "context",
    "device",
    draft_length="Tokens to draft at a time.",
    max_tokens="Stop each answer after N tokens.",
    seed="Same seed, same text. Default: random for each answer.",
)
@continue_option
@click.option(
    "--plain",
    is_flag=True,
    help="Print lines, no screens: for screen readers, pipes and dumb terminals.",
)
@cli.flags(system=SystemFlags, docs=DocsFlags, tools=ToolFlags)
@cli.prediction_option
@cli.gate_option
@cli.own_option
@click.option("-q", "--quiet", is_flag=True, help="With --plain: print no figures and no notices.")
@cli.with_settings
def chat(
    word: str | None,
    settings: cli.Settings,
    go_on: str | None,
    prediction: str | None,
    plain: bool,
    quiet: bool,
    **given: Any,
) -> int:
    """Chat in the terminal with MODEL, or with your default model.

    Conversations are saved; `--continue` resumes the last one, `--continue 5` number 5. F1 lists
    the keys, `/` the commands.

    If stdin is a pipe, each line is a separate question; put three double quotes around a question
    of several lines. Answers go to stdout, everything else to stderr.
    """
    from localspec.cli.chat_front import start_chat  # noqa: PLC0415 - its help needs none of it

    is_title = go_on and not go_on.removeprefix("#").isdecimal()
    if word is None and go_on and is_title and cli.is_model(go_on, load_registry()):
        word, go_on = go_on, ""
    if word is not None:
        if settings.named_model:
            raise UsageError(f"{word!r} and an option both name a model: give one of them")
        known = settings.can.local_files
        settings = settings.with_model(cli.require_model(word) if known else word)
    return start_chat(
        settings, ChatFlags(**given), go_on=go_on, prediction=prediction, plain=plain, quiet=quiet
    )
