"""The fake's /metrics: Prometheus text with vLLM's names."""

from __future__ import annotations

from collections.abc import Sequence

from tuner.engine.fake_decode import Totals

QUEUE_TIME_BUCKETS_S = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 60.0, 120.0)
CREATED = 1.75e9


def metrics_text(model: str, totals: Totals, *, running: int, waiting: int) -> str:
    """What one engine counts; no speculative counters without speculation."""
    labels = f'engine="0",model_name="{model}"'
    counters = {
        "prompt_tokens": totals.prompt_tokens,
        "generation_tokens": totals.generation_tokens,
        "prefix_cache_queries": totals.prefix_queries,
        "prefix_cache_hits": totals.prefix_hits,
        "num_preemptions": 0,
    }
    if totals.accepted_at:
        counters |= {
            "spec_decode_num_drafts": totals.drafts,
            "spec_decode_num_draft_tokens": totals.draft_tokens,
            "spec_decode_num_accepted_tokens": totals.accepted,
        }
    lines = [
        *_gauge("num_requests_running", labels, running),
        *_gauge("num_requests_waiting", labels, waiting),
    ]
    for name, value in counters.items():
        lines += _counter(name, {labels: value})
    if totals.accepted_at:
        lines += _counter(
            "spec_decode_num_accepted_tokens_per_pos",
            {f'{labels},position="{i}"': n for i, n in enumerate(totals.accepted_at)},
        )
    lines += _histogram("request_queue_time_seconds", labels, totals.queued_s)
    return "\n".join(lines) + "\n"


def _head(name: str, kind: str) -> list[str]:
    return [f"# HELP vllm:{name} As vLLM counts it.", f"# TYPE vllm:{name} {kind}"]


def _gauge(name: str, labels: str, value: int) -> list[str]:
    return [*_head(name, "gauge"), f"vllm:{name}{{{labels}}} {float(value)}"]


def _counter(name: str, series: dict[str, int]) -> list[str]:
    """A counter as prometheus_client writes it: values, then when each series was created."""
    return [
        *_head(f"{name}_total", "counter"),
        *(f"vllm:{name}_total{{{labels}}} {float(value)}" for labels, value in series.items()),
        *_created(name, *series),
    ]


def _histogram(name: str, labels: str, values: Sequence[float]) -> list[str]:
    counts = {str(top): sum(value <= top for value in values) for top in QUEUE_TIME_BUCKETS_S}
    counts["+Inf"] = len(values)
    return [
        *_head(name, "histogram"),
        *(f'vllm:{name}_bucket{{{labels},le="{top}"}} {float(n)}' for top, n in counts.items()),
        f"vllm:{name}_count{{{labels}}} {float(len(values))}",
        f"vllm:{name}_sum{{{labels}}} {sum(values)!r}",
        *_created(name, labels),
    ]


def _created(name: str, *series: str) -> list[str]:
    lines = (f"vllm:{name}_created{{{labels}}} {CREATED}" for labels in series)
    return [*_head(f"{name}_created", "gauge"), *lines]
