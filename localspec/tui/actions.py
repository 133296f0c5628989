"""What the commands do: the conversation, earlier ones, the models, the settings and the program."""

from collections.abc import Sequence
from dataclasses import replace

import click

from localspec.display import code_blocks
from localspec.errors import UsageError
from localspec.history.records import StoredMessage, content_of, tags_of
from localspec.models.registry import load_registry
from localspec.retrieval.citing import citations
from localspec.tui.front import Front


def copied(messages: Sequence[StoredMessage], what: str) -> str:
    """Return what is copied.

    Args:
        messages: the conversation; the last answer counts.
        what: empty for the answer, `code` for its last block of code, a number for its N-th, or `all`.

    Raises:
        UsageError: there is no such thing.
    """
    if what == "all":
        return "\n\n".join(
            f"{each.message.role}: {each.message.typed or content_of(each.message)}"
            for each in messages
        )
    answers = [each.message.text for each in messages if each.message.role == "assistant"]
    if not answers:
        raise UsageError("no answer to copy yet")
    if not what:
        return answers[-1]
    blocks = code_of(answers[-1])
    if what == "code":
        return blocks[-1]
    if not what.isdecimal() or not 1 <= int(what) <= len(blocks):
        raise UsageError(
            f"{what[:20]!r} is not a block of code: give a number from 1 to {len(blocks)}"
        )
    return blocks[int(what) - 1]


def code_of(text: str) -> list[str]:
    """Return the blocks of code in an answer.

    Raises:
        UsageError: there are none.
    """
    blocks = [code for _, code in code_blocks(text)]
    if not blocks:
        raise UsageError("this answer has no block of code: /copy takes all of it")
    return blocks


MODEL = "model"
"""What `/set` calls the model of every start."""


async def model(front: Front, argument: str) -> None:
    """Load other models, or let the user choose them."""
    if not argument:
        front.choose_model()
    elif argument == front.session.models.next_name:
        front.tell(f"{argument} is already loaded")
    else:
        # Here, and not where it is loaded: the line can be mended, and what is loaded is left in peace.
        from localspec.models.names import resolve  # noqa: PLC0415 - the start needs none of it

        registry = load_registry()
        if not registry.knows(argument):
            resolve(argument, registry.writing())
        front.session.load(argument)
        front.show_loading()


async def default(front: Front, argument: str) -> None:
    """Load a model at every start from now on; without a name, the one that is loaded."""
    from localspec.config.own import keep_model  # noqa: PLC0415 - the start needs none of it

    name = argument or front.session.models.next_name
    if not name:
        raise UsageError("no model loaded: name one, /set model NAME")
    from localspec.models.names import is_name  # noqa: PLC0415 - likewise

    registry = load_registry()
    if "/" not in name and not is_name(name, registry):
        registry.require(name)
    overruled = keep_model(registry.chosen(name))
    front.tell(overruled or f"{name} is now your default model")


async def set_(front: Front, argument: str) -> None:
    """Change a setting, or show them all to be changed."""
    name, _, value = argument.partition(" ")
    if name == MODEL:
        await default(front, value.strip())
    elif argument:
        front.session.set(name, value.strip())
        front.tell(f"{name} is now {front.session.setting(name)}")
    else:
        front.show_settings()


async def reveal(front: Front, argument: str) -> None:  # noqa: ARG001
    """Show what was masked in the last answer until somebody asks; the history keeps it masked."""
    found = front.session.engine.withheld
    if not found:
        raise UsageError(
            'nothing to reveal: rules with action = "ask" found nothing in the last answer'
        )
    front.tell("; ".join(f"{each.rule}: {each.text}" for each in found))


async def lens(front: Front, argument: str) -> None:  # noqa: ARG001
    """Show where every token of the last answer came from."""
    exchange = front.session.exchange
    if exchange is None or not exchange.tokens:
        raise UsageError("nothing to show yet: ask something first")
    front.show_lens()


async def stop(front: Front, argument: str) -> None:  # noqa: ARG001
    """Stop what runs."""
    front.tell("stopped" if front.session.stop() else "nothing to stop")


async def restart(front: Front, argument: str) -> None:  # noqa: ARG001
    """Start the engine again."""
    front.session.restart()
    await front.show_conversation(known=True)
    front.tell("restarting the model")
    front.show_loading()


_NONE = {"-", "off", "none"}


async def new(front: Front, argument: str) -> None:  # noqa: ARG001 - every command takes one
    """Leave this conversation and begin another."""
    front.session.new()
    await front.show_conversation()


async def system(front: Front, argument: str) -> None:
    """Show, set or take away the system prompt."""
    talk = front.session.talk
    if argument:
        talk.set_system(None if argument == "-" else argument)
    front.tell(f"system prompt: {talk.system}" if talk.system else "no system prompt")


