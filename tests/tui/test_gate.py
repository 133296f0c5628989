"""A chat behind a gate: what is streamed, kept, searched and exported has nothing of a secret; what was asked for can be seen."""

from pathlib import Path
from typing import Any

import pytest

from localspec.gates.gate import usual_gate
from localspec.history.archive import History
from localspec.messages import DocumentPart, Message, ToolCall, ToolResult
from localspec.session.export import exported, write_export
from tests.support.checks import on_disk
from tests.tui.lines import said

KEY = "ghp_abcdefghijklmnopqrstuvwxyz0123456789"
MASK = "[masked: GitHub token]"
SCRIPT: dict[str, Any] = {
    "answers": {"key": f"It is {KEY}. Keep it.", "ask": "Write to ann@example.org."},
    "drafts": 4,
}


def test_lines_and_history_have_nothing_of_a_secret(tmp_path: Path) -> None:
    lines = ("the key?", "/lens", "/copy all")
    _, out, err = said(tmp_path, *lines, script=SCRIPT, gate="usual")
    assert out.startswith(f"It is {MASK}. Keep it.\n")
    found = (out + err).encode() + on_disk(tmp_path)
    assert MASK.encode() in on_disk(tmp_path)
    assert b"ghp_" not in found
    assert KEY[8:20].encode() not in found
    _, out, _ = said(tmp_path, "the key?", script=SCRIPT, gate="action = 'stop'")
    assert out == f"It is {MASK}\n"


def test_what_is_asked_for_is_revealed_and_kept_masked(tmp_path: Path) -> None:
    gate = "[actions]\nemail = 'ask'"
    code, out, err = said(tmp_path, "/reveal", "please ask", "/reveal", script=SCRIPT, gate=gate)
    assert code == 0, "the last question's"
    assert "nothing to reveal" in err
    assert out == "Write to [masked: e-mail address].\n"
    assert "e-mail address: ann@example.org" in err
    assert b"ann@example.org" not in on_disk(tmp_path)


def kept(folder: Path) -> tuple[History, int]:
    history = History(folder / "history")
    conversation = history.create(system=f"Use {KEY}.")
    env = DocumentPart("env", f"TOKEN={KEY}")
    question = Message.user("Mine is ann@example.org", [env])
    asked = history.add_user(conversation, None, question)
    call = ToolCall("c1", "send", f'{{"key": "{KEY}"}}')
    reply = history.begin_reply(conversation, asked, "toy")
    reply.finish(Message("assistant", (call,), f"think of {KEY}"))
    result = Message("tool", (ToolResult("c1", f"sent {KEY}"),))
    history.add_result(conversation, reply.message, result, "send", "")
    return history, conversation


@pytest.mark.parametrize("style", ["md", "json"])
def test_exports_mask_answers_or_both_sides(tmp_path: Path, style: str) -> None:
    history, conversation = kept(tmp_path)
    mask = usual_gate().cleaned
    whole = exported(history, conversation, style, mask)
    assert KEY not in whole
    assert "ann@example.org" not in whole
    assert whole.count(MASK) >= 3
    assert KEY in exported(history, conversation, style, None)
    path, _ = write_export(history, conversation, style, tmp_path, mask, own=True)
    assert "ann" not in path.name
    assert KEY not in path.read_text()
    path, masked = write_export(history, conversation, style, tmp_path, mask)
    assert "ann-example" in path.name.replace(" ", "-")
    text = path.read_text()
    assert text.count("ann@example.org") == 2, "the title, and the question"
    assert KEY not in text
    assert masked.startswith(f"{text.count('[masked: ')} passages masked (GitHub token")
    assert write_export(history, conversation, style, tmp_path, None)[1] == ""
    history.close()
