"""How vLLM's environment is asked about drafts; what it answers for real is in test_replay."""

from __future__ import annotations

import json
import stat
import sys
from pathlib import Path

import psutil
import pytest

from tuner.engine.drafts import Interpreter, Model, ScoredDraft, replay_suffix, score_drafts
from tuner.errors import ScoringError

TARGET = Model("owner/target", "main")
DRAFTS = (Model("owner/small"), Model("owner/quantised", "v2"))
ANSWERS = [((1, 2), (3, 4, 5)), ((6,), (7,))]


@pytest.fixture
def interpreter(tmp_path: Path):
    """Stands in for vLLM's: ``code`` runs with the script's name and the request at hand."""

    def make(code: str) -> Interpreter:
        path = tmp_path / "python"
        begin = "import json, os, sys, time\nscript, request = sys.argv[1], json.load(sys.stdin)\n"
        path.write_text(f"#!{sys.executable}\n{begin}{code}\n")
        path.chmod(stat.S_IRWXU)
        return Interpreter(path, {"SAID_BY": "the study"})

    return make


def test_what_is_asked_and_what_comes_back(interpreter, tmp_path):
    seen = tmp_path / "request.json"
    answer = {
        "target_parameters": 100,
        "drafts": [
            {"agreements": ["101", "0"], "parameters": 25, "seconds": 1.5},
            {"error": "it is quantised"},
        ],
    }
    asked = interpreter(
        f"open({str(seen)!r}, 'w').write(json.dumps([script, os.environ['SAID_BY'], request]))\n"
        "print('[1/2] scoring owner/small', file=sys.stderr)\n"
        "print('a warning of a library', file=sys.stderr)\n"
        f"print(json.dumps({answer!r}))"
    )
    lines: list[str] = []

    found = score_drafts(asked, TARGET, DRAFTS, ANSWERS, lines.append, dtype="float32")

    agreements = [[True, False, True], [False]]
    assert found.drafts == {
        DRAFTS[0]: ScoredDraft(agreements, 25, 1.5),
        DRAFTS[1]: "it is quantised",
    }
    assert found.target_parameters == 100
    assert lines == ["[1/2] scoring owner/small"]
    script, env, request = json.loads(seen.read_text())
    assert (Path(script).name, env) == ("score_drafts.py", "the study")
    assert request == {
        "target": "owner/target",
        "revision": "main",
        "dtype": "float32",
        "device": "auto",
        "trust_remote_code": False,
        "drafts": [
            {"model": "owner/small", "revision": None},
            {"model": "owner/quantised", "revision": "v2"},
        ],
        "answers": [
            {"prompt": [1, 2], "output": [3, 4, 5]},
            {"prompt": [6], "output": [7]},
        ],
    }


def test_answers_larger_than_a_pipe_holds(interpreter):
    asked = interpreter(
        "print('x' * 200_000, file=sys.stderr)\n"
        "steps = [[[1, 0]] * len(a['output']) for a in request['answers']]\n"
        "print(json.dumps({'steps': [steps]}))"
    )
    [found] = replay_suffix(asked, [{}], [(range(50_000), range(50_000))])
    assert found == [[(1, 0)] * 50_000]


def test_an_interpreter_that_fails_says_why(interpreter):
    failing = interpreter("sys.exit('no room left\\n')")
    with pytest.raises(ScoringError, match=r"python failed: no room left$"):
        score_drafts(failing, TARGET, DRAFTS, ANSWERS, print)
    with pytest.raises(ScoringError, match="failed: it said nothing"):
        replay_suffix(interpreter("sys.exit(3)"), [{}], ANSWERS)


def test_an_interpreter_that_is_not_there():
    with pytest.raises(ScoringError, match="cannot run /nowhere/python: No such file"):
        replay_suffix(Interpreter(Path("/nowhere/python"), {}), [{}], ANSWERS)


def test_an_interpreter_without_torch_or_arctic_inference():
    ours = Interpreter(Path(sys.executable), {})
    with pytest.raises(ScoringError, match="No module named 'torch'"):
        score_drafts(ours, TARGET, DRAFTS, ANSWERS, print)
    with pytest.raises(ScoringError, match="No module named 'arctic_inference'"):
        replay_suffix(ours, [{}], ANSWERS)


def test_an_interrupt_ends_the_process_too(interpreter):
    endless = interpreter(
        "print(f'[1/1] {os.getpid()}', file=sys.stderr, flush=True)\ntime.sleep(600)"
    )
    pids: list[int] = []

    def interrupted(line: str) -> None:
        pids.append(int(line.split()[1]))
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score_drafts(endless, TARGET, DRAFTS, ANSWERS, interrupted)
    assert not psutil.pid_exists(pids[0])
