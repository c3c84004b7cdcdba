from studies.space import enumerate_settings
from tuner.records import OFF, Setting
from tuner.spec import StudySpec


def spec(*candidates: dict) -> StudySpec:
    return StudySpec.model_validate(
        {
            "name": "s",
            "target": {"model": "m"},
            "candidates": candidates,
            "loads": [{"concurrency": 1}],
        }
    )


def test_off_comes_first_and_every_k_is_a_setting() -> None:
    found = enumerate_settings(spec({"method": "draft_model", "model": "d", "k": [1, 3]}))
    assert found == (
        OFF,
        Setting.of({"method": "draft_model", "model": "d", "num_speculative_tokens": 1}),
        Setting.of({"method": "draft_model", "model": "d", "num_speculative_tokens": 3}),
    )


def test_lookup_ranges_above_their_maximum_do_not_exist() -> None:
    found = enumerate_settings(
        spec({"method": "ngram", "k": 4, "prompt_lookup_min": [1, 3], "prompt_lookup_max": [2, 4]})
    )
    pairs = {
        (s.speculative_config["prompt_lookup_min"], s.speculative_config["prompt_lookup_max"])
        for s in found
        if s.speculative_config
    }
    assert pairs == {(1, 2), (1, 4), (3, 4)}


def test_a_passed_through_list_is_searched_and_a_value_is_not() -> None:
    found = enumerate_settings(
        spec(
            {
                "method": "draft_model",
                "model": "d",
                "k": 2,
                "draft_sample_method": ["greedy", "probabilistic"],
                "parallel_drafting": True,
            }
        )
    )
    assert [s.speculative_config["draft_sample_method"] for s in found[1:]] == [
        "greedy",
        "probabilistic",
    ]
    assert all(s.speculative_config["parallel_drafting"] is True for s in found[1:])


def test_one_schedule_is_one_value_and_a_list_of_schedules_is_searched() -> None:
    one = [[1, 2, 3], [3, 64, 1]]
    name = "num_speculative_tokens_per_batch_size"
    draft = {"method": "draft_model", "model": "d", "k": 3}
    assert [
        s.speculative_config[name] for s in enumerate_settings(spec(draft | {name: one}))[1:]
    ] == [one]
    two = [one, [[1, 64, 2]]]
    assert [
        s.speculative_config[name] for s in enumerate_settings(spec(draft | {name: two}))[1:]
    ] == two


def test_the_same_setting_twice_is_one_with_one_hash() -> None:
    found = enumerate_settings(
        spec(
            {"method": "suffix", "num_speculative_tokens": 8},
            {"method": "suffix", "k": {"min": 8, "max": 8}},
        )
    )
    assert len(found) == 2
    reordered = Setting.of({"num_speculative_tokens": 8, "method": "suffix"})
    assert found[1].key == reordered.key
