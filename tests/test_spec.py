import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from tuner.spec import Candidate, EngineSpec, Load, Price, StudySpec, digest
from tuner.vllm import MAX_K

STUDY = {
    "name": "a-study",
    "target": {"model": "org/model"},
    "candidates": [{"method": "ngram", "k": [2, 4]}],
    "loads": [{"concurrency": 1}],
}


def study(**changes):
    return StudySpec.model_validate(STUDY | changes)


def places(error):
    return {e["loc"] for e in error.value.errors()}


@pytest.mark.parametrize(
    ("written", "values"),
    [
        (3, (3,)),
        ([4, 2, 4], (4, 2)),
        ({"min": 1, "max": 4}, (1, 2, 3, 4)),
        (MAX_K, (MAX_K,)),
    ],
)
def test_k_is_a_number_a_list_or_a_range(written, values):
    assert Candidate(method="ngram", k=written).k == values


@pytest.mark.parametrize(
    "written",
    [
        0,
        -1,
        MAX_K + 1,
        "three",
        "3",
        2.0,
        True,
        None,
        [],
        [1, None],
        [1, True],
        [[1]],
        [{"min": 1}],
        {},
        {"min": 1},
        {"min": 3, "max": 1},
        {"min": 0, "max": 3},
        {"min": 1, "max": MAX_K + 1},
        {"min": 1, "max": 10**9},
        {"min": True, "max": 3},
        {"min": 1, "max": 3, "step": 1},
        math.nan,
    ],
)
def test_a_wrong_k_is_refused_at_its_place(written):
    with pytest.raises(ValidationError) as error:
        Candidate(method="ngram", k=written)
    assert {place[0] for place in places(error)} == {"k"}


def test_k_goes_by_vllms_name_too_but_not_by_both():
    assert Candidate(method="ngram", num_speculative_tokens=4).k == (4,)
    with pytest.raises(ValidationError, match="another name of k"):
        Candidate(method="ngram", k=3, num_speculative_tokens=4)


def test_keys_of_the_speculative_config_pass_through():
    candidate = Candidate(method="suffix", k=8, suffix_decoding_max_tree_depth=24)
    assert candidate.passed_through == {"suffix_decoding_max_tree_depth": 24}


def test_an_unknown_key_gets_a_suggestion():
    with pytest.raises(ValidationError, match="did you mean draft_sample_method") as error:
        Candidate(method="ngram", k=2, draft_sampel_method="x")
    assert places(error) == {("draft_sampel_method",)}


@pytest.mark.parametrize(
    ("fields", "place", "message"),
    [
        ({"method": "eagle3"}, "model", "method eagle3 needs a model"),
        ({"method": "ngram", "model": "x"}, "model", "takes no model"),
        ({"method": "ngrm"}, "method", "unknown method 'ngrm'"),
        ({"method": "suffix", "prompt_lookup_min": 2}, "prompt_lookup_min", "belongs to ngram"),
        (
            {"method": "ngram", "prompt_lookup_min": [4, 5], "prompt_lookup_max": 3},
            "prompt_lookup_max",
            "3 is smaller than 4",
        ),
    ],
)
def test_a_candidate_must_be_consistent(fields, place, message):
    with pytest.raises(ValidationError, match=message) as error:
        Candidate(k=2, **fields)
    assert places(error) == {(place,)}


def test_every_mistake_of_a_candidate_is_found_beside_a_wrong_k():
    with pytest.raises(ValidationError) as error:
        Candidate(method="draft_model", k=0, no_such_key=1, prompt_lookup_max=2)
    assert places(error) == {("model",), ("k", 0), ("no_such_key",), ("prompt_lookup_max",)}


def test_family_mtp_methods_are_accepted():
    assert Candidate(method="deepseek_mtp", k=1).method == "deepseek_mtp"


def test_engine_args_are_named_as_vllm_stores_them():
    assert EngineSpec(args={"--max-model-len": 2048}).args == {"max_model_len": 2048}


@pytest.mark.parametrize("name", ["port", "--speculative-config", "speculative_config.method"])
def test_flags_that_the_tuner_sets_are_refused(name):
    with pytest.raises(ValidationError, match="set by the tuner itself"):
        EngineSpec(args={name: 1})


def test_one_flag_in_two_spellings_is_refused():
    with pytest.raises(ValidationError, match="two spellings"):
        EngineSpec(args={"max-model-len": 1, "max_model_len": 2})


