import json

from tests.factories import study_spec
from tests.studies.stored_answers import ALONE, PAIR, on


def test_the_command_prints_json_and_exits_with_0_where_every_answer_holds(
    tuner, answered, settings
):
    answered(on())
    code, out, err = tuner("verify", "fake", "--storage", settings.storage_url, "--output", "json")
    assert code == 0
    [verification] = json.loads(out)["verifications"]
    assert verification["outcome"] == "holds"
    assert verification["load"] == {"concurrency": 2}
    assert "concurrency 2: holds: " in err


def test_one_answer_alone_can_be_verified_and_is_shown_to_people(
    tuner, answered, opened, settings, upgrade_to
):
    answered(on(ALONE), on(PAIR))
    upgrade_to(step_ms_per_k=15.0)
    arguments = ("verify", "--storage", settings.storage_url, "--load", "concurrency=2")
    code, out, _ = tuner(*arguments)
    assert code == 5
    for part in ("suffix k=4", "3.00x (1.50-6.00)", "lost: worse than off", "concurrency 2"):
        assert part in out
    assert "concurrency 1" not in out
    assert {m.load for m in opened.measurements(study="fake")} == {PAIR}


def test_a_study_that_is_not_done_has_nothing_to_verify(tuner, opened, settings):
    opened.save_study(study_spec(name="new"))
    code, out, err = tuner("verify", "new", "--storage", settings.storage_url)
    assert (code, out) == (2, "")
    assert "not done" in err
    assert opened.engine_starts("new") == []
