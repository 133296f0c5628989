"""Scripts that write no words apart are found as English is."""

# ruff: noqa: RUF001 - punctuation of these scripts

import sqlite3
import unicodedata
from contextlib import closing
from pathlib import Path

import pytest

from lab.retrieval.scripts import LANGUAGES, facts, is_mixed, ranks, recall
from localspec.retrieval import index as index_module
from localspec.retrieval.index import Index, KnownFile
from localspec.retrieval.passages import Passage
from localspec.retrieval.scripts import asked_words, searchable
from localspec.storage import database

GLUED = {
    "zh": "先运行安装脚本，然后重启电脑。错误代码E1234表示磁盘已满，请联系Linden公司。",
    "ja": "サーバーの再起動は夜に行います。エラーE1234はﾊﾞｯｸｱｯﾌﾟの失敗です。",
    "ko": "서버를다시시작하면 오류E1234가사라집니다. 비밀번호는 매달바꿉니다.",
    "th": "เริ่มเซิร์ฟเวอร์ใหม่หลังจากติดตั้งE1234แล้ว",
    "en": "The installer writes ＥＲＲＯＲ１２ to the log.",
}


def of_texts(path: Path, texts: dict[str, str]) -> Index:
    index = Index(path, make=True)
    with index.writing():
        for name, text in texts.items():
            index.put(name, KnownFile(1, 1, b""), name, [Passage(1, 1, "", text)])
    return index


@pytest.mark.parametrize(
    ("question", "language"),
    [
        *[(each, "zh") for each in ("重启电脑", "安装", "脑", "E1234的磁盘", "Linden", "错误代码是什么意思？")],
        *[(each, "ja") for each in ("再起動", "サーバー", "バックアップの失敗", "夜にサーバーを再起動")],
        *[(each, "ko") for each in ("서버", "비밀번호", "오류")],
        *[(each, "th") for each in ("เซิร์ฟเวอร์", "ติดตั้ง")],
        *[(each, "en") for each in ("error12", "installer")],
    ],
)  # fmt: skip
def test_runs_without_blanks_are_found_by_their_parts(
    tmp_path: Path, question: str, language: str
) -> None:
    with closing(of_texts(tmp_path / "i.db", GLUED)) as index:
        first, *_ = index.search(question, 5)
    assert first.name == language


def test_numbers_that_touch_such_letters_are_words(tmp_path: Path) -> None:
    with closing(of_texts(tmp_path / "i.db", GLUED)) as index:
        names = {each.name for each in index.search("E1234", 9)}
    assert names == {"zh", "ja", "ko", "th"}


@pytest.mark.parametrize("text", ["Bahnhofstraße", "İstanbul", "oﬃcial ﬁre", "λόγος", "Mu\u0308nchen", "Ｗｉｄｅ", "Straße", "ŉ ǰ և", "ﷺ", "Ελλάδας", "Ärger", "naïve", "việt"])  # fmt: skip
def test_a_word_is_found_however_it_is_typed(tmp_path: Path, text: str) -> None:
    with closing(
        of_texts(tmp_path / "i.db", {"it": f"Before, {text}, behind.", "no": "Else"})
    ) as index:
        for typed in (text, text.upper(), text.lower(), *(unicodedata.normalize(form, text) for form in ("NFC", "NFD", "NFKC"))):  # fmt: skip
            assert [each.name for each in index.search(typed, 5)] == ["it"], typed


def test_what_asks_and_what_is_grammar_counts_only_alone() -> None:
    assert asked_words("E1234是什么意思？") == (["e1234"], ['"么意"', '"意思"'])
    assert asked_words("パスワードはいつですか")[1] == [f'"{each}"' for each in ("パス", "スワ", "ワー", "ード", "ドは")]  # fmt: skip
    assert asked_words("たまご") == ([], ['"たま"', '"まご"'])
    assert asked_words("What is it?") == (["what", "is", "it"], [])
    assert searchable("plain text") == "plain text"


def test_an_index_of_before_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "_STEPS", index_module._STEPS[:2])
    with closing(of_texts(tmp_path / "i.db", GLUED)) as index:
        assert index.search("重启电脑", 5) == [], "it was one word"
    monkeypatch.undo()
    with closing(Index(tmp_path / "i.db")) as index:
        assert index.search("重启电脑", 5)[0].name == "zh"
        assert index.search("installer", 5)[0].name == "en"
        with index.writing():
            index.remove("zh")
        assert index.search("重启电脑", 5) == []
    with closing(database.open_database(tmp_path / "i.db", index_module._STEPS)) as opened:
        opened.execute("INSERT INTO word(word) VALUES ('integrity-check')")
        count = "SELECT count(*) FROM word('\"磁盘\"')"
        assert opened.execute(count).fetchone()[0] == 0
        assert isinstance(opened, sqlite3.Connection)


def test_recall_is_that_of_english(tmp_path: Path) -> None:
    every = facts()
    assert len(every) == 60
    assert sum(map(is_mixed, every)) >= 15
    places = {each: ranks(tmp_path / each, each) for each in LANGUAGES}
    for each in ("zh", "ja"):
        assert recall(places[each]) >= 0.9 * recall(places["en"]), places
        among_mixed = recall(places[each], lambda at: is_mixed(every[at]))
        assert among_mixed >= 0.9 * recall(places["en"], lambda at: is_mixed(every[at])), places
