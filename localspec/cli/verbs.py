"""The verbs, and the help that lists them, which is shown without importing any of them, nor click."""

import textwrap

# group: {verb: (module, what `--help` says of it)}. The module's attribute of the verb's name is its command.
GROUPS = {
    "Ask": {
        "run": ("localspec.cli.run", "Answer a prompt."),
        "chat": ("localspec.cli.chat", "Chat in the terminal."),
        "batch": ("localspec.cli.batch", "Answer a file of prompts, each exactly once."),
    },
    "Models": {
        "search": ("localspec.cli.models", "List the models that you can download."),
        "recommend": ("localspec.cli.pull", "Recommend models for this machine."),
        "pull": ("localspec.cli.pull", "Download models and verify them."),
        "import": ("localspec.cli.models", "Name a GGUF file, or give a model another name."),
        "list": ("localspec.cli.models", "List the models on this machine."),
        "show": ("localspec.cli.models", "Show what is known about a model."),
        "check": ("localspec.cli.models", "Check whether one model can draft for another."),
        "rm": ("localspec.cli.models", "Remove models from this machine."),
    },
    "Your conversations and files": {
        "history": ("localspec.cli.history", "List, show, search and export conversations."),
        "index": ("localspec.cli.index", "Index your files, to ask about them."),
    },
    "Serve": {
        "serve": ("localspec.cli.serve", "Serve a model to other programs over HTTP."),
        "ps": ("localspec.cli.servers", "List running servers."),
        "stop": ("localspec.cli.servers", "Stop a server."),
        "mcp": ("localspec.cli.mcp", "Offer a model to other programs as MCP tools."),
        "worker": ("localspec.cli.worker", "Lend this machine's devices to another one."),
    },
    "Speed": {
        "stats": ("localspec.cli.stats", "Show what drafting did on this machine."),
        "bench": ("localspec.cli.bench", "Measure drafting, or compare two settings."),
        "tailor": ("localspec.cli.tailor", "Make a faster draft model for this machine."),
    },
    "This machine": {
        "config": ("localspec.cli.config", "Show and change settings."),
        "setup": ("localspec.cli.setup", "Build llama.cpp for this machine's GPU."),
        "doctor": ("localspec.cli.doctor", "Check this machine."),
        "completion": ("localspec.cli.completion", "Print the completion script of a shell."),
    },
}
VERBS = {verb: found for group in GROUPS.values() for verb, found in group.items()}
# Verbs of earlier versions, and what they are now.
MOVED = {
    "ab": "bench --compare",
    "pair": "check, search or show",
    "pair check": "check",
    "pair list": "search",
    "pair suggest": "show",
    "alias": "import",
    "export-proposals": "stats --export",
    "telemetry wipe": "stats --wipe",
    "telemetry path": "config show",
    "telemetry status": "doctor",
    "telemetry text": "config set telemetry text",
    "telemetry keep": "config set telemetry_days N, or telemetry_megabytes N",
    "telemetry": "config set telemetry off|on|text",
    "store wipe": "stats --wipe",
    "store status": "doctor",
    "store add": "gone: it saved nothing that drafting from the prompt does not",
    "store": "config set store on|off",
}
# What other programs call these, and what comes closest to what only they have.
ALIASES = {"ls": "list", "remove": "rm", "logs": "history"}
CLOSEST = {
    "download": "pull",
    "install": "pull",
    "delete": "rm",
    "models": "list or search",
}
_ABOUT = (
    "Chat with local models. Fast, offline.",
    (
        "A small model drafts, the large one verifies: the text is what the large model would write on its own, to the last"
        " bit with --exact. On a terminal, `localspec` alone starts the chat."
    ),
)
_OPTIONS = {
    "--version": "Show the version and exit.",
    "-h, --help": "Show this message and exit.",
}
MOST_COLUMNS, _LEAST_COLUMNS, _LEAST_TEXT = 100, 50, 10


def help_text(program: str, columns: int) -> str:
    """Return what `localspec --help` shows, laid out as click does for the verbs.

    Args:
        program: what the user called.
        columns: cells that a line of the terminal has.
    """
    columns = max(min(columns, MOST_COLUMNS) - 2, _LEAST_COLUMNS)
    left = max(map(len, VERBS)) + 4
    tables = [
        f"{group}:\n{_table({verb: text for verb, (_, text) in verbs.items()}, columns, left)}"
        for group, verbs in GROUPS.items()
    ]
    about = "\n\n".join(
        textwrap.fill(each, columns, initial_indent="  ", subsequent_indent="  ") for each in _ABOUT
    )
    return f"Usage: {program} [OPTIONS] COMMAND [ARGS]...\n\n{about}\n\n" + "\n\n".join(
        [f"Options:\n{_table(_OPTIONS, columns)}", *tables]
    )


def _table(rows: dict[str, str], columns: int, left: int = 0) -> str:
    """Return a line for each row, names left, texts in a column of their own, at `left` or right of the names."""
    left = left or max(map(len, rows)) + 4
    lines = []
    for name, text in rows.items():
        first, *others = textwrap.wrap(text, max(columns - left, _LEAST_TEXT))
        lines += [f"  {name:{left - 2}}{first}", *(" " * left + each for each in others)]
    return "\n".join(lines)