def test_numbers_in_the_environment_become_text_and_names_must_be_names():
    assert EngineSpec(env={"CORES": 2}).env == {"CORES": "2"}
    with pytest.raises(ValidationError, match="no name of an environment variable"):
        EngineSpec(env={"A B": "1"})
    with pytest.raises(ValidationError):
        EngineSpec(env={"A": True})


def test_an_engine_is_started_one_way():
    with pytest.raises(ValidationError, match="not both"):
        EngineSpec(python="/usr/bin/python3", command=["serve"])


@pytest.mark.parametrize("value", [True, "1", 1.5, None, 0])
def test_a_concurrency_is_a_whole_number_from_one(value):
    with pytest.raises(ValidationError):
        Load(concurrency=value)


@pytest.mark.parametrize("value", [0, -1, True, "1", math.inf, math.nan])
def test_a_price_is_a_positive_finite_number(value):
    with pytest.raises(ValidationError):
        Price(usd_per_hour=value)


@pytest.mark.parametrize("value", [math.nan, [math.inf]])
def test_values_without_json_are_refused_wherever_they_pass_through(value):
    with pytest.raises(ValidationError):
        EngineSpec(args={"x": value})
    with pytest.raises(ValidationError):
        Candidate(method="ngram", k=1, moe_backend=value)


def test_the_same_load_twice_is_refused():
    with pytest.raises(ValidationError, match="concurrency 2 is given twice"):
        study(loads=[{"concurrency": 2}, {"concurrency": 2}])


def test_cost_as_the_objective_needs_a_price():
    with pytest.raises(ValidationError, match="needs price") as error:
        study(objective="cost_per_million_output_tokens")
    assert places(error) == {("price",)}
    priced = study(objective="cost_per_million_output_tokens", price={"usd_per_hour": 2})
    assert priced.price == Price(usd_per_hour=2)


@pytest.mark.parametrize("name", ["", "My Study", "-a", "a/b", "a" * 65])
def test_a_name_is_fit_for_a_file_and_a_url(name):
    with pytest.raises(ValidationError):
        study(name=name)


def test_a_study_survives_json():
    spec = study(candidates=[{"method": "suffix", "k": 8, "suffix_decoding_max_tree_depth": 9}])
    assert StudySpec.model_validate_json(spec.model_dump_json()) == spec
    assert StudySpec.model_validate(spec.model_dump(mode="json")) == spec


def test_digest_ignores_the_order_of_keys_and_refuses_what_is_not_json():
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})
    with pytest.raises(ValueError, match="JSON"):
        digest(math.nan)


@given(
    st.one_of(
        st.builds(Load, concurrency=st.integers(1, 10**6)),
        st.builds(Load, request_rate=st.floats(1e-6, 1e6)),
        st.builds(Load, request_rate=st.floats(1e-6, 1e6), burstiness=st.floats(0.01, 10)),
        st.just(Load(request_rate="recorded")),
    )
)
def test_a_load_reads_back_from_its_key_and_from_json(load: Load) -> None:
    assert Load.of(load.key) == load
    assert len(load.key) <= 64, "a column's width"
    assert Load.model_validate_json(load.model_dump_json()) == load


@pytest.mark.parametrize(
    "key", ["", "4", "concurrency=0", "concurrency=2.5", "request_rate=nan", "request_rate=fast"]
)
def test_what_is_no_load_says_how_to_write_one(key: str) -> None:
    with pytest.raises(ValueError, match="concurrency=4"):
        Load.of(key)


@pytest.mark.parametrize(
    "given_", [{"concurrency": 1, "burstiness": 0.5}, {"request_rate": "recorded", "burstiness": 1}]
)
def test_bursts_are_of_arrivals_at_a_rate(given_: dict[str, object]) -> None:
    with pytest.raises(ValidationError, match="burstiness belongs to a request_rate"):
        Load.model_validate(given_)


@pytest.mark.parametrize("given_", [{}, {"concurrency": 1, "request_rate": 1.0}])
def test_a_load_is_a_concurrency_or_a_rate(given_: dict[str, float]) -> None:
    with pytest.raises(ValidationError, match="one"):
        Load.model_validate(given_)


def test_loads_sort_by_size_concurrencies_first() -> None:
    keys = ["request_rate=recorded", "request_rate=10.0", "request_rate=2.0", "concurrency=16"]
    loads = [Load.of(key) for key in [*keys, "concurrency=4"]]
    ordered = ["concurrency=4", "concurrency=16", "request_rate=2.0", "request_rate=10.0"]
    assert [load.key for load in sorted(loads, key=lambda load: load.place)] == [
        *ordered,
        "request_rate=recorded",
    ]
