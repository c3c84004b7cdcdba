import pytest

from tuner.answers import Recommendations
from tuner.export import FORMATS
from tuner.records import Stage


def test_a_fresh_store_has_no_studies(get):
    assert get("/v1/studies").json() == {"studies": []}


def test_studies_are_listed_the_one_updated_last_first(add_study, get):
    add_study("first", stage=Stage.EXPLORE)
    add_study("second", objective="e2e_p95")
    second, first = get("/v1/studies").json()["studies"]
    assert first["name"] == "first"
    assert first["stage"] == "explore"
    assert first["target"] == "org/target"
    assert first["objective"] == "tpot_p50"
    assert first["loads"] == [{"concurrency": 4}, {"concurrency": 1}]
    assert (second["name"], second["stage"], second["objective"]) == ("second", "done", "e2e_p95")
    assert first["created_at"] <= first["updated_at"] <= second["updated_at"]


def test_a_study_comes_with_its_whole_specification(add_study, store, get):
    add_study("s", engine={"args": {"max-model-len": 2048}}, stage=Stage.BASELINE)
    store.add_spent("s", 12.5)
    response = get("/v1/studies/s")
    assert response.status_code == 200
    study = response.json()
    assert study["spec"] == store.study("s").spec.model_dump(mode="json")
    assert study["spec"]["engine"]["args"] == {"max_model_len": 2048}
    assert (study["stage"], study["spent_s"]) == ("baseline", 12.5)


@pytest.mark.parametrize("path", ["", "/recommendations", "/export/sh"])
def test_an_unknown_study_names_the_known_ones(add_study, get, path):
    add_study("known")
    response = get(f"/v1/studies/unknown{path}")
    assert response.status_code == 404
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["type"] == "/problems/not-found"
    assert "known" in response.json()["detail"].replace("unknown", "")


def test_a_finished_study_has_its_answers_in_the_order_of_its_loads(add_study, answer, get):
    one, four = answer(concurrency=1, usd_per_million=2.0), answer(concurrency=4, k=None)
    add_study("s", one, four)
    response = get("/v1/studies/s/recommendations")
    assert response.status_code == 200
    expected = Recommendations(recommendations=[four, one])
    assert response.json() == expected.model_dump(mode="json")


@pytest.mark.parametrize("path", ["recommendations", "export/sh"])
def test_an_unfinished_study_says_in_which_stage_it_is(add_study, answer, get, path):
    add_study("s", answer(), stage=Stage.CONFIRM)
    response = get(f"/v1/studies/s/{path}")
    assert response.status_code == 404
    assert response.json()["detail"] == (
        "study 's' has no recommendation yet: it is in stage 'confirm'; "
        "`tuner optimize s` goes on with it"
    )


@pytest.mark.parametrize("path", ["recommendations", "export/sh"])
def test_a_study_that_ended_without_an_answer_says_so(add_study, get, path):
    add_study("s")
    response = get(f"/v1/studies/s/{path}")
    assert response.status_code == 404
    assert "nothing of it could be recommended" in response.json()["detail"]


def test_the_export_is_a_shell_script_for_the_studys_first_load(add_study, answer, get):
    one, four = answer(concurrency=1), answer(concurrency=4)
    add_study("s", one, four)
    response = get("/v1/studies/s/export/sh")
    assert response.status_code == 200
    assert response.headers["content-type"] == "text/x-shellscript; charset=utf-8"
    assert response.text == FORMATS["sh"](four)


def test_the_export_is_for_the_load_asked_for(add_study, answer, get):
    one, four = answer(concurrency=1), answer(concurrency=4)
    add_study("s", one, four)
    assert get("/v1/studies/s/export/sh?load=concurrency=1").text == FORMATS["sh"](one)


def test_a_load_that_was_not_measured_names_those_that_were(add_study, answer, get):
    add_study("s", answer(concurrency=1), answer(concurrency=4))
    response = get("/v1/studies/s/export/sh?load=concurrency=2")
    assert response.status_code == 404
    detail = response.json()["detail"]
    assert detail == "study 's' has no answer at concurrency=2; it has concurrency=4, concurrency=1"


@pytest.mark.parametrize("storage_url", ["sqlite", "postgres"], indirect=True)
def test_requests_at_once_all_get_their_answer(add_study, answer, app, send):
    add_study("s", answer())
    responses = send(app, *[("GET", "/v1/studies/s/recommendations")] * 20)
    assert [response.status_code for response in responses] == [200] * 20
