"""`localspec batch`: a file of prompts becomes a file of answers; figures and progress on stderr."""

from contextlib import closing
from pathlib import Path
from typing import Any

import click

from localspec.batch.line_template import read_template
from localspec.batch.output import open_output
from localspec.batch.request import Form
from localspec.batch.source import FORMATS, Format, Source
from localspec.cli.batch_run import BatchOptions, BatchRun
from localspec.cli.options import (
    SectionedCommand,
    configured,
    gate_option,
    gate_rules,
    launch_options,
    option_flags,
    own_option,
    parallel_count,
    reply_options,
    with_own,
)
from localspec.cli.recorded import workload_option
from localspec.decoding.cancel import CancelFlag
from localspec.errors import UsageError
from localspec.storage.paths import shown

_SUFFIXES: dict[str, Format] = {".csv": "csv", ".jsonl": "jsonl", ".ndjson": "jsonl"}


@click.command(cls=SectionedCommand)
@click.argument("source")
@click.option(
    "-o",
    "--output",
    default="-",
    metavar="FILE",
    help="Where to write the answers. Default: -, stdout.",
)
@click.option("--resume", is_flag=True, help="Continue an unfinished output, or start it.")
@click.option("--retry-failed", is_flag=True, help="Resume, and answer failed lines again.")
@click.option(
    "--mix-receipts",
    is_flag=True,
    help="Resume even if the seed, model, options or build have changed.",
)
@click.option(
    "--unordered", is_flag=True, help="Write answers as they are ready, not in input order."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(list(FORMATS)),
    help="Format of a source whose name does not end in .jsonl or .csv. Default: jsonl.",
)
@click.option(
    "--template",
    metavar="FILE",
    help="Jinja template that makes the prompt from a line's fields, which are then all data.",
)
@click.option("--field", metavar="NAME", help="Field that holds the prompt. Default: prompt.")
@option_flags(
    "models",
    "exact",
    "sampling",
    "structure",
    exact="Give the same bytes whatever is drafted or came before; slower, reuses nothing.",
    seed="Seed of the run; every line derives its own from it. Default: random.",
)
@click.option("--system", metavar="TEXT", help="System prompt for lines without one.")
@option_flags("context")
@click.option(
    "--raw", is_flag=True, help="Complete prompts as plain text, without a chat template."
)
@click.option("-q", "--quiet", is_flag=True, help="Print only errors on stderr.")
@option_flags("device")
@click.option(
    "--parallel",
    default="1",
    callback=parallel_count,
    metavar="N|auto",
    help="Lines to answer at a time; auto: as many as pay off and fit memory. Default: 1.",
)
@gate_option
@own_option
@workload_option()
def batch(source: str, **flags: Any) -> int:
    """Answer every line of SOURCE, a file or `-` for stdin, each exactly once.

    A line is {"prompt": …}, {"messages": […]}, or OpenAI's batch form, {"custom_id": …, "body":
    {…}}; or a row of a CSV file with a header. It may have its own id (a text or a whole number),
    system prompt, temperature, top_k, top_p, min_p, repeat_penalty, presence_penalty,
    frequency_penalty, penalty_last_n, logit_bias, max_tokens, seed, stop, json_schema, grammar,
    regex, lark, and OpenAI's response_format. With --template, fields of these names are data like
    any other; put a line's options into an object in the field reply_options.

    Answers keep the order of the lines. Each is written as soon as it is ready, with its id,
    figures, and a receipt: the run's seed, the models' sha256, the build, and a digest of the
    options. A line's seed is derived from the run's seed and the line's id, or its number if it has
    none. So a line that you answer again gets the same answer; with --exact, to the last bit.

    An existing output is never overwritten. Continue a run that was stopped or killed with

        localspec batch in.jsonl -o out.jsonl --resume

    A line that cannot be answered (not valid JSON, not UTF-8, over 4 MB, too long for the context)
    gets a record with an error, the others are answered, and the exit code is 5. Empty lines are
    skipped.
    """
    options = _options(source, with_own(configured(flags)))
    cancel = CancelFlag()
    with (
        Source(source) as lines,
        closing(open_output(flags["output"], resume=options.resume)) as output,
    ):
        if output.path is not None and lines.is_same_file(output.fd):
            raise UsageError(f"{output.name} is input and output: give another output")
        return BatchRun(options, lines, output, cancel).run()


def _options(source: str, flags: dict[str, Any]) -> BatchOptions:
    if flags["raw"] and flags["system"] is not None:
        raise UsageError("--raw and --system cannot be combined: raw text has no system prompt")
    if flags["template"] is not None and flags["field"] is not None:
        raise UsageError("--template and --field cannot be combined: a template names its fields")
    output = Path(flags["output"])
    if _SUFFIXES.get(output.suffix.lower()) == "csv":
        raise UsageError(
            f"{shown(output)} would be CSV, and answers are JSON lines: give {shown(output.with_suffix('.jsonl'))}"
        )
    return BatchOptions(
        launch=launch_options(flags),
        form=Form(
            reply_options(flags),
            None if flags["template"] is None else read_template(Path(flags["template"])),
            flags["field"],
            flags["system"],
            flags["raw"],
            gate_rules(flags["gate"]),
        ),
        input_format=_SUFFIXES.get(Path(source).suffix.lower(), flags["form"] or "jsonl"),
        resume=flags["resume"] or flags["retry_failed"] or flags["mix_receipts"],
        retry_failed=flags["retry_failed"],
        mix_receipts=flags["mix_receipts"],
        ordered=not flags["unordered"],
        quiet=flags["quiet"],
        workload=flags["workload"],
        parallel=flags["parallel"],
        own=flags["own"],
    )
