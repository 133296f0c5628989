from localspec.engine.protocol import LensToken
from localspec.ui.lens import legend, marked, runs

TOKENS = [
    LensToken("The", "first"),
    LensToken(" cat", "model"),
    LensToken(" sat", "model"),
    LensToken(" on", "correction"),
    LensToken(" the", "lookup"),
    LensToken(" mat", "bonus"),
    LensToken(".", "plain"),
]


def test_every_origin_has_marks_that_need_no_colour() -> None:
    assert marked(TOKENS) == "The[ cat sat]< on>{ the}+ mat+."


def test_without_its_marks_the_lens_is_the_answer() -> None:
    assert "".join(run.text for run in runs(TOKENS)) == "The cat sat on the mat."


def test_the_legend_counts_tokens_by_origin() -> None:
    counts = [int(line.split()[1]) for line in legend(TOKENS)]
    assert counts == [2, 1, 1, 1, 2]


def test_an_origin_that_is_not_known_yet_is_shown_as_the_targets_own() -> None:
    assert marked([LensToken("a", "oracle")]) == "a"


def test_a_part_of_a_character_counts_with_the_token_that_completes_it() -> None:
    (run,) = runs([LensToken("", "model"), LensToken("日", "model")])
    assert (run.text, run.tokens) == ("日", 2)


def test_tokens_cannot_command_the_terminal() -> None:
    assert "\x1b" not in marked([LensToken("\x1b[2J", "model")])
