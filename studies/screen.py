"""Screening: every setting that can be, replayed over the baseline's answers. Starts no engine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from studies.events import Screened, Screening
from studies.run import Run
from studies.screen_server import scored_by_vllm
from tuner.engine.drafts import (
    Interpreter,
    Model,
    Scored,
    ScoredDraft,
    Text,
    replay_suffix,
    score_drafts,
)
from tuner.errors import EngineError, ScoringError
from tuner.predict.acceptance import measurements, not_replayed, screened
from tuner.predict.ngram import Ngram, Runner, lookup_range
from tuner.predict.replay import Recorded, Step, replay_draft_model
from tuner.records import OFF, Screen, Setting
from tuner.vllm import SCHEDULE

REPLAYED_VALUES = {
    "draft_sample_method": "greedy",
    "enable_adaptive_verification": False,
    "max_model_len": None,
    "parallel_drafting": False,
    "rejection_sample_method": "standard",
    SCHEDULE: None,
    "use_heterogeneous_vocab": False,
}
"""Keys of a speculative config that decide what is drafted or accepted: a replay knows only what
they are by default."""

NO_INTERPRETER = (
    "engine.command gives no interpreter to score drafts with: set TUNER_ENGINE_PYTHON to one that"
    " has vLLM"
)
NO_TOKENS = "the baseline's answers came without token ids"
NO_RUNNER = "the engine's log does not say which model runner it uses, and they draft differently"


def screen(run: Run, recorded: Sequence[Recorded], runner: str | None) -> dict[Setting, Screen]:
    """What the baseline's answers say of each setting of the study but off; kept in the store.

    ``runner`` is the engine's, ``V1`` or ``V2``, as its log says. A setting that can't be replayed
    says why. What the store has of the same measurements is not worked out again, but for settings
    that could not be replayed then.
    """
    settings = [setting for setting in run.ledger.settings if not setting.is_off]
    answers = _Answers(run, recorded, runner)
    known = {
        setting: found
        for setting, found in run.store.screens(run.ledger.context).items()
        if found.measurements == measurements(recorded) and found.reason is None
    }
    new = {s.setting: s for s in _screens(answers, [s for s in settings if s not in known])}
    run.store.save_screens(list(new.values()))
    screens = known | new
    for setting in settings:
        run.observe(Screened(screens[setting]))
    return {setting: screens[setting] for setting in settings}


@dataclass(frozen=True)
class _Answers:
    """What is replayed, and what a replay depends on."""

    run: Run
    recorded: Sequence[Recorded]
    runner: str | None

    @property
    def texts(self) -> list[Text]:
        return [(one.prompt_token_ids, one.token_ids) for one in self.recorded]

    @property
    def interpreter(self) -> Interpreter:
        """Raises ScoringError where there is none."""
        if not self.run.python.is_file():
            raise ScoringError(NO_INTERPRETER)
        return Interpreter(self.run.python, self.run.spec.engine.env)

    @property
    def context_tokens(self) -> int | None:
        limit = self.run.spec.engine.args.get("max_model_len")
        return limit if isinstance(limit, int) else None

    def screened(
        self, setting: Setting, steps: Sequence[Sequence[Step]], draft_cost: float | None
    ) -> Screen:
        return screened(setting, self.run.ledger.context, self.recorded, steps, draft_cost)

    def not_replayed(self, setting: Setting, reason: str) -> Screen:
        return not_replayed(setting, self.run.ledger.context, self.recorded, reason)


def _screens(answers: _Answers, settings: Sequence[Setting]) -> Iterator[Screen]:
    by_method: dict[str, list[Setting]] = {}
    for setting in settings:
        if reason := _reason(answers, setting):
            yield answers.not_replayed(setting, reason)
        else:
            by_method.setdefault(setting.method, []).append(setting)
    for method, of_method in by_method.items():
        try:
            yield from REPLAYS[method](answers, of_method)
        except ScoringError as error:
            for setting in of_method:
                yield answers.not_replayed(setting, str(error))


def _reason(answers: _Answers, setting: Setting) -> str | None:
    """Why a setting can't be replayed, as far as it can be told without trying."""
    if not any(one.token_ids for one in answers.recorded):
        return NO_TOKENS
    if setting.method not in REPLAYS:
        return f"{setting.method} can't be replayed; {', '.join(sorted(REPLAYS))} can"
    config = setting.speculative_config or {}
    for key, replayed in REPLAYED_VALUES.items():
        if config.get(key, replayed) != replayed:
            return f"{key} {config[key]} can't be replayed"
    if setting.method == "ngram" and answers.runner not in get_args(Runner):
        return NO_RUNNER
    return None