async def persona(front: Front, argument: str) -> None:
    """Take a named system prompt, or let the user choose one."""
    personas = front.preferences.personas
    if not personas:
        raise UsageError("no personas yet: add some under [personas] in chat.toml")
    if argument in personas:
        await system(front, personas[argument])
    elif argument:
        known = ", ".join(personas)
        raise UsageError(f"there is no persona {argument[:40]!r}: choose one of {known}")
    else:
        front.choose("Personas", personas, lambda name: system(front, personas[name]))


async def regenerate(front: Front, argument: str) -> None:
    """Answer the last question again."""
    if argument and not argument.isdecimal():
        raise UsageError(f"seed is {argument[:40]!r}: it takes a whole number")
    front.session.regenerate(int(argument) if argument else None)
    await front.show_answer()


async def undo(front: Front, argument: str) -> None:  # noqa: ARG001
    """Take the last question back, and its answer with it."""
    text = front.session.undo()
    await front.show_conversation(known=True)
    front.tell(f"taken back: {text}")


async def edit(front: Front, argument: str) -> None:
    """Ask something else in place of a question; without a text, let the user change it."""
    talk = front.session.talk
    which, _, text = argument.partition(" ")
    talk.question()
    count = len(talk.numbers())
    at = number(which, "question", count) if which else count
    if text.strip():
        front.session.ask_instead(at, text.strip())
        await front.show_answer()
    else:
        front.edit(at, talk.question(at).message.typed)


async def branch(front: Front, argument: str) -> None:
    """Go on in a conversation of its own, behind a question and its answer, or behind the last message."""
    talk = front.session.talk
    if not talk.messages:
        raise UsageError("nothing to branch from yet: ask something first")
    if not argument:
        await branch_behind(front, len(talk.messages))
        return
    asked = talk.question(number(argument, "question", len(talk.numbers())))
    at = talk.messages.index(asked)
    later = (at for at, each in enumerate(talk.messages) if each.message.role == "user")
    await branch_behind(front, next((each for each in later if each > at), len(talk.messages)))


async def branch_behind(front: Front, count: int) -> None:
    """Go on in a conversation of its own, behind so many messages of this one."""
    session = front.session
    session.require_rest()
    session.save_state()
    session.talk.branch_off(count)
    session.count()
    await front.show_conversation(known=True)
    front.tell("branched into a new conversation; the original is in the history (F7)")


async def go_on(front: Front, argument: str) -> None:  # noqa: ARG001
    """Let the last answer go on."""
    front.session.go_on()
    await front.show_answer()


async def copy(front: Front, argument: str) -> None:
    """Copy the last answer, a part of it, or everything."""
    front.copy(copied(front.session.talk.messages, argument))


async def history(front: Front, argument: str) -> None:
    """Open or delete a conversation, or open the one that holds these words; where several do, list them. Or load a model."""
    from localspec.models.names import is_name  # noqa: PLC0415 - the start needs none of it

    session = front.session
    verb, _, number = argument.rpartition(" ")
    number = number.removeprefix("#")
    if not verb and (number.isdecimal() or argument.startswith("#")):
        session.open(_conversation(front, number))
        await front.show_conversation()
    elif verb == "delete" and (number.isdecimal() or "#" in argument):
        conversation = _conversation(front, number)
        session.delete(conversation)
        await front.show_conversation(known=True)
        front.tell(f"deleted conversation {conversation}")
    elif argument and is_name(argument, load_registry()):
        await model(front, argument)
    else:
        found = session.talk.history.conversations(argument) if argument else []
        found = [e for e in found if e.title.casefold() == argument.casefold()][:1] or found
        if argument and not found:
            raise UsageError(
                f"no conversation contains {argument[:40]!r}, and no model has that name"
            )
        if len(found) == 1:
            session.open(found[0].id)
            await front.show_conversation()
        else:
            front.show_history(argument)


async def save(front: Front, argument: str) -> None:
    """Give the conversation a title, and say that it is kept anyway."""
    talk = front.session.talk
    if argument:
        talk.rename(argument)
    if talk.conversation is None:
        raise UsageError("this conversation is empty: ask something before you save it")
    front.tell(f"named {talk.title!r} (conversations are saved automatically)")


async def export(front: Front, argument: str) -> None:
    """Write the conversation to a file."""
    talk = front.session.talk
    if talk.conversation is None:
        raise UsageError("this conversation is empty: there is nothing to export")
    from localspec.chat.gated import gate_of  # noqa: PLC0415 - not at the start
    from localspec.session.export import export_line, write_export  # noqa: PLC0415 - likewise

    folder, mask = front.session.folder, gate_of("usual").cleaned
    leaf = talk.messages[-1].id if talk.messages else None
    path, masked = write_export(talk.history, talk.conversation, argument, folder, mask, leaf)
    front.tell(export_line(path, masked, talk.conversation))


