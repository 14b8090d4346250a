"""A fold whose skill banks were made by hand: what `opencl.skills.form_skills` leaves, in seconds.

The banks are real and small: a few random skills in a threshold that almost any context passes, so
that they change decisions.
"""

from dataclasses import replace

import numpy as np

from backtest.agent.bank import Bank, SlotState
from backtest.agent.checkpoint import load_policy, save_policy
from backtest.lake import read_json, write_json
from opencl.formation.rows import skill_rows
from opencl.seed_training import train_seed
from opencl.training import TrainSpec
from tests.study import FOLDS, opened

NAME, KEY = "ONE", FOLDS[0]
SLOTS, TAKEN = 4, 2
SCENARIO = (
    "network.kind=scenario",
    "network.scenarios=2",
    "network.horizon=2",
    "network.latent=4",
    "network.forecaster_hidden=8",
    "network.forecaster_updates=4",
    "aux.updates=4",
    f"skills.bank.slots={SLOTS}",
)
BANKS = 'skills.banks=["task","step"]'
ALPHAS = {"task": 3.0, "step": 1.0}


PICKS = {0: "step", 1: "none"}  # by seed


def made(root):
    """Return a study of one instrument with both banks, its first fold evaluated and published."""
    from backtest.walk_forward import publish_study
    from opencl.fold_result import evaluate_fold

    experiment = opened(root, *SCENARIO, BANKS)
    for seed, chosen in PICKS.items():
        train_seed(spec_of(experiment, seed))
        formed(spec_of(experiment, seed), chosen)
    evaluate_fold(experiment, NAME, KEY, "evaluated")
    publish_study(experiment, "published")
    return experiment


def spec_of(experiment, seed):
    """Return what to train of a seed."""
    return TrainSpec(experiment.config, experiment.lake.root, NAME, KEY, seed, "trained")


def dims(network):
    """Return D of both banks."""
    step = network.scenarios * network.horizon * network.latent
    return {"task": 3 * network.scenarios * network.latent, "step": step}


def random_bank(dim, seed):
    """Return a closed bank of `TAKEN` skills that nearly every context retrieves."""
    chance = np.random.default_rng(seed)
    bank = Bank(
        SLOTS,
        dim,
        similarity_threshold=-0.9,
        direction_threshold=0.99,  # so that no second observation joins the first
        centering="none",
        aggregate=1,
        min_confirmations=1,
    )
    for _ in range(TAKEN):
        bank.update(*chance.normal(0, 1, (2, dim)).astype(np.float32))
    bank.close_collection()
    assert [int(s) for s in bank.state.state].count(SlotState.PROTECTED) == TAKEN
    return bank


def formed(spec: TrainSpec, chosen: str = "step", banks=("task", "step")):
    """Write banks, a policy trained on and the summary of one trained seed; return its path.

    Args:
        spec: of the seed.
        chosen: the variant that validation is said to have picked.
        banks: task, step or both.
    """
    experiment, lake = spec.experiment, spec.experiment.lake
    place = (experiment.study_id, spec.instrument, spec.fold_key, spec.fold_id)
    folder = lake.skills(*place)
    folder.mkdir(parents=True, exist_ok=True)
    trained = read_json(lake.policies(*place) / f"seed_{spec.seed}.json")
    path = trained["policy"]["path"]
    policy = load_policy(lake.root / path)
    weight_hash = policy.weights.weight_hash
    made = {name: random_bank(dims(policy.network)[name], spec.seed) for name in banks}
    files = {name: folder / f"seed_{spec.seed}_{name}.safetensors" for name in banks}
    for name, bank in made.items():
        bank.save(files[name], weight_hash)
    tuned = folder / f"seed_{spec.seed}_finetune.safetensors"
    chance = np.random.default_rng(spec.seed)
    state = {
        name: array + chance.normal(0, 0.3, array.shape).astype(np.float32)
        if name.startswith(("value", "advantage"))
        else array
        for name, array in policy.state.items()
    }
    save_policy(tuned, replace(policy, state=state, update=policy.update + 7))
    names = ["none", *banks, *(["both"] if len(banks) > 1 else []), "finetune"]
    variants = []
    for place, name in enumerate(names):
        used = banks if name == "both" else tuple(bank for bank in banks if bank == name)
        tried = name != "none"
        variants.append(
            {
                "variant": name,
                "alpha": {bank: ALPHAS[bank] if bank in used else None for bank in ALPHAS},
                "adopted": name == chosen != "none",
                "chosen": name == chosen,
                "validation_delta": 0.1 * place if tried else None,
                "validation_low": (0.05 if name == chosen else -0.1) if tried else None,
                "validation_high": 0.5 if tried else None,
                "decisions_changed_validation": 10 * place,
                "policy": tuned.relative_to(lake.root).as_posix() if name == "finetune" else path,
            }
        )
    summary = folder / f"seed_{spec.seed}.json"
    key = {"fold_id": spec.fold_id, "seed": spec.seed}
    write_json(
        summary,
        {
            "made_by": "by hand",
            "weight_hash": weight_hash,
            "banks": {name: path.relative_to(lake.root).as_posix() for name, path in files.items()},
            "skill": [
                row
                for name, bank in made.items()
                for row in skill_rows(key, name, bank, bank.state.influence)
            ],
            "bank_stat": [
                {**key, "bank": name, "name": counter, "value": float(value)}
                for name, bank in made.items()
                for counter, value in bank.counters.items()
            ],
            "variants": variants,
            "trials": [
                trial(trained["trial"], entry, trained["trial_return"])
                for entry in variants
                if entry["variant"] != "none"
            ],
            "budget": {"collect_rows": 100, "finetune_updates": 7, "seconds": {"collect": 0.5}},
        },
    )
    return summary


def trial(trained, entry, returns):
    """Return a trial of the ablation with its returns."""
    return trained | {
        "trial_id": f"{trained['trial_id']}-{entry['variant']}",
        "kind": "ablation",
        "params": {"variant": entry["variant"], "alpha": entry["alpha"]},
        "objective": 0.25,
        "trial_return": [{**row, "pnl": row["pnl"] + 1.0} for row in returns],
    }
