"""The user's `config.toml`."""

from lab.fuzz.target import check_message, scratch
from localspec.config.files import read_settings
from localspec.errors import LocalspecError

SEEDS = (
    b'pair = "qwen2.5-coder"\ntemperature = 0.5\nthreads = 2\nn_ctx = 4096\n',
    b'target = "/a/b.gguf"\ndraft_model = "x"\noffline = true\n',
    b'system = """\na\nb"""\nstop = ["a", "b"]\nseed = 1\ntop_k = 40\n',
    b"[table]\na = 1\n",
)


def run(data: bytes) -> None:
    file = scratch() / "config.toml"
    file.write_bytes(data)
    try:
        read_settings(file)
    except LocalspecError as error:
        check_message(str(error))
