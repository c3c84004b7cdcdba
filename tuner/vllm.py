"""What vLLM 0.32 takes for a speculative config; a test holds it against the installed one."""

from __future__ import annotations

MAX_K = 128
"""vLLM 0.32 parses a larger ``num_speculative_tokens`` and fails later."""

MODEL_METHODS = frozenset(
    {
        "draft_model",
        "eagle",
        "eagle3",
        "medusa",
        "mlp_speculator",
        "dflash",
        "dspark",
        "custom_class",
    }
)
"""Methods that need a model of their own."""

MODEL_FREE_METHODS = frozenset({"ngram", "ngram_gpu", "suffix"})
"""Methods that propose from the text alone."""

METHODS = MODEL_METHODS | MODEL_FREE_METHODS | {"mtp", "extract_hidden_states"}
"""vLLM 0.32's methods; its ``<family>_mtp`` aliases are accepted too."""

SPECULATIVE_KEYS = frozenset(
    {
        "attention_backend",
        "code_revision",
        "disable_eagle_block_drop",
        "disable_padded_drafter_batch",
        "draft_load_config",
        "draft_sample_method",
        "draft_tensor_parallel_size",
        "dspark_draft_topk",
        "enable_adaptive_verification",
        "enforce_eager",
        "index_share_for_mtp_iteration",
        "kv_cache_dtype",
        "max_model_len",
        "moe_backend",
        "num_speculative_tokens_per_batch_size",
        "parallel_drafting",
        "prompt_lookup_max",
        "prompt_lookup_min",
        "quantization",
        "rejection_sample_method",
        "revision",
        "suffix_decoding_max_cached_requests",
        "suffix_decoding_max_spec_factor",
        "suffix_decoding_max_tree_depth",
        "suffix_decoding_min_token_prob",
        "synthetic_acceptance_length",
        "synthetic_acceptance_rates",
        "use_heterogeneous_vocab",
        "use_local_argmax_reduction",
    }
)
"""Keys of vLLM's speculative config that a candidate may carry beside method, model and k."""

SCHEDULE = "num_speculative_tokens_per_batch_size"
"""k by number of requests: the one key of a speculative config whose own value is a list."""
