import json
from pathlib import Path

from api.app import create_app

SNAPSHOT = Path(__file__).with_name("openapi.json")
REGENERATE = (
    'python -c "import json, pathlib; from api.app import create_app; '
    "print(json.dumps(create_app('sqlite://', pathlib.Path()).openapi(), indent=2))\" "
    "> tests/api/openapi.json"
)


def test_the_published_interface_is_the_committed_one():
    openapi = create_app("sqlite://", Path()).openapi()
    assert openapi == json.loads(SNAPSHOT.read_text()), (
        f"the interface changed; if that is meant, run: {REGENERATE}"
    )


def test_the_interface_is_served(get):
    assert get("/openapi.json").json() == json.loads(SNAPSHOT.read_text())


def test_every_error_is_documented_as_a_problem():
    paths = create_app("sqlite://", Path()).openapi()["paths"]
    media_types = {
        media_type
        for operations in paths.values()
        for operation in operations.values()
        for status, response in operation["responses"].items()
        if int(status) >= 400
        for media_type in response["content"]
    }
    assert media_types == {"application/problem+json"}