async def docs(front: Front, argument: str) -> None:
    """Answer from an index from now on, or from none, or show a passage; without an argument, let the user choose.

    Of the passages of the conversation, those that the last answer cites come first.
    """
    from localspec.retrieval.index import index_names  # noqa: PLC0415 - sqlite3 comes with it

    session, passages = front.session, front.session.talk.passages
    at = argument.strip("[]")
    if at.isdecimal():
        if int(at) not in passages:
            raise UsageError(f"there is no passage {argument[:40]!r}: /docs lists them")
        front.show_text(str(passages[int(at)]), passages[int(at)].text)
    elif argument:
        name = "" if argument in _NONE else argument
        session.docs = replace(session.docs, name=name).check()
        told = f"answering from {name}: at most {session.docs.tokens} tokens of passages a question"
        front.tell(told if name else "answering from no index")
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


async def compact(front: Front, argument: str) -> None:
    """Have what was said summarised, or change the summary."""
    talk = front.session.talk
    if argument == "edit":
        front.compose(f"/compact {talk.summary().message.text}")
    elif argument == "drop":
        await drop(front)
    elif argument:
        front.session.require_rest()
        talk.rewrite_summary(argument)
        await front.show_conversation(known=True)
        front.tell("the summary says this from now on")
    else:
        front.session.compact()
        await _show_summary(front)


async def _show_summary(front: Front, why: str = "") -> None:
    front.tell(f"{why}summarising; earlier messages stay in the history")
    await front.show_answer()


async def when_nearly_full(front: Front) -> None:
    """Offer a summary, once when the context gets nearly full, or have it made, as the user has set; tell of one that was made."""
    if front.session.talk.ends_with_summary:
        front.tell(
            "summarised; earlier messages stay in the history, /compact edit changes the summary"
        )
        return
    by_itself = front.preferences.compact == "auto"
    if by_itself and front.session.talk.has_tried_summary:  # another would gain nothing
        return
    advice = front.session.advice()
    if not advice or front.preferences.compact == "off":
        return
    if by_itself:
        front.session.compact()
        await _show_summary(front, f"{advice.partition(':')[0]}, ")
    else:
        front.tell(advice)


async def when_full(front: Front) -> bool:
    """Have a summary made for a question that found no room, where the user has set so; return whether it is.

    Once: a summary that finds no room itself, or comes to nothing, would find none the next time.
    """
    if front.preferences.compact != "auto" or front.session.talk.has_tried_summary:
        return False
    try:
        front.session.compact()
    except UsageError:  # there is nothing to summarise
        return False
    await _show_summary(front, "the context is full, ")
    return True


async def tag(front: Front, argument: str) -> None:
    """Show, add or remove tags."""
    talk = front.session.talk
    if talk.conversation is None:
        raise UsageError("this conversation is empty: ask something before you tag it")
    tags = talk.history.tag(talk.conversation, *tags_of(argument))
    front.tell(f"tags: {' '.join(tags)}" if tags else "no tags: /tag NAME adds one")


async def drop(front: Front) -> None:
    """Leave the oldest turns out of the context."""
    front.tell("dropping the oldest turns from the context from now on; the system prompt stays")
    if front.session.leave_out_oldest():
        await front.show_answer()


def number(argument: str, what: str, most: int) -> int:
    """Return an argument as a number from 1 on.

    Raises:
        UsageError: it is none, or above `most`.
    """
    if not argument.isdecimal() or not 1 <= int(argument) <= most:
        raise UsageError(f"{argument[:40]!r} is not a {what}: give a number from 1 to {most}")
    return int(argument)


def _conversation(front: Front, text: str) -> int:
    known = {each.id for each in front.session.talk.history.conversations(limit=1_000_000)}
    if not text.isdecimal() or int(text[:20]) not in known:
        raise UsageError(f"there is no conversation {text[:20]}: /history lists them")
    return int(text)


def edited(text: str) -> str:
    """Return a text as it stands when the user has left the editor of $VISUAL or $EDITOR, without blank lines around it.

    Raises:
        UsageError: the editor cannot be started, fails, or leaves something else than UTF-8.
    """
    try:
        return (click.edit(text, extension=".md", require_save=False) or "").strip("\n")
    except (click.ClickException, ValueError) as error:
        reason = " ".join(str(error).split())[:200]
        raise UsageError(
            f"the editor failed ({reason}): set EDITOR to one that runs here"
        ) from None
