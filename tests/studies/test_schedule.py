from studies.schedule import ANY_NUMBER, schedule
from tests.predict.test_forecast import draft
from tuner.spec import Load
from tuner.vllm import SCHEDULE


def test_each_concurrencys_k_holds_up_to_it_and_the_last_beyond() -> None:
    best = {
        Load(concurrency=16): draft(1),
        Load(concurrency=1): draft(5),
        Load(concurrency=4): draft(3),
    }
    found = schedule(best)
    assert found.k == 5
    config = found.speculative_config or {}
    assert config[SCHEDULE] == [[1, 1, 5], [2, 4, 3], [5, ANY_NUMBER, 1]]
    assert {k: v for k, v in config.items() if k != SCHEDULE} == draft(5).speculative_config
