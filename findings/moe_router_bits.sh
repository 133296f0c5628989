#!/bin/sh
# A quantised mixture of experts gives a token other bits in a pass of two than alone, on a CPU, and its logits mostly hide it.
#
# One would guess: on a CPU each column of a matrix product is added up by itself, so a token has the same bits alone and beside
# another one (a dense Q8_0 file does hold that), and to know whether a file does, one compares logits.
# What happens: the router (ffn_gate_inp) is F32 in every GGUF that llama.cpp's tools write, and F32 has another kernel from two
# columns on, which adds up in another order. The last bits of the experts' weights change. Before the next matrix everything is
# rounded to 8 bits, so nearly all rows of logits are equal to the bit (of one file all of some hundreds, of the next a few not): to
# compare logits proves nothing. Some dozens of tokens later a value stands at the edge of its rounding, and a greedy text goes
# another way: here half of them within 100 tokens, though every last hidden row differed from the first pass on. With the router
# in Q8_0 and all else equal, nothing differs, nor does it in a dense file.
# Version: llama.cpp 0.5.0 as @node-llama-cpp/linux-x64 3.22.1 has it, gguf 0.19.0. 29 November 2026.
# Who meets it: whoever verifies drafts, batches requests, or promises equal text from a mixture of experts on a CPU.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
npm install --silent --no-audit --no-fund @node-llama-cpp/linux-x64@3.22.1 > npm.log 2>&1
python3 -m venv venv
venv/bin/pip install -q gguf==0.19.0 numpy==2.4.6 > pip.log 2>&1
cat > bits.py <<'PYTHON'
import ctypes
import os
import sys
from pathlib import Path

import gguf
import numpy as np

WIDTH, HEADS, KV_HEADS, HEAD, FF, EXPERTS, USED, LAYERS, TOKENS = 256, 4, 2, 64, 256, 8, 2, 8, 257
F32, Q8_0 = gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.Q8_0
BINS = Path("node_modules/@node-llama-cpp/linux-x64/bins/linux-x64").resolve()
PASSES, DEPTH, TEXTS = 40, 60, 12


def write(path, router, experts=True):
    """Write a model with random weights in Q8_0, whose router has a type of its own."""
    arch = "qwen3moe" if experts else "qwen3"
    writer, random = gguf.GGUFWriter(path, arch), np.random.default_rng(2)
    writer.add_context_length(4096)
    writer.add_embedding_length(WIDTH)
    writer.add_feed_forward_length(FF)
    writer.add_block_count(LAYERS)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(HEAD)
    writer.add_rope_freq_base(10000.0)
    if experts:
        writer.add_expert_count(EXPERTS)
        writer.add_expert_used_count(USED)
        writer.add_expert_feed_forward_length(FF)
    writer.add_tokenizer_model("no_vocab")
    writer.add_vocab_size(TOKENS)

    def add(name, *shape, kind=Q8_0, size=1.0):
        weights = random.normal(size=shape)
        if len(shape) == 1:
            weights, kind = 1 + 0.1 * weights, F32
        elif name != "token_embd":
            weights *= size / np.sqrt(shape[-1])
        data = weights.astype(np.float32)
        if kind != F32:
            data = gguf.quants.quantize(data, kind)
        writer.add_tensor(f"{name}.weight", data, raw_dtype=kind)

    add("token_embd", TOKENS, WIDTH)
    add("output_norm", WIDTH)
    add("output", TOKENS, WIDTH)
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        for norm in ("attn_norm", "ffn_norm"):
            add(at + norm, WIDTH)
        for norm in ("attn_q_norm", "attn_k_norm"):
            add(at + norm, HEAD)
        add(at + "attn_q", HEADS * HEAD, WIDTH)
        add(at + "attn_k", KV_HEADS * HEAD, WIDTH)
        add(at + "attn_v", KV_HEADS * HEAD, WIDTH)
        add(at + "attn_output", WIDTH, HEADS * HEAD, size=0.6)
        if experts:
            add(at + "ffn_gate_inp", EXPERTS, WIDTH, kind=router)
            add(at + "ffn_gate_exps", EXPERTS, FF, WIDTH)
            add(at + "ffn_up_exps", EXPERTS, FF, WIDTH)
            add(at + "ffn_down_exps", EXPERTS, WIDTH, FF, size=0.6)
        else:
            add(at + "ffn_gate", FF, WIDTH)
            add(at + "ffn_up", FF, WIDTH)
            add(at + "ffn_down", WIDTH, FF, size=0.6)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


class Params(ctypes.Structure):
    """Either of llama.cpp's structs of parameters, and room behind it: x86-64 passes both in memory."""

    _fields_ = [("numbers", ctypes.c_uint32 * 160)]


class Batch(ctypes.Structure):
    _fields_ = [("n_tokens", ctypes.c_int32), *((name, ctypes.c_void_p) for name in "abcdef")]


