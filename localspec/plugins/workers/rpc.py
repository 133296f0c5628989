"""Devices of other machines, over llama.cpp's RPC: what `localspec worker` serves becomes devices here.

Which ones there are holds for the whole process, as llama.cpp has one list of devices. A connection is kept to each
worker that is used: a worker serves one program at a time, and another one must not come between two requests of ours.
"""

import ctypes
import functools
import resource
import threading
from collections.abc import Callable, Sequence

from localspec.api import UsageError
from localspec.llama.backend import initialise, library_function
from localspec.llama.crash_report import blame_instead

NO_RPC = (
    "this build of llama-cpp-python has no RPC: `localspec setup --rpc` makes one that has, "
    "as does installing with CMAKE_ARGS=-DGGML_RPC=ON"
)

_connections: dict[str, int] = {}
"""llama.cpp's backend, which is a connection, of each worker that is used."""
_added: dict[str, int] = {}
"""What llama.cpp has a worker's devices by, of each one that ever was; it forgets none."""


def has_rpc() -> bool:
    """Return whether this build can use workers, and be one."""
    return _rpc() is not None


def rpc_function(name: str, result: type | None, *arguments: type) -> Callable[..., int]:
    """Return a function of llama.cpp's RPC.

    Raises:
        UsageError: this build has no RPC.
    """
    rpc = _rpc()
    if rpc is None:
        raise UsageError(NO_RPC)
    pointer = ctypes.c_void_p
    find = library_function("ggml_backend_reg_get_proc_address", pointer, pointer, ctypes.c_char_p)
    address = find(rpc, name.encode())
    assert address, f"the pinned llama.cpp has {name}"  # noqa: S101
    function: Callable[..., int] = ctypes.CFUNCTYPE(result, *arguments)(address)
    return function


def use_workers(addresses: Sequence[str]) -> None:
    """Have the devices of these workers, and of no others, among the devices of this process.

    What is loaded on others stays there until it is closed.

    Args:
        addresses: HOST:PORT.

    Raises:
        UsageError: this build has no RPC, an address is none, or a worker there does not answer; then nothing changes.
    """
    if not addresses and not _connections:
        return
    from localspec.plugins.workers.handshake import PATIENCE_S, is_gone, require_worker, workers_in  # noqa: PLC0415

    wanted = workers_in(addresses)
    add = rpc_function("ggml_backend_rpc_add_server", ctypes.c_void_p, ctypes.c_char_p)
    new = [each for each in wanted if each not in _connections]
    for each in new:
        require_worker(each)
    # llama.cpp aborts where a worker goes away: no dump of gigabytes for that.
    _, hard = resource.getrlimit(resource.RLIMIT_CORE)
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    blame_instead("ggml-rpc.cpp", lambda: _blame(wanted, is_gone))
    for each in new:
        _within(2 * PATIENCE_S, each, functools.partial(_connect, each, add))
    for each in [each for each in _connections if each not in wanted]:
        library_function("ggml_backend_free", None, ctypes.c_void_p)(_connections.pop(each))
    _register([_added[each] for each in wanted])


def _connect(address: str, add: Callable[..., int]) -> None:
    pointer = ctypes.c_void_p
    reg = add(address.encode())
    get = library_function("ggml_backend_reg_dev_get", pointer, pointer, ctypes.c_size_t)
    init = library_function("ggml_backend_dev_init", pointer, pointer, ctypes.c_char_p)
    _connections[address] = init(get(reg, 0), None)
    _added[address] = reg


def _register(wanted: Sequence[int]) -> None:
    """Have the devices of these workers, in this order, in llama.cpp's list.

    It takes them out by the name that all of them share, and puts in only what it does not know yet.
    """
    register = library_function("ggml_backend_register", None, ctypes.c_void_p)
    unload = library_function("ggml_backend_unload", None, ctypes.c_void_p)
    for each in (*_added.values(), _rpc()):
        unload(each)
    for each in (_rpc(), *wanted):
        register(each)


def _within(seconds: float, address: str, work: Callable[[], None]) -> None:
    """Do something that may never return, since another program can come between."""
    thread = threading.Thread(target=work, daemon=True, name="localspec-worker")
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        raise UsageError(f"worker {address} answered and fell silent: is another program using it?")


def _blame(used: Sequence[str], is_gone: Callable[[str], bool]) -> str:
    """Say which workers are gone."""
    gone = [each for each in used if is_gone(each)]
    if not gone:
        return f"a worker failed, one of {', '.join(used)}, and with it the engine"
    what, verb = ("worker", "is") if len(gone) == 1 else ("workers", "are")
    return f"{what} {' and '.join(gone)} {verb} gone, and with it the engine"


@functools.cache
def _rpc() -> int | None:
    """Return llama.cpp's RPC; asked for once, since it is taken out of the list at times."""
    initialise()
    by_name = library_function("ggml_backend_reg_by_name", ctypes.c_void_p, ctypes.c_char_p)
    rpc: int | None = by_name(b"RPC")
    return rpc
