"""The page at `/`: what it may load and do, and, where Chromium and playwright are, what a person does with it."""

import os
import re
import shutil
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import pytest

from localspec.plugins.serve import app
from localspec.plugins.serve.http import Guard
from tests.plugins.serve.clients import playwright
from tests.plugins.serve.media_files import png
from tests.plugins.serve.serving import CHAT, Served, served, user
from tests.waiting import PATIENCE_S, until

FOLDER = Path(app.__file__).parent / "page"
FILES = {"/": "html", "/page.js": "javascript", "/page.css": "css"}
KEY = "sk-0123456789abcdef"
HOSTILE = "<script>window.hacked=1</script><img src=x onerror=window.hacked=1> \x1b[31mred\u202e"
SCRIPT = {
    "answers": {
        "river": "<think>Which one?</think>The Rhine.",
        "story": f"{HOSTILE} {'and so on, ' * 250}",
    },
    "otherwise": ["Yes."],
    "thinks": True,
    "pass_s": 0.01,
    "drafts": 4,
}
PICTURE = Path(__file__).parents[3] / "docs/pictures/page.png"
WORDS = Path(__file__).with_name("page.txt")
MARKUP = "<b>bold</b>"
BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)


def test_its_files_are_small_and_load_nothing_from_elsewhere() -> None:
    texts = {each.name: each.read_text() for each in FOLDER.iterdir()}
    assert sorted(texts) == ["index.html", "page.css", "page.js"]
    assert sum(map(len, texts.values())) < 20_000
    whole = "".join(texts.values())
    assert not re.search(r"https?:|//\w+\.|url\(|@import", whole)
    assert not re.search(r"<script>|<style| on\w+=| style=", texts["index.html"])
    writes = r"innerHTML|outerHTML|insertAdjacent|document\.write|eval|Function\("
    assert not re.search(f"{writes}|localStorage|cookie", texts["page.js"])


def test_it_needs_no_key_and_lets_none_in_without_one() -> None:
    with served(SCRIPT, guard=Guard(keys=(KEY,))) as server:
        words = server.client.get("/")
        assert words.text == "Ollama is running", "its clients look for that"
        assert words.headers["content-type"].startswith("text/plain")
        server.client.headers["Accept"] = "text/html,*/*;q=0.8"  # as browsers do
        for path, kind in FILES.items():
            answer, head = server.client.get(path), server.client.head(path)
            assert (answer.status_code, head.status_code, head.content) == (200, 200, b"")
            assert answer.headers["content-type"] == f"text/{kind}; charset=utf-8"
            rules = answer.headers["content-security-policy"].split("; ")
            policy = dict(each.split(" ", 1) for each in rules)
            own = dict.fromkeys(("script-src", "style-src", "connect-src"), "'self'")
            none = ("default-src", "base-uri", "form-action", "frame-ancestors")
            assert policy == own | dict.fromkeys(none, "'none'")
            assert server.client.post(path).status_code == 405
        for path in ("/metrics", "/v1/models", "/page.js/", "/index.html", "/page/"):
            assert server.client.get(path).status_code == 401, path
        body = {"messages": [user("hello")]}
        host = httpx.URL(server.url).netloc.decode()
        for origin, code in (
            (f"http://{host}", 200),
            (f"https://{host}", 200),
            ("http://a.test", 403),
            (f"http://{host}.a.test", 403),
        ):
            headers = {"Origin": origin, "Authorization": f"Bearer {KEY}"}
            assert server.client.post(CHAT, json=body, headers=headers).status_code == code, origin
    with served(SCRIPT) as server:  # without keys, a name that points here is none of ours
        headers = {"Host": "a.test", "Origin": "http://a.test"}
        assert server.client.get("/", headers=headers).status_code == 400


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if BROWSER is None or find_spec("playwright") is None:
        pytest.skip("needs Chromium, and playwright of the group `browser`")
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=BROWSER, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def tab(chromium: Any) -> Iterator[Any]:
    """A page in it, in whose console nothing may go wrong but requests that are refused."""
    with chromium.new_context() as context:
        made, problems = context.new_page(), list[str]()
        made.set_default_timeout(PATIENCE_S * 1000)

        def note(line: Any) -> None:
            if line.type == "error":
                problems.append(line.text)

        made.on("pageerror", lambda error: problems.append(str(error)))
        made.on("console", note)
        yield made
        assert [each for each in problems if "Failed to load resource" not in each] == []


