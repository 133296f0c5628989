"""File search by OpenAI's own client: what is looked up goes with the question, and what an answer cites is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from localspec.engine.ask import Ask
from localspec.gates.gate import usual_gate
from localspec.messages import DocumentPart, Message
from localspec.retrieval import citing
from localspec.retrieval.index import FoundPassage, made
from localspec.retrieval.passages import Passage
from localspec.retrieval.update import add
from localspec.serve.file_search import FileSearch, grounded, looked_up
from localspec.serve.http import Guard
from tests.serve.clients import Package
from tests.serve.serving import Served, served

if TYPE_CHECKING:
    import openai
else:
    openai = Package("openai")

HOT, ANSWER = "How hot is green tea?", "Eighty degrees [1], they say [7]. `x[1]` And [1]."
SCRIPT = {
    "answers": {"green tea": ANSWER, "espresso": "Nine bars [2]."},
    "otherwise": ["I do not know."],
    "n_ctx": 8000,
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where two indexes are, of which one is served."""
    folder = tmp_path_factory.mktemp("docs") / "notes"
    folder.mkdir()
    (folder / "tea.md").write_text("# Tea\nGreen tea: 80 degrees, asks cook@example.org.")
    (folder / "coffee.txt").write_text("An espresso needs nine bars.")
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("LOCALSPEC_DATA_DIR", str(folder.parent / "data"))
        for name in ("notes", "private"):
            with closing(made(name)) as index:
                add(index, [folder])
        yield folder


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Served]:
    assert folder.exists()
    with served(SCRIPT, docs=("notes",)) as server:
        yield server


def asked(server: Served, at: int = -1) -> Sequence[Message]:
    """Return what the engine was asked."""
    question = server.asked[at]
    assert isinstance(question, Ask)
    return question.messages


def tool(*names: Any, **more: Any) -> Any:
    return {"type": "file_search", "vector_store_ids": [*names] or ["notes"], **more}


def test_an_answer_has_its_search_and_its_citations(
    server: Served, client: openai.OpenAI, folder: Path
) -> None:
    done = client.responses.create(
        model="a-pair", input=HOT, tools=[tool()], include=["file_search_call.results"]
    )
    search, message = done.output
    assert search.type == "file_search_call"
    assert (search.status, search.queries) == ("completed", [HOT])
    assert search.results is not None
    (result,) = search.results
    assert (result.filename, result.score) == ("notes/tea.md", 1.0)
    assert result.text is not None
    assert "80 degrees" in result.text
    assert result.attributes == {"where": "notes/tea.md:1-2"}
    assert message.type == "message"
    part = message.content[0]
    assert part.type == "output_text"
    assert part.text == ANSWER
    cited = [each for each in part.annotations if each.type == "file_citation"]
    assert [(each.filename, each.index) for each in cited] == [
        ("notes/tea.md", ANSWER.index("[1]")), ("notes/tea.md", ANSWER.rindex("[1]")),
    ]  # fmt: skip
    assert {each.file_id for each in cited} == {result.file_id}
    assert done.tools[0].type == "file_search"
    assert [each.name for each in asked(server)[-1].documents] == [
        "[1] notes/tea.md:1-2",
        "how to answer",
    ]
    assert str(folder) not in json.dumps(done.model_dump(mode="json"))


def test_a_stream_tells_the_search_before_the_answer(client: openai.OpenAI) -> None:
    with client.responses.stream(model="a-pair", input=HOT, tools=[tool()]) as stream:
        events = list(stream)
        whole = stream.get_final_response()
    assert [each.sequence_number for each in events] == list(range(len(events)))
    kinds = [each.type.removeprefix("response.") for each in events]
    assert [kind for kind in kinds if kind != "output_text.delta"] == [
        *("created", "in_progress", "output_item.added", "file_search_call.in_progress"),
        *("file_search_call.searching", "file_search_call.completed", "output_item.done"),
        *("output_item.added", "content_part.added"),
        *("output_text.annotation.added", "output_text.annotation.added"),
        *("output_text.done", "content_part.done", "output_item.done", "completed"),
    ]
    search, message = whole.output
    assert search.type == "file_search_call"
    assert search.results is None, "results are only told to who asks for them"
    assert message.type == "message"
    assert message.content[0].type == "output_text"
    assert len(message.content[0].annotations) == 2


def test_a_conversation_goes_on_with_its_earlier_passages(
    server: Served, client: openai.OpenAI
) -> None:
    first = client.responses.create(model="a-pair", input=HOT, tools=[tool()])
    said: list[Any] = [{"role": "user", "content": HOT}]
    said += [each.model_dump() for each in first.output]
    said += [{"role": "user", "content": "And an espresso?"}]
    done = client.responses.create(model="a-pair", input=said, tools=[tool()])
    messages = asked(server)
    assert messages[0] == asked(server, -2)[0], "so that nothing is evaluated twice"
    assert messages[-1].documents[0].name == "[2] notes/coffee.txt:1"
    assert done.output[1].type == "message"
    assert done.output[1].content[0].type == "output_text"
    (cited,) = done.output[1].content[0].annotations
    assert cited.type == "file_citation"
    assert cited.filename == "notes/coffee.txt"
    without = client.responses.create(model="a-pair", input=said)
    assert [each.type for each in without.output] == ["message"]


def test_what_fits_nothing_is_looked_up_and_found_empty(client: openai.OpenAI) -> None:
    done = client.responses.create(
        model="a-pair", input="zzz?", tools=[tool()], include=["file_search_call.results"]
    )
    assert done.output[0].type == "file_search_call"
    assert done.output[0].results == []
    assert done.output_text == "I do not know."


