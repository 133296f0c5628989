"""What the commands do: each is a function of the front and of what stands behind its name. Its docstring is its help."""

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import replace

import click

from localspec.display import clean_line, cut
from localspec.errors import UsageError
from localspec.models.registry import load_registry
from localspec.session.citing import citations
from localspec.session.compaction import typed_of
from localspec.session.conversation import Mark, StoredMessage, content_of
from localspec.tui.front import Front
from localspec.tui.settings import CONTEXT

MODEL = "model"
"""What `/set` calls the model of every start."""
LONG_TEXT = "a long text is better attached as a file in parts, or indexed: `localspec index add`, then /docs"
DROPS = "/compact drop leaves the oldest turns out"
STOPPED = "stopped: no whole summary, so it takes the place of nothing; /continue goes on with it, /undo takes it back"
_MOST_TAKEN_BACK = 120
_NONE = {"-", "off", "none"}
_EMPTY = "this conversation is empty: ask something first"


# The conversation.


async def new(front: Front, _: str) -> None:
    """Start a new conversation."""
    front.session.new()
    await front.show_conversation()


async def system(front: Front, argument: str) -> None:
    """Show or set the system prompt, or take a persona of chat.toml; `-` removes it."""
    talk, personas = front.session.talk, front.preferences.personas
    if argument:
        talk.set_system(None if argument == "-" else personas.get(argument, argument))
    known = f"; personas: {', '.join(personas)}" if personas and not argument else ""
    front.report((f"system prompt: {talk.system}" if talk.system else "no system prompt") + known)


async def regenerate(front: Front, argument: str) -> None:
    """Answer the last question again."""
    if argument and not argument.isdecimal():
        raise UsageError(f"seed is {argument[:40]!r}: it takes a whole number")
    front.session.regenerate(int(argument) if argument else None)
    await front.show_answer()


async def undo(front: Front, _: str) -> None:
    """Take back the last question and its answer."""
    text = front.session.undo()
    await front.show_conversation(known=True)
    front.report(f"taken back: {cut(clean_line(text), _MOST_TAKEN_BACK)}")


async def edit(front: Front, argument: str) -> None:
    """Edit your last or N-th question, in a new branch."""
    talk = front.session.talk
    which, _, text = argument.partition(" ")
    if not which.isdecimal():  # the last one is meant
        which, text = "", argument
    talk.question()
    count = len(talk.numbers())
    at = number(which, "question", count) if which else count
    if text.strip():
        front.session.ask_instead(at, text.strip(), keeps=True)
        await front.show_answer()
    else:
        front.edit(at, talk.question(at).message.typed)


async def branch(front: Front, argument: str) -> None:
    """Branch off into a new conversation after question N and its answer."""
    talk = front.session.talk
    if not talk.messages:
        raise UsageError(_EMPTY)
    count = len(talk.messages)
    if argument:
        question = talk.question(number(argument, "question", len(talk.numbers())))
        at = talk.messages.index(question)
        later = (n for n, each in enumerate(talk.messages) if each.message.role == "user")
        count = next((each for each in later if each > at), count)
    await branch_behind(front, count)


async def branch_behind(front: Front, count: int) -> None:
    """Go on in a conversation of its own, behind so many messages of this one."""
    session = front.session
    session.require_rest()
    session.talk.branch_off(count, session.settings.changed)
    session.count()
    await front.show_conversation(known=True)
    front.report("branched into a new conversation; the original is in /history")


async def go_on(front: Front, _: str) -> None:
    """Resume the last answer where it stopped."""
    shown = front.session.talk.messages
    try:
        front.session.go_on()
    except UsageError:
        if front.session.talk.messages != shown:  # by another window
            await front.show_conversation()
        raise
    await front.show_answer()


async def good(front: Front, _: str) -> None:
    """Mark the last answer as good, for training; again takes that back."""
    mark(front, "good")


async def bad(front: Front, _: str) -> None:
    """Mark the last answer as bad (never train on it); repeat to undo."""
    mark(front, "bad")


def mark(front: Front, wanted: Mark, reply: StoredMessage | None = None) -> None:
    """Mark an answer, or the last one, or take its mark back."""
    front.session.require_rest()
    left = front.session.talk.mark(wanted, reply)
    front.show_changes()
    front.report(f"marked {left}; /{left} again takes it back" if left else "no mark any more")