class Person:
    def __init__(self, tab: Any, server: Served) -> None:
        self.tab = tab
        tab.goto(server.url)

    def see(self, place: str, text: str, last: bool = False) -> None:
        which = self.tab.locator(place)
        found = playwright.expect(which.last if last else which)
        found.to_contain_text(text, timeout=PATIENCE_S * 1000)

    def write(self, text: str) -> None:
        self.tab.fill("#text", text)
        self.tab.locator("#text").press("Enter")

    def rest(self) -> None:
        playwright.expect(self.tab.locator("#stop")).to_be_disabled(timeout=PATIENCE_S * 1000)


@pytest.mark.slow
def test_a_person_asks_reads_what_streams_and_stops_it(tab: Any) -> None:
    with served(SCRIPT, others=(MARKUP,)) as server:
        person = Person(tab, server)
        person.see("#state", "a-pair is loaded")
        assert until(lambda: tab.locator("option").all_inner_texts() == ["a-pair (loaded)", MARKUP])
        person.write("Name a river.")
        person.see("article", "The Rhine.", last=True)
        person.rest()
        assert tab.locator("article .text").last.inner_text() == "The Rhine."
        assert not tab.locator("details .text").is_visible()
        tab.click("summary")
        assert tab.locator("details .text").inner_text() == "Which one?"
        person.see(".figures", "tokens/s")
        person.see("#drafters", "%")
        person.write("Tell me a story.")
        person.see("article", "and so on", last=True)
        assert server.under_way() == 1
        assert not tab.locator("#send").is_enabled()
        tab.keyboard.press("Escape")
        person.rest()
        assert until(lambda: server.under_way() == 0)
        story = tab.locator("article .text").last.inner_text()
        assert story.startswith(HOSTILE.replace("\x1b", "␛").replace("\u202e", "\\u202e"))
        assert len(story) < 2500
        assert tab.locator("article script, article img").count() == 0
        assert tab.evaluate("window.hacked") is None
        tab.select_option("#model", MARKUP)
        tab.click("#again")
        person.see("#state", f"{MARKUP} is loaded")
        person.see("article h2", MARKUP, last=True)
        tab.click("#stop")
        person.rest()
        assert [each.text for each in server.request.messages] == ["Name a river.", "The Rhine.", "Tell me a story."]  # fmt: skip
        for width, height in ((1100, 720), (390, 844)):
            tab.set_viewport_size({"width": width, "height": height})
            assert tab.evaluate("document.documentElement.scrollWidth") == width
        tab.click("#clear")
        assert tab.locator("article").count() == 0
        person.write("story")
        person.see("article", "and so on", last=True)
        tab.close()
        assert until(lambda: server.under_way() == 0), "a page that is closed asks for nothing"


ANSWER = """\
## Mean
`mean(values)` is the sum, divided by the number:

```python
def mean(values):
    return sum(values) / len(values)
```

It **fails** on an empty list; `2 ** 3 ** 2` stays as it is."""


@pytest.mark.slow
def test_markdown_is_drawn_and_the_picture_of_the_page_has_its_words(tab: Any) -> None:
    with served({"otherwise": [ANSWER], "drafts": 4, "pass_s": 0.05}) as server:
        tab.set_viewport_size({"width": 920, "height": 560})
        person = Person(tab, server)
        person.see("#state", "a-pair is loaded")
        person.write("How is a mean computed in Python?")
        person.see("#drafters", "%")
        person.rest()
        codes = tab.locator("article code").all_inner_texts()
        assert codes == ["mean(values)", "2 ** 3 ** 2"]
        assert tab.locator("article b").all_inner_texts() == ["Mean", "fails"]
        words = re.sub(r"\d[\d.,]*", "0", tab.inner_text("body")) + "\n"
        if os.environ.get("LOCALSPEC_UPDATE_SCREENS"):
            tab.screenshot(path=PICTURE)
            WORDS.write_text(words)
        assert words == WORDS.read_text(), "make its picture again: python -m lab.pictures"
        tab.set_viewport_size({"width": 390, "height": 700})
        button = tab.locator("#send").bounding_box()
        assert button["y"] + button["height"] <= 700


SLOW_READS = """() => {
  const read = FileReader.prototype.readAsDataURL;
  FileReader.prototype.readAsDataURL = function (file) { setTimeout(() => read.call(this, file), 500); };
}"""


