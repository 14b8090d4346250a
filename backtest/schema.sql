-- Every table of the store: columns, keys, allowed values, units. Declared here and nowhere else:
-- fold Parquet files have exactly these columns, and the views of views.sql read only these.
--
-- Times are TIMESTAMP (microseconds) in UTC, not TIMESTAMP WITH TIME ZONE: the latter prints in
-- the reader's zone, so that the same query would show other text on another machine.
-- bar = global bar index of the instrument, never re-based; ranges are half-open [start, stop).
-- NULL = undefined (flat equity, too few rows, not applicable); NaN and infinity never occur.

CREATE TABLE study (
    study_id VARCHAR PRIMARY KEY,
    config JSON NOT NULL, code_hash VARCHAR NOT NULL, created TIMESTAMP NOT NULL,
    package_version VARCHAR NOT NULL, library_versions JSON NOT NULL
);
COMMENT ON TABLE study IS 'One experiment: settings and code; seeds and instruments are dimensions of its results';
COMMENT ON COLUMN study.study_id IS '16 hex digits of SHA-256(settings that can change a row, code hash)';
COMMENT ON COLUMN study.config IS 'settings that can change a row, JSON';
COMMENT ON COLUMN study.code_hash IS 'SHA-256 of all files of backtest/ and opencl/';
COMMENT ON COLUMN study.created IS 'first execution, UTC';
COMMENT ON COLUMN study.package_version IS 'version of skillwalk';
COMMENT ON COLUMN study.library_versions IS 'library name to version, JSON';

CREATE TABLE run (
    run_id VARCHAR PRIMARY KEY,
    study_id VARCHAR NOT NULL, started TIMESTAMP NOT NULL, finished TIMESTAMP,
    device VARCHAR, driver VARCHAR, host_os VARCHAR NOT NULL,
    status VARCHAR NOT NULL CHECK (status IN ('running', 'complete', 'failed', 'cancelled')),
    command VARCHAR NOT NULL
);
COMMENT ON TABLE run IS 'One execution';
COMMENT ON COLUMN run.run_id IS 'name of one execution, sorts by start';
COMMENT ON COLUMN run.study_id IS 'the study it computed';
COMMENT ON COLUMN run.started IS 'UTC';
COMMENT ON COLUMN run.finished IS 'UTC; NULL while running, or when it was killed';
COMMENT ON COLUMN run.device IS 'OpenCL device name';
COMMENT ON COLUMN run.driver IS 'OpenCL driver version';
COMMENT ON COLUMN run.host_os IS 'operating system and release';
COMMENT ON COLUMN run.status IS 'running, complete, failed, cancelled';
COMMENT ON COLUMN run.command IS 'command line, or the Dagster job';

