#!/usr/bin/env python3
"""Compares `millrace eval perplexity` with transformers on the same weights and text.

    pip install torch transformers gguf sentencepiece
    python3 scripts/checks/perplexity.py build/release/millrace MODEL.gguf TOKENIZER.model TEXT [MAX_TOKENS]

The GGUF must be a Llama with a SentencePiece vocabulary. Weights are read with the `gguf` package and run by transformers in
single precision; tokens come from sentencepiece. Fails when the two differ by more than 0.1 %.
"""
import json
import math
import subprocess
import sys

import gguf
import numpy as np
import sentencepiece
import torch
import transformers


def load(path):
    reader = gguf.GGUFReader(path)
    field = lambda name: reader.fields[name].parts[reader.fields[name].data[0]][0]
    tensors = {t.name: torch.from_numpy(np.array(gguf.dequantize(t.data, t.tensor_type), dtype=np.float32)) for t in reader.tensors}
    heads, kv_heads = int(field("llama.attention.head_count")), int(field("llama.attention.head_count_kv"))
    layers = int(field("llama.block_count"))
    vocab, hidden = tensors["token_embd.weight"].shape
    config = transformers.LlamaConfig(
        vocab_size=vocab, hidden_size=hidden, num_hidden_layers=layers, num_attention_heads=heads,
        num_key_value_heads=kv_heads, intermediate_size=int(field("llama.feed_forward_length")),
        max_position_embeddings=int(field("llama.context_length")),
        rms_norm_eps=float(field("llama.attention.layer_norm_rms_epsilon")),
        tie_word_embeddings="output.weight" not in tensors)
    model = transformers.LlamaForCausalLM(config).eval()

    def unpermute(w, n):  # GGUF keeps rotated pairs side by side, transformers half a head apart
        return w.reshape(n, w.shape[0] // n // 2, 2, w.shape[1]).swapaxes(1, 2).reshape(w.shape)

    state = {"model.embed_tokens.weight": tensors["token_embd.weight"], "model.norm.weight": tensors["output_norm.weight"]}
    state["lm_head.weight"] = tensors.get("output.weight", tensors["token_embd.weight"])
    names = {"attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj",
             "attn_output": "self_attn.o_proj", "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj",
             "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
    for i in range(layers):
        for ours, theirs in names.items():
            w = tensors[f"blk.{i}.{ours}.weight"]
            if ours in ("attn_q", "attn_k"):
                w = unpermute(w, heads if ours == "attn_q" else kv_heads)
            state[f"model.layers.{i}.{theirs}.weight"] = w
    model.load_state_dict(state, strict=True)
    return model, config.max_position_embeddings


def main():
    binary, model_path, vocabulary, text_path = sys.argv[1:5]
    limit = sys.argv[5] if len(sys.argv) > 5 else "20000"
    # The sentencepiece file may say that white space at a text's begin is dropped, for which GGUF has no key.
    text = open(text_path, encoding="utf-8").read().lstrip()
    ours = json.loads(subprocess.run([binary, "eval", "perplexity", "-m", model_path, "-", "--json", "--max-tokens", limit],
                                     input=text, check=True, capture_output=True, text=True).stdout)
    model, context = load(model_path)
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=vocabulary)
    ids = tokenizer.encode(text)[: int(limit)]
    window = min(context, 512)
    total, count = 0.0, 0
    for begin in range(0, len(ids), window - 1):
        part = [tokenizer.bos_id()] + ids[begin : begin + window - 1]
        if len(part) < 2:
            break
        with torch.no_grad():
            logits = model(torch.tensor([part])).logits[0, :-1].double()
        total += torch.nn.functional.cross_entropy(logits, torch.tensor(part[1:]), reduction="sum").item()
        count += len(part) - 1
    theirs = math.exp(total / count)
    difference = abs(ours["perplexity"] / theirs - 1)
    print(f"{text_path}: millrace {ours['perplexity']:.5f} over {ours['tokens']} tokens, transformers {theirs:.5f} over {count}, "
          f"difference {100 * difference:.5f} %")
    return 0 if difference < 1e-3 and ours["tokens"] == count else 1


if __name__ == "__main__":
    sys.exit(main())
