#!/bin/sh
# Over llama.cpp's RPC the first pass of each width takes six round trips, and every later one takes one.
#
# One would guess: a pass over RPC costs the same round trips whatever its width is, so that the first pass of a width, or the
# fastest of two, tells what the network costs; and that sending a new graph is what costs, so that a change of width always does.
# What happens: for each operation that may need more room on its device (every matrix product among them), the client asks the
# worker how large its result is, waits for the answer, and keeps it by shape for the life of the process. A new number of tokens has
# new shapes: five questions, one after the other, at 40 ms a round trip 0.2 s. Changing back to a width that was there costs
# one round trip, although the graph is sent again: that needs no answer.
# So whoever times a few passes of each width to find out how long a draft may be, sees passes of two tokens at three times the price
# of single ones, and concludes that drafting cannot pay over a network.
# Version: llama-cpp-python 0.3.36 (ggml 0.25.3) with GGML_RPC=ON, gguf 0.19.0. 30 November 2026. It compiles for some minutes.
# Who meets it: whoever benchmarks or schedules batches, prompts or speculative decoding over RPC with a real network between.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv venv
CMAKE_ARGS=-DGGML_RPC=ON venv/bin/pip install -q llama-cpp-python==0.3.36 gguf==0.19.0 numpy==2.4.6 > pip.log 2>&1
cat > rpc.py <<'PYTHON'
import ctypes
import os
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import gguf
import llama_cpp
import numpy as np

WIDTH, HEADS, FF, LAYERS, TOKENS, DEPTH = 256, 4, 512, 4, 258, 16
LIBRARIES = Path(llama_cpp.__file__).parent / "lib"
POINTER = ctypes.c_void_p


def library(name):
    return ctypes.CDLL(str(LIBRARIES / f"lib{name}.so"))


def serve(port):
    """Be a worker with this machine's CPU."""
    llama_cpp.llama_backend_init()
    base, rpc = library("ggml-base"), library("ggml-rpc")
    by_type = library("ggml").ggml_backend_dev_by_type
    by_type.restype, by_type.argtypes = POINTER, [ctypes.c_int]
    devices = (POINTER * 1)(by_type(0))
    size = ctypes.c_size_t
    rpc.ggml_backend_rpc_start_server.argtypes = [ctypes.c_char_p, ctypes.c_char_p, size, size, POINTER]
    rpc.ggml_backend_rpc_start_server(f"127.0.0.1:{port}".encode(), None, 1, 1, ctypes.cast(devices, POINTER))


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return listener.getsockname()[1]


class Counter:
    """Passes bytes on, and counts how often an answer came behind a request: round trips."""

    def __init__(self, target):
        self.trips, self.asked, self.target = 0, False, target
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.listener.accept()
            far = socket.create_connection(("127.0.0.1", self.target))
            for each in (near, far):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.carry, args=(near, far, True), daemon=True).start()
            threading.Thread(target=self.carry, args=(far, near, False), daemon=True).start()

    def carry(self, source, sink, asks):
        while piece := source.recv(1 << 16):
            if self.asked and not asks:
                self.trips += 1
            self.asked = asks
            sink.sendall(piece)
        sink.shutdown(socket.SHUT_WR)  # the worker waits for one client's end before it serves the next


def write(path):
    """Write a small model with random weights."""
    writer, random = gguf.GGUFWriter(path, "llama"), np.random.default_rng(2)
    writer.add_context_length(4096)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FF)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(TOKENS)

    def add(name, *shape):
        weights = random.normal(size=shape) / np.sqrt(shape[-1])
        writer.add_tensor(f"{name}.weight", weights.astype(np.float32))

    add("token_embd", TOKENS, WIDTH)
    add("output_norm", WIDTH)
    add("output", TOKENS, WIDTH)
    for layer in range(LAYERS):
        for name, *shape in (
            ("attn_norm", WIDTH), ("ffn_norm", WIDTH), ("attn_q", WIDTH, WIDTH), ("attn_k", WIDTH, WIDTH), ("attn_v", WIDTH, WIDTH),
            ("attn_output", WIDTH, WIDTH), ("ffn_gate", FF, WIDTH), ("ffn_up", FF, WIDTH), ("ffn_down", WIDTH, FF),
        ):
            add(f"blk.{layer}.{name}", *shape)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def measure(path, address):
    """Return passes of several widths in turns, with the round trips of each."""
    rpc, base = library("ggml-rpc"), library("ggml-base")
    rpc.ggml_backend_rpc_add_server.restype, rpc.ggml_backend_rpc_add_server.argtypes = POINTER, [ctypes.c_char_p]
    base.ggml_backend_reg_dev_get.restype, base.ggml_backend_reg_dev_get.argtypes = POINTER, [POINTER, ctypes.c_size_t]
    registry = rpc.ggml_backend_rpc_add_server(address.encode())
    params = llama_cpp.llama_model_default_params()
    devices = (POINTER * 2)(base.ggml_backend_reg_dev_get(registry, 0), None)
    params.devices, params.n_gpu_layers = ctypes.cast(devices, POINTER), 99
    model = llama_cpp.llama_model_load_from_file(path.encode(), params)
    assert model, "the model is loaded on the worker"
    options = llama_cpp.llama_context_default_params()
    options.n_ctx, options.n_batch, options.flash_attn_type = 512, 64, 0
    context = llama_cpp.llama_init_from_model(model, options)

    def decode(start, count):
        batch = llama_cpp.llama_batch_init(count, 0, 1)
        batch.n_tokens = count
        for at in range(count):
            batch.token[at], batch.pos[at], batch.n_seq_id[at], batch.seq_id[at][0] = 7, start + at, 1, 0
            batch.logits[at] = True
        before = COUNTER.trips
        assert llama_cpp.llama_decode(context, batch) == 0
        llama_cpp.llama_get_logits_ith(context, count - 1)
        llama_cpp.llama_batch_free(batch)
        time.sleep(0.02)  # what still comes is counted, too
        return COUNTER.trips - before

    decode(0, DEPTH)
    passes = []
    for width in (1, 1, 1, 5, 5, 1, 5, 3, 1, 3, 9, 1, 9):
        llama_cpp.llama_memory_seq_rm(llama_cpp.llama_get_memory(context), 0, DEPTH, -1)
        passes.append((width, decode(DEPTH, width)))
    return passes


if sys.argv[1:2] == ["serve"]:
    serve(int(sys.argv[2]))
    sys.exit(1)
SILENT = llama_cpp.llama_log_callback(lambda *_: None)
llama_cpp.llama_log_set(SILENT, None)
llama_cpp.llama_backend_init()
port = free_port()
worker = subprocess.Popen([sys.executable, __file__, "serve", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
for _ in range(200):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
        break
    except OSError:
        time.sleep(0.1)
COUNTER = Counter(port)
write("model.gguf")
passes = measure("model.gguf", f"127.0.0.1:{COUNTER.port}")
worker.kill()
print("llama-cpp-python", llama_cpp.__version__)
print("width:round trips", *(f"{width}:{trips}" for width, trips in passes))
first, later, seen = set(), set(), {1}
for width, trips in passes[3:]:
    (later if width in seen else first).add(trips)
    seen.add(width)
as_described = first == {6} and later == {1}
print("as described" if as_described else "it has changed")
sys.exit(not as_described)
PYTHON
venv/bin/python rpc.py