CREATE TABLE fold (
    fold_id VARCHAR PRIMARY KEY,
    study_id VARCHAR NOT NULL, instrument VARCHAR NOT NULL, fold_key VARCHAR NOT NULL,
    index INTEGER NOT NULL,
    train_start BIGINT, train_stop BIGINT, validation_start BIGINT, validation_stop BIGINT,
    test_start BIGINT, test_stop BIGINT,
    train_start_time TIMESTAMP, train_stop_time TIMESTAMP, validation_start_time TIMESTAMP,
    validation_stop_time TIMESTAMP, test_start_time TIMESTAMP, test_stop_time TIMESTAMP,
    n_bars BIGINT NOT NULL,
    status VARCHAR NOT NULL
        CHECK (status IN ('complete', 'partial', 'skipped', 'missing', 'failed')),
    superseded BOOLEAN NOT NULL, reason VARCHAR, features_hash VARCHAR, bars_hash VARCHAR,
    CHECK (train_start <= train_stop AND train_stop <= validation_start
        AND validation_start <= validation_stop AND validation_stop <= test_start
        AND test_start <= test_stop)
);
COMMENT ON TABLE fold IS 'One walk-forward fold of one instrument; read those with superseded = false';
COMMENT ON COLUMN fold.fold_id IS '16 hex digits of SHA-256(study_id, instrument, fold_key, bar rows [0, test_stop))';
COMMENT ON COLUMN fold.study_id IS 'the study';
COMMENT ON COLUMN fold.instrument IS 'name of the instrument';
COMMENT ON COLUMN fold.fold_key IS 'partition key: first day of the test window (UTC)';
COMMENT ON COLUMN fold.index IS 'place in the plan, from 0, rising with time';
COMMENT ON COLUMN fold.train_start IS 'bar, first of train';
COMMENT ON COLUMN fold.train_stop IS 'bar, one past train; the purge follows';
COMMENT ON COLUMN fold.validation_start IS 'bar, first of validation';
COMMENT ON COLUMN fold.validation_stop IS 'bar, one past validation; the purge follows';
COMMENT ON COLUMN fold.test_start IS 'bar, first of test: its PnL counts out of sample';
COMMENT ON COLUMN fold.test_stop IS 'bar, one past test';
COMMENT ON COLUMN fold.train_start_time IS 'close of bar train_start, UTC';
COMMENT ON COLUMN fold.train_stop_time IS 'close of bar train_stop - 1, UTC';
COMMENT ON COLUMN fold.validation_start_time IS 'close of bar validation_start, UTC';
COMMENT ON COLUMN fold.validation_stop_time IS 'close of bar validation_stop - 1, UTC';
COMMENT ON COLUMN fold.test_start_time IS 'close of bar test_start, UTC';
COMMENT ON COLUMN fold.test_stop_time IS 'close of bar test_stop - 1, UTC';
COMMENT ON COLUMN fold.n_bars IS 'bars of the test window';
COMMENT ON COLUMN fold.status IS 'complete; partial = window still open; skipped = no bars or too little history; missing = expected, never computed; failed';
COMMENT ON COLUMN fold.superseded IS 'true when a newer result of the same study, instrument and fold_key exists; set at publication';
COMMENT ON COLUMN fold.reason IS 'why it is not complete';
COMMENT ON COLUMN fold.features_hash IS 'SHA-256 of the feature rows used';
COMMENT ON COLUMN fold.bars_hash IS 'SHA-256 of the bar rows [0, test_stop)';

CREATE TABLE trial (
    trial_id VARCHAR PRIMARY KEY,
    study_id VARCHAR NOT NULL, fold_id VARCHAR NOT NULL,
    kind VARCHAR NOT NULL CHECK (kind IN ('train', 'search', 'ablation')),
    params JSON NOT NULL, seed INTEGER NOT NULL CHECK (seed >= 0),
    phase VARCHAR CHECK (phase IN ('fast', 'full', 'reward')),
    objective DOUBLE, started TIMESTAMP NOT NULL, seconds DOUBLE,
    status VARCHAR NOT NULL CHECK (status IN ('running', 'complete', 'failed', 'pruned'))
);
COMMENT ON TABLE trial IS 'Ledger: everything ever evaluated on a data set; the deflated Sharpe counts its rows';
COMMENT ON COLUMN trial.trial_id IS 'hash of what the trial evaluated';
COMMENT ON COLUMN trial.study_id IS 'the study';
COMMENT ON COLUMN trial.fold_id IS 'the fold; its instrument and fold_key are the data set';
COMMENT ON COLUMN trial.kind IS 'train, search, ablation';
COMMENT ON COLUMN trial.params IS 'what differs from the study config, JSON';
COMMENT ON COLUMN trial.seed IS 'seed of the training run';
COMMENT ON COLUMN trial.phase IS 'of a search: fast, full, reward; NULL otherwise';
COMMENT ON COLUMN trial.objective IS 'annualised validation Sharpe, per sqrt(year)';
COMMENT ON COLUMN trial.started IS 'UTC';
COMMENT ON COLUMN trial.seconds IS 'wall-clock seconds';
COMMENT ON COLUMN trial.status IS 'running, complete, failed, pruned';

CREATE TABLE trial_return (
    trial_id VARCHAR, session DATE,
    pnl DOUBLE NOT NULL,
    PRIMARY KEY (trial_id, session)
);
COMMENT ON TABLE trial_return IS 'Validation returns of each trial, by session';
COMMENT ON COLUMN trial_return.trial_id IS 'the trial';
COMMENT ON COLUMN trial_return.session IS 'session date in the validation window';
COMMENT ON COLUMN trial_return.pnl IS 'net PnL of the session, currency';

