"""One module for each kind of input: `SEEDS`, where mutation begins, and `run(data)`."""

NAMES = (
    "registry", "config", "gguf", "split", "template", "batch", "records", "frames", "reads", "telemetry", "pins",
    "hub", "grammar", "schema", "media",
)  # fmt: skip
