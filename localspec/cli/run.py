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
from localspec.cli.interrupt import cancel_on_interrupt, unwind_on_terminate
from localspec.cli.option_flags import launch_options, option_flags, reply_options
from localspec.cli.progress import ProgressLine
from localspec.cli.prompt import read_prompt
from localspec.cli.recorded import recorded, workload_option
from localspec.cli.report import as_json, not_whole, one_line
from localspec.cli.settings import configured
from localspec.cli.terminal import AnswerStream
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.round import StopReason
from localspec.errors import UsageError
from localspec.launch.load import load
from localspec.launch.observe import Telemetry
from localspec.launch.plan import make_plan
from localspec.options import ReplyOptions


@click.command()
@click.argument("prompt", required=False)
@option_flags("models", "exact", "sampling", "structure")
@click.option("--system", metavar="TEXT", help="System prompt.")
@option_flags("context")
@click.option("--raw", is_flag=True, help="Continue the prompt as it is, without chat template.")
@click.option("--json", "json_", is_flag=True, help="Print one JSON object with text and figures.")
@click.option("--quiet", is_flag=True, help="Print nothing on stderr but errors.")
@option_flags("device")
@workload_option()
@click.option("--show-thinking", is_flag=True, help="Print a reasoning model's thoughts, too.")
@click.option(
    "--debug", is_flag=True, help="Show a traceback and llama.cpp's log when something fails."
)
def run(prompt: str | None, **flags: Any) -> int:
    """Answer PROMPT; `-` or none reads it from stdin.

    With PROMPT, a pipe or file on stdin is the material that it speaks about:

        git diff | localspec run "Write a commit message for this."
    """
    flags = configured(flags)
    options, request = reply_options(flags), launch_options(flags)
    if flags["raw"] and flags["system"] is not None:
        raise UsageError("--raw and --system exclude each other: raw text has no system prompt")
    text = read_prompt(prompt)
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
    for note in () if flags["quiet"] else assistant.notes:
        click.echo(f"localspec: {note}", err=True)
    with (
        recorded(telemetry, quiet=flags["quiet"]),
        cancel_on_interrupt(cancel),
    ):
        return _answer(assistant, text, options, flags)


def _answer(assistant: Assistant, text: str, options: ReplyOptions, flags: dict[str, Any]) -> int:
    prompt: str | Conversation = text
    if not flags["raw"]:
        prompt = Conversation(flags["system"])
        prompt.append_user(text)
    stream = AnswerStream(silent=flags["json_"], show_thinking=flags["show_thinking"])
    reply = _shown(assistant.stream(prompt, options, raw=flags["raw"]), stream)
    stream.end()
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
    return INTERRUPTED if reply.stop_reason is StopReason.CANCELLED else 0


def _shown(events: Iterator[Event], stream: AnswerStream) -> Reply:
    for event in events:
        if isinstance(event, Finished):
            return event.reply
        if isinstance(event, Text):
            stream.write(event)
    raise AssertionError("a stream of events ends with Finished")