CREATE TABLE policy (
    fold_id VARCHAR, seed INTEGER CHECK (seed >= 0),
    variant VARCHAR CHECK (variant IN ('none', 'task', 'step', 'both', 'finetune')),
    run_id VARCHAR NOT NULL, network VARCHAR NOT NULL, path VARCHAR NOT NULL,
    weight_hash VARCHAR NOT NULL, steps BIGINT NOT NULL, updates BIGINT NOT NULL,
    best_epoch INTEGER, validation_sharpe DOUBLE, train_sharpe DOUBLE, v_min DOUBLE, v_max DOUBLE,
    edge_mass DOUBLE, device VARCHAR NOT NULL,
    PRIMARY KEY (fold_id, seed, variant)
);
COMMENT ON TABLE policy IS 'One trained policy';
COMMENT ON COLUMN policy.fold_id IS 'the fold';
COMMENT ON COLUMN policy.seed IS 'training seed';
COMMENT ON COLUMN policy.variant IS 'none, task, step, both: skill banks in use; finetune: equal budget without banks';
COMMENT ON COLUMN policy.run_id IS 'execution that wrote the row';
COMMENT ON COLUMN policy.network IS 'kind and sizes of the network';
COMMENT ON COLUMN policy.path IS 'checkpoint, relative to the lake';
COMMENT ON COLUMN policy.weight_hash IS 'SHA-256 of the weights';
COMMENT ON COLUMN policy.steps IS 'environment steps collected';
COMMENT ON COLUMN policy.updates IS 'gradient updates';
COMMENT ON COLUMN policy.best_epoch IS 'epoch with the best validation Sharpe, from 0';
COMMENT ON COLUMN policy.validation_sharpe IS 'annualised, of best_epoch, per sqrt(year); with banks: of the variant';
COMMENT ON COLUMN policy.train_sharpe IS 'annualised, of best_epoch, per sqrt(year); NULL: variants other than none';
COMMENT ON COLUMN policy.v_min IS 'lowest atom, reward';
COMMENT ON COLUMN policy.v_max IS 'highest atom, reward';
COMMENT ON COLUMN policy.edge_mass IS 'mean probability of the two outer atoms, fraction';
COMMENT ON COLUMN policy.device IS 'device that trained it';

CREATE TABLE curve (
    fold_id VARCHAR, seed INTEGER CHECK (seed >= 0), epoch INTEGER CHECK (epoch >= 0),
    loss DOUBLE, q_mean DOUBLE, epsilon DOUBLE, train_sharpe DOUBLE, validation_sharpe DOUBLE,
    entropy_direction DOUBLE, entropy_magnitude DOUBLE, entropy_order DOUBLE,
    entropy_urgency DOUBLE, steps_per_s DOUBLE, updates_per_s DOUBLE,
    PRIMARY KEY (fold_id, seed, epoch)
);
COMMENT ON TABLE curve IS 'Learning curves, one row per epoch';
COMMENT ON COLUMN curve.fold_id IS 'the fold';
COMMENT ON COLUMN curve.seed IS 'training seed';
COMMENT ON COLUMN curve.epoch IS 'round of collect, update, validate, from 0';
COMMENT ON COLUMN curve.loss IS 'mean cross entropy, nats';
COMMENT ON COLUMN curve.q_mean IS 'mean value of the chosen actions, reward';
COMMENT ON COLUMN curve.epsilon IS 'share of random actions at the end of the epoch, fraction';
COMMENT ON COLUMN curve.train_sharpe IS 'annualised, greedy, per sqrt(year)';
COMMENT ON COLUMN curve.validation_sharpe IS 'annualised, greedy, per sqrt(year)';
COMMENT ON COLUMN curve.entropy_direction IS 'entropy of the greedy choices, nats; NULL: branch not learned';
COMMENT ON COLUMN curve.entropy_magnitude IS 'entropy of the greedy choices, nats; NULL: branch not learned';
COMMENT ON COLUMN curve.entropy_order IS 'entropy of the greedy choices, nats; NULL: branch not learned';
COMMENT ON COLUMN curve.entropy_urgency IS 'entropy of the greedy choices, nats; NULL: branch not learned';
COMMENT ON COLUMN curve.steps_per_s IS 'environment steps per second of collection';
COMMENT ON COLUMN curve.updates_per_s IS 'gradient updates per second of training';