def _ngram(answers: _Answers, settings: Sequence[Setting]) -> Iterator[Screen]:
    runner: Runner = "V2" if answers.runner == "V2" else "V1"
    texts = [Ngram(*text, runner, answers.context_tokens) for text in answers.texts]
    for setting in settings:
        least, most = lookup_range(setting.speculative_config or {})
        yield answers.screened(setting, [t.steps(least, most, setting.k) for t in texts], 0.0)


def _draft_models(answers: _Answers, settings: Sequence[Setting]) -> Iterator[Screen]:
    drafts = list(dict.fromkeys(map(_draft, settings)))
    scored = _scored(answers, [draft for draft in drafts if draft.quantization is None])
    by_draft = {draft: _score_of(answers, scored, draft) for draft in drafts}
    for setting in settings:
        draft = by_draft[_draft(setting)]
        if isinstance(draft, str):
            yield answers.not_replayed(setting, f"the draft can't be scored: {draft}")
            continue
        steps = [replay_draft_model(agreements, setting.k) for agreements in draft.agreements]
        cost = _share(draft.parameters, scored.target_parameters)
        yield answers.screened(setting, steps, cost)


def _share(parameters: int | None, of_target: int | None) -> float | None:
    return parameters / of_target if parameters is not None and of_target else None


def _draft(setting: Setting) -> Model:
    config = setting.speculative_config or {}
    return Model(config["model"], config.get("revision"), config.get("quantization"))


def _score_of(answers: _Answers, scored: Scored, draft: Model) -> ScoredDraft | str:
    """Transformers' score, or where it could not load the draft that of vLLM itself."""
    found = scored.drafts.get(draft, "")
    if not isinstance(found, str):
        return found
    run = answers.run
    run.observe(Screening(f"starting {draft.name} alone, to score it: {found or 'quantised'}"))
    try:
        return scored_by_vllm(run, draft, answers.texts)
    except EngineError as error:
        return f"{found}; {error}" if found else str(error)


def _scored(answers: _Answers, drafts: Sequence[Model]) -> Scored:
    run, args = answers.run, answers.run.spec.engine.args
    return score_drafts(
        answers.interpreter,
        Model(run.spec.target.model, run.spec.target.revision),
        drafts,
        answers.texts,
        lambda line: run.observe(Screening(line)),
        dtype=str(args.get("dtype") or "auto"),
        device="cpu" if run.context.host.device == "cpu" else "auto",
        trust_remote_code=args.get("trust_remote_code") is True,
    )


def _suffix(answers: _Answers, settings: Sequence[Setting]) -> Iterator[Screen]:
    """In the order in which they were asked for: suffix remembers answers."""
    recorded, texts = answers.recorded, answers.texts
    rounds = measurements(recorded)
    order = sorted(
        range(len(recorded)),
        key=lambda n: (rounds.index(recorded[n].measurement), recorded[n].started_s),
    )
    answers.run.observe(Screening("replaying suffix decoding"))
    replayed = replay_suffix(
        answers.interpreter,
        [setting.speculative_config or {} for setting in settings],
        [texts[n] for n in order],
        in_flight=_in_flight(answers),
        context_tokens=answers.context_tokens,
    )
    for setting, found in zip(settings, replayed, strict=True):
        of_answer = dict(zip(order, found, strict=True))
        steps = [[Step(*step) for step in of_answer[n]] for n in range(len(recorded))]
        yield answers.screened(setting, steps, 0.0)


def _in_flight(answers: _Answers) -> int:
    """At most how many answers were under way at once when they were recorded; 1 for a rate."""
    ids = set(measurements(answers.recorded))
    found = answers.run.store.measurements(context=answers.run.ledger.context, setting=OFF)
    return max((m.load.concurrency or 1 for m in found if m.id in ids), default=1)


REPLAYS: Mapping[str, Callable[[_Answers, Sequence[Setting]], Iterator[Screen]]] = {
    "draft_model": _draft_models,
    "ngram": _ngram,
    "suffix": _suffix,
}