async def copy(front: Front, argument: str) -> None:
    """Copy the last answer, its N-th block of code, or everything, to the clipboard."""
    front.copy(copied(front.session.talk.messages, argument))


def copied(messages: Sequence[StoredMessage], what: str) -> str:
    """Return what is copied.

    Args:
        messages: the conversation; the last answer counts.
        what: empty for the answer, `code` for its last block of code, a number for its N-th, or `all`.

    Raises:
        UsageError: there is no such thing.
    """
    if what == "all":
        texts = (
            f"{each.message.role}: {typed_of(each) or content_of(each.message)}"
            for each in messages
        )
        return "\n\n".join(texts)
    answers = [each.message.text for each in messages if each.message.role == "assistant"]
    if not answers:
        raise UsageError("no answer to copy yet")
    if not what:
        return answers[-1]
    blocks = code_of(answers[-1])
    return blocks[-1 if what == "code" else number(what, "block of code", len(blocks)) - 1]


def code_of(text: str) -> list[str]:
    """Return the blocks of code in an answer.

    Raises:
        UsageError: there are none.
    """
    # Imported late: its parser takes 40 ms.
    from localspec.markup import code_blocks  # noqa: PLC0415

    blocks = [each.text for each in code_blocks(text)]
    if not blocks:
        raise UsageError("this answer has no block of code: /copy takes all of it")
    return blocks


async def compact(front: Front, argument: str) -> None:
    """Have the model summarise earlier turns, which then leave the context; edit or TEXT changes the summary, drop leaves the oldest turns out instead."""
    talk = front.session.talk
    if argument == "edit":
        front.write(f"/compact {talk.summary().message.text}")
    elif argument == "drop":
        front.report(
            "dropping the oldest turns from the context from now on; the system prompt stays"
        )
        talk.drop_oldest = True
        if front.session.ask_again():
            await front.show_answer()
    elif argument:
        front.session.require_rest()
        talk.rewrite_summary(argument)
        await front.show_conversation(known=True)
        front.report("summary changed")
    else:
        await _summarise(front)


async def _summarise(front: Front, why: str = "") -> None:
    front.session.compact()
    front.report(f"{why}summarising; earlier messages stay in the history")
    await front.show_answer()


async def when_nearly_full(front: Front) -> None:
    """Offer a summary, once when the context gets nearly full, or have it made, as the user has set; report one that was made."""
    talk, compacts = front.session.talk, front.preferences.compact
    if talk.ends_with_summary:
        front.report(
            "summarised; earlier messages stay in the history, /compact edit changes the summary"
        )
        return
    # After one that was tried, another would gain nothing.
    if compacts == "off" or (compacts == "auto" and talk.has_tried_summary):
        return
    advice = front.session.advice()
    if not advice:
        return
    if not await front.session.has_room_for_summary():
        front.report(f"{advice}, and a summary finds no room: {DROPS}")
    elif compacts == "auto":
        await _summarise(front, f"{advice}, ")
    else:
        front.report(f"{advice}: /compact has the model summarise it")


async def when_full(front: Front) -> bool:
    """Have a summary made for a question that found no room, where the user has set so; return whether it is.

    Once: a summary that finds no room itself, or comes to nothing, would find none the next time.
    """
    exchange = front.session.exchange
    if exchange is not None and (exchange.is_too_long or not exchange.can_summarise):
        return False
    if front.preferences.compact != "auto" or front.session.talk.has_tried_summary:
        return False
    try:
        await _summarise(front, "the context is full, ")
    except UsageError:  # there is nothing to summarise
        return False
    return True


# Earlier conversations.


async def history(front: Front, argument: str) -> None:
    """List, search or open earlier conversations; delete #N deletes one."""
    from localspec.models.names import is_name  # noqa: PLC0415 - the start needs none of it

    session = front.session
    verb, _, last = argument.rpartition(" ")
    last = last.removeprefix("#")
    if not verb and (last.isdecimal() or argument.startswith("#")):
        session.open(_conversation(front, last))
    elif verb == "delete" and (last.isdecimal() or "#" in argument):
        conversation = _conversation(front, last)

        async def delete() -> None:
            await session.delete(conversation)
            await front.show_conversation(known=True)
            front.report(f"deleted conversation {conversation}")

        await front.delete(session.talk.history.conversation(conversation).title, delete)
        return
    elif argument and is_name(argument, load_registry()):
        await model(front, argument)
        return
    else:
        found = session.talk.history.found
        matches = await asyncio.to_thread(found, argument) if argument else []
        matches = [e for e in matches if e.title.casefold() == argument.casefold()][:1] or matches
        if argument and not matches:
            raise UsageError(
                f"no conversation contains {argument[:40]!r}, and no model has that name"
            )
        if len(matches) != 1:
            front.show_history(argument)
            return
        session.open(matches[0].id)
    await front.show_conversation()


