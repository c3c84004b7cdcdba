"""Screening a study from recorded answers. The interpreter stands in for vLLM's; no engine runs."""

from __future__ import annotations

import json
import re
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from studies.clock import Clock
from studies.events import Event, Screened, Screening
from studies.ledger import Ledger
from studies.run import Run
from studies.screen import screen
from studies.space import enumerate_settings
from tests import factories
from tuner.predict.replay import Recorded
from tuner.records import OFF, Purpose, Screen, Setting
from tuner.settings import Settings
from tuner.spec import Load
from tuner.store import Store, upgrade

LOOP = (5, 6, 7, 8)
ANSWERS = (
    Recorded("code", (1, *LOOP), LOOP * 4, "m1", 0.5),
    Recorded("chat", (2, 3), tuple(range(100, 116)), "m1", 0.0),
    Recorded("code", (4, *LOOP), LOOP * 4, "m1", 0.25),
)

INTERPRETER = """
import json, sys
request = json.load(sys.stdin)
with open({log!r}, "a") as log:
    log.write(json.dumps([sys.argv[1].rpartition("/")[2], request]) + "\\n")
answers = request["answers"]
if "drafts" in request:
    print("[1/9] scoring", file=sys.stderr)
    right = [{{"agreements": ["1" * len(a["output"]) for a in answers],
              "parameters": 30, "seconds": 0.1}}]
    drafts = [{{"error": "OSError: gone"}} if d["model"] == "/gone" else right[0]
              for d in request["drafts"]]
    print(json.dumps({{"target_parameters": 120, "drafts": drafts}}))
else:
    # As many steps as the prompt's first token says, each accepting as many.
    steps = [[[4, a["prompt"][0]]] * a["prompt"][0] for a in answers]
    print(json.dumps({{"steps": [steps for _ in request["settings"]]}}))
"""


@dataclass
class Bed:
    """A store, and vLLM's interpreter with the log of what it was asked."""

    store: Store
    data_dir: Path
    python: Path
    log: Path
    events: list[Event]

    def run(self, *candidates: dict[str, Any], **changes: Any) -> Run:
        spec = factories.study_spec(candidates=candidates, **changes)
        self.store.save_study(spec)
        context = factories.context()
        digest = self.store.set_context(spec.name, context)
        return Run(
            ledger=Ledger(self.store, spec, enumerate_settings(spec), digest),
            context=context,
            data_dir=self.data_dir,
            python=self.python,
            prompts=(),
            clock=Clock(self.store, spec.name),
            observe=self.events.append,
        )

    @property
    def asked(self) -> list[tuple[str, dict[str, Any]]]:
        lines = self.log.read_text().splitlines() if self.log.exists() else []
        return [(script, request) for script, request in map(json.loads, lines)]


@pytest.fixture
def bed(settings: Settings, tmp_path: Path) -> Iterator[Bed]:
    python, log = tmp_path / "python", tmp_path / "asked.jsonl"
    python.write_text(f"#!{sys.executable}\n{INTERPRETER.format(log=str(log))}")
    python.chmod(stat.S_IRWXU)
    upgrade(settings.storage_url)
    with Store.open(settings.storage_url, settings.data_dir) as store:
        yield Bed(store, settings.data_dir, python, log, [])


def only(screens: dict[Setting, Screen]) -> Screen:
    [found] = screens.values()
    return found


def value(screen: Screen) -> float:
    assert screen.tokens_per_decode_step is not None, screen.reason
    return screen.tokens_per_decode_step.value


def test_ngram_is_replayed_kept_and_told(bed: Bed) -> None:
    run = bed.run({"method": "ngram", "k": [1, 3], "prompt_lookup_max": 4, "prompt_lookup_min": 1})
    found = screen(run, ANSWERS, "V1")
    assert OFF not in found
    assert [setting.k for setting in found] == [1, 3]
    assert bed.store.screens(run.ledger.context) == found
    assert bed.events == [Screened(each) for each in found.values()]
    one, three = found.values()
    assert value(one) < value(three)
    assert three.by_kind["code"].value == 15 / 4
    assert three.by_kind["chat"].value == 1.0
    assert (three.draft_cost, three.requests, three.measurements) == (0.0, 3, ("m1",))
    assert bed.asked == []


