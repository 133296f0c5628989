"""Other programs' packages, imported when a test first uses them: two of them take seconds."""

from importlib import import_module
from typing import Any


class _Package:
    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):  # pytest looks for marks, and finds none
            raise AttributeError(name)
        return getattr(import_module(self._name), name)


openai: Any = _Package("openai")
anthropic: Any = _Package("anthropic")
ollama: Any = _Package("ollama")
playwright: Any = _Package("playwright.sync_api")