def _conversation(front: Front, text: str) -> int:
    history = front.session.talk.history
    if not text.isdecimal() or not history.count_messages(int(text[:18])):
        raise UsageError(f"there is no conversation {text[:20]}: /history lists them")
    return int(text)


async def save(front: Front, argument: str) -> None:
    """Name this conversation; all conversations are kept."""
    talk = front.session.talk
    if argument:
        talk.rename(argument)
    if talk.conversation is None:
        raise UsageError(_EMPTY)
    front.report(f"named {talk.title!r} (conversations are saved automatically)")


async def export(front: Front, argument: str) -> None:
    """Write this conversation to a file."""
    talk = front.session.talk
    if talk.conversation is None:
        raise UsageError(_EMPTY)
    leaf = talk.messages[-1].id if talk.messages else None
    front.report(front.session.export(talk.conversation, argument, leaf))


# Pictures and speech.


async def paste(front: Front, _: str) -> None:
    """Attach the picture in the clipboard."""
    front.attach(front.session.tray.hold_clipboard())


async def listen(front: Front, argument: str) -> None:
    """Record from the microphone until Enter, and attach it; with TEXT, send both."""
    session = front.session
    session.require_rest()
    session.questions.require_senses({"audio"})

    async def take(sound: bytes) -> None:
        name = session.tray.hold(sound, "recording", "wav")
        if argument:
            session.ask(f"{argument} @{name}")
            await front.show_answer()
        else:
            front.attach(name)

    await front.record(take)


# Models, settings and documents.


async def model(front: Front, argument: str) -> None:
    """Show or switch the model."""
    can = front.session.engine.can
    if not argument and not can.local_files:
        front.report(
            f"{front.session.models.line} of {can.at}; /model NAME takes another of its models"
        )
    elif not argument:
        front.choose_model()
    elif argument == front.session.models.next_name:
        front.report(f"{argument} is already loaded")
    else:
        # Here, and not where it is loaded: the line can be mended, and what is loaded is left in peace.
        from localspec.models.names import resolve  # noqa: PLC0415 - the start needs none of it

        registry = load_registry()
        if can.local_files and not registry.knows(argument):
            resolve(argument, registry.writing())
        front.session.load(argument)
        await front.show_loading()


async def set_(front: Front, argument: str) -> None:
    """Show or change settings: sampling, drafting, ctx; model: your default."""
    name, _, value = argument.partition(" ")
    if name == MODEL:
        _set_default(front, value.strip())
    elif argument:
        front.session.settings.set(name, value.strip())
        news = f"{name} is now {front.session.settings.text_of(name)}"
        unusual = front.session.settings.unusual(name)
        used = front.session.context_tokens
        if name == CONTEXT and value.strip().isdecimal() and 0 < int(value) <= used:
            unusual = f"this conversation has {used} tokens already: /compact shortens it"
        front.report("; ".join(filter(None, [news, unusual])))
    else:
        front.show_settings()


def _set_default(front: Front, argument: str) -> None:
    """Load a model at every start from now on; without a name, the one that is loaded."""
    from localspec.config.own import keep_model  # noqa: PLC0415 - the start needs none of it
    from localspec.models.names import is_name  # noqa: PLC0415 - as above

    front.session.engine.can.require("local_files", "/set model")
    name = argument or front.session.models.next_name
    if not name:
        raise UsageError("no model loaded: name one, /set model NAME")
    registry = load_registry()
    if "/" not in name and not is_name(name, registry):
        registry.require(name)
    front.report(keep_model(registry.chosen(name)) or f"{name} is now your default model")


