"""A server of a module's own script, and the makers' clients of it; the machine without models is the command line's."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cli.conftest import bare_machine
from tests.plugins.serve.clients import anthropic, openai
from tests.plugins.serve.serving import Served, served

__all__ = ["bare_machine"]


@pytest.fixture(scope="module")
def server(request: pytest.FixtureRequest) -> Iterator[Served]:
    """A server that answers by the SCRIPT of the module."""
    with served(request.module.SCRIPT) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Served) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0) as made:
        yield made


@pytest.fixture(scope="module")
def claude(server: Served) -> Iterator[Any]:
    with anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0) as made:
        yield made
