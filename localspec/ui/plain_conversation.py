"""What the slash commands that concern conversations do in the plain form."""

from localspec.errors import UsageError
from localspec.ui.attach import without_files
from localspec.ui.commands import number
from localspec.ui.export import write_export
from localspec.ui.plain import Plain


def new(plain: Plain, argument: str) -> None:  # noqa: ARG001 - every action takes one
    """Leave this conversation and begin another."""
    plain.session.new()
    plain.tell("a new conversation")


def system(plain: Plain, argument: str) -> None:
    """Show, set or take away the system prompt."""
    talk = plain.session.talk
    if argument:
        talk.set_system(None if argument == "-" else argument)
    plain.tell(f"system prompt: {talk.system}" if talk.system else "no system prompt")


def persona(plain: Plain, argument: str) -> None:
    """Take a named system prompt, or list them."""
    personas = plain.preferences.personas
    if argument in personas:
        system(plain, personas[argument])
    elif argument or not personas:
        known = ", ".join(personas) or "none; name some under [personas] in chat.toml"
        raise UsageError(f"there is no persona {argument[:40]!r}: known are {known}")
    else:
        plain.tell(f"personas: {', '.join(personas)}")


def regenerate(plain: Plain, argument: str) -> None:
    """Answer the last question again."""
    if argument and not argument.isdecimal():
        raise UsageError(f"seed is {argument[:40]!r}: it takes a whole number")
    plain.session.regenerate(int(argument) if argument else None)
    plain.answer()


def edit(plain: Plain, argument: str) -> None:
    """Show a question, or ask something else instead of it."""
    numbers = plain.session.talk.numbers()
    which, _, text = argument.partition(" ")
    plain.session.talk.question()
    at = number(which, "question", len(numbers)) if which else len(numbers)
    if not text.strip():
        plain.tell(f"question {at}: {without_files(plain.session.talk.question(at).content)[0]}")
        plain.tell(f"to ask something else instead: /edit {at} TEXT")
        return
    plain.session.ask_instead(at, text.strip())
    plain.answer()


def branch(plain: Plain, argument: str) -> None:
    """Go on in a conversation of its own."""
    talk = plain.session.talk
    if not talk.messages:
        raise UsageError("there is nothing to branch off from: ask something first")
    count = number(argument, "message", len(talk.messages)) if argument else len(talk.messages)
    talk.branch_off(count)
    plain.tell("this is a conversation of its own now; the other one is in the history")


def go_on(plain: Plain, argument: str) -> None:  # noqa: ARG001
    """Let the last answer go on."""
    plain.session.go_on()
    plain.answer()


def history(plain: Plain, argument: str) -> None:
    """List, search, open or delete conversations."""
    talk = plain.session.talk
    word, _, rest = argument.partition(" ")
    if word == "delete" and rest.startswith("#"):
        conversation = _conversation(plain, rest)
        talk.history.delete(conversation)
        if conversation == talk.conversation:
            plain.session.forget()
        plain.tell(f"deleted {rest}")
    elif word.startswith("#"):
        plain.session.open(_conversation(plain, word))
        for each in talk.messages:
            plain.write(f"{'You' if each.role == 'user' else each.model}: {each.content}\n\n")
    else:
        found = talk.history.conversations(argument)
        for stored in found:
            plain.tell(f"#{stored.id} {stored.title or 'untitled'} {stored.excerpt}")
        plain.tell(
            "/history #N opens one, /history delete #N deletes it" if found else "nothing fits"
        )


def _conversation(plain: Plain, text: str) -> int:
    known = {each.id for each in plain.session.talk.history.conversations(limit=1_000_000)}
    if not text[1:].isdecimal() or int(text[1:]) not in known:
        raise UsageError(f"there is no conversation {text[:20]}: /history lists them")
    return int(text[1:])


def rename(plain: Plain, argument: str) -> None:
    """Give the conversation a title."""
    if not argument:
        raise UsageError("there is no title: write one behind /rename")
    plain.session.talk.rename(argument)


def export(plain: Plain, argument: str) -> None:
    """Write the conversation to a file."""
    talk = plain.session.talk
    if talk.conversation is None:
        raise UsageError("this conversation is empty: there is nothing to export")
    path = write_export(talk.history, talk.conversation, argument, plain.session.folder)
    plain.tell(f"written to {path}")


def drop(plain: Plain, argument: str) -> None:  # noqa: ARG001
    """Leave the oldest turns out of the context."""
    plain.tell("the oldest turns are left out of the context from now on; the system prompt stays")
    if plain.session.leave_out_oldest():
        plain.answer()
