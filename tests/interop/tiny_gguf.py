"""Writes a random model of a few kilobytes in GGUF form; run by the Python that has `gguf` and `numpy`."""

from __future__ import annotations

import sys

import gguf
import numpy as np

WIDTH, HEADS, INNER = 32, 2, 64
TOKENS = [b"<unk>", b"<s>", b"</s>", *(b"<0x%02X>" % i for i in range(256)), *(b"w%d " % i for i in range(61))]
KINDS = [2, 3, 3, *[6] * 256, *[1] * 61]


def write(path: str) -> None:
    """One layer, random weights, a vocabulary of bytes and a few words."""
    model = gguf.GGUFWriter(path, "llama")
    model.add_context_length(2048)
    model.add_embedding_length(WIDTH)
    model.add_block_count(1)
    model.add_feed_forward_length(INNER)
    model.add_head_count(HEADS)
    model.add_head_count_kv(HEADS)
    model.add_layer_norm_rms_eps(1e-5)
    model.add_rope_dimension_count(WIDTH // HEADS)
    model.add_file_type(0)
    model.add_vocab_size(len(TOKENS))
    model.add_tokenizer_model("llama")
    model.add_token_list(TOKENS)
    model.add_token_scores([-float(max(0, i - 258)) for i in range(len(TOKENS))])
    model.add_token_types(KINDS)
    model.add_bos_token_id(1)
    model.add_eos_token_id(2)
    model.add_unk_token_id(0)
    random = np.random.default_rng(1)
    shapes = {
        "token_embd": (len(TOKENS), WIDTH), "output": (len(TOKENS), WIDTH),
        "blk.0.attn_q": (WIDTH, WIDTH), "blk.0.attn_k": (WIDTH, WIDTH), "blk.0.attn_v": (WIDTH, WIDTH),
        "blk.0.attn_output": (WIDTH, WIDTH), "blk.0.ffn_gate": (INNER, WIDTH), "blk.0.ffn_up": (INNER, WIDTH),
        "blk.0.ffn_down": (WIDTH, INNER),
    }  # fmt: skip
    for name, shape in shapes.items():
        model.add_tensor(f"{name}.weight", (random.standard_normal(shape) * 0.1).astype(np.float32))
    for name in ("output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"):
        model.add_tensor(f"{name}.weight", np.ones(WIDTH, np.float32))
    model.write_header_to_file()
    model.write_kv_data_to_file()
    model.write_tensors_to_file()
    model.close()


if __name__ == "__main__":
    write(sys.argv[1])
