"""The instrument that measures servers under load, on one that tells a script."""

import pytest

from lab.benchmarks import serve_load
from lab.benchmarks.serve_load import Answered, Arm, Level, Load
from tests.plugins.serve.serving import Served, served

BODY = {"temperature": 0, "stream": True, "stream_options": {"include_usage": True}}


class Running:
    def __init__(self, server: Served, begun: list[str], name: str) -> None:
        self.address = server.url
        begun.append(name)

    def close(self) -> None:
        pass


def test_every_server_answers_at_every_level_of_every_round() -> None:
    begun: list[str] = []
    with served({"otherwise": ["Hello there."], "parallel": 2}) as server:
        arms = [
            Arm("auto", lambda: Running(server, begun, "auto"), {"localspec": {}}, own=True),
            Arm("off", lambda: Running(server, begun, "off"), own=True),
            Arm("peer", lambda: Running(server, begun, "peer"), fresh=True),
        ]
        told: list[str] = []
        load = Load((1, 2), ("One?", "Two?", "Three?"), 2, BODY, 0)
        found = serve_load.measure(arms, load, told.append)
    assert len(told) == 6
    # Two that shared a process would know each other's prompts.
    assert begun == ["auto", "off", "peer", "peer"]
    assert all(len(each.answers) == 2 for (rounds) in found.values() for each in rounds)
    _, _, *lines = serve_load.table(arms, found)
    rows = [line for line in lines if line.startswith("|")]
    assert [each.split("|")[1:3] for each in rows[:2]] == [[" 1 ", " auto "], [" 1 ", " off "]]
    assert all(float(each.split("|")[4]) > 0 for each in rows)


def test_a_ratio_is_the_median_of_the_rounds_that_both_had() -> None:
    def speed(tokens: int) -> Level:
        return Level(1.0, (Answered(tokens, (0.1, 0.2, 0.4)),))

    assert serve_load.ratio([speed(10), speed(30), speed(60)], [speed(10), speed(10)]) == 2
    own = {"auto", "off"}
    arms = [Arm(name, list, own=name in own) for name in ("auto", "off", "slow", "fast")]  # type: ignore[arg-type]
    speeds = {"auto": 22, "off": 20, "slow": 10, "fast": 11}
    found = {(4, name): [speed(tokens)] for name, tokens in speeds.items()}
    told = "\n".join(serve_load.table(arms, found))
    assert "| 4 | fast | 60.0 | 11.0 | 0.10 | 0.10 | 195 | 1 |" in told
    assert "auto to off (off) 1.100, auto to the best of llama-server (fast) 2.000" in told
    with served({}) as server, pytest.raises(RuntimeError, match="400"):
        serve_load.level(server.url, {**BODY, "temperature": -1}, 2, "Hello.", ["One?", "Two?"])