CREATE TABLE equity (
    fold_id VARCHAR, seed INTEGER CHECK (seed >= -1), variant VARCHAR, bar BIGINT,
    policy_kind VARCHAR NOT NULL CHECK (policy_kind IN ('learned', 'baseline')),
    time TIMESTAMP NOT NULL, position DOUBLE NOT NULL, close DOUBLE NOT NULL, fill_price DOUBLE,
    gross DOUBLE NOT NULL, cost DOUBLE NOT NULL, pnl DOUBLE NOT NULL, equity DOUBLE NOT NULL,
    drawdown DOUBLE NOT NULL, reward DOUBLE,
    PRIMARY KEY (fold_id, seed, variant, bar),
    CHECK (variant <> 'chosen' AND (policy_kind = 'learned')
        = (variant IN ('none', 'task', 'step', 'both', 'finetune')))
);
COMMENT ON TABLE equity IS 'Test window bar by bar; every fold starts at the initial capital';
COMMENT ON COLUMN equity.fold_id IS 'the fold';
COMMENT ON COLUMN equity.seed IS 'training seed; -1 = deterministic baseline; draw number of the random baseline';
COMMENT ON COLUMN equity.variant IS 'none, task, step, both, finetune, or the name of the baseline';
COMMENT ON COLUMN equity.bar IS 'bar whose PnL this is; decided one bar earlier';
COMMENT ON COLUMN equity.policy_kind IS 'learned, baseline';
COMMENT ON COLUMN equity.time IS 'close of the bar, UTC';
COMMENT ON COLUMN equity.position IS 'after the fill, units';
COMMENT ON COLUMN equity.close IS 'price, points';
COMMENT ON COLUMN equity.fill_price IS 'price, points; NULL: no fill';
COMMENT ON COLUMN equity.gross IS 'PnL before cost, currency';
COMMENT ON COLUMN equity.cost IS 'cost, currency, >= 0';
COMMENT ON COLUMN equity.pnl IS 'gross - cost, currency';
COMMENT ON COLUMN equity.equity IS 'initial capital + sum of pnl of this fold, currency';
COMMENT ON COLUMN equity.drawdown IS '(peak - equity) / peak, fraction; peak starts at the initial capital; may exceed 1';
COMMENT ON COLUMN equity.reward IS 'reward of the step, dimensionless';

CREATE TABLE trade (
    fold_id VARCHAR, seed INTEGER CHECK (seed >= -1), variant VARCHAR, trade INTEGER,
    policy_kind VARCHAR NOT NULL CHECK (policy_kind IN ('learned', 'baseline')),
    side VARCHAR NOT NULL CHECK (side IN ('long', 'short')),
    units DOUBLE NOT NULL CHECK (units > 0),
    entry_bar BIGINT NOT NULL, entry_time TIMESTAMP NOT NULL, entry_price DOUBLE NOT NULL,
    exit_bar BIGINT NOT NULL, exit_time TIMESTAMP NOT NULL, exit_price DOUBLE NOT NULL,
    bars BIGINT NOT NULL, gross DOUBLE NOT NULL, cost DOUBLE NOT NULL, pnl DOUBLE NOT NULL,
    reason VARCHAR NOT NULL CHECK (reason IN ('exit', 'flip', 'ruin', 'open')),
    PRIMARY KEY (fold_id, seed, variant, trade),
    CHECK (variant <> 'chosen' AND (policy_kind = 'learned')
        = (variant IN ('none', 'task', 'step', 'both', 'finetune'))),
    CHECK (entry_bar <= exit_bar)
);
COMMENT ON TABLE trade IS 'Trades of the test window';
COMMENT ON COLUMN trade.fold_id IS 'the fold';
COMMENT ON COLUMN trade.seed IS 'training seed; -1 = deterministic baseline; draw number of the random baseline';
COMMENT ON COLUMN trade.variant IS 'none, task, step, both, finetune, or the name of the baseline';
COMMENT ON COLUMN trade.trade IS 'number of the trade, from 0, by exit';
COMMENT ON COLUMN trade.policy_kind IS 'learned, baseline';
COMMENT ON COLUMN trade.side IS 'long, short';
COMMENT ON COLUMN trade.units IS 'largest position of the trade, units, > 0';
COMMENT ON COLUMN trade.entry_bar IS 'bar of the first fill';
COMMENT ON COLUMN trade.entry_time IS 'close of entry_bar, UTC';
COMMENT ON COLUMN trade.entry_price IS 'average entry, points';
COMMENT ON COLUMN trade.exit_bar IS 'bar of the last fill, or of the last mark';
COMMENT ON COLUMN trade.exit_time IS 'close of exit_bar, UTC';
COMMENT ON COLUMN trade.exit_price IS 'average exit, or the last mark, points';
COMMENT ON COLUMN trade.bars IS 'holding time, bars';
COMMENT ON COLUMN trade.gross IS 'result before cost, currency';
COMMENT ON COLUMN trade.cost IS 'cost of all its fills, currency, >= 0';
COMMENT ON COLUMN trade.pnl IS 'gross - cost, currency';
COMMENT ON COLUMN trade.reason IS 'what closed it: exit, flip, ruin; open = marked at the end of the window';

