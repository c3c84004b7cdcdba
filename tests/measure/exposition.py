"""What vLLM shows on ``/metrics``, for a server with the counters that a test wants."""

from __future__ import annotations

from collections.abc import Mapping, Sequence


def exposition(
    counters: Mapping[str, float],
    at_position: Sequence[float] = (),
    *,
    engines: int = 1,
    running: float = 0.0,
    waiting: float = 0.0,
    queued: int = 0,
    queue_time_s: float = 0.0,
) -> str:
    """Prometheus text with one series per engine, each with these values."""
    lines = []
    for name, value in counters.items():
        lines.append(f"# TYPE vllm:{name}_total counter")
        lines += [
            f'vllm:{name}_total{{engine="{e}",model_name="m"}} {value}' for e in range(engines)
        ]
        lines.append(f"# TYPE vllm:{name}_created gauge")
        lines += [
            f'vllm:{name}_created{{engine="{e}",model_name="m"}} 1.7959e+09' for e in range(engines)
        ]
    if at_position:
        name = "spec_decode_num_accepted_tokens_per_pos"
        lines.append(f"# TYPE vllm:{name}_total counter")
        lines += [
            f'vllm:{name}_total{{engine="{e}",model_name="m",position="{p}"}} {value}'
            for e in range(engines)
            for p, value in enumerate(at_position)
        ]
    for name, value in (("num_requests_running", running), ("num_requests_waiting", waiting)):
        lines.append(f"# TYPE vllm:{name} gauge")
        lines += [f'vllm:{name}{{engine="{e}",model_name="m"}} {value}' for e in range(engines)]
    if queued:
        name = "request_queue_time_seconds"
        lines.append(f"# TYPE vllm:{name} histogram")
        lines += [
            line
            for e in range(engines)
            for line in (
                f'vllm:{name}_bucket{{engine="{e}",le="+Inf",model_name="m"}} {queued}',
                f'vllm:{name}_count{{engine="{e}",model_name="m"}} {queued}',
                f'vllm:{name}_sum{{engine="{e}",model_name="m"}} {queue_time_s}',
            )
        ]
    return "\n".join(lines) + "\n"
