import pytest

from localspec.errors import UsageError
from localspec.tui.actions import number
from localspec.tui.commands import BY_NAME, COMMANDS, MOVED, matching, parse


def test_a_command_and_its_argument() -> None:
    assert parse("/save  a new title ") == (BY_NAME["save"], "a new title")


def test_other_names_mean_the_same_when_they_are_whole() -> None:
    assert parse("/bye") == parse("/exit") == (BY_NAME["quit"], "")
    assert parse("/clear") == (BY_NAME["new"], "")
    assert parse("/?") == (BY_NAME["help"], "")
    assert parse("/load #3") == (BY_NAME["history"], "#3")
    assert parse("/retry 7") == (BY_NAME["regenerate"], "7")
    assert parse("/ex md") == (BY_NAME["export"], "md")
    aliases = [alias for each in COMMANDS for alias in each.aliases]
    assert len(set(aliases)) == len(aliases)
    assert not set(aliases) & set(BY_NAME)


def test_a_beginning_that_means_one_command_is_enough() -> None:
    assert parse("/reg") == (BY_NAME["regenerate"], "")


def test_a_beginning_that_means_several_is_refused_by_name() -> None:
    with pytest.raises(UsageError, match="/regenerate, /reveal, /restart"):
        parse("/re")


@pytest.mark.parametrize("old", MOVED)
def test_a_name_of_an_earlier_version_is_answered_with_what_it_is_now(old: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(f"/{old} x")
    assert str(caught.value) == f"/{old} is {MOVED[old]} now"
    assert not MOVED[old].startswith("/") or MOVED[old].split()[0][1:] in BY_NAME


def test_the_menu_has_about_twenty_commands() -> None:
    listed = matching("/")
    assert 18 <= len(listed) <= 22
    assert not any(each.rare for each in listed)


def test_an_unknown_command_is_refused() -> None:
    with pytest.raises(UsageError, match="there is no command /frobnicate"):
        parse("/frobnicate now")


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        ("/exprot md", "did you mean /export or /exit?"),
        ("/colours", "/help lists them"),
        ("/modle", "did you mean /model?"),
    ],
)
def test_an_unknown_command_is_refused_with_what_is_known_near_it(line: str, meant: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse(line)
    assert meant in str(caught.value)
    assert ("did you mean" in meant) == ("did you mean" in str(caught.value))


@pytest.mark.parametrize("line", ["exit", "quit", " Exit "])
def test_a_person_leaves_by_a_bare_word(line: str) -> None:
    assert parse(line, typed=True) == (BY_NAME["quit"], "")
    assert parse(line) is None  # a line on a pipe is a question
    assert parse(f"how do I {line}?", typed=True) is None


@pytest.mark.parametrize(
    "text", ["/etc/passwd is what?", "//", "/", "hello /new", " /new", "/usr/bin"]
)
def test_a_path_is_no_command(text: str) -> None:
    assert parse(text) is None


def test_what_is_typed_is_matched_from_the_start_before_anywhere() -> None:
    assert [each.name for each in matching("/ex")] == ["export"]
    assert [each.name for each in matching("/port")] == ["export"]
    assert [each.name for each in matching("/rest")] == ["restart"]
    assert matching("/new x") == []


def test_a_number_is_from_one_on() -> None:
    assert number("3", "question", 3) == 3
    for wrong in ("0", "4", "-1", "x", "1.5", "²"):
        with pytest.raises(UsageError, match="give a number from 1 to 3"):
            number(wrong, "question", 3)
