"""`localspec run`: one prompt, one answer on stdout, everything else on stderr."""

import codecs
import sys
from collections.abc import Iterator
from typing import Any

import click

from localspec.chat.assistant import Assistant
from localspec.chat.conversation import Conversation
from localspec.chat.events import Event, Finished, Reply
from localspec.chat.reply_options import ReplyOptions
from localspec.cli import INTERRUPTED
from localspec.cli.interrupt import cancel_on_interrupt, unwind_on_terminate
from localspec.cli.layers import layers
from localspec.cli.progress import ProgressLine
from localspec.cli.prompt import read_prompt
from localspec.cli.report import as_json, one_line
from localspec.cli.settings import configured
from localspec.cli.terminal import AnswerStream
from localspec.decoding.cancel import CancelFlag, Cancelled
from localspec.decoding.generate import StopReason
from localspec.decoding.sampling import SamplingParams
from localspec.errors import UsageError
from localspec.launch import Launch, prepare
from localspec.llama.options import KV_TYPES, LoadOptions


@click.command()
@click.argument("prompt", required=False)
@click.option("--pair", metavar="NAME", help="Pair of models; smollm2-135m if nothing is chosen.")
@click.option("--target", metavar="REF", help="Target instead of a pair: a model's name or a GGUF.")
@click.option("--draft-model", metavar="REF", help="Draft model: a model's name or a GGUF.")
@click.option(
    "--draft",
    type=click.Choice(["auto", "off", "lookup", "model"]),
    default="auto",
    help="What proposes tokens; never changes the text. Default: auto, whatever pays.",
)
@click.option(
    "--draft-length",
    type=int,
    metavar="K",
    help="Tokens that model or lookup propose at a time. Default: 3; lookup: 15.",
)
@click.option(
    "--exact",
    is_flag=True,
    help="Let no bit depend on drafting: slower kernels, the same bytes with any --draft.",
)
@click.option("--max-tokens", type=int, metavar="N", help="End after N tokens.")
@click.option(
    "--temperature", type=float, default=0.8, metavar="T", help="0 is greedy. Default: 0.8."
)
@click.option("--top-k", type=int, default=40, metavar="K", help="0 is off. Default: 40.")
@click.option("--top-p", type=float, default=0.95, metavar="P", help="1 is off. Default: 0.95.")
@click.option("--min-p", type=float, default=0.05, metavar="P", help="0 is off. Default: 0.05.")
@click.option(
    "--repeat-penalty", type=float, default=1.0, metavar="R", help="1 is off. Default: 1."
)
@click.option("--seed", type=int, metavar="S", help="Same seed, same text. Default: a fresh one.")
@click.option("--stop", multiple=True, metavar="TEXT", help="End before this text; repeatable.")
@click.option("--system", metavar="TEXT", help="System prompt.")
@click.option("--ctx", type=int, metavar="N", help="Tokens of context. Default: up to 4096.")
@click.option(
    "--kv-type",
    type=click.Choice(list(KV_TYPES)),
    default="f16",
    help="Type of the KV caches; another one rounds differently. Default: f16.",
)
@click.option("--raw", is_flag=True, help="Continue the prompt as it is, without chat template.")
@click.option("--json", "json_", is_flag=True, help="Print one JSON object with text and figures.")
@click.option("--quiet", is_flag=True, help="Print nothing on stderr but errors.")
@click.option("--threads", type=int, metavar="N", help="CPU threads. Default: the physical cores.")
@click.option(
    "--gpu-layers",
    default="auto",
    callback=layers,
    metavar="N|auto",
    help="Layers on the GPU. Default: auto, all.",
)
@click.option("--device", multiple=True, metavar="NAME", help="Device to use; repeatable.")
@click.option(
    "--fit/--no-fit",
    default=True,
    help="Give up what the free memory does not hold, or refuse. Default: --fit.",
)
@click.option("--offline", is_flag=True, help="Use no network.")
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
    options = ReplyOptions(
        SamplingParams(
            temperature=flags["temperature"],
            top_k=flags["top_k"],
            top_p=flags["top_p"],
            min_p=flags["min_p"],
            repeat_penalty=flags["repeat_penalty"],
        ),
        flags["seed"],
        flags["max_tokens"],
        flags["stop"],
    )
    request = Launch(
        pair=flags["pair"],
        target=flags["target"],
        draft_model=flags["draft_model"],
        draft=flags["draft"],
        draft_length=flags["draft_length"],
        options=LoadOptions(
            n_ctx=flags["ctx"],
            gpu_layers=flags["gpu_layers"],
            devices=tuple(flags["device"]),
            threads=flags["threads"],
            kv_type=flags["kv_type"],
        ),
        exact=flags["exact"],
        offline=flags["offline"],
        fit=flags["fit"],
    )
    if flags["raw"] and flags["system"] is not None:
        raise UsageError("--raw and --system exclude each other: raw text has no system prompt")
    text = read_prompt(prompt)
    cancel = CancelFlag()
    with ProgressLine(enabled=not flags["quiet"]) as line:
        with unwind_on_terminate():
            prepared = prepare(request, line.download)
        with cancel_on_interrupt(cancel):
            try:
                assistant = prepared.load(cancel, line.load, line.measure)
            except Cancelled:
                return INTERRUPTED
    for note in () if flags["quiet"] else assistant.notes:
        click.echo(f"localspec: {note}", err=True)
    with cancel_on_interrupt(cancel):
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
        click.echo(as_json(assistant, reply, only_ascii=only_ascii))
    if not flags["quiet"] and not flags["json_"]:
        click.echo(one_line(assistant, reply), err=True)
    sys.stdout.flush()
    return INTERRUPTED if reply.stop_reason is StopReason.CANCELLED else 0


def _shown(events: Iterator[Event], stream: AnswerStream) -> Reply:
    for event in events:
        if isinstance(event, Finished):
            return event.reply
        stream.write(event)
    raise AssertionError("a stream of events ends with Finished")
