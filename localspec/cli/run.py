"""`localspec run`: one prompt, one answer on stdout, everything else on stderr."""

import codecs
import sys
from collections.abc import Iterator
from typing import Any

import click

from localspec.chat.assistant import Assistant
from localspec.chat.conversation import Conversation
from localspec.chat.events import Event, Finished, Reply, Text
from localspec.cli import INTERRUPTED
from localspec.cli.completions import complete_models
from localspec.cli.first_run import with_model
from localspec.cli.interrupt import cancel_on_interrupt, unwind_on_terminate
from localspec.cli.option_flags import launch_options, option_flags, reply_options
from localspec.cli.progress import ProgressLine
from localspec.cli.prompt import read_prompt
from localspec.cli.question import (
    question,
    question_options,
    system_options,
    system_prompt,
    templated,
)
from localspec.cli.reading_line import ReadingLine
from localspec.cli.recorded import recorded, workload_option
from localspec.cli.report import as_json, not_whole, one_line
from localspec.cli.settings import with_own
from localspec.cli.terminal import AnswerStream
from localspec.cli.words import model_and_prompt, named
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.round import StopReason
from localspec.errors import UsageError
from localspec.launch.load import load
from localspec.launch.observe import Telemetry
from localspec.launch.plan import make_plan
from localspec.options import ReplyOptions


@click.command()
@click.argument("words", metavar="[MODEL] [PROMPT]", nargs=-1, shell_complete=complete_models)
@option_flags("models", "exact", "sampling", "structure")
@system_options
@question_options
@click.option("-c", "--continue", "go_on", is_flag=True, help="Continue the last conversation.")
@click.option(
    "--keep/--no-keep",
    default=None,
    help="Keep the answer in the history, for --continue. Default: only on a terminal.",
)
@option_flags("context")
@click.option(
    "--raw", is_flag=True, help="Complete the prompt as plain text, without a chat template."
)
@click.option(
    "--json", "json_", is_flag=True, help="Print one JSON object with the text and figures."
)
@click.option("--quiet", is_flag=True, help="Print only errors on stderr.")
@option_flags("device")
@workload_option()
@click.option("--show-thinking", is_flag=True, help="Also print a reasoning model's thoughts.")
def run(words: tuple[str, ...], **flags: Any) -> int:
    """Answer PROMPT with MODEL, or with your default model.

    \b
        localspec run "Why is the sky blue?"
        localspec run qwen2.5-coder:1.5b "Reverse a list in Go."
        git diff | localspec run "Write a commit message for this."

    The first word is the model if it is a name that `localspec search` lists, a .gguf file, or
    user/repo:QUANT. With -m NAME, all words are the prompt.

    A pipe or file on stdin is attached to the prompt as context. Without a prompt, or with `-`,
    stdin is the prompt. On a terminal, `run` without a prompt starts the chat.
    """  # noqa: D301 - click keeps lines behind a \b
    model, prompt = model_and_prompt(words, chosen=named(flags) is not None)
    flags["model"] = flags["model"] or model
    prompt = templated(prompt, flags)
    if prompt is None and _is_chat(flags):
        from localspec.cli.chat import start_chat  # noqa: PLC0415 - history and screens of it

        return start_chat({**flags, "plain": False})
    _check(flags)
    kept = None
    if flags["go_on"] or (_is_kept(flags) if flags["keep"] is None else flags["keep"]):
        from localspec.cli.kept import Kept  # noqa: PLC0415 - the history's database

        kept = Kept(go_on=flags["go_on"])
        flags["model"] = flags["model"] or (kept.model if named(flags) is None else None)
    flags = with_own(with_model(flags))
    options, request = reply_options(flags), launch_options(flags)
    text = read_prompt(prompt)
    said = None if flags["raw"] else question(text, flags, prompt or "")
    system = None if flags["raw"] else system_prompt(flags)
    cancel = CancelFlag()
    with ProgressLine(enabled=not flags["quiet"]) as line:
        with unwind_on_terminate():
            plan = make_plan(request, line.download)
        with cancel_on_interrupt(cancel):
            try:
                telemetry = Telemetry(flags["workload"])
                runtime = load(plan, cancel, line.load, line.measure, observe=telemetry.observe)
            except Cancelled:
                return INTERRUPTED
    assistant = runtime.assistant
    unasked = (flags["unasked"],) if flags["unasked"] else ()
    for note in () if flags["quiet"] else (*unasked, *assistant.notes):
        click.echo(f"localspec: {note}", err=True)
    conversation: str | Conversation = text
    if kept is not None and said is not None:
        conversation = kept.say(said, system)
    elif said is not None:
        conversation = Conversation(system, [said])
    with (
        recorded(telemetry, quiet=flags["quiet"]),
        cancel_on_interrupt(cancel),
    ):
        reply = _answer(assistant, conversation, options, flags)
    if kept is not None:
        kept.answer(reply, assistant.models.target_name, request)
    _report(assistant, reply, text, options, flags)
    return INTERRUPTED if reply.stop_reason is StopReason.CANCELLED else 0