CREATE TABLE metric (
    scope VARCHAR CHECK (scope IN ('fold', 'instrument', 'study')), scope_id VARCHAR,
    policy_kind VARCHAR CHECK (policy_kind IN ('learned', 'baseline')), variant VARCHAR,
    seed INTEGER CHECK (seed >= -2), name VARCHAR,
    value DOUBLE, low DOUBLE, high DOUBLE, n BIGINT,
    PRIMARY KEY (scope, scope_id, policy_kind, variant, seed, name),
    CHECK ((policy_kind = 'learned')
        = (variant IN ('none', 'task', 'step', 'both', 'finetune', 'chosen')))
);
COMMENT ON TABLE metric IS 'Every figure of evaluation, long form; NULL = undefined';
COMMENT ON COLUMN metric.scope IS 'fold, instrument, study';
COMMENT ON COLUMN metric.scope_id IS 'fold_id, study_id/instrument, or study_id';
COMMENT ON COLUMN metric.policy_kind IS 'learned, baseline';
COMMENT ON COLUMN metric.variant IS 'none, task, step, both, finetune, chosen (what validation picked per fold), or the name of the baseline';
COMMENT ON COLUMN metric.seed IS '>= 0 real, -1 deterministic baseline, -2 over all seeds';
COMMENT ON COLUMN metric.name IS 'name of the metric; fixes the unit of value, low and high';
COMMENT ON COLUMN metric.value IS 'the figure, unit by name; at seed -2 the interquartile mean over seeds';
COMMENT ON COLUMN metric.low IS 'lower end of the interval, unit of value';
COMMENT ON COLUMN metric.high IS 'upper end of the interval, unit of value';
COMMENT ON COLUMN metric.n IS 'observations behind value: sessions, trades, bars or seeds';

CREATE TABLE reward_component (
    fold_id VARCHAR, seed INTEGER CHECK (seed >= -1), variant VARCHAR, name VARCHAR,
    mean DOUBLE, std DOUBLE, share DOUBLE,
    PRIMARY KEY (fold_id, seed, variant, name)
);
COMMENT ON TABLE reward_component IS 'What the reward was made of in the test window';
COMMENT ON COLUMN reward_component.fold_id IS 'the fold';
COMMENT ON COLUMN reward_component.seed IS 'training seed';
COMMENT ON COLUMN reward_component.variant IS 'none, task, step, both, finetune, or the name of the baseline';
COMMENT ON COLUMN reward_component.name IS 'component, or reward';
COMMENT ON COLUMN reward_component.mean IS 'per step, unweighted, dimensionless (composite: tx_cost in currency)';
COMMENT ON COLUMN reward_component.std IS 'per step, ddof 1, unit of mean';
COMMENT ON COLUMN reward_component.share IS 'mean |weighted term| / sum of those over the terms in the sum, fraction';

