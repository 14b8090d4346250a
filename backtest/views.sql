-- Views of the store. All read only folds with superseded = false.
-- Over seeds: a metric row of seed -2 is the figure; a deterministic baseline has seed -1 alone.

CREATE VIEW walk_forward_summary AS
SELECT split_part(m.scope_id, '/', 1) AS study_id,
    substr(m.scope_id, strpos(m.scope_id, '/') + 1) AS instrument,
    m.policy_kind, m.variant, m.name, m.value, m.low, m.high, m.n
FROM metric m
WHERE m.scope = 'instrument' AND m.seed < 0
    AND m.scope_id IN (SELECT study_id || '/' || instrument FROM fold WHERE NOT superseded)
QUALIFY row_number() OVER (PARTITION BY m.scope_id, m.policy_kind, m.variant, m.name
    ORDER BY m.seed) = 1
ORDER BY ALL;
COMMENT ON VIEW walk_forward_summary IS 'Out-of-sample figures of one study and instrument over all seeds and folds';

CREATE VIEW leaderboard AS
WITH figure AS (
    SELECT scope_id AS study_id, policy_kind, variant, name, value, low, high
    FROM metric
    WHERE scope = 'study' AND seed < 0
        AND scope_id IN (SELECT study_id FROM fold WHERE NOT superseded)
    QUALIFY row_number() OVER (PARTITION BY scope_id, policy_kind, variant, name
        ORDER BY seed) = 1
), entry AS (
    SELECT study_id, policy_kind, variant,
        max(value) FILTER (name = 'deflated_sharpe') AS deflated_sharpe,
        max(value) FILTER (name = 'sharpe') AS sharpe,
        max(low) FILTER (name = 'sharpe') AS sharpe_low,
        max(high) FILTER (name = 'sharpe') AS sharpe_high,
        max(value) FILTER (name = 'net_return') AS net_return,
        max(value) FILTER (name = 'max_drawdown') AS max_drawdown
    FROM figure
    GROUP BY study_id, policy_kind, variant
)
SELECT rank() OVER (ORDER BY deflated_sharpe DESC NULLS LAST, sharpe DESC NULLS LAST) AS rank, *
FROM entry
ORDER BY rank, study_id, policy_kind, variant;
COMMENT ON VIEW leaderboard IS 'Studies and variants by deflated Sharpe (a probability), then by annualised Sharpe';

CREATE VIEW oos_equity AS
WITH complete AS (
    SELECT fold_id, study_id, instrument FROM fold WHERE NOT superseded AND status = 'complete'
), pick AS (
    SELECT fold_id, seed, min(variant) AS variant FROM skill_ablation WHERE chosen
    GROUP BY fold_id, seed
), bars AS (
    SELECT c.study_id, c.instrument, c.fold_id, e.seed, e.variant, e.time, e.bar, e.equity, e.pnl
    FROM equity e JOIN complete c USING (fold_id)
    UNION ALL
    SELECT c.study_id, c.instrument, c.fold_id, e.seed, 'chosen', e.time, e.bar, e.equity, e.pnl
    FROM equity e JOIN complete c USING (fold_id)
        LEFT JOIN pick p ON p.fold_id = e.fold_id AND p.seed = e.seed
    WHERE e.policy_kind = 'learned' AND e.variant = coalesce(p.variant, 'none')
), result AS (
    SELECT study_id, instrument, fold_id, seed, variant, min(bar) AS first_bar,
        arg_min(equity - pnl, bar) AS capital, -- before the first bar: what every fold starts with
        arg_max(equity, bar) / arg_min(equity - pnl, bar) - 1 AS fold_return
    FROM bars
    GROUP BY study_id, instrument, fold_id, seed, variant
), chain AS (
    SELECT fold_id, seed, variant, capital, fold_return,
        first_value(capital) OVER line AS start,
        -- a return of -1 or less makes the product 0, and so every later bar
        coalesce(product(greatest(1 + fold_return, 0)) OVER earlier, 1) AS growth
    FROM result
    WINDOW line AS (PARTITION BY study_id, instrument, seed, variant ORDER BY first_bar),
        earlier AS (PARTITION BY study_id, instrument, seed, variant ORDER BY first_bar
            ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
)
SELECT b.study_id, b.instrument, b.seed, b.variant, b.time, b.bar,
    CASE WHEN c.fold_return <= -1 AND min(b.equity) OVER (
            PARTITION BY b.fold_id, b.seed, b.variant ORDER BY b.bar
            ROWS UNBOUNDED PRECEDING) <= 0 THEN 0 -- ruined in this fold
        ELSE c.start * c.growth * b.equity / c.capital END AS equity,
    sum(b.pnl) OVER (PARTITION BY b.study_id, b.instrument, b.seed, b.variant ORDER BY b.bar
        ROWS UNBOUNDED PRECEDING) AS pnl_cum
FROM bars b JOIN chain c USING (fold_id, seed, variant)
ORDER BY b.study_id, b.instrument, b.seed, b.variant, b.bar;
COMMENT ON VIEW oos_equity IS 'Complete test windows stitched: equity compounds fold returns, pnl_cum adds PnL (both currency); 0 for ever after ruin';

CREATE VIEW is_vs_oos AS
SELECT p.fold_id, p.seed, p.variant, p.train_sharpe, p.validation_sharpe,
    m.value AS oos_sharpe,
    CASE WHEN p.train_sharpe > 0 THEN 1 - m.value / p.train_sharpe END AS decay
FROM policy p JOIN fold f ON f.fold_id = p.fold_id AND NOT f.superseded
    LEFT JOIN metric m ON m.scope = 'fold' AND m.scope_id = p.fold_id AND m.seed = p.seed
        AND m.policy_kind = 'learned' AND m.variant = p.variant AND m.name = 'sharpe'
ORDER BY p.fold_id, p.seed, p.variant;
COMMENT ON VIEW is_vs_oos IS 'Sharpe in and out of sample; decay = share of the train Sharpe lost, NULL when that is not positive';

CREATE VIEW skill_verdict AS
SELECT s.fold_id, s.bank, s.slot, s.uses, s.utility, a.delta_sharpe, a.verdict, s.seed
FROM skill s JOIN fold f ON f.fold_id = s.fold_id AND NOT f.superseded
    LEFT JOIN skill_ablation a ON a.fold_id = s.fold_id AND a.seed = s.seed AND a.variant = s.bank
WHERE s.state <> 'free'
ORDER BY s.fold_id, s.seed, s.bank, s.slot;
COMMENT ON VIEW skill_verdict IS 'Which skills were used, and what their bank was worth in that fold';
