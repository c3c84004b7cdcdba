import pytest

from tuner.answers import Measured
from tuner.cost import cost
from tuner.spec import Price


def measured(tok_s):
    return Measured(
        tpot_ms_p50=10.0,
        ttft_ms_p50=10.0,
        ttft_ms_p95=10.0,
        e2e_ms_p50=10.0,
        e2e_ms_p95=10.0,
        output_throughput_tok_s=tok_s,
        rounds=3,
        requests=12,
    )


def test_dollars_per_million_tokens_by_hand():
    # 2 devices at 1.80 $/h, 1000 tok/s: 3.60 $ for 3.6 million tokens.
    result = cost(Price(usd_per_hour=1.80, devices=2), measured(1000), measured(500))
    assert result.usd_per_hour == pytest.approx(3.60)
    assert result.usd_per_million_output_tokens == pytest.approx(1.0)
    assert result.baseline_usd_per_million_output_tokens == pytest.approx(2.0)
    assert result.saving_usd_per_million_output_tokens == pytest.approx(1.0)
    assert result.saving_share == pytest.approx(0.5)


def test_a_slower_setting_saves_less_than_nothing():
    result = cost(Price(usd_per_hour=1), measured(100), measured(200))
    assert result.saving_share == pytest.approx(-1.0)


def test_no_price_no_dollars():
    assert cost(None, measured(100), measured(100)) is None


@pytest.mark.parametrize(("own", "baseline"), [(0, 100), (100, 0), (0, 0)])
def test_no_tokens_no_dollars(own, baseline):
    assert cost(Price(usd_per_hour=1), measured(own), measured(baseline)) is None
