"""The instrument that measures a server under load, on one that tells a script."""

import pytest

from lab.benchmarks import serve_load
from tests.serve.serving import served


def test_every_level_is_a_row(capsys: pytest.CaptureFixture[str]) -> None:
    with served({"otherwise": ["Hello there."], "parallel": 2, "pass_s": 0.001}) as server:
        serve_load.main([server.url, "--clients", "1,2", "--requests", "3", "--draft", "off"])
    _, _, _, *rows = capsys.readouterr().out.splitlines()
    assert [each.split("|")[1].strip() for each in rows] == ["1", "2"]
    assert all(float(cell) >= 0 for each in rows for cell in each.split("|")[1:-1])
    assert all(float(each.split("|")[3]) > 0 for each in rows)


def test_a_refusal_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    with served({}) as server, pytest.raises(RuntimeError, match="400"):
        serve_load.main([server.url, "--clients", "2", "--requests", "2", "--max-tokens", "0"])
    assert "|" in capsys.readouterr().out