def _check(flags: dict[str, Any]) -> None:
    """Raise UsageError where flags cannot be combined."""
    if flags["raw"] and (flags["system"], flags["persona"]) != (None, None):
        raise UsageError("--raw and --system cannot be combined: raw text has no system prompt")
    if flags["raw"] and (flags["go_on"] or flags["keep"] or flags["files"]):
        raise UsageError("--raw takes only a prompt: remove --continue, --keep and --file")
    if flags["go_on"] and (flags["system"], flags["persona"]) != (None, None):
        raise UsageError("--continue keeps the conversation's own system prompt: remove --system")


def _is_chat(flags: dict[str, Any]) -> bool:
    """Return whether nobody but a person at a terminal could say what to answer."""
    asked = ("raw", "json_", "files", "template", "show_thinking", "quiet")
    return _at_terminal() and not any(flags[each] for each in asked)


def _is_kept(flags: dict[str, Any]) -> bool:
    """Return whether the answer is read by a person, who may go on from it."""
    return _at_terminal() and not (flags["raw"] or flags["json_"] or flags["quiet"])


def _at_terminal() -> bool:
    return sys.stdin.isatty() and sys.stdout.isatty()


def _answer(
    assistant: Assistant,
    prompt: str | Conversation,
    options: ReplyOptions,
    flags: dict[str, Any],
) -> Reply:
    stream = AnswerStream(silent=flags["json_"], show_thinking=flags["show_thinking"])
    with ReadingLine(enabled=not flags["quiet"]) as line:
        reply = _shown(assistant.stream(prompt, options, raw=flags["raw"]), stream, line)
    stream.end()
    return reply


def _report(
    assistant: Assistant, reply: Reply, text: str, options: ReplyOptions, flags: dict[str, Any]
) -> None:
    if flags["json_"]:
        only_ascii = codecs.lookup(sys.stdout.encoding).name != "utf-8"
        # Its patterns take a while to be compiled, which only this has to wait for.
        from localspec.telemetry.workload import workload_of  # noqa: PLC0415

        workload = flags["workload"] or workload_of(text, reply.text)
        click.echo(as_json(assistant, reply, workload, only_ascii=only_ascii))
    if not flags["quiet"] and not flags["json_"]:
        click.echo(one_line(assistant, reply), err=True)
    bound = options.answer_grammar is not None
    if bound and reply.stop_reason is not StopReason.EOG and not flags["quiet"]:
        click.echo(f"localspec: {not_whole(reply)}", err=True)
    sys.stdout.flush()


def _shown(events: Iterator[Event], stream: AnswerStream, line: ReadingLine) -> Reply:
    for event in events:
        line.take(event)
        if isinstance(event, Finished):
            return event.reply
        if isinstance(event, Text):
            stream.write(event)
    raise AssertionError("a stream of events ends with Finished")