@pytest.mark.slow
def test_a_person_attaches_pictures_where_the_model_sees(tab: Any, tmp_path: Path) -> None:
    names = [tmp_path / f"{shade}.png" for shade in (1, 2)]
    for shade, each in enumerate(names):
        each.write_bytes(png(shade))
    with served({**SCRIPT, "sees": True, "fails": {"bad": ["model", 0]}}) as server:
        person = Person(tab, server)
        person.see("#state", "a-pair is loaded")
        tab.locator("#files").wait_for(state="visible")
        tab.set_input_files("#files", names)
        assert until(lambda: tab.evaluate("attached.length") == 2)
        person.write("What are these?")
        person.see("article", "Yes.", last=True)
        assert "[1.png] [2.png] What are these?" in tab.inner_text("#log")
        (question,) = server.request.messages
        assert [each.data for each in question.media] == [png(0), png(1)]
        assert question.typed == "What are these?"
        person.rest()
        tab.set_input_files("#files", names[:1])
        assert until(lambda: tab.evaluate("attached.length") == 1)
        person.write("bad")
        person.see("#problem", "this is a bug")
        assert tab.input_value("#text") == "bad", "it can be sent again, the picture with it"
        assert tab.evaluate("attached.length") == 1
        assert tab.inner_text("#attached").split() == ["1.png", "Remove"]
        tab.click("#attached button")
        tab.fill("#text", "")
        person.write("Only words.")
        person.see("article", "Yes.", last=True)
        assert [*server.request.messages[-1].media] == []
        person.rest()
        tab.set_input_files("#files", names)
        assert until(lambda: tab.evaluate("attached.length") == 2)
        tab.click("#clear")
        assert until(lambda: tab.locator("#attached li").count() == 0)
        # A file that is still being read belongs to the message that is sent meanwhile.
        tab.evaluate(SLOW_READS)
        tab.set_input_files("#files", names[1:])
        person.write("Which is it?")
        person.see("article", "Yes.", last=True)
        assert [each.data for each in server.request.messages[-1].media] == [png(1)]
    with served(SCRIPT) as server:
        Person(tab, server).see("#state", "a-pair is loaded")
        assert until(lambda: tab.locator("option").count() == 1)
        assert not tab.locator("#files").is_visible()


@pytest.mark.slow
def test_it_asks_for_a_key_and_keeps_it_as_long_as_its_tab(tab: Any) -> None:
    with served(SCRIPT, guard=Guard(keys=(KEY,))) as server:
        person = Person(tab, server)
        person.see("#state", "API key is missing or wrong")
        assert tab.locator("option").count() == 0
        person.write("hello")
        person.see("#problem", "API key is missing or wrong")
        assert tab.input_value("#text") == "hello"
        for key, state in (("wrong é", "API key is missing or wrong"), (KEY, "a-pair is loaded")):
            tab.fill("#key", key)
            tab.locator("#key").press("Enter")
            person.see("#state", state)
        tab.reload()
        person.see("#state", "a-pair is loaded")
        assert not tab.locator("#login").is_visible()
        person.write("hello")
        person.see("article", "Yes.", last=True)
        assert tab.evaluate("[localStorage.length, document.cookie]") == [0, ""]
        tab.click("#forget")
        person.see("#state", "API key is missing or wrong")
        assert tab.evaluate("sessionStorage.length") == 0


@pytest.mark.slow
def test_what_goes_wrong_is_a_line_and_the_next_question_is_answered(
    tab: Any, tmp_path: Path
) -> None:
    with served({**SCRIPT, "drafts": 0, "death": {"on": "token", "at": 60}}) as server:
        person = Person(tab, server)
        person.write("Tell me a story.")
        person.see("#problem", "SIGKILL")
        person.see("article", "broken off", last=True)
        assert "\n" not in tab.inner_text("#problem")
        person.see("#state", "a-pair is loaded")
        person.write("hello")
        person.see("article", "Yes.", last=True)
        assert tab.inner_text("#problem") == ""
    person.see("#state", "the server does not answer")
    person.write("hello again")
    person.see("#problem", "the server does not answer")
    assert tab.input_value("#text") == "hello again"
    limits: list[dict[str, Any]] = [{"most": 1}, {"max_wait_s": 0.5}]
    for limit, word in zip(limits, ("too many requests", "within 0.5 s"), strict=True):
        rest = tmp_path / word
        rests = {**SCRIPT, "rests": {"at": 4, "until": str(rest)}}
        with served(rests, **limit) as server, server.asking({"text": "story"}):
            person = Person(tab, server)
            person.write("hello")
            person.see("#problem", word)
            assert (tab.input_value("#text"), tab.locator("article").count()) == ("hello", 0)
            rest.touch()
