"""Words of scripts that write none apart: Chinese, Japanese, Korean with its particles, Thai, Lao, Khmer and Burmese.

SQLite's tokenizer makes one word of a run without blanks, letters and digits that touch it included. So runs are cut out of
their surroundings, and into overlapping pairs of letters, in what is indexed and in what is asked alike.
"""

import re
import unicodedata

# Han with its marks, kana, Hangul, Bopomofo, and the South-East Asian letters; the last group has marks above and below.
_HAN = r"\u3005-\u3007\u3021-\u3029\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
_KANA = r"\u3041-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
_OTHERS = r"\u1100-\u11ff\u3105-\u312f\u31a0-\u31bf\uac00-\ud7a3"
_WITH_MARKS = r"\u0e01-\u0e4e\u0e81-\u0ece\u1000-\u103f\u1780-\u17d3"
_RUN = re.compile(f"[{_HAN}{_KANA}{_OTHERS}]+|[{_WITH_MARKS}]+")
_MARKS = re.compile(r"[\u0300-\u036f]+")
_WORD = re.compile(r"\w+")
_HIRAGANA = re.compile(r"[\u3041-\u3096\u309d-\u309f]+")
_ASKING_PAIRS = "什么 怎么 么样 如何 哪里 哪个 哪些 多少 为什 是否 请问 可以 是什 的是 有什"
_ASKING = frozenset(_ASKING_PAIRS.split())


def searchable(text: str) -> str:
    """Return a text as it is indexed: folded, and runs as pairs of letters, and the last letter, which begins no pair."""
    if text.isascii():
        return text

    def cut(match: re.Match[str]) -> str:
        run = _letters(match[0])
        return f" {' '.join([*_pairs(run), run[-1:]])} "

    return _RUN.sub(cut, _folded(text))


def asked_words(question: str) -> tuple[list[str], list[str]]:
    """Return the words of a question that stand apart, and those that are cut out of runs, each as FTS5 takes it.

    A single letter is looked for as a beginning. Pairs of hiragana are grammar for the most part, and some pairs only ask:
    they count where there is nothing else.
    """
    folded = _folded(question)
    runs = [_letters(run) for run in _RUN.findall(folded)]
    pairs = [pair for run in runs for pair in _pairs(run)]
    telling = [each for each in pairs if each not in _ASKING and not _HIRAGANA.fullmatch(each)]
    single = [f'"{run}"*' for run in runs if len(run) == 1 and not _HIRAGANA.fullmatch(run)]
    apart = _WORD.findall(_RUN.sub(" ", folded))
    cut = [f'"{each}"' for each in telling] + single
    if not apart and not cut:
        cut = [f'"{each}"' for each in pairs]
    return list(dict.fromkeys(apart)), list(dict.fromkeys(cut))


def _letters(run: str) -> str:
    """Return a run without marks, at which SQLite's tokenizer would cut it."""
    return "".join(each for each in run if unicodedata.category(each)[0] != "M")


def _pairs(run: str) -> list[str]:
    return [run[at : at + 2] for at in range(len(run) - 1)]


def _folded(text: str) -> str:
    """Return a text without what words are found in spite of: capitals, accents, ligatures, full and half width."""
    return _MARKS.sub(
        "", unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    )
