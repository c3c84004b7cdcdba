"""Measurements and a price to dollars per million output tokens."""

from __future__ import annotations

from tuner.answers import Cost, Measured
from tuner.spec import Price

SECONDS_PER_HOUR = 3600
TOKENS_PER_MILLION = 1_000_000


def cost(price: Price | None, measured: Measured, baseline: Measured) -> Cost | None:
    """What a million output tokens cost at the measured load, and without speculation.

    usd_per_hour x devices / (tok/s x 3600) x 1e6: true while the machine carries that load;
    idle hours come on top. None without a price, or where an arm gave no tokens.
    """
    throughputs = (measured.output_throughput_tok_s, baseline.output_throughput_tok_s)
    if price is None or min(throughputs) <= 0:
        return None
    usd_per_hour = price.usd_per_hour * price.devices
    own, without = (
        usd_per_hour / (tok_s * SECONDS_PER_HOUR) * TOKENS_PER_MILLION for tok_s in throughputs
    )
    return Cost(
        usd_per_hour=usd_per_hour,
        usd_per_million_output_tokens=own,
        baseline_usd_per_million_output_tokens=without,
        saving_usd_per_million_output_tokens=without - own,
        saving_share=1 - own / without,
    )
