"""One module for each kind of input: `SEEDS`, where mutation begins, and `run(data)`."""

NAMES = (
    "registry",
    "config",
    "gguf",
    "split",
    "template",
    "batch",
    "records",
    "frames",
    "state",
    "history",
    "telemetry",
    "calibration",
    "pins",
    "hub",
    "grammar",
    "schema",
)
NATIVE = ("constraint",)
"""Those that need llama.cpp, and a model's vocabulary."""
