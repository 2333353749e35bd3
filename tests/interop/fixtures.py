#!/usr/bin/env python3
"""Writes tests/interop/fixtures: small random models saved by transformers, and the logits it
computes from them in fp32. test_interop reads them; tools/test.sh --interop checks that this script
still gives the same logits.

    .venv-interop/bin/python tests/interop/fixtures.py FOLDER
"""
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import (Glm4MoeConfig, Glm4MoeForCausalLM, LlamaConfig, LlamaForCausalLM, MixtralConfig,
                          MixtralForCausalLM, Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM)

POSITIONS = 24
SHAPE = dict(vocab_size=64, hidden_size=32, num_attention_heads=2, num_key_value_heads=1, head_dim=32,
             max_position_embeddings=64, rope_theta=5000.0, bos_token_id=0, eos_token_id=0)
LLAMA = dict(SHAPE, intermediate_size=24, num_hidden_layers=2, rms_norm_eps=1e-5, tie_word_embeddings=False)
QWEN3 = dict(SHAPE, intermediate_size=24, num_hidden_layers=1, rms_norm_eps=1e-6, tie_word_embeddings=True)
MIXTRAL = dict(SHAPE, intermediate_size=16, num_hidden_layers=2, rms_norm_eps=1e-5, num_local_experts=4,
               num_experts_per_tok=2, tie_word_embeddings=False, sliding_window=None)
GLM4_MOE = dict(SHAPE, intermediate_size=24, moe_intermediate_size=16, num_hidden_layers=2, rms_norm_eps=1e-5,
                n_routed_experts=6, num_experts_per_tok=2, n_shared_experts=2, first_k_dense_replace=1, n_group=1,
                topk_group=1, routed_scaling_factor=1.7, norm_topk_prob=True, use_qk_norm=True,
                partial_rotary_factor=1.0, attention_bias=False, tie_word_embeddings=False)
QWEN3_MOE = dict(SHAPE, intermediate_size=24, moe_intermediate_size=16, num_hidden_layers=3, rms_norm_eps=1e-6,
                 num_experts=6, num_experts_per_tok=2, norm_topk_prob=False, decoder_sparse_step=1, mlp_only_layers=[0],
                 attention_bias=False, tie_word_embeddings=False)

# Name, model class, configuration class, fields, type of the saved weights, shard size.
MODELS = [
    ("llama", LlamaForCausalLM, LlamaConfig, LLAMA, torch.float32, "1GB"),
    ("qwen3", Qwen3ForCausalLM, Qwen3Config, QWEN3, torch.float16, "1GB"),
    ("mixtral", MixtralForCausalLM, MixtralConfig, MIXTRAL, torch.bfloat16, "1GB"),
    ("glm4_moe", Glm4MoeForCausalLM, Glm4MoeConfig, GLM4_MOE, torch.bfloat16, "24KB"),
    ("qwen3_moe", Qwen3MoeForCausalLM, Qwen3MoeConfig, QWEN3_MOE, torch.bfloat16, "1GB"),
]


def random_model(model_class, config_class, fields, dtype, seed):
    """A model whose random weights all matter: no norm weight is 1, no bias 0, no logit tiny."""
    torch.manual_seed(seed)
    model = model_class(config_class(**fields)).eval()
    for name, tensor in model.state_dict().items():
        if "norm" in name:
            tensor.uniform_(0.5, 1.5)
        elif "e_score_correction_bias" in name:
            tensor.uniform_(-0.2, 0.2)
        else:
            tensor.normal_(std=0.5 if "embed" in name else 0.2)
        tensor.copy_(tensor.to(dtype))
    return model


@torch.no_grad()
def logits_of(model, tokens):
    return model(tokens[None]).logits[0].float().contiguous()


def tokens_of(seed, count, vocab):
    return torch.randint(0, vocab, (count,), generator=torch.Generator().manual_seed(seed))


def main(out):
    for seed, (name, model_class, config_class, fields, dtype, shard) in enumerate(MODELS):
        folder = pathlib.Path(out) / name
        folder.mkdir(parents=True, exist_ok=True)
        model = random_model(model_class, config_class, fields, dtype, seed)
        tokens = tokens_of(seed, POSITIONS, fields["vocab_size"])
        logits = logits_of(model, tokens)
        save_file({"tokens": tokens, "logits": logits}, folder / "expected.safetensors")
        model.to(dtype).save_pretrained(folder, max_shard_size=shard)
        print(f"{name}: logits from {logits.min():.2f} to {logits.max():.2f}, "
              f"{sum(f.stat().st_size for f in folder.iterdir())} bytes")


if __name__ == "__main__":
    main(sys.argv[1])