class Model:
    def __init__(self, path):
        llama, pointer = LLAMA, ctypes.c_void_p
        for name in ("llama_model_default_params", "llama_context_default_params"):
            getattr(llama, name).restype = Params
        llama.llama_model_load_from_file.argtypes = [ctypes.c_char_p, Params]
        llama.llama_init_from_model.argtypes = [pointer, Params]
        for name in ("model_load_from_file", "init_from_model", "get_memory"):
            getattr(llama, f"llama_{name}").restype = pointer
        llama.llama_get_memory.argtypes = [pointer]
        llama.llama_memory_seq_rm.argtypes = [pointer, *3 * [ctypes.c_int32]]
        llama.llama_batch_get_one.argtypes = [pointer, ctypes.c_int32]
        llama.llama_batch_get_one.restype = Batch
        llama.llama_decode.argtypes = [pointer, Batch]
        llama.llama_set_n_threads.argtypes = [pointer, *2 * [ctypes.c_int32]]
        llama.llama_set_embeddings.argtypes = [pointer, ctypes.c_bool]
        self.row = {}
        for kind in ("embeddings", "logits"):
            function = self.row[kind] = getattr(llama, f"llama_get_{kind}_ith")
            function.argtypes = [pointer, ctypes.c_int32]
            function.restype = ctypes.POINTER(ctypes.c_float)
        weights = llama.llama_model_load_from_file(path.encode(), llama.llama_model_default_params())
        params = llama.llama_context_default_params()
        params.numbers[0] = 4096  # n_ctx
        self.context = llama.llama_init_from_model(weights, params)
        llama.llama_set_n_threads(self.context, 1, 1)
        llama.llama_set_embeddings(self.context, True)

    def decode(self, tokens):
        """Return the last hidden row and the logits of each token of a pass."""
        array = (ctypes.c_int32 * len(tokens))(*tokens)
        assert LLAMA.llama_decode(self.context, LLAMA.llama_batch_get_one(array, len(tokens))) == 0
        shapes = {"embeddings": WIDTH, "logits": TOKENS}
        return [
            [np.ctypeslib.as_array(self.row[kind](self.context, at), (size,)).copy() for kind, size in shapes.items()]
            for at in range(len(tokens))
        ]

    def keep(self, count):
        LLAMA.llama_memory_seq_rm(LLAMA.llama_get_memory(self.context), 0, count, -1)


def compare(path):
    """Count rows that differ in passes of two, hidden ones and logits, behind some tokens; and where a greedy text forks."""
    model, hidden, logits = Model(path), 0, 0
    text = [int(each) for each in np.random.default_rng(1).integers(0, 256, 2 * PASSES + DEPTH)]
    model.decode(text[:DEPTH])
    for at in range(DEPTH, DEPTH + 2 * PASSES, 2):
        alone = [model.decode(text[place : place + 1])[0] for place in (at, at + 1)]
        model.keep(at)
        for single, paired in zip(alone, model.decode(text[at : at + 2])):
            hidden += single[0].tobytes() != paired[0].tobytes()
            logits += single[1].tobytes() != paired[1].tobytes()
    forks = sum(fork(model, seed) for seed in range(TEXTS))
    return hidden, logits, forks


def fork(model, seed):
    """Return whether a greedy text of 100 tokens goes another way where it is verified two tokens at a time."""
    prompt = [int(each) for each in np.random.default_rng(100 + seed).integers(0, 256, 20)]

    def likeliest(logits):
        return int(np.argmax(logits))

    model.keep(0)
    single = [likeliest(model.decode(prompt)[-1][1])]
    while len(single) < 101:
        single.append(likeliest(model.decode(single[-1:])[0][1]))
    model.keep(0)
    model.decode(prompt)
    for at in range(0, 100, 2):
        rows = model.decode(single[at : at + 2])
        if [likeliest(row[1]) for row in rows] != single[at + 1 : at + 3]:
            return True
    return False


os.chdir(BINS)  # its CPU variants are looked for here
here = Path(sys.argv[1])
LLAMA = ctypes.CDLL(str(BINS / "libllama.v0.5.0.so"))
SILENT = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
LLAMA.llama_log_set(SILENT, None)
LLAMA.llama_backend_init()
ggml = ctypes.CDLL(str(BINS / "libggml.v0.5.0.so"))
ggml.ggml_backend_load_all_from_path(str(BINS).encode())
found = {}
for name, router, experts in (("experts, router in F32", F32, True), ("experts, router in Q8_0", Q8_0, True), ("dense", F32, False)):
    path = str(here / f"{len(found)}.gguf")
    write(path, router, experts)
    found[name] = compare(path)
    print(f"{name}: of {2 * PASSES} rows in passes of two, {found[name][0]} hidden ones and {found[name][1]} of logits differ from those of single tokens; {found[name][2]} of {TEXTS} greedy texts fork")
(hidden, logits, forks), *others = found.values()
as_described = hidden > PASSES and logits < hidden and not any(map(sum, others))
print("as described" if as_described else "it has changed")
sys.exit(0 if as_described else 1)
PYTHON
venv/bin/python bits.py "$folder"
