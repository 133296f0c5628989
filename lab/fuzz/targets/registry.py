"""A user's `models.toml`."""

from functools import cache

from localspec.models.registry import Registry, parse_registry
from tests.models.test_registry import VALID

SEEDS = (
    VALID.encode(),
    b'[models.a]\nrepo = "u/r"\nfile = "f.gguf"\nsize_bytes = 1\nsha256 = "' + b"0" * 64 + b'"\n',
    b'[models."a:Q8_0"]\nrepo = "u/r"\nfiles = [{file = "a.gguf"}, {file = "b.gguf"}]\n',
    b'[pairs.p]\ntarget = "/x/y.gguf"\ndraft = "lookup"\n\n[pairs.q]\ntarget = "hf.co/u/r:Q4_0"\ndraft_model = "u/s"\n',
    b'default_pair = """\nx"""\n[[a.b]]\nc.d = {e = [1, {f = \'g\'}]}\n# h\n',
)


@cache
def _below() -> Registry:
    return parse_registry(VALID, "below")


def run(data: bytes) -> None:
    parse_registry(data.decode(errors="replace"), "my.toml", _below())
