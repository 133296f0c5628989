"""The program's own documentation is found by the words in which people ask: 19 of twenty and 4 of ten on 2026-11-24; pages may change."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from localspec.retrieval.index import Index
from localspec.retrieval.update import add

DOCS = Path(__file__).parents[2] / "docs"
SHORT = "questions.md"
# Each with the page that answers it, and with a text that stands in the answer.
QUESTIONS = [
    ("How do I turn off drafting?", "drafting.md", "--draft off"), ("how do I continue a conversation", "chat.md", "--continue"),
    ("what does exit code 5 mean", "troubleshooting.md", "| 5 |"), ("how do I use my own GGUF file?", "models.md", "import"),
    ("where are my conversations stored?", "chat.md", "history/history.db"),
    ("how can I make answers always JSON?", "structured-output.md", "--json-schema"),
    ("how do I resume an interrupted batch", "batch.md", "--resume"), ("how do I set the temperature permanently?", "settings.md", "temperature"),
    ("how do I stop the model from seeing my passwords", "gates.md", "--gate"), ("can I use it with the openai python library", "serve.md", "openai"),
    ("how do I change the theme of the chat", "chat.md", "theme"), ("out of memory what can I do", "troubleshooting.md", "--ctx"),
    ("how do I install it without a compiler", "troubleshooting.md", "prebuilt"),
    ("how do I use my NVIDIA graphics card", "gpu.md", "localspec setup"), ("how do I ask questions about my PDF files", "documents.md", "pdf"),
    ("how do I delete a model", "models.md", "localspec rm"), ("how do I run it on another computer", "gpu.md", "worker"),
    ("which model should I choose for programming", "models.md", "recommend"), ("how do I let the model run commands", "tools.md", "--tools"),
    ("how do I delete a conversation", "chat.md", "delete"),
]  # fmt: skip
# Written after the page of short answers, which was not changed for them.
OTHERS = [
    ("pick up where I left off yesterday", "chat.md", "--continue"), ("output must follow a schema", "structured-output.md", "--json-schema"),
    ("disable the draft model", "drafting.md", "--draft off"), ("which folder has the downloaded models", "models.md", "blobs"),
    ("what is the best model for my laptop", "models.md", "recommend"), ("search in my notes", "documents.md", "index add"),
    ("mask phone numbers", "gates.md", "numbers"), ("use localspec from VS Code", "serve.md", "api"),
    ("not enough RAM", "troubleshooting.md", "--ctx"), ("make it use CUDA", "gpu.md", "setup"),
]  # fmt: skip


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Index]:
    with closing(Index(tmp_path_factory.mktemp("docs") / "docs.db", make=True)) as index:
        add(index, [DOCS])
        yield index


@pytest.mark.parametrize(("questions", "least"), [(QUESTIONS, 17), (OTHERS, 2)], ids=["20", "10"])
def test_the_answer_is_among_the_first_five_passages(
    index: Index, questions: list[tuple[str, str, str]], least: int
) -> None:
    missed = []
    for question, page, text in questions:
        found = [each for each in index.search(question, 5) if each.path.name in {page, SHORT}]
        if not any(text.lower() in each.passage.text.lower() for each in found):
            missed.append(question)
    assert len(questions) - len(missed) >= least, missed