CREATE TABLE reward_audit (
    study_id VARCHAR, instrument VARCHAR, formula VARCHAR, source VARCHAR, policy VARCHAR,
    horizon INTEGER,
    mean_reward DOUBLE NOT NULL, mean_dsr DOUBLE, mean_pnl_z DOUBLE, mean_dd_penalty DOUBLE,
    mean_idle DOUBLE, mean_trend DOUBLE, mean_vol DOUBLE, mean_asym DOUBLE, mean_hold_rent DOUBLE,
    mean_tx_cost DOUBLE, mean_r_aux DOUBLE, net_pnl DOUBLE NOT NULL, order_ok BOOLEAN,
    PRIMARY KEY (study_id, instrument, formula, source, policy, horizon),
    CHECK (formula IN ('composite', 'calibrated'))
);
COMMENT ON TABLE reward_audit IS 'Scripted policies under the reward: does it rank them by skill?';
COMMENT ON COLUMN reward_audit.study_id IS 'the study';
COMMENT ON COLUMN reward_audit.instrument IS 'name of the instrument';
COMMENT ON COLUMN reward_audit.formula IS 'composite, calibrated';
COMMENT ON COLUMN reward_audit.source IS 'where the bars came from, such as synthetic or user';
COMMENT ON COLUMN reward_audit.policy IS 'scripted policy';
COMMENT ON COLUMN reward_audit.horizon IS 'episode length, steps';
COMMENT ON COLUMN reward_audit.mean_reward IS 'per step, dimensionless';
COMMENT ON COLUMN reward_audit.mean_dsr IS 'differential Sharpe ratio per step, unweighted, dimensionless';
COMMENT ON COLUMN reward_audit.mean_pnl_z IS 'scaled PnL per step, unweighted, dimensionless';
COMMENT ON COLUMN reward_audit.mean_dd_penalty IS 'drawdown penalty per step, unweighted, dimensionless';
COMMENT ON COLUMN reward_audit.mean_idle IS 'idle penalty per step, unweighted, dimensionless';
COMMENT ON COLUMN reward_audit.mean_trend IS 'trend factor, dimensionless, in [0.5, 2]';
COMMENT ON COLUMN reward_audit.mean_vol IS 'volatility factor, dimensionless, in [0.5, 2]';
COMMENT ON COLUMN reward_audit.mean_asym IS 'loss-averse PnL per step, unweighted, dimensionless';
COMMENT ON COLUMN reward_audit.mean_hold_rent IS 'hold rent per step, dimensionless';
COMMENT ON COLUMN reward_audit.mean_tx_cost IS 'cost per step, currency';
COMMENT ON COLUMN reward_audit.mean_r_aux IS 'bonus at trade close per step, dimensionless';
COMMENT ON COLUMN reward_audit.net_pnl IS 'mean net PnL of an episode, currency';
COMMENT ON COLUMN reward_audit.order_ok IS 'the policy stands in its required place; NULL: no place required';

CREATE TABLE skill (
    fold_id VARCHAR, seed INTEGER CHECK (seed >= 0), bank VARCHAR CHECK (bank IN ('task', 'step')),
    slot INTEGER CHECK (slot >= 0),
    state VARCHAR NOT NULL
        CHECK (state IN ('free', 'candidate', 'protected', 'active', 'inactive')),
    utility DOUBLE, uses BIGINT NOT NULL, observations BIGINT NOT NULL, age BIGINT NOT NULL,
    mass DOUBLE, scale DOUBLE, hits BIGINT NOT NULL, influence DOUBLE,
    PRIMARY KEY (fold_id, seed, bank, slot)
);
COMMENT ON TABLE skill IS 'Skill banks, one row per slot';
COMMENT ON COLUMN skill.fold_id IS 'the fold';
COMMENT ON COLUMN skill.seed IS 'training seed';
COMMENT ON COLUMN skill.bank IS 'task, step';
COMMENT ON COLUMN skill.slot IS 'place in the bank, from 0';
COMMENT ON COLUMN skill.state IS 'free, candidate, protected, active, inactive';
COMMENT ON COLUMN skill.utility IS 'how much it paid, standard deviations of paired PnL, in [-1, 1]';
COMMENT ON COLUMN skill.uses IS 'episode-steps in which it was applied, count';
COMMENT ON COLUMN skill.observations IS 'emitted observations merged into it, count';
COMMENT ON COLUMN skill.age IS 'emitted observations since its last use, count';
COMMENT ON COLUMN skill.mass IS 'moving average of matches, dimensionless';
COMMENT ON COLUMN skill.scale IS 'norm of the correction, latent units';
COMMENT ON COLUMN skill.hits IS 'retrievals in the test window by the variant of this bank alone, count';
COMMENT ON COLUMN skill.influence IS 'predicted fall of the loss by its corrections, loss units';

CREATE TABLE bank_stat (
    fold_id VARCHAR, seed INTEGER CHECK (seed >= 0), bank VARCHAR CHECK (bank IN ('task', 'step')),
    name VARCHAR,
    value DOUBLE,
    PRIMARY KEY (fold_id, seed, bank, name)
);
COMMENT ON TABLE bank_stat IS 'Counters, thresholds and quantiles of a bank';
COMMENT ON COLUMN bank_stat.fold_id IS 'the fold';
COMMENT ON COLUMN bank_stat.seed IS 'training seed';
COMMENT ON COLUMN bank_stat.bank IS 'task, step';
COMMENT ON COLUMN bank_stat.name IS 'name of the counter; fixes the unit of value';
COMMENT ON COLUMN bank_stat.value IS 'count, cosine or fraction, by name';