@pytest.mark.parametrize("choice", [{"type": "file_search"}, "required", "auto", "none"])
def test_a_choice_may_name_the_search(client: openai.OpenAI, choice: Any) -> None:
    done = client.responses.create(
        model="a-pair", input=HOT, tools=[tool(max_num_results=1)], tool_choice=choice
    )
    searched = [] if choice == "none" else ["file_search_call"]
    assert [each.type for each in done.output] == [*searched, "message"]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        (tool("private"), "'private', which is not served here: choose among notes"),
        (tool("../notes"), "not served here"),
        (tool("/etc/passwd"), "not served here"),
        ({"type": "file_search"}, "vector_store_ids"),
        (tool("notes", 3), "not served here"),
        (tool(None), "'None', which is not served here"),
        (tool(max_num_results=51), "1 to 50"),
        (tool(max_num_results="5"), "1 to 50"),
        (tool(filters={"type": "eq"}), "filters"),
        (tool(ranking_options={"score_threshold": 0.5}), "score_threshold"),
    ],
)
def test_only_what_is_served_is_searched(server: Served, wrong: Any, told: str) -> None:
    answer = server.client.post("/v1/responses", json={"input": HOT, "tools": [wrong]})
    assert answer.status_code == 400
    assert told in answer.json()["error"]["message"]


@pytest.mark.parametrize("damaged", [True, False])
def test_an_index_that_cannot_be_read_is_the_servers_trouble_and_tells_nothing_else(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    damaged: bool,
) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path))
    (tmp_path / "index").mkdir()
    (tmp_path / "index" / "private.db").touch()
    if damaged:
        (tmp_path / "index" / "notes.db").write_bytes(b"something else" * 99)
    with served(SCRIPT, docs=("notes",)) as server:
        answer = server.client.post("/v1/responses", json={"input": HOT, "tools": [tool()]})
    assert answer.status_code == 503
    assert "'notes' cannot be read now" in answer.json()["error"]["message"]
    assert "private" not in answer.text
    assert str(tmp_path) not in answer.text
    log = " ".join(capsys.readouterr().err.split())
    assert ("cannot be used" if damaged else "choose one of private") in log


def questions(count: int) -> tuple[list[Message], dict[int, str]]:
    """Return a conversation of so many questions, and what was looked up for all but the last."""
    said = [Message.user(f"question {at}") for at in range(count)]
    return said, {at: f"question {at}" for at in range(count - 1)}


def searches(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Have a search find a passage of its own for each question; return what will be looked up."""
    made = list[str]()

    def found(_: FileSearch, question: str) -> list[FoundPassage]:
        made.append(question)
        line = int(question.split()[1]) + 1
        return [FoundPassage(Path("a.txt"), Passage(line, line, "", question), 1.0, "a.txt")]

    monkeypatch.setattr(FileSearch, "found", found)
    return made


def test_a_request_has_a_hundred_searches_at_most(
    server: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    looked_for = searches(monkeypatch)
    item = {"type": "file_search_call", "queries": ["question 1"]}
    said = [each for _ in range(100) for each in ({"role": "user", "content": "question 1"}, item)]
    body = {"input": [*said, {"role": "user", "content": HOT}], "tools": [tool()]}
    answer = server.client.post("/v1/responses", json=body)
    assert answer.status_code == 400
    assert "101 questions" in answer.json()["error"]["message"]
    assert looked_for == []


def test_earlier_passages_are_read_once_not_for_every_question(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked_for, read, numbered = searches(monkeypatch), list[str](), citing._numbered

    def counted(document: DocumentPart) -> citing.NumberedPassage | None:
        read.append(document.name)
        return numbered(document)

    monkeypatch.setattr(citing, "_numbered", counted)
    ground = grounded(questions(60)[0], FileSearch(("notes",), 20, {}), questions(60)[1])
    assert len(looked_for) == 60
    assert ground.messages[-1].documents[0].name == "[60] a.txt:60"
    assert len(read) == sum(len(each.documents) for each in ground.messages)


def test_a_search_waits_for_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_for = searches(monkeypatch)
    said, before = questions(1)

    async def waited() -> None:
        turn = asyncio.Semaphore(1)
        async with turn:
            search = FileSearch(("notes",), 20, {})
            going = asyncio.create_task(looked_up(said, search, before, turn))
            await asyncio.to_thread(lambda: None)
            assert looked_for == []
        assert (await going).item is not None

    asyncio.run(waited())
    assert looked_for == ["question 0"]


def test_without_docs_the_tool_is_left_out_with_a_note(folder: Path) -> None:
    assert folder.exists()
    with served(SCRIPT) as server:
        answer = server.client.post("/v1/responses", json={"input": HOT, "tools": [tool()]})
    done = answer.json()
    assert [each["type"] for each in done["output"]] == ["message"]
    assert "file_search" in done["localspec"]["notes"][0]


def test_results_pass_the_gate_of_whoever_asks(folder: Path) -> None:
    assert folder.exists()
    guard = Guard(hosts={"127.0.0.1"}, gate=usual_gate())
    with served(SCRIPT, docs=("notes",), guard=guard) as server:
        body = {"input": HOT, "tools": [tool()], "include": ["file_search_call.results"]}
        (result,) = server.client.post("/v1/responses", json=body).json()["output"][0]["results"]
    assert "cook@example.org" not in result["text"]
    assert "Green tea" in result["text"]
