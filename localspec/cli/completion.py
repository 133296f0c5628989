"""`localspec completion`: what a shell needs to complete commands and options."""

import click
from click.shell_completion import get_completion_class

_SHELLS = ("bash", "zsh", "fish")
_VARIABLE = "_LOCALSPEC_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(_SHELLS))
def completion(shell: str) -> None:
    """Print the completion script of SHELL. It completes commands, options and names of models.

    \b
        eval "$(localspec completion bash)"           in ~/.bashrc
        eval "$(localspec completion zsh)"            in ~/.zshrc
        localspec completion fish | source            in ~/.config/fish/config.fish
    """  # noqa: D301 - click keeps lines behind a \b
    root = click.get_current_context().find_root().command
    kind = get_completion_class(shell)
    assert kind is not None  # noqa: S101 - one of ours
    click.echo(kind(root, {}, "localspec", _VARIABLE).source())
