#!/usr/bin/env python3
"""Tiny checkpoints in configurations that the fixtures do not have, made and saved by transformers, against `millrace logits`.

usage: configurations.py [--millrace build/release/millrace] [--only TEXT] [--keep DIR] [--isa avx2]
       configurations.py --write    (tests/models/configurations: those that showed a mistake once)

Each line: the largest difference of any logit by the spread of the reference's logits (double precision), for the whole prompt
at once and in chunks of seven. The bound is 1e-4; weights stored in 16 bits are read by both sides as they are stored. BF16 weights
that the machine multiplies as such (`--isa amx`, avx512 with its BF16 form) round the activations too: there the rows' lower
quartile may not exceed that of the modelling code itself when it runs in bfloat16. (The largest is of no use: rounding turns a
close choice of experts now and then, in either program, and that row is another.) `--isa avx2` computes in single precision.
"""
import argparse
import json
import pathlib
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts" / "fixtures"))
import torch  # noqa: E402
import transformers  # noqa: E402

from models import BASE, FAMILIES, LLAMA3, VOCAB, YARN, randomise  # noqa: E402

transformers.logging.set_verbosity_error()
transformers.logging.disable_progress_bar()


def scaled(kind, **more):
    return dict(rope_parameters={"rope_type": kind, "rope_theta": 10000.0, **more})


