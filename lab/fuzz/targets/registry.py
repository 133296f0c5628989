"""A user's `models.toml`."""

import re
from functools import cache

from localspec.models.entries import NAME, SEGMENTS
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
    registry = parse_registry(data.decode(errors="replace"), "my.toml", _below())
    for model in registry.models.values():
        assert re.fullmatch(rf"{NAME}(:{NAME})?", model.name)
        for each in (model, *model.shards):
            if each.is_known:
                assert re.fullmatch("[0-9a-f]{64}", each.sha256)
                assert 0 < each.size_bytes < 2**63 * (len(model.shards) or 1)
            for source in each.sources:
                file = getattr(source, "file", "a")
                assert re.fullmatch(SEGMENTS, file)
                assert ".." not in file.split("/")
