"""What the commands do that concern the models, the settings and the program."""

from localspec.errors import UsageError
from localspec.models.registry import load_registry
from localspec.ui.front import Front

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


async def editor(front: Front, argument: str) -> None:  # noqa: ARG001
    """Let the user write in an editor of their own."""
    await front.open_editor()


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


async def think(front: Front, argument: str) -> None:  # noqa: ARG001 - every command takes one
    """Show thoughts and long questions, or fold them."""
    front.toggle_thoughts()


async def stats(front: Front, argument: str) -> None:  # noqa: ARG001
    """Show what drafting did, or hide it."""
    front.show_stats()


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


async def race(front: Front, argument: str) -> None:
    """Answer with and without drafting, side by side."""
    front.show_race(argument)


async def stop(front: Front, argument: str) -> None:  # noqa: ARG001
    """Stop what runs."""
    front.tell("stopped" if front.session.stop() else "nothing to stop")


async def restart(front: Front, argument: str) -> None:  # noqa: ARG001
    """Start the engine again."""
    front.session.restart()
    await front.show_conversation(known=True)
    front.tell("restarting the model")
    front.show_loading()


async def theme(front: Front, argument: str) -> None:
    """Change the colours."""
    front.choose_theme(argument)


async def help_(front: Front, argument: str) -> None:  # noqa: ARG001
    """List keys and commands."""
    front.show_help()


async def quit_(front: Front, argument: str) -> None:  # noqa: ARG001
    """End the chat."""
    front.leave()