CREATE TABLE skill_ablation (
    fold_id VARCHAR, seed INTEGER CHECK (seed >= 0),
    variant VARCHAR CHECK (variant IN ('none', 'task', 'step', 'both', 'finetune')),
    alpha DOUBLE, adopted BOOLEAN NOT NULL, chosen BOOLEAN NOT NULL, decisions_changed BIGINT,
    validation_delta DOUBLE, delta_sharpe DOUBLE, delta_pnl DOUBLE, low DOUBLE, high DOUBLE,
    verdict VARCHAR,
    PRIMARY KEY (fold_id, seed, variant)
);
COMMENT ON TABLE skill_ablation IS 'Each variant against none: same seed, same bars';
COMMENT ON COLUMN skill_ablation.fold_id IS 'the fold';
COMMENT ON COLUMN skill_ablation.seed IS 'training seed';
COMMENT ON COLUMN skill_ablation.variant IS 'none, task, step, both, finetune';
COMMENT ON COLUMN skill_ablation.alpha IS 'strength of the correction, dimensionless; NULL: no bank, or (both) two strengths, see task and step';
COMMENT ON COLUMN skill_ablation.adopted IS 'passed the gate: validation interval above zero';
COMMENT ON COLUMN skill_ablation.chosen IS 'the variant that validation picked; one per fold and seed';
COMMENT ON COLUMN skill_ablation.decisions_changed IS 'test decisions that differ from none, count; 0 = inert';
COMMENT ON COLUMN skill_ablation.validation_delta IS 'paired validation gain, standard deviations of PnL';
COMMENT ON COLUMN skill_ablation.delta_sharpe IS 'test Sharpe minus that of none, per sqrt(year)';
COMMENT ON COLUMN skill_ablation.delta_pnl IS 'test net PnL minus that of none, currency';
COMMENT ON COLUMN skill_ablation.low IS 'lower end of the interval of delta_pnl, currency';
COMMENT ON COLUMN skill_ablation.high IS 'upper end of the interval of delta_pnl, currency';
COMMENT ON COLUMN skill_ablation.verdict IS 'reference (none itself), inert (no decision changed), adopted, not adopted, comparison (finetune)';

CREATE TABLE aux_verdict (
    fold_id VARCHAR, seed INTEGER CHECK (seed >= 0), epoch INTEGER CHECK (epoch >= -1),
    reference_fold_id VARCHAR, n_trades BIGINT, win_rate DOUBLE, low DOUBLE, high DOUBLE,
    w_norm DOUBLE, adam_m DOUBLE, adam_v DOUBLE, tv_direction DOUBLE, tv_magnitude DOUBLE,
    tv_order DOUBLE, tv_urgency DOUBLE, advantage_var_magnitude DOUBLE,
    advantage_var_order DOUBLE, advantage_var_urgency DOUBLE,
    conclusion VARCHAR
        CHECK (conclusion IN ('confirmed', 'routed but not actionable', 'gradient broken')),
    PRIMARY KEY (fold_id, seed, epoch)
);
COMMENT ON TABLE aux_verdict IS 'Does the auxiliary head reach the actions?';
COMMENT ON COLUMN aux_verdict.fold_id IS 'the fold';
COMMENT ON COLUMN aux_verdict.seed IS 'training seed';
COMMENT ON COLUMN aux_verdict.epoch IS 'from 0; -1 = final';
COMMENT ON COLUMN aux_verdict.reference_fold_id IS 'same fold in the study without alpha; NULL: not on this lake, or this is it';
COMMENT ON COLUMN aux_verdict.n_trades IS 'closed trades, count; epochs: validation window, final: test window';
COMMENT ON COLUMN aux_verdict.win_rate IS 'fraction of trades with a gain; confirmed needs its interval above 0.505';
COMMENT ON COLUMN aux_verdict.low IS 'lower end of the interval of win_rate, fraction';
COMMENT ON COLUMN aux_verdict.high IS 'upper end of the interval of win_rate, fraction';
COMMENT ON COLUMN aux_verdict.w_norm IS 'norm of the centred bypass weights, weight units; final: of the best epoch';
COMMENT ON COLUMN aux_verdict.adam_m IS 'norm of their first Adam moment, gradient units';
COMMENT ON COLUMN aux_verdict.adam_v IS 'norm of their second Adam moment, squared gradient units';
COMMENT ON COLUMN aux_verdict.tv_direction IS 'greedy actions in the window of n_trades: total variation from the reference, fraction';
COMMENT ON COLUMN aux_verdict.tv_magnitude IS 'total variation from the reference, fraction';
COMMENT ON COLUMN aux_verdict.tv_order IS 'total variation from the reference, fraction';
COMMENT ON COLUMN aux_verdict.tv_urgency IS 'total variation from the reference, fraction';
COMMENT ON COLUMN aux_verdict.advantage_var_magnitude IS 'variance of the advantages, squared reward; NULL: not learned';
COMMENT ON COLUMN aux_verdict.advantage_var_order IS 'variance of the advantages, squared reward; NULL: not learned';
COMMENT ON COLUMN aux_verdict.advantage_var_urgency IS 'variance of the advantages, squared reward; NULL: not learned';
COMMENT ON COLUMN aux_verdict.conclusion IS 'confirmed, routed but not actionable, gradient broken; NULL: without alpha';

