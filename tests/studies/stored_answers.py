"""Answers as a store has them from an earlier time."""

from tests.factories import recommendation
from tuner.answers import Considered, Recommendation, Speedup
from tuner.records import Setting
from tuner.spec import Load

SUFFIX = Setting.of({"method": "suffix", "num_speculative_tokens": 4})
NGRAM = Setting.of({"method": "ngram", "num_speculative_tokens": 4})
PAIR = Load(concurrency=2)
ALONE = Load(concurrency=1)
AS_NOW = (3.0, 1.5, 6.0)
"""What the fake's suffix comes to as its script begins, roughly."""


def on(load: Load = PAIR, speedup=AS_NOW, setting: Setting = SUFFIX) -> Recommendation:
    return recommendation(
        study="fake",
        load=load,
        speculative_config=setting.speculative_config,
        speedup=_speedup(speedup),
    )


def off(load: Load = PAIR, speedup=(0.8, 0.7, 0.9), setting: Setting = SUFFIX) -> Recommendation:
    best = Considered(speculative_config=setting.speculative_config, speedup=_speedup(speedup))
    return recommendation(
        study="fake",
        load=load,
        speculative_config=None,
        speedup=_speedup((1.0, 1.0, 1.0)),
        considered=[best],
    )


def _speedup(numbers) -> Speedup:
    value, low, high = numbers
    return Speedup(value=value, low=low, high=high, confidence=0.95)