MLA = dict(num_key_value_heads=6, num_attention_heads=6, hidden_size=48)
# name: (fixture to start from, changes, form)
CASES = {
    "llama one kv head": ("llama", dict(num_key_value_heads=1)),
    "llama kv heads null": ("llama", dict(num_key_value_heads=None)),
    "llama all heads": ("llama", dict(hidden_size=48, num_attention_heads=6, num_key_value_heads=6)),
    "llama head_dim 24, 2 heads": ("llama", dict(num_attention_heads=2, num_key_value_heads=1, head_dim=24)),
    "llama tied": ("llama", dict(tie_word_embeddings=True)),
    "llama odd vocabulary": ("llama", dict(vocab_size=101)),
    "llama one layer, epsilon 1e-3": ("llama", dict(num_hidden_layers=1, rms_norm_eps=1e-3)),
    "llama gelu": ("llama", dict(hidden_act="gelu")),
    "llama gelu_pytorch_tanh": ("llama", dict(hidden_act="gelu_pytorch_tanh")),
    "llama theta 5e5": ("llama", dict(rope_parameters={"rope_type": "default", "rope_theta": 5e5})),
    "llama bf16": ("llama", {}, dict(dtype=torch.bfloat16)),
    "llama f16": ("llama", {}, dict(dtype=torch.float16)),
    "llama sharded": ("llama", dict(num_hidden_layers=4), dict(shard="40KB")),
    "llama sharded bf16 tied": ("llama", dict(tie_word_embeddings=True), dict(shard="20KB", dtype=torch.bfloat16)),
    "llama linear 2.5": ("llama", scaled("linear", factor=2.5)),
    "llama yarn attention_factor": ("llama", scaled("yarn", factor=8.0, original_max_position_embeddings=16, attention_factor=1.3)),
    "llama yarn beta": ("llama", scaled("yarn", factor=4.0, original_max_position_embeddings=32, beta_fast=16, beta_slow=2)),
    "llama yarn without original": ("llama", dict(max_position_embeddings=32, **scaled("yarn", factor=2.0))),
    "llama llama3 factors": ("llama", scaled("llama3", factor=32.0, low_freq_factor=1.0, high_freq_factor=2.0, original_max_position_embeddings=16)),
    "mistral window 5": ("mistral", dict(sliding_window=5)),
    "mistral window null": ("mistral", dict(sliding_window=None)),
    "mistral head_dim 20": ("mistral", dict(head_dim=20)),
    "mistral window beyond text": ("mistral", dict(sliding_window=4096)),
    "qwen2 window from layer 1": ("qwen2", dict(use_sliding_window=True, sliding_window=8, max_window_layers=1, num_hidden_layers=3)),
    "qwen2 tied": ("qwen2", dict(tie_word_embeddings=True)),
    "qwen2 yarn": ("qwen2", dict(rope_parameters=dict(YARN))),
    "qwen3 attention_bias": ("qwen3", dict(attention_bias=True)),
    "qwen3 tied bf16": ("qwen3", dict(tie_word_embeddings=True), dict(dtype=torch.bfloat16)),
    "gemma one kv head": ("gemma", dict(num_key_value_heads=1, head_dim=20)),
    "gemma2 no caps": ("gemma2", dict(attn_logit_softcapping=None, final_logit_softcapping=None)),
    "gemma2 window 4, 5 layers": ("gemma2", dict(sliding_window=4, num_hidden_layers=5)),
    "gemma3 linear": ("gemma3", dict(rope_parameters={"full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                                                      "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})),
    "gemma3 bidirectional off, 3 layers": ("gemma3", dict(num_hidden_layers=3, layer_types=["full_attention", "sliding_attention", "full_attention"])),
    "phi heads 8, qk norm": ("phi", dict(num_attention_heads=8, num_key_value_heads=8, hidden_size=64, qk_layernorm=True)),
    "phi grouped": ("phi", dict(num_key_value_heads=1, partial_rotary_factor=1.0)),
    "phi3 window 6": ("phi3", dict(sliding_window=6)),
    "phi3 partial rotary, grouped, tied": ("phi3", dict(rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.75}, partial_rotary_factor=0.75,
                                                        hidden_size=64, num_key_value_heads=1, tie_word_embeddings=True)),
    "gpt2 inner, gelu, untied": ("gpt2", dict(n_inner=40, activation_function="gelu", tie_word_embeddings=False)),
    "gpt2 scale by layer": ("gpt2", dict(scale_attn_by_inverse_layer_idx=True)),
    "gpt2 unscaled attention": ("gpt2", dict(scale_attn_weights=False)),
    "gpt_neox no bias": ("gpt_neox", dict(attention_bias=False)),
    "gpt_neox gelu_fast": ("gpt_neox", dict(hidden_act="gelu_fast", rotary_pct=0.5)),
    "gpt_neox tied": ("gpt_neox", dict(tie_word_embeddings=True)),
    "opt gelu, untied": ("opt", dict(activation_function="gelu", tie_word_embeddings=False)),
    "opt no bias": ("opt", dict(enable_bias=False)),
    # Eager attention adds ALiBi twice in this version of the library.
    "falcon alibi": ("falcon", dict(alibi=True, multi_query=False, parallel_attn=False, bias=True), dict(attention="sdpa")),
    "falcon alibi, 6 heads": ("falcon", dict(alibi=True, hidden_size=48, num_attention_heads=6, parallel_attn=False), dict(attention="sdpa")),
    "falcon sequential, bias": ("falcon", dict(parallel_attn=False, bias=True)),
    "falcon multi-head": ("falcon", dict(multi_query=False)),
    "falcon2 one norm": ("falcon-40b", dict(num_ln_in_parallel_attn=1)),
    "bloom 6 heads": ("bloom", dict(n_head=6, hidden_size=48)),
    "mpt 6 heads, wide": ("mpt", dict(d_model=48, n_heads=6, expansion_ratio=3)),
    "mpt clip": ("mpt", dict(attn_config={"clip_qkv": 0.5, "attn_type": "multihead_attention"})),
    "mpt softmax scale": ("mpt", dict(attn_config={"softmax_scale": 0.3})),
    "stablelm no bias": ("stablelm", dict(use_qkv_bias=False, partial_rotary_factor=1.0)),
    "starcoder2 no bias, window null": ("starcoder2", dict(use_bias=False, sliding_window=None, tie_word_embeddings=False)),
    "olmo no clip": ("olmo", dict(clip_qkv=None, tie_word_embeddings=True)),
    "olmo2 bias": ("olmo2", dict(attention_bias=True, num_key_value_heads=4)),
    "olmo3 yarn": ("olmo3", dict(rope_parameters={"full_attention": YARN, "sliding_attention": {"rope_type": "default", "rope_theta": 20000.0}})),
    "olmo3 settings beside those by layer": ("olmo3", dict(rope_parameters=dict(YARN))),
    "granite tied, bias": ("granite", dict(tie_word_embeddings=True, attention_bias=True, mlp_bias=True)),
    "glm no bias, wide heads": ("glm", dict(attention_bias=False, head_dim=16)),
    "glm4 full rotary": ("glm4", dict(rope_parameters={"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 1.0}, partial_rotary_factor=1.0)),
    "cohere bias": ("cohere", dict(attention_bias=True)),
    "cohere2 pattern 2": ("cohere2", dict(sliding_window_pattern=2, layer_types=None, sliding_window=6)),
    "smollm3 window": ("smollm3", dict(no_rope_layers=[1, 0, 1, 0])),
    "ernie4_5 bias, untied": ("ernie4_5", dict(use_bias=True, tie_word_embeddings=False)),
    "nemotron tied, bias": ("nemotron", dict(tie_word_embeddings=True, attention_bias=True, mlp_bias=True)),
    "exaone4 full layers": ("exaone4", dict(layer_types=["full_attention"] * 4)),
    "mixtral one of eight, window": ("mixtral", dict(num_local_experts=8, num_experts_per_tok=1, sliding_window=7)),
    "mixtral sharded bf16": ("mixtral", {}, dict(shard="40KB", dtype=torch.bfloat16)),
    "qwen2_moe norm, dense layer": ("qwen2_moe", dict(norm_topk_prob=True, mlp_only_layers=[0])),
    "qwen2_moe sparse step 2": ("qwen2_moe", dict(decoder_sparse_step=2, num_hidden_layers=4)),
    "qwen3_moe no norm": ("qwen3_moe", dict(norm_topk_prob=False, num_experts_per_tok=4)),
    "qwen3_moe dense layer": ("qwen3_moe", dict(mlp_only_layers=[1], attention_bias=True)),
    "olmoe norm, clip": ("olmoe", dict(norm_topk_prob=True, clip_qkv=0.8, num_key_value_heads=4)),
    "gpt_oss full layers": ("gpt_oss", dict(layer_types=["full_attention", "full_attention"], num_experts_per_tok=4)),
    "deepseek_v2 heads 6": ("deepseek_v2", dict(**MLA, num_experts_per_tok=3)),
    "deepseek_v2 dense only": ("deepseek_v2", dict(first_k_dense_replace=3)),
    "deepseek_v2 yarn": ("deepseek_v2", scaled("yarn", factor=40.0, mscale=0.707, mscale_all_dim=0.707, beta_fast=32, beta_slow=1, original_max_position_embeddings=16)),
    "deepseek_v2 norm topk": ("deepseek_v2", dict(norm_topk_prob=True, routed_scaling_factor=3.0)),
    "deepseek_v2 attention bias": ("deepseek_v2", dict(attention_bias=True)),
    "deepseek_v3 no q rank, 6 heads": ("deepseek_v3", dict(**MLA, q_lora_rank=None)),
    "deepseek_v3 one group": ("deepseek_v3", dict(n_group=1, topk_group=1, norm_topk_prob=False)),
    "deepseek_v3 not interleaved": ("deepseek_v3", dict(rope_interleave=False)),
    "deepseek_v3 two shared, all sparse": ("deepseek_v3", dict(n_shared_experts=2, first_k_dense_replace=0)),
    "deepseek_v3 bf16 sharded": ("deepseek_v3", {}, dict(shard="60KB", dtype=torch.bfloat16)),
    "mamba bias, no conv bias": ("mamba", dict(use_bias=True, use_conv_bias=False)),
    "mamba kernel 3, untied": ("mamba", dict(conv_kernel=3, tie_word_embeddings=False, state_size=5)),
    "mamba tied, expand 3": ("mamba", dict(expand=3, tie_word_embeddings=True, intermediate_size=96)),
    "mamba2 one group, limits": ("mamba2", dict(n_groups=1, time_step_limit=(0.05, 0.4), state_size=24)),
    "mamba2 bias, tied": ("mamba2", dict(use_bias=True, tie_word_embeddings=True)),
    "mamba2 heads 4 of 16": ("mamba2", dict(num_heads=4, head_dim=16, n_groups=4)),
    "jamba dense only": ("jamba", dict(num_experts=1, num_experts_per_tok=1, expert_layer_period=2)),
    "jamba period 3, proj bias": ("jamba", dict(num_hidden_layers=6, attn_layer_period=3, attn_layer_offset=0, mamba_proj_bias=True, mamba_conv_bias=False)),
    "qwen3_next 4 keys, dense layer": ("qwen3_next", dict(linear_num_key_heads=4, mlp_only_layers=[0])),
    "qwen3_next ratio 4, kernel 3": ("qwen3_next", dict(linear_num_key_heads=1, linear_conv_kernel_dim=3, norm_topk_prob=False)),
    "qwen3_next wide values": ("qwen3_next", dict(linear_value_head_dim=12, linear_key_head_dim=6)),
    "qwen3_next tied": ("qwen3_next", dict(tie_word_embeddings=True, layer_types=["full_attention", "linear_attention", "linear_attention", "full_attention"])),
    "arcee tied, bias": ("arcee", dict(tie_word_embeddings=True, attention_bias=True, mlp_bias=True)),
    "seed_oss no bias, tied": ("seed_oss", dict(attention_bias=False, tie_word_embeddings=True)),
    "llama3 theta, tied, one kv head, bf16": ("llama3-rope", dict(num_key_value_heads=1, rope_parameters=dict(LLAMA3)), dict(dtype=torch.bfloat16)),
}


OUT = ROOT / "tests" / "models" / "configurations"
WRITTEN = ["llama gelu", "phi heads 8, qk norm", "gpt2 scale by layer", "falcon alibi", "mpt softmax scale", "olmo3 yarn", "granite tied, bias", "olmoe norm, clip",
           "deepseek_v3 not interleaved", "qwen3_next 4 keys, dense layer"]


def write():
    for name in WRITTEN:
        folder = OUT / name.replace(",", "").replace(" ", "-")
        shutil.rmtree(folder, ignore_errors=True)
        ids, expected = make(name, folder, 100 + list(CASES).index(name))
        (folder / "generation_config.json").unlink(missing_ok=True)
        reference = {"prompt": ids, "spread": float(expected.max() - expected.min()), "logits": [[float(f"{v:.8g}") for v in row] for row in expected.tolist()]}
        (folder / "reference.json").write_text(json.dumps(reference) + "\n")


def make(case, folder, seed):
    base, overrides, form = (*CASES[case], {})[:3]
    class_name, own = FAMILIES[base]
    settings = BASE | own | overrides
    config = getattr(transformers, class_name)(**settings)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
    randomise(model, seed)
    model.tie_weights()
    model.to(form.get("dtype", torch.float32)).save_pretrained(folder, max_shard_size=form.get("shard", "5GB"))
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation=form.get("attention", "eager")).eval().double()
    if hasattr(model, "set_experts_implementation"):
        model.set_experts_implementation("eager")
    ids = torch.randint(3, VOCAB, (40,), generator=torch.Generator().manual_seed(seed)).tolist()
    own = None
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([ids]), use_cache=False).logits[0]
        if form.get("dtype") == torch.bfloat16:
            own = model.to(torch.bfloat16)(input_ids=torch.tensor([ids]), use_cache=False).logits[0].double()
    return ids, expected, own