def test_runner_v2_drafts_at_every_step(bed: Bed) -> None:
    run = bed.run({"method": "ngram", "k": 2, "prompt_lookup_max": 2})
    v1, v2 = (
        only(screen(run, [replace(a, measurement=m) for a in ANSWERS], m)) for m in ("V1", "V2")
    )
    assert v1.draft_coverage is not None
    assert v1.draft_coverage < 1.0
    assert v2.draft_coverage == 1.0


def test_all_drafts_are_scored_at_once_and_serve_every_k(bed: Bed) -> None:
    run = bed.run(
        {"method": "draft_model", "model": "/small", "k": [1, 3]},
        {"method": "draft_model", "model": "/gone", "k": 2},
    )
    found = screen(run, ANSWERS, "V1")
    one, three, gone = found.values()
    assert (value(one), value(three)) == (15 / 8, 15 / 4), "15 tokens after the prefill's"
    assert (one.draft_cost, one.draft_coverage) == (0.25, 1.0)
    assert gone.reason is not None
    assert gone.reason.startswith("the draft can't be scored: OSError: gone; "), "vLLM can't either"
    [(script, request)] = bed.asked
    assert script == "score_drafts.py"
    assert [draft["model"] for draft in request["drafts"]] == ["/small", "/gone"]
    assert (request["target"], request["dtype"]) == ("/models/target", "float32")
    assert request["device"] == "cpu"
    assert bed.events[0] == Screening("[1/9] scoring")


def test_suffix_gets_the_answers_in_the_order_they_were_asked_for(bed: Bed) -> None:
    run = bed.run({"method": "suffix", "k": [4, 8]})
    start = factories.engine_start(setting=OFF)
    bed.store.add_engine_start(start)
    of_load = factories.measurement(
        id="m1",
        setting=OFF,
        engine_start=start.id,
        load=Load(concurrency=2),
        purpose=Purpose.SCREEN,
    )
    bed.store.add_measurements([of_load])
    found = screen(run, ANSWERS, "V1")
    [(script, request)] = bed.asked
    assert script == "replay_suffix.py"
    assert [answer["prompt"][0] for answer in request["answers"]] == [2, 4, 1]
    assert request["in_flight"] == 2
    assert request["context_tokens"] == 2048
    assert [config["num_speculative_tokens"] for config in request["settings"]] == [4, 8]
    by_kind = found[next(iter(found))].by_kind
    assert by_kind["code"].value == (15 + 15) / (1 + 4), "as the fake interpreter counts steps"
    assert by_kind["chat"].value == 15 / 2


def test_what_is_known_of_the_same_measurements_is_not_worked_out_again(bed: Bed) -> None:
    draft = {"method": "draft_model", "model": "/small", "k": 1}
    first = screen(bed.run(draft), ANSWERS, "V1")
    again = screen(bed.run(draft | {"k": [1, 2]}), ANSWERS, "V1")
    assert again.items() > first.items()
    assert len(bed.asked) == 2
    assert screen(bed.run(draft), ANSWERS, "V1") == first
    assert len(bed.asked) == 2
    others = [replace(answer, measurement="m2") for answer in ANSWERS]
    assert only(screen(bed.run(draft), others, "V1")).measurements == ("m2",)
    assert len(bed.asked) == 3


def test_what_could_not_be_replayed_is_tried_again(bed: Bed) -> None:
    run = bed.run({"method": "draft_model", "model": "/small", "k": 1})
    without = replace(run, python=Path("/nowhere/python"))
    reason = only(screen(without, ANSWERS, "V1")).reason
    assert reason is not None
    assert "set TUNER_ENGINE_PYTHON" in reason
    assert only(screen(run, ANSWERS, "V1")).reason is None