async def docs(front: Front, argument: str) -> None:
    """Answer from an index of your files; show passage N."""
    from localspec.session.documents import index_names  # noqa: PLC0415 - sqlite3 comes with it

    session, passages = front.session, front.session.talk.passages
    at = argument.strip("[]")
    if at.isdecimal():
        if int(at) not in passages:
            raise UsageError(f"there is no passage {argument[:40]!r}: /docs lists them")
        front.show_text(str(passages[int(at)]), passages[int(at)].text)
    elif argument:
        name = "" if argument in _NONE else argument
        replace(session.docs, name=name).check()
        session.settings.answer_from(name)
        text = (
            f"answering from {name}: at most {session.docs.tokens} tokens of passages per question"
        )
        front.report(text if name else "answering from no index")
    else:
        hints = _passage_hints(front) | dict.fromkeys(index_names(), "an index of your files")
        if not hints:
            raise UsageError("no index yet: `localspec index add FOLDER` makes one")
        hints["off"] = "answer from no index"
        front.choose("Documents", hints, lambda name: docs(front, name))


def _passage_hints(front: Front) -> dict[str, str]:
    """Return the passages of the conversation by their numbers, those that the last answer cites first."""
    talk = front.session.talk
    answers = [each.message.text for each in talk.messages if each.message.role == "assistant"]
    cited = citations(answers[-1] if answers else "", talk.passages).passages
    hints = {f"[{each.number}]": f"{each.where} · cited" for each in cited}
    others = (each for each in talk.passages.values() if each not in cited)
    return hints | {f"[{each.number}]": each.where for each in others}


# What is visible.


async def think(front: Front, argument: str) -> None:
    """Show or hide thoughts and long questions; with a word or number, set how the model thinks."""
    if argument:
        await set_(front, f"think {argument}")
    else:
        front.toggle_thoughts()


async def stats(front: Front, _: str) -> None:
    """Show where the time goes and what drafting gains."""
    front.show_stats()


async def reveal(front: Front, _: str) -> None:
    """Show the text that --gate masked in the last answer."""
    exchange = front.session.exchange
    masked = [] if exchange is None else exchange.withheld
    if not masked:
        raise UsageError(
            'nothing to reveal: rules with action = "ask" matched nothing in the last answer'
        )
    front.report("; ".join(f"{each.rule}: {each.text}" for each in masked))


async def lens(front: Front, _: str) -> None:
    """Show where every token of the last answer comes from."""
    front.session.engine.can.require("draft", "/lens")
    exchange = front.session.exchange
    if exchange is None or not exchange.tokens:
        if front.session.has_answers:
            raise UsageError("of earlier answers no tokens are kept: /lens shows your next answer")
        raise UsageError("nothing to show yet: ask something first")
    front.show_lens()


# The program.


async def restart(front: Front, _: str) -> None:
    """Restart the model."""
    front.session.loads.restart()
    await front.show_conversation(known=True)
    front.report("restarting the model")
    await front.show_loading()


async def editor(front: Front, _: str) -> None:
    """Write the question in $EDITOR."""
    await front.open_editor()


async def theme(front: Front, argument: str) -> None:
    """Show or change the colours."""
    front.choose_theme(argument)


async def help_(front: Front, _: str) -> None:
    """List commands and keys."""
    front.show_help()


async def leave(front: Front, _: str) -> None:
    """Quit."""
    front.leave()


def number(argument: str, what: str, most: int) -> int:
    """Return an argument as a number from 1 on.

    Raises:
        UsageError: it is none, or above `most`.
    """
    if not argument.isdecimal() or not 1 <= int(argument) <= most:
        raise UsageError(f"{argument[:40]!r} is not a {what}: give a number from 1 to {most}")
    return int(argument)


def edited(text: str) -> str:
    """Return a text as it stands when the user has left the editor of $VISUAL or $EDITOR, without blank lines around it.

    Raises:
        UsageError: the editor cannot be started, fails, or leaves something else than UTF-8.
    """
    # Ctrl-C in the editor comes here, too; a handler, and not SIG_IGN, which the editor would inherit.
    before = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return (click.edit(text, extension=".md", require_save=False) or "").strip("\n")
    except (click.ClickException, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsageError(
            f"the editor failed ({reason}): your text stays as it was; EDITOR names another editor"
        ) from None
    finally:
        signal.signal(signal.SIGINT, before)
