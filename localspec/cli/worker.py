"""`localspec worker`: this machine's devices for a localspec on another one."""

import ipaddress
import signal
import socket
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from localspec.cli import leave
from localspec.cli.option_flags import option_flags
from localspec.display import notice, printable
from localspec.errors import LocalspecError, UsageError
from localspec.llama.handshake import PORT, host_and_port
from localspec.resources import default_threads, free_ram_bytes
from localspec.storage.files import size_text

if TYPE_CHECKING:
    from localspec.llama.devices import Device

_LISTEN = f"127.0.0.1:{PORT}"
_LOOK_S = 0.5


@click.command()
@click.option(
    "--device",
    "names",
    multiple=True,
    metavar="NAME",
    help="Device to serve; can be repeated. Default: all GPUs, or the CPU.",
)
@click.option(
    "--listen",
    default=_LISTEN,
    metavar="HOST:PORT",
    help=f"Where to listen; port 0 picks a free one. Default: {_LISTEN}.",
)
@click.option(
    "--allow",
    is_flag=True,
    help="Accept connections from other machines: without a password, each can use, crash and overhear this worker.",
)
@option_flags("threads")
def worker(names: tuple[str, ...], listen: str, allow: bool, threads: int | None) -> int:
    """Serve this machine's devices to `localspec --workers` on another one.

    \b
        localspec worker                                            # here
        ssh -N -L 50052:127.0.0.1:50052 THIS_MACHINE                # there
        localspec run --workers 127.0.0.1:50052 "Why is the sky blue?"

    llama.cpp's RPC has no password and no encryption: it listens to this machine alone, and SSH
    carries it to the other one. Models stay where they are asked; nothing is written here.
    """  # noqa: D301 - click keeps lines behind a \b
    address, is_loopback = _address(listen, allow=allow)
    # Whoever stops it from outside ends it as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        # llama.cpp comes with them.
        from localspec.llama.rpc_server import served_devices, start_server  # noqa: PLC0415

        served = served_devices(names)
        serving = start_server(address, served, threads or default_threads())
        _tell(address, served, is_loopback=is_loopback)
        while serving.is_alive():
            serving.join(_LOOK_S)
    except KeyboardInterrupt:
        leave(0)  # llama.cpp still waits for a connection
    raise LocalspecError(f"the worker at {address} ended: llama.cpp could not take a connection")


def _address(listen: str, *, allow: bool) -> tuple[str, bool]:
    """Return an IPv4 address that is free, with its port; and whether only this machine reaches it.

    Raises:
        UsageError: it is none, or taken, or others reach it and that is not allowed.
    """
    host, port = host_and_port(listen, "--listen")
    try:
        number = socket.gethostbyname(host)
        is_loopback = ipaddress.ip_address(number).is_loopback
        if not (is_loopback or allow):
            raise UsageError(
                f"--listen {listen} lets other machines connect, and llama.cpp's RPC has no password: "
                "reach this one through SSH, see docs/gpu.md, or give --allow as well"
            )
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind((number, port))
            port = free.getsockname()[1]
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(f"cannot listen on {listen}: {reason}; give another --listen") from None
    return f"{number}:{port}", is_loopback


def _tell(address: str, served: "Sequence[Device]", *, is_loopback: bool) -> None:
    """Say what is served where, and how the other machine comes by it."""
    shown = ", ".join(f"{each.name} ({each.description}, {_free(each)})" for each in served)
    lines = [f"serving {shown} at {address}; Ctrl-C stops it"]
    _, _, port = address.rpartition(":")
    if is_loopback:
        lines.append(
            f"on the other machine: ssh -N -L {port}:{address} {socket.gethostname()}, and there "
            f"localspec run --workers 127.0.0.1:{port}"
        )
    else:
        lines.append(
            f"whoever reaches {address} can use, crash and overhear this worker: llama.cpp's RPC has no password "
            "and no encryption, and its authors call it insecure"
        )
    for line in lines:
        notice(printable(line))


def _free(device: "Device") -> str:
    """Return how much memory is free; of the CPU, llama.cpp tells how much there is."""
    free = device.free_bytes if device.is_gpu else free_ram_bytes()
    return "memory unknown" if free is None else f"{size_text(free)} free"
