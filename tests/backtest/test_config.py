"""Configuration: profiles load, mistakes are one error that names the key."""

import tomllib

import pytest

from backtest import config
from backtest.errors import ConfigError
from backtest.market.layout import PARAMS
from backtest.sections import Reward

PROFILES = ("smoketest", "production", "hyperopt")


@pytest.mark.parametrize("name", PROFILES)
def test_profiles_load(name):
    assert config.load(config.profile(name)).study.name == name


def test_the_reward_is_the_same_in_all_profiles():
    tables = [tomllib.loads(config.profile(p).read_text())["reward"] for p in PROFILES]
    assert tables[0] == tables[1] == tables[2]
    assert {k for k in tables[0] if k.startswith("w_")} == {"w_dsr", "w_pnl", "w_dd", "w_idle"}


def test_the_smoke_test_differs_from_production_in_sizes_only():
    small, large = (config.load(config.profile(p)) for p in ("smoketest", "production"))
    sizes = {"batch", "updates", "epochs", "envs", "replay_rows"}
    assert small.learner.model_dump(exclude=sizes) == large.learner.model_dump(exclude=sizes)
    sizes = {"scenarios", "horizon", "latent", "forecaster_updates"}
    assert small.network.model_dump(exclude=sizes) == large.network.model_dump(exclude=sizes)
    sizes = {"evaluate_rounds", "evaluate_episodes", "evaluate_steps"}
    assert small.skills.model_dump(exclude=sizes) == large.skills.model_dump(exclude=sizes)
    other = {"study", "network", "skills", "learner", "runtime"}
    assert small.model_dump(exclude=other) == large.model_dump(exclude=other)


def test_every_reward_key_is_a_kernel_parameter():
    fields = {name for name, _, _ in PARAMS.fields}
    assert set(Reward.model_fields) <= fields


def test_overrides_are_toml_values():
    made = config.load(
        config.profile("smoketest"),
        ["learner.updates=7", "study.seeds=[3, 4]", "folds.cron=0 0 1 * *", "folds.end=2012-01-01"],
    )
    assert made.learner.updates == 7
    assert made.study.seeds == (3, 4)
    assert made.folds.cron == "0 0 1 * *"
    assert made.folds.end == "2012-01-01"


def test_a_formula_brings_its_loss_aversion():
    path = config.profile("smoketest")
    assert config.load(path, ["reward.formula=composite"]).reward.loss_aversion == 1.5
    both = config.load(path, ["reward.formula=composite", "reward.loss_aversion=1.1"])
    assert both.reward.loss_aversion == 1.1


@pytest.mark.parametrize(
    "override, key, hint",
    [
        ("learner.batches=3", "learner.batches", "unknown key"),
        ("lerner.batch=3", "lerner", "unknown key"),
        ("learner.batch=many", "learner.batch", "integer"),
        ("learner.batch=0", "learner.batch", "greater than 0"),
        ("learner.updates=true", "learner.updates", "integer"),
        ('learner.updates="5"', "learner.updates", "integer"),
        ("learner.gamma=1.0", "learner.gamma", "less than 1"),
        ("folds.warmup=100", "folds.warmup", "605"),
        ("folds.purge=5", "folds.purge", "13"),
        ("learner.n_step=12", "", ""),
        ("reward.formula=best", "reward.formula", "calibrated"),
        ("learner.branches=['magnitude']", "learner", "direction"),
        ("study.seeds=[1, 1]", "study", "repeats"),
        ("market.initial_capital=1e9", "SP500", "initial_capital"),
        ("instruments.SP500.lot_size=6.0", "lot_size", "max_position"),
        ("instruments.SP500.point_value=-1", "instruments.SP500.point_value", "greater"),
        ("market.magnitudes=[0.0, 0.5, 1.0]", "market.magnitudes", "greater"),
    ],
)
def test_mistakes_name_the_key(override, key, hint):
    path = config.profile("smoketest")
    if not key:
        config.load(path, [override])
        return
    with pytest.raises(ConfigError) as error:
        config.load(path, [override])
    assert key in str(error.value)
    assert hint in str(error.value)
    assert "\n" not in str(error.value)


def test_all_mistakes_are_reported_together():
    with pytest.raises(ConfigError, match=r"reward\.w_dd.*learner\.batch"):
        config.load(config.profile("smoketest"), ["learner.batch=-1", "reward.w_dd=-1"])


def test_missing_and_broken_files(tmp_path):
    with pytest.raises(ConfigError, match="no such file"):
        config.load(tmp_path / "none.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("[study\n")
    with pytest.raises(ConfigError, match="not valid TOML"):
        config.load(broken)
    with pytest.raises(ConfigError, match="hyperopt"):
        config.profile("fast")


@pytest.mark.parametrize("override", ["learner", "learner=3", "nonsense"])
def test_override_without_a_section(override):
    with pytest.raises(ConfigError, match=r"section\.key=value"):
        config.load(config.profile("smoketest"), [override])
