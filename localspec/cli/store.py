"""`localspec store`: what was said before, kept to draft from."""

import json
from pathlib import Path

import click

from localspec.cli.completions import complete_models
from localspec.display import notice
from localspec.errors import LocalspecError, UsageError
from localspec.storage.files import private_directory, size_text, write_atomic
from localspec.storage.paths import data_dir, shown
from localspec.storage.token_log import FILE, USUAL_MEGABYTES, TokenLog
from localspec.storage.token_log import wipe as wiped


@click.group(invoke_without_command=True)
@click.pass_context
def store(context: click.Context) -> None:
    """Keep what models said in your conversations, and draft from it in later ones.

    Off until you turn it on. Only conversations that the history keeps enter the store, and
    deleting one removes it from there, too. Nothing leaves this machine.
    """
    if context.invoked_subcommand is None:
        context.invoke(status)


@store.command()
@click.option("--json", "json_", is_flag=True, help="Print one JSON object.")
def status(json_: bool) -> None:
    """Show whether the store is on, and how much is in it."""
    path, is_on = _directory() / FILE, _switch().exists()
    try:
        tokens, room, owners = TokenLog(path).figures()
        size = path.stat().st_blocks * 512 if path.exists() else 0
    except OSError as error:
        raise _trouble(error) from error
    if json_:
        document = {"on": is_on, "tokens": tokens, "room": room, "texts": owners, "bytes": size}
        click.echo(json.dumps({**document, "path": str(path)}))
        return
    click.echo("on" if is_on else "off: turn it on with `localspec store on`")
    if owners:
        click.echo(
            f"up to {tokens} tokens of {owners} conversations and files, room for {room}; "
            f"{size_text(size)} in {shown(path)}"
        )


@store.command()
@click.option(
    "--megabytes",
    type=click.IntRange(1, 4096),
    metavar="N",
    help=f"Size of the store; the oldest text is overwritten. Default: {USUAL_MEGABYTES}.",
)
def on(megabytes: int | None) -> None:
    """Keep what is said from now on, and draft from it."""
    if megabytes is not None and (_directory() / FILE).exists():
        raise UsageError(
            "the store has its size already: `localspec store wipe` removes it, then set another"
        )
    try:
        private_directory(_directory())
        if megabytes is not None or not _switch().exists():
            write_atomic(_switch(), str(megabytes or USUAL_MEGABYTES).encode())
    except OSError as error:
        raise _trouble(error) from error
    notice("on, for whatever is started from now on")


@store.command()
def off() -> None:
    """Keep nothing more, and draft nothing from it.

    `localspec store wipe` removes what is in it.
    """
    try:
        _switch().unlink(missing_ok=True)
    except OSError as error:
        raise _trouble(error) from error
    notice("off, for whatever is started from now on")


@store.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, path_type=Path))
@click.option(
    "-m", "--model", metavar="NAME", shell_complete=complete_models, help="Model to add them for."
)
def add(files: tuple[Path, ...], model: str | None) -> None:
    """Add FILES or folders for a model to draft from.

    Of a folder, all text files are added. A file that was added before is replaced. Other models with the same vocabulary have them, too.
    """
    from localspec.cli.settings import configured  # noqa: PLC0415 - settings, and all that loads
    from localspec.launch.plan import make_plan  # noqa: PLC0415
    from localspec.launch.store import add_files  # noqa: PLC0415
    from localspec.options import LaunchOptions  # noqa: PLC0415

    if not _switch().exists():
        raise UsageError("the store is off: turn it on with `localspec store on`")
    found = configured({"model": model, "pair": None, "target": None})
    request = LaunchOptions(pair=found["pair"], target=found["target"], draft="off", fit=False)
    added = [tokens for _, tokens in add_files(files, make_plan(request).target)]
    notice(f"added {len(added)} files, {sum(added)} tokens")


@store.command()
def wipe() -> None:
    """Overwrite the store and remove it.

    Whether it is on stays as it is.
    """
    try:
        found = wiped(_directory() / FILE)
    except OSError as error:
        raise _trouble(error) from error
    notice("everything is removed" if found else "the store was empty")


def _directory() -> Path:
    return data_dir() / "store"


def _switch() -> Path:
    return _directory() / "on"


def _trouble(error: OSError) -> LocalspecError:
    return LocalspecError(
        f"{shown(_directory() / FILE)} cannot be used ({error.strerror}): check it, or remove it with `localspec store wipe`"
    )
