"""A plugin for vLLM: its CPU build's expansion of sampling parameters, mended.

vLLM 0.32's ``_expand_kernel_impl`` fills an int64 copy of its output and drops it, wherever the
output is of another type. So the temperatures of drafted tokens, which are floats, are whatever
was in memory, and the tokens drawn are wrong.
"""

import torch
from vllm.utils import cpu_triton_utils


def expand(output, input_val, cu_num_tokens, replace_from, replace_to, *_):
    """Each request's value for each of its tokens, one value replaced by another."""
    counts = torch.diff(cu_num_tokens, prepend=cu_num_tokens.new_zeros(1))
    values = torch.where(input_val == replace_from, replace_to, input_val)
    output.copy_(values.repeat_interleave(counts))


def register():
    """Runs in each of the engine's processes, before the worker takes up the CPU's kernels."""
    cpu_triton_utils._expand_kernel_impl = expand
