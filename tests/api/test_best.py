from datetime import UTC, datetime

import pytest

from api.best import best


def test_the_lowest_tpot_wins(answer):
    slow, fast = answer(study="slow", tpot=9.0), answer(study="fast", tpot=4.0)
    assert best([slow, fast]) == [fast]


def test_the_lowest_end_to_end_time_wins(answer):
    slow = answer(study="slow", objective="e2e_p95", tpot=1.0, e2e=900.0)
    fast = answer(study="fast", objective="e2e_p95", tpot=9.0, e2e=800.0)
    assert best([slow, fast]) == [fast]


def test_the_highest_throughput_wins(answer):
    slow = answer(study="slow", objective="output_throughput", throughput=20.0)
    fast = answer(study="fast", objective="output_throughput", throughput=30.0)
    assert best([slow, fast]) == [fast]


def test_the_lowest_cost_wins_though_slower(answer):
    objective = "cost_per_million_output_tokens"
    dear = answer(study="dear", objective=objective, tpot=1.0, usd_per_million=3.0)
    cheap = answer(study="cheap", objective=objective, tpot=9.0, usd_per_million=2.0)
    assert best([dear, cheap]) == [cheap]


def test_every_objective_and_load_has_its_own_answer_in_order(answer):
    answers = [
        answer(concurrency=16),
        answer(concurrency=2),
        answer(concurrency=2, objective="e2e_p95"),
    ]
    assert best(answers) == [answers[2], answers[1], answers[0]]


def test_a_tie_goes_to_off_then_to_the_smaller_k(answer):
    five, three, off = answer(k=5), answer(k=3), answer(k=None)
    assert best([five, three]) == [three]
    assert best([five, three, off]) == [off]


def test_of_two_equal_answers_the_newer_wins(answer):
    old = answer(study="old", measured_at=datetime(2026, 1, 1, tzinfo=UTC))
    new = answer(study="new", measured_at=datetime(2026, 2, 1, tzinfo=UTC))
    assert best([old, new]) == [new]


def test_an_answer_without_a_value_comes_last_but_is_not_lost(answer):
    without, slow = answer(study="without", tpot=None), answer(study="slow", tpot=99.0)
    assert best([without, slow]) == [slow]
    assert best([without]) == [without]


def test_an_objective_it_does_not_know_is_an_error(answer):
    with pytest.raises(ValueError, match="study s has an unknown objective: beauty"):
        best([answer(objective="beauty")])


def test_nothing_of_nothing():
    assert best([]) == []
