"""Bench: what is refused before anything is loaded."""

from pathlib import Path

import pytest

from localspec.bench.bench import Bench
from localspec.errors import UsageError
from localspec.options import LaunchOptions, ReplyOptions

ON_A_WORKER = LaunchOptions(workers=("127.0.0.1:1",))


def asked(launch: LaunchOptions, *modes: str) -> Bench:
    return Bench(launch, [], "", modes, [0.0], ReplyOptions(), peer=Path("llama-server"))


def test_llama_server_is_not_measured_beside_models_on_workers() -> None:
    with pytest.raises(UsageError, match="workers") as raised:
        asked(ON_A_WORKER, "off", "server:none")
    assert "\n" not in str(raised.value)


def test_a_worker_is_measured_without_llama_server_and_that_without_a_worker() -> None:
    asked(ON_A_WORKER, "off", "auto")
    asked(LaunchOptions(), "off", "server:none")
