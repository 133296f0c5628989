import pytest

from localspec.errors import UsageError
from localspec.tui.actions import number
from localspec.tui.commands import BY_NAME, COMMANDS, MOVED, matching, parse


@pytest.mark.parametrize(
    ("line", "name", "argument"),
    [
        ("/save  a new title ", "save", "a new title"),
        ("/bye", "quit", ""),
        ("/exit", "quit", ""),
        ("/clear", "new", ""),
        ("/?", "help", ""),
        ("/load #3", "history", "#3"),
        ("/retry 7", "regenerate", "7"),
        ("/ex md", "export", "md"),  # other names count where they are whole
        ("/reg", "regenerate", ""),
    ],
)
def test_a_command_is_read_with_its_argument(line: str, name: str, argument: str) -> None:
    assert parse(line) == (BY_NAME[name], argument)


def test_other_names_stand_once() -> None:
    aliases = [alias for each in COMMANDS for alias in each.aliases]
    assert len(set(aliases)) == len(aliases)
    assert not set(aliases) & set(BY_NAME)


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


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("/re", "/regenerate, /reveal, /restart"),
        ("/exprot md", r"no command /exprot: did you mean /export or /exit\?"),
        ("/colours", "no command /colours: /help lists them"),
        ("/modle", r"did you mean /model\?"),
    ],
)
def test_an_unknown_command_is_refused_with_what_is_known_near_it(line: str, why: str) -> None:
    with pytest.raises(UsageError, match=why):
        parse(line)


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
