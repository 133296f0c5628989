"""Which words are a model and which a prompt, and what else goes into a question."""

from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from localspec.cli.main import localspec
from localspec.cli.options import require_model
from localspec.cli.prompt import DocsFlags, QuestionFlags, SystemFlags, model_and_prompt
from localspec.errors import LocalspecError, ModelUnavailable, TemplateError, UsageError
from localspec.models.registry import load_registry

NO_DOCS = DocsFlags()


@pytest.fixture(autouse=True)
def own_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LOCALSPEC_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("LOCALSPEC_CONFIG_DIR", str(tmp_path / "settings"))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("words", "model", "prompt"),
    [
        ([], None, None),
        (["Why is the sky blue?"], None, "Why is the sky blue?"),
        (["-"], None, "-"),
        ([""], None, ""),
        (["hello"], None, "hello"),
        (["and/or"], None, "and/or"),
        (["qwen2.5-coder-1.5b"], "qwen2.5-coder-1.5b", None),
        (["qwen2.5-coder:1.5b", "Hi"], "qwen2.5-coder:1.5b", "Hi"),
        (["demo", "say", "hi"], "demo", "say hi"),
        (["demo", "-"], "demo", "-"),
        (["some/repo", "Hi"], "some/repo", "Hi"),
        (["some/repo:Q8_0"], "some/repo:Q8_0", None),
        (["hf.co/some/repo"], "hf.co/some/repo", None),
        (["own.gguf", "Hi"], "own.gguf", "Hi"),
    ],
)
def test_the_first_word_is_the_model_if_it_is_the_name_of_one(
    words: Sequence[str], model: str | None, prompt: str | None
) -> None:
    assert model_and_prompt(words) == (model, prompt)


def test_where_an_option_names_the_model_all_words_are_the_prompt() -> None:
    assert model_and_prompt(["qwen3", "or", "what?"], chosen=True) == (None, "qwen3 or what?")


@pytest.mark.parametrize("word", ["qwen3", "gemma", "smolm2-135m", "qwen2.5-coder-1.5"])
def test_a_word_that_looks_like_a_model_is_not_asked(word: str) -> None:
    with pytest.raises(UsageError, match="did you mean"):
        model_and_prompt([word])


def test_several_words_need_quotes_or_a_model() -> None:
    with pytest.raises(UsageError, match=r"'why' is not a model: put quotes around"):
        model_and_prompt(["why", "is", "that?"])


def test_a_model_is_loaded_as_the_pair_of_its_name_or_alone() -> None:
    assert load_registry().chosen("qwen2.5-coder:1.5b") == {"pair": "qwen2.5-coder-1.5b"}
    assert load_registry().chosen("qwen2.5-coder-0.5b") == {"target": "qwen2.5-coder-0.5b"}
    assert require_model("demo") == "demo"
    with pytest.raises(ModelUnavailable, match="did you mean"):
        require_model("qwen3")


def test_files_are_attached_by_option_and_by_mention(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.txt").write_text("apples")
    (tmp_path / "b.txt").write_text("pears")
    typed = "Compare with @b.txt, please, @nothing"
    said = QuestionFlags(("a.txt", "b.txt")).message(typed, NO_DOCS, typed)
    assert [each.name for each in said.documents] == ["a.txt", "b.txt"]
    assert "apples" in said.text
    assert said.typed == typed
    assert capsys.readouterr().err == "localspec: no file matches @nothing: sent as text\n"
    with pytest.raises(UsageError, match=r"no file matches @nothing\.py: correct the name"):
        QuestionFlags().message("Hi @nothing.py", NO_DOCS, "Hi @nothing.py")
    with pytest.raises(UsageError, match=r"there is no file c\.txt: check the path"):
        QuestionFlags(("c.txt",)).message("Hi", NO_DOCS)
    (tmp_path / "notes").mkdir()
    with pytest.raises(UsageError, match="notes is a folder: name files in it, or index it"):
        QuestionFlags(("notes",)).message("Hi", NO_DOCS)


def test_what_stdin_brings_mentions_no_files(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("apples")
    assert QuestionFlags().message("Review.\n\n@a.txt", NO_DOCS, "Review.").documents == ()


def test_personas_and_templates_are_named_in_the_preferences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "settings").mkdir()
    (tmp_path / "settings/chat.toml").write_text(
        '[personas]\nbrief = "Be brief."\n'
        "[templates]\nto = 'Translate into {{ lang }}: {{ input }}'\nsum = 'Summarise this.'\n"
    )
    assert SystemFlags(persona="brief").prompt("Be long.") == "Be brief."
    assert SystemFlags().prompt("Be long.") == "Be long."
    assert SystemFlags("").prompt("Be long.") == ""
    french = QuestionFlags(template="to", params=(("lang", "French"),))
    summary = QuestionFlags(template="sum")
    assert french.templated("a cat") == "Translate into French: a cat"
    assert summary.templated("a text") == "Summarise this.\n\na text"
    assert summary.templated(None) == "Summarise this."
    assert QuestionFlags().templated("as it is") == "as it is"
    monkeypatch.setattr("localspec.cli.prompt.read_prompt", lambda _: "from stdin")
    assert french.templated(None) == french.templated("-") == "Translate into French: from stdin"
    assert summary.templated("-") == "Summarise this."
    with pytest.raises(TemplateError, match="'lang' is undefined"):
        QuestionFlags(template="to").templated("a cat")


@pytest.mark.parametrize("system", [SystemFlags(persona="pirate"), SystemFlags("b", "a")])
def test_a_persona_that_is_not_there_and_a_second_prompt_are_refused(system: SystemFlags) -> None:
    with pytest.raises(LocalspecError):
        system.prompt(None)


@pytest.mark.parametrize(
    "question", [QuestionFlags(template="nothing"), QuestionFlags(params=(("a", "b"),))]
)
def test_a_template_that_is_not_there_is_refused(question: QuestionFlags) -> None:
    with pytest.raises(LocalspecError):
        question.templated("x")


@pytest.mark.parametrize("verb", ["chat", "serve"])
def test_a_word_that_is_no_model_ends_the_verb_at_once_with_what_is_like_it(verb: str) -> None:
    with pytest.raises(
        ModelUnavailable, match=r"no pair or model 'qwen3-0\.7b': did you mean qwen3-"
    ):
        CliRunner().invoke(localspec, [verb, "qwen3-0.7b"], catch_exceptions=False)
