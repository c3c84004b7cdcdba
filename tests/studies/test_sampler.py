import optuna
import pytest
from optuna.trial import create_trial

from studies.sampler import UnexploredSampler, distributions, full_parameters, opening
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


def test_the_opening_is_the_middle_k_of_each_methods_first_candidate() -> None:
    chosen = opening(SPACE)
    assert [s.method for s in chosen] == ["draft_model", "ngram"]
    assert chosen[0] == draft("good", 3)
    assert chosen[1].k == 4


@pytest.mark.parametrize("seed", range(5))
def test_every_setting_is_proposed_once_and_only_once(seed: int) -> None:
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="maximize")
    space = distributions(SPACE)
    study.add_trial(
        create_trial(params=dict(full_parameters(OFF, space)), distributions=space, value=0.0)
    )
    unexplored = list(SPACE[1:])
    proposed = []
    while unexplored:
        study.sampler = UnexploredSampler(SPACE, unexplored, seed)
        trial = study.ask(space)
        setting = next(s for s in unexplored if full_parameters(s, space) == trial.params)
        proposed.append(setting)
        unexplored.remove(setting)
        study.tell(trial, 0.1 * setting.k if setting.method == "draft_model" else -0.1)
    assert proposed[:2] == opening(SPACE)
    assert set(proposed) == set(SPACE[1:])


def test_tpe_learns_which_candidate_pays() -> None:
    """After the opening, the settings of a method that pays come before those of one that loses."""
    optuna.logging.set_verbosity(optuna.logging.WARNING)
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
        unexplored = [s for s in SPACE if s.k not in {0, 1, 8} and s not in opening(SPACE)]
        study.sampler = UnexploredSampler(SPACE, unexplored, seed)
        trial = study.ask(space)
        ranks.append("good" in str(trial.params["candidate"]))
    assert sum(ranks) > len(ranks) / 3  # 2 of the 10 unexplored settings are good: chance is 0.2
