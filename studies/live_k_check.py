"""A study's live k, checked by itself: before exploring, and without changing the study."""

from __future__ import annotations

from studies.clock import Clock
from studies.events import Observer
from studies.ledger import Ledger
from studies.live_k import Trust, check_live_k
from studies.loop import prepare, study_context
from studies.run import Run
from studies.space import enumerate_settings
from tuner.engine.reap import reap
from tuner.load.prompts import load_prompts
from tuner.settings import Settings
from tuner.spec import StudySpec
from tuner.store import Store


def check_study(
    spec: StudySpec, store: Store, settings: Settings, observe: Observer
) -> list[Trust]:
    """Whether live k agrees with plain engines, for each method of the study that honours it.

    Empty where no candidate has two values of k that one engine could measure. What is found is
    stored for any study whose engines run alike. A study that the store does not know is added.

    Raises PreflightError before anything is started; UsageError where two engines do not fit on the
    device, or another process is at work on the study.
    """
    located, python = prepare(spec, settings, observe)
    with store.study_lock(spec.name):
        reap(settings.data_dir / "engines")
        if spec.name not in {record.name for record in store.studies()}:
            store.save_study(spec)
        context = study_context(located, python)
        ledger = Ledger(store, located, enumerate_settings(located), store.add_context(context))
        run = Run(
            ledger=ledger,
            context=context,
            data_dir=settings.data_dir,
            python=python,
            prompts=load_prompts(located.workload),
            clock=Clock(store, spec.name),
            observe=observe,
        )
        return check_live_k(run, ledger.settings)