def rows_quartile(got, expected, spread):
    return float(((got - expected).abs().max(-1).values / spread).quantile(0.25))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--millrace", default=str(ROOT / "build/release/millrace"))
    parser.add_argument("--only", default="", help="cases whose name has this in it")
    parser.add_argument("--isa", default="avx2")
    parser.add_argument("--keep", help="a folder that keeps the checkpoints")
    parser.add_argument("--write", action="store_true", help="write the fixtures of tests/models")
    options = parser.parse_args()
    if options.write:
        return write()
    bad = skipped = 0
    names = [n for n in CASES if options.only in n]
    for number, name in enumerate(names):
        with tempfile.TemporaryDirectory() as temporary:
            folder = pathlib.Path(options.keep or temporary) / name.replace(" ", "_").replace(",", "")
            shutil.rmtree(folder, ignore_errors=True)
            try:
                ids, expected, own = make(name, folder, 100 + number)
            except Exception as e:  # noqa: BLE001  what transformers itself refuses
                print(f"{name:42} transformers: {type(e).__name__}: {str(e)[:120]}", flush=True)
                skipped += 1
                continue
            spread, line, wrong = float(expected.max() - expected.min()), [], False
            bound = 1e-4
            if own is not None and options.isa not in ("scalar", "avx2"):
                bound = max(bound, rows_quartile(own, expected, spread))
            for chunk in ("64", "7"):
                done = subprocess.run([options.millrace, "logits", "-m", folder, "--isa", options.isa, "--kv-type", "f32", "--chunk", chunk, "--json", "--ids", ",".join(map(str, ids))],
                                      capture_output=True, text=True)
                if done.returncode != 0:
                    line.append(done.stderr.strip())
                    wrong = True
                    break
                got = torch.tensor(json.loads(done.stdout), dtype=torch.float64)
                difference = rows_quartile(got, expected, spread) if bound > 1e-4 else float((got - expected).abs().max()) / spread
                wrong = wrong or not difference <= bound
                line.append(f"{difference:.2e}")
            bad += wrong
            print(f"{name:42} {' '.join(line)}{'' if bound == 1e-4 else f'   PyTorch in bfloat16: {bound:.2e}'}{'   WRONG' if wrong else ''}", flush=True)
    print(f"{len(names)} configurations, {bad} wrong, {skipped} that transformers does not make")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
