"""A model in two files, either of which may be anything."""

from lab.fuzz.target import scratch
from lab.fuzz.targets.gguf import use
from localspec.models.gguf import read_model
from tests.models.gguf_builder import Content, Tensor, build, model_values

_CUT = b"|next file|"


def _shard(number: int, count: int) -> bytes:
    values: dict[str, Content] = {"general.architecture": "toy"}
    if number == 0:
        values.update(model_values())
    values |= {"split.no": number, "split.count": count}
    return build(values, [Tensor(f"weights{number}", (8, 4))], data_bytes=128)


SEEDS = (
    _shard(0, 2) + _CUT + _shard(1, 2),
    _shard(0, 3) + _CUT + _shard(2, 3),
    _shard(1, 2) + _CUT + _shard(0, 2),
    _shard(0, 1) + _CUT,
)


def run(data: bytes) -> None:
    first, _, second = data.partition(_CUT)
    files = [scratch() / f"m-{number:05}-of-00002.gguf" for number in (1, 2)]
    for file, content in zip(files, (first, second), strict=True):
        file.write_bytes(content)
    use(read_model(files[0]))
