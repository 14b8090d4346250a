"""Folds as partitions: which upstream keys a fold reads, and that they are the plan's."""

import dagster as dg
import pytest
from dagster._core.definitions.assets.graph.asset_graph import AssetGraph

from assets.graph import graph
from assets.partitions import INSTRUMENTS, partition, partitions, parts
from backtest.calendar_folds import calendar_folds, window_keys
from backtest.errors import ConfigError
from backtest.lake import Lake
from tests.study import FOLDS, PARTIAL, configuration

YEARLY = (
    'folds.cron="0 0 1 1 *"',
    "folds.train=8",
    "folds.validation=1",
    'folds.start="1999-01-01"',
    'folds.end="2019-01-01"',
)


@pytest.fixture
def empty(tmp_path):
    """Yearly folds of a lake without bars."""
    return partitions(configuration(*YEARLY), Lake(tmp_path))


@pytest.fixture
def instance():
    with dg.DagsterInstance.ephemeral() as opened:
        opened.add_dynamic_partitions(INSTRUMENTS.name, ["ONE", "TWO"])
        yield opened


def upstream(plan, instance, asset, of, key):
    """Return the partitions of `of` that a partition of an asset depends on."""
    nodes = AssetGraph.from_assets(graph(plan))
    child, parent = dg.AssetKey(asset), dg.AssetKey(of)
    mapping = nodes.get_partition_mapping(child, parent)
    found = mapping.get_upstream_mapped_partitions_result_for_partitions(
        downstream_partitions_subset=nodes.get(child)
        .partitions_def.empty_subset()
        .with_partition_keys([partition("ONE", key)]),
        downstream_partitions_def=nodes.get(child).partitions_def,
        upstream_partitions_def=nodes.get(parent).partitions_def,
        dynamic_partitions_store=instance,
    )
    assert not found.required_but_nonexistent_subset.get_partition_keys()
    return sorted(str(k) for k in found.partitions_subset.get_partition_keys())


def years(first, last):
    return [f"{year}-01-01|ONE" for year in range(first, last + 1)]


@pytest.mark.parametrize(
    ("asset", "of", "keys"),
    [
        ("experience", "features", years(2004, 2011)),  # train windows alone
        ("policy", "features", years(2004, 2012)),  # and validation
        ("fold_result", "features", years(2013, 2013)),  # its own window
        ("policy", "experience", years(2013, 2013)),
        ("skill_bank", "features", years(2004, 2012)),  # never its own window
        ("skill_bank", "policy", years(2013, 2013)),
        ("fold_result", "policy", years(2013, 2013)),
        ("fold_result", "skill_bank", years(2013, 2013)),
        ("experience", "reward_audit", ["ONE"]),
        ("features", "bars", ["ONE"]),
    ],
)
def test_a_fold_reads_these_upstream_partitions_and_no_other(empty, instance, asset, of, keys):
    assert upstream(empty, instance, asset, of, "2013-01-01") == keys


def test_publication_reads_every_fold(empty):
    nodes = AssetGraph.from_assets(graph(empty))
    mapping = nodes.get_partition_mapping(dg.AssetKey("walk_forward"), dg.AssetKey("fold_result"))
    assert isinstance(mapping, dg.AllPartitionMapping)


def test_no_asset_reads_anything_else(empty):
    nodes = AssetGraph.from_assets(graph(empty))
    parents = {
        key.to_user_string(): {k.to_user_string() for k in nodes.get(key).parent_keys}
        for key in nodes.get_all_asset_keys()
    }
    assert parents == {
        "raw_bars": set(),
        "bars": {"raw_bars"},
        "reward_audit": {"bars"},
        "features": {"bars"},
        "experience": {"features", "reward_audit"},
        "policy": {"features", "experience"},
        "skill_bank": {"features", "policy"},
        "fold_result": {"features", "policy", "skill_bank"},
        "walk_forward": {"fold_result"},
        "report": {"walk_forward"},
    }


def test_without_bars_the_plan_begins_with_its_start(empty):
    assert empty.window_keys()[0] == "1999-01-01" and empty.window_keys()[-1] == "2018-01-01"
    assert empty.fold_keys() == [f"{year}-01-01" for year in range(2008, 2019)]


def test_with_bars_folds_begin_after_warm_up_train_and_validation(study):
    plan = partitions(study.config, study.lake)
    bars = study.bars("ONE")
    folds = calendar_folds(study.config.folds, bars.time, bars.session, True)
    assert plan.fold_keys()[:4] == [fold.key for fold in folds] == [*FOLDS, PARTIAL]
    windows = list(study.windows("ONE"))
    assert plan.window_keys()[: len(windows)] == windows
    assert windows.index(FOLDS[0]) >= plan.history


@pytest.mark.parametrize(
    "cron", ["0 0 1 * *", "0 0 1 */3 *", "0 0 * * 1", "0 0 1,15 * *", "0 0 * * 7", "0 6 * * *"]
)
def test_partition_keys_are_those_of_the_plan(study, cron):
    """The same cron in two libraries: a key that one of them lacks would be a lost window."""
    config = configuration(f'folds.cron="{cron}"')
    bars = study.bars("ONE")
    plan = partitions(config, study.lake)
    keys = window_keys(config.folds, bars.time, bars.session, True)
    assert plan.window_keys()[: len(keys)] == keys


def test_a_plan_without_room_for_a_fold_is_refused(tmp_path):
    config = configuration(*YEARLY[:3], 'folds.start="2012-01-01"', 'folds.end="2019-01-01"')
    with pytest.raises(ConfigError, match=r"has 7 windows from 2012-01-01 on, the plan needs 10"):
        partitions(config, Lake(tmp_path))


def test_a_key_names_instrument_and_fold():
    key = partition("ONE", "2013-01-01")
    assert str(key) == "2013-01-01|ONE" and parts(key) == ("ONE", "2013-01-01")
