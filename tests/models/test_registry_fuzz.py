"""Registry files of every kind of damage: an error of one line or a registry, and nothing else."""

import re

from hypothesis import example, given
from hypothesis import strategies as st

from localspec.errors import LocalspecError, UsageError
from localspec.models.entries import NAME, SEGMENTS
from localspec.models.registry import load_registry, parse_registry
from tests.models.test_registry import VALID

VALUES = (
    "0", "-1", "9223372036854775808", "0x" + "f" * 5000, "1e400", "nan", "true", "1979-05-27", "[]", "{}", "[{}]",
    '""', '"../up"', '"/etc/passwd"', '"a\\\\b"', '"a\\u0000b"', '"\\U0010FFFF"', "'''\n'''", '"' + "x" * 300 + '"',
    '"toy:Q8_0"', '"a/b/../c.gguf"',
)  # fmt: skip
KEYS = [
    "repo", "file", "files", "revision", "size_bytes", "sha256", "params", "context", "licence", "sources",
    "tokenizer", "kind", "requirement", "parts", "member", "target", "draft", "draft_model", "good_for", "caveat",
    "default_pair",
]  # fmt: skip


def judged(text: str) -> None:
    try:
        registry = parse_registry(text, "my.toml", load_registry())
    except UsageError as error:
        message = str(error)
        assert message.startswith("registry my.toml")
        assert message.isprintable()
        assert len(message) < 2000
        return
    for model in registry.models.values():
        assert re.fullmatch(rf"{NAME}(:{NAME})?", model.name)
        for each in (model, *model.shards):
            assert re.fullmatch("[0-9a-f]{64}", each.sha256)
            assert 0 < each.size_bytes < 2**63 * (len(model.shards) or 1)
            for source in each.sources:
                file = getattr(source, "file", "a")
                assert re.fullmatch(SEGMENTS, file)
                assert ".." not in file.split("/")


@given(st.data())
def test_any_value_under_any_key(data: st.DataObject) -> None:
    lines = VALID.strip().splitlines()
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(lines) - 1))
        new = f"{data.draw(st.sampled_from(KEYS))} = {data.draw(st.sampled_from(VALUES))}"
        lines[at : at + data.draw(st.integers(0, 1))] = [new]
    judged("\n".join(lines))


@given(st.data())
def test_damage_anywhere(data: st.DataObject) -> None:
    text = VALID
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(text)))
        end = data.draw(st.integers(start, min(len(text), start + 20)))
        text = text[:start] + data.draw(st.text(max_size=8)) + text[end:]
    judged(text)


@given(st.text(max_size=200))
@example("[models." + '"a"' * 1000)
@example("a." * 5000 + "b = 1")
@example("[" * 5000)
@example("x = " + "{a=" * 2000)
@example("[models.'a\nb']")
@example('[models."\\u0000"]')
@example("[pairs.a]\n" * 2)
@example("\ufeff")
@example("default_pair = '" + "x" * 100_000 + "'")
def test_any_text(text: str) -> None:
    judged(text)


@given(st.text(max_size=60))
def test_any_name_is_known_or_refused(name: str) -> None:
    problem = ""
    try:
        load_registry().require(name)
    except LocalspecError as error:
        problem = str(error)
    assert problem.isprintable()