def test_an_interpreter_that_fails_is_a_reason_and_no_end(bed: Bed) -> None:
    bed.python.write_text("#!/bin/sh\necho no torch here >&2\nexit 1\n")
    run = bed.run(
        {"method": "suffix", "k": 4},
        {"method": "draft_model", "model": "/small", "k": 1},
        {"method": "ngram", "k": 1, "prompt_lookup_max": 2},
    )
    suffix, draft, ngram = screen(run, ANSWERS, "V1").values()
    assert str(suffix.reason).endswith("failed: no torch here")
    assert str(draft.reason).endswith("failed: no torch here")
    assert value(ngram) > 1.0


@pytest.mark.parametrize(
    ("candidate", "reason"),
    [
        ({"method": "eagle3", "model": "/head"}, "eagle3 can't be replayed"),
        ({"method": "mtp"}, "mtp can't be replayed; draft_model, ngram, suffix can"),
        ({"method": "ngram_gpu", "prompt_lookup_max": 3}, "ngram_gpu can't be replayed"),
        ({"draft_sample_method": "probabilistic"}, "draft_sample_method probabilistic can't"),
        ({"rejection_sample_method": "block"}, "rejection_sample_method block can't"),
        ({"use_heterogeneous_vocab": True}, "use_heterogeneous_vocab True can't be replayed"),
        ({"parallel_drafting": True}, "parallel_drafting True can't be replayed"),
        (
            {"num_speculative_tokens_per_batch_size": [[1, 4, 2], [5, 64, 0]]},
            r"num_speculative_tokens_per_batch_size \[\[1, 4, 2\], \[5, 64, 0\]\] can't",
        ),
    ],
)
def test_what_cannot_be_replayed_says_why(bed: Bed, candidate: dict[str, Any], reason: str) -> None:
    draft = {"method": "draft_model", "model": "/small"} if "method" not in candidate else {}
    run = bed.run({**draft, **candidate, "k": 2})
    found = only(screen(run, ANSWERS, "V1"))
    assert found.tokens_per_decode_step is None
    assert re.match(reason, str(found.reason))
    assert bed.store.screens(run.ledger.context) == {found.setting: found}
    assert bed.asked == []


def test_defaults_that_are_written_out_change_nothing(bed: Bed) -> None:
    draft = {"method": "draft_model", "model": "/small", "k": 1}
    run = bed.run({**draft, "draft_sample_method": "greedy", "parallel_drafting": False})
    assert value(only(screen(run, ANSWERS, "V1"))) == 15 / 8


def test_an_unknown_runner_leaves_ngram_out(bed: Bed) -> None:
    run = bed.run({"method": "ngram", "k": 1, "prompt_lookup_max": 2})
    assert "which model runner" in str(only(screen(run, ANSWERS, None)).reason)


@pytest.mark.parametrize("answers", [(), (replace(ANSWERS[0], token_ids=()),)])
def test_answers_without_token_ids(bed: Bed, answers: tuple[Recorded, ...]) -> None:
    run = bed.run({"method": "suffix", "k": 1})
    reason = only(screen(run, answers, "V1")).reason
    assert reason == "the baseline's answers came without token ids"
    assert bed.asked == []


def test_a_draft_that_only_vllm_can_load_is_scored_by_a_server_and_the_start_counts(
    bed: Bed,
) -> None:
    fake = {"command": [sys.executable, "-m", "tuner.engine.fake"], "startup_timeout_s": 60}
    run = bed.run(
        {"method": "draft_model", "model": "owner/draft", "k": 3, "quantization": "fp8"},
        engine=fake,
    )
    found = only(screen(run, ANSWERS, "V1"))
    assert found.reason is None
    assert value(found) >= 1
    assert found.draft_cost is None
    [start] = bed.store.engine_starts(run.spec.name)
    assert start.purpose is Purpose.SCREEN
    assert start.setting == OFF
    assert "owner/draft" in start.argv
    assert start.argv[-2:] == ("--quantization", "fp8")
    assert start.startup_s is not None
    assert bed.asked[0][1]["drafts"] == [], "transformers is not asked to load it"
