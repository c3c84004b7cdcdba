import optuna
import pytest
from optuna.samplers import RandomSampler, TPESampler
from optuna.trial import create_trial

from studies.sampler import RankedSampler, UnexploredSampler, distributions, full_parameters
from tuner.records import OFF, Setting


def draft(model: str, k: int) -> Setting:
    return Setting.of({"method": "draft_model", "model": model, "num_speculative_tokens": k})


def ngram(k: int, low: int) -> Setting:
    return Setting.of({"method": "ngram", "num_speculative_tokens": k, "prompt_lookup_min": low})


SPACE = (
    OFF,
    *(draft(model, k) for model in ("good", "bad") for k in (1, 2, 3, 5)),
    *(ngram(k, low) for k in (2, 4, 8) for low in (1, 2)),
)


@pytest.fixture(autouse=True)
def quiet() -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)


def named(trial: optuna.Trial, settings: list[Setting]) -> Setting:
    space = distributions(SPACE)
    return next(s for s in settings if full_parameters(s, space) == trial.params)


@pytest.mark.parametrize("inner", [TPESampler, RandomSampler])
@pytest.mark.parametrize("seed", range(3))
def test_every_setting_is_proposed_once_and_only_once(inner, seed: int) -> None:
    study = optuna.create_study(direction="maximize")
    space = distributions(SPACE)
    study.add_trial(
        create_trial(params=dict(full_parameters(OFF, space)), distributions=space, value=0.0)
    )
    unexplored = list(SPACE[1:])
    proposed = []
    while unexplored:
        study.sampler = UnexploredSampler(SPACE, unexplored, inner(seed=seed))
        trial = study.ask(space)
        setting = named(trial, unexplored)
        proposed.append(setting)
        unexplored.remove(setting)
        study.tell(trial, 0.1 * setting.k if setting.method == "draft_model" else -0.1)
    assert set(proposed) == set(SPACE[1:])


def test_tpe_learns_which_candidate_pays() -> None:
    """The settings of a draft that pays come before those of one that loses."""
    ranks = []
    for seed in range(8):
        study = optuna.create_study(direction="maximize")
        space = distributions(SPACE)
        for setting in SPACE:
            if setting.k in {0, 1, 8}:
                value = 0.5 if "good" in setting.config else -0.5
                study.add_trial(
                    create_trial(
                        params=dict(full_parameters(setting, space)),
                        distributions=space,
                        value=value,
                    )
                )
        unexplored = [s for s in SPACE if s.k not in {0, 1, 8}]
        inner = TPESampler(n_startup_trials=4, seed=seed)
        study.sampler = UnexploredSampler(SPACE, unexplored, inner)
        trial = study.ask(space)
        ranks.append("good" in str(trial.params["candidate"]))
    assert sum(ranks) > len(ranks) / 3  # 3 of the 10 unexplored settings are good: chance is 0.3


def test_of_ranked_settings_the_first_is_proposed() -> None:
    study = optuna.create_study(direction="maximize")
    ranked = [ngram(4, 2), draft("bad", 5), draft("good", 1)]
    study.sampler = RankedSampler(SPACE, ranked)
    assert named(study.ask(distributions(SPACE)), ranked) == ranked[0]