CREATE TABLE forecast_quality (
    fold_id VARCHAR, seed INTEGER CHECK (seed >= 0), name VARCHAR,
    value DOUBLE,
    PRIMARY KEY (fold_id, seed, name)
);
COMMENT ON TABLE forecast_quality IS 'How good the frozen forecasts are on train rows: aux_* = direction forecast, out of fold; the rest = scenario forecaster';
COMMENT ON COLUMN forecast_quality.fold_id IS 'the fold';
COMMENT ON COLUMN forecast_quality.seed IS 'training seed';
COMMENT ON COLUMN forecast_quality.name IS 'name of the figure; fixes the unit of value';
COMMENT ON COLUMN forecast_quality.value IS 'by name: count (aux_rows), fraction (aux_up, aux_tie, coverage_*), dimensionless (aux_mean, aux_sd, aux_auc, aux_auc_error, aux_shuffled_auc), 1 = the shuffled control failed as it must (aux_control_fails), nats a bar (nll, nll_noise)';

CREATE TABLE feature_stat (
    fold_id VARCHAR, feature VARCHAR,
    mean DOUBLE, std DOUBLE, min DOUBLE, max DOUBLE, nan BIGINT NOT NULL, train_center DOUBLE,
    train_scale DOUBLE,
    PRIMARY KEY (fold_id, feature)
);
COMMENT ON TABLE feature_stat IS 'Features in the fold, and the scaler fitted on train rows';
COMMENT ON COLUMN feature_stat.fold_id IS 'the fold';
COMMENT ON COLUMN feature_stat.feature IS 'name of the feature';
COMMENT ON COLUMN feature_stat.mean IS 'over the test rows, feature units';
COMMENT ON COLUMN feature_stat.std IS 'over the test rows, ddof 0, feature units';
COMMENT ON COLUMN feature_stat.min IS 'over the test rows, feature units';
COMMENT ON COLUMN feature_stat.max IS 'over the test rows, feature units';
COMMENT ON COLUMN feature_stat.nan IS 'rows without a number, count';
COMMENT ON COLUMN feature_stat.train_center IS 'median or mean of the train rows, feature units';
COMMENT ON COLUMN feature_stat.train_scale IS 'interquartile range or deviation of the train rows, feature units';

CREATE TABLE data_issue (
    instrument VARCHAR, source VARCHAR, kind VARCHAR, first_row BIGINT CHECK (first_row >= 0),
    rows BIGINT NOT NULL, policy VARCHAR NOT NULL CHECK (policy IN ('error', 'drop', 'keep')),
    action VARCHAR NOT NULL, message VARCHAR NOT NULL,
    PRIMARY KEY (instrument, source, kind, first_row)
);
COMMENT ON TABLE data_issue IS 'What ingestion found in the source, and what it did';
COMMENT ON COLUMN data_issue.instrument IS 'name of the instrument';
COMMENT ON COLUMN data_issue.source IS 'file or example it came from';
COMMENT ON COLUMN data_issue.kind IS 'kind of issue, such as gap, jump or an assumption';
COMMENT ON COLUMN data_issue.first_row IS 'line of a text file from 1, header counted, or row of a table; 0 = the whole source';
COMMENT ON COLUMN data_issue.rows IS 'affected rows, count; 0 = the whole source';
COMMENT ON COLUMN data_issue.policy IS 'error, drop, keep';
COMMENT ON COLUMN data_issue.action IS 'dropped, kept, sorted, zeroed, assumed';
COMMENT ON COLUMN data_issue.message IS 'finding in words';
