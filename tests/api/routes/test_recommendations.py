from tuner.answers import Recommendations


def test_the_best_answer_over_a_targets_studies(add_study, answer, get):
    slow = answer(study="slow", concurrency=1, tpot=9.0)
    fast = answer(study="fast", concurrency=1, tpot=4.0)
    other_load = answer(study="slow", concurrency=4, tpot=9.0)
    add_study("slow", slow, other_load)
    add_study("fast", fast)
    response = get("/v1/recommendations?target=org/target")
    assert response.status_code == 200
    expected = Recommendations(recommendations=[fast, other_load])
    assert response.json() == expected.model_dump(mode="json")


def test_a_superseded_answer_no_longer_counts(add_study, answer, get):
    add_study("s", answer(tpot=1.0, k=1))
    add_study("s", answer(tpot=5.0, k=3))
    (found,) = get("/v1/recommendations?target=org/target").json()["recommendations"]
    assert found["speculative_config"]["num_speculative_tokens"] == 3


def test_off_is_an_answer(add_study, answer, get):
    add_study("s", answer(k=None))
    (found,) = get("/v1/recommendations?target=org/target").json()["recommendations"]
    assert found["speculative_config"] is None


def test_an_unknown_target_names_those_that_have_an_answer(add_study, answer, get):
    add_study("s", answer())
    add_study("unconfirmed", answer(study="unconfirmed", target="org/guessed", confirmed=False))
    response = get("/v1/recommendations?target=org/other")
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["detail"] == (
        "no confirmed recommendation for target 'org/other'; targets that have one: org/target"
    )


def test_an_answer_that_was_not_confirmed_is_none(add_study, answer, get):
    add_study("s", answer(confirmed=False))
    response = get("/v1/recommendations?target=org/target")
    assert response.status_code == 404
    assert response.json()["detail"].endswith("targets that have one: none yet")


def test_a_target_has_to_be_named(get):
    assert get("/v1/recommendations").json()["errors"] == [
        {"where": "query.target", "message": "Field required"}
    ]
    assert get("/v1/recommendations?target=").status_code == 422
