"""`localspec worker`: this machine's devices for another machine."""

import ipaddress
import signal
import socket
from collections.abc import Sequence
from dataclasses import dataclass

import click

from localspec import api
from localspec.cli import leave
from localspec.cli.options import several
from localspec.display import printable
from localspec.llama.devices import Device
from localspec.plugins.workers.handshake import PORT, host_and_port
from localspec.plugins.workers.rpc_server import served_devices, start_server
from localspec.resources import default_threads, free_ram_bytes

_LISTEN = f"127.0.0.1:{PORT}"
_LOOK_S = 0.5


@dataclass(frozen=True, slots=True)
class WorkerFlags:
    """Flags of `worker` alone.

    Args:
        names: Device to serve; can be repeated. Default: all GPUs, or the CPU.
        allow: Accept connections from other machines. There is no password: each can use, crash and eavesdrop on this worker.
    """

    names: tuple[str, ...] = several("--device", "NAME")
    listen: str = api.flag(
        "HOST:PORT",
        default=_LISTEN,
        help=f"Where to listen; port 0 picks a free one. Default: {_LISTEN}.",
    )
    allow: bool = api.switch()


@click.command()
@api.flags(lending=WorkerFlags)
@api.option_flags("threads")
def worker(lending: WorkerFlags, threads: int | None) -> int:
    """Let another machine use this one's devices, with `localspec run --workers`.

    \b
        localspec worker                                            # here
        ssh -N -L 50052:127.0.0.1:50052 THIS_MACHINE                # there
        localspec run --workers 127.0.0.1:50052 "Why is the sky blue?"

    llama.cpp's RPC has no password and no encryption, so the worker only listens on this machine,
    and SSH forwards the port. Model files stay on the other machine; nothing is written here.
    """  # noqa: D301 - click keeps lines behind a \b
    address, is_loopback = _address(lending.listen, allow=lending.allow)
    # SIGTERM ends it as Ctrl-C does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        served = served_devices(lending.names)
        serving = start_server(address, served, threads or default_threads())
        _print_address(address, served, is_loopback=is_loopback)
        while serving.is_alive():
            serving.join(_LOOK_S)
    except KeyboardInterrupt:
        leave(0)  # llama.cpp still waits for a connection
    raise api.LocalspecError(
        f"the worker at {address} ended: llama.cpp could not take a connection"
    )


def _address(listen: str, *, allow: bool) -> tuple[str, bool]:
    """Return a free IPv4 address with its port, and whether it is only reachable from this machine.

    Raises:
        UsageError: it is wrong, taken, or reachable from other machines without being allowed.
    """
    host, port = host_and_port(listen, "--listen")
    try:
        number = socket.gethostbyname(host)
        is_loopback = ipaddress.ip_address(number).is_loopback
        if not (is_loopback or allow):
            raise api.UsageError(
                f"--listen {listen} lets other machines connect, and llama.cpp's RPC has no password: "
                "use SSH, see docs/gpu.md, or add --allow"
            )
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as free:
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind((number, port))
            port = free.getsockname()[1]
    except OSError as error:
        reason = error.strerror or str(error)
        raise api.UsageError(
            f"cannot listen on {listen}: {reason}; give another --listen"
        ) from None
    return f"{number}:{port}", is_loopback


def _print_address(address: str, served: Sequence[Device], *, is_loopback: bool) -> None:
    """Print the devices, the address, and how the other machine connects."""
    devices = ", ".join(f"{each.name} ({each.description}, {_free(each)})" for each in served)
    lines = [f"serving {devices} at {address}; Ctrl-C stops it"]
    _, _, port = address.rpartition(":")
    if is_loopback:
        lines.append(
            f"on the other machine: ssh -N -L {port}:{address} {socket.gethostname()}, and there "
            f"localspec run --workers 127.0.0.1:{port}"
        )
    else:
        lines.append(
            f"anyone who reaches {address} can use, crash and eavesdrop on this worker: llama.cpp's RPC has no password "
            "and no encryption, and its authors call it insecure"
        )
    api.notice(*map(printable, lines))


def _free(device: Device) -> str:
    """Return how much memory is free; llama.cpp only knows the size of the CPU's."""
    free = device.free_bytes if device.is_gpu else free_ram_bytes()
    return "memory unknown" if free is None else f"{api.size_text(free)} free"
