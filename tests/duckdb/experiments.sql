-- Real experiments (asos), the golden users and latencies: floats, quantiles, statistics.
-- query: asos_size
SELECT count(*), count(DISTINCT experiment_id), count(DISTINCT variant_id), count(DISTINCT metric_id) FROM asos;
-- query: asos_last_row
SELECT experiment_id, variant_id, metric_id, mean_c, mean_t FROM (SELECT *, row_number() OVER (PARTITION BY experiment_id, variant_id, metric_id ORDER BY time_since_start DESC) AS n FROM asos) WHERE n = 1;
-- query: asos_lift
SELECT experiment_id, variant_id, metric_id, max(time_since_start) AS t, sum(count_c), sum(mean_t / nullif(mean_c, 0) - 1) FROM asos WHERE metric_id = 2 GROUP BY 1, 2, 3;
-- query: asos_one_metric
SELECT metric_id, count(*), sum(variance_c), avg(variance_t) FROM asos WHERE metric_id IN (1, 4) GROUP BY metric_id;
-- query: asos_nulls
SELECT metric_id, count(mean_c), count(*) - count(variance_t), min(variance_c), max(count_t) FROM asos GROUP BY metric_id;
-- query: asos_welch
SELECT experiment_id, metric_id, (mean_t - mean_c) / sqrt(variance_c / count_c + variance_t / count_t) AS t FROM asos WHERE count_c > 1000 AND variance_c + variance_t > 0 AND experiment_id < '4' ORDER BY experiment_id, metric_id, variant_id, time_since_start;
-- query: asos_float_range
SELECT count(*), sum(count_c) FROM asos WHERE time_since_start >= 1.5 AND time_since_start < 30.5 AND mean_c > 0.1;
-- query: asos_median
-- DataFusion 55 interpolates quantiles with six digits (docs/sql.md, "Known faults").
-- tolerance: 1e-5
SELECT metric_id, median(mean_c), percentile_cont(0.05) WITHIN GROUP (ORDER BY variance_t) FROM asos GROUP BY metric_id;
-- query: users_by_variant
SELECT variant, count(*), avg(converted), avg(revenue), var_samp(revenue), covar_samp(pre_revenue, revenue), corr(orders, sessions), sum(orders) * 1.0 / sum(sessions) FROM users GROUP BY variant;
-- query: users_one_arm
SELECT country, day, count(*), sum(revenue) FROM users WHERE variant = 'B' AND day BETWEEN 3 AND 5 GROUP BY country, day;
-- query: users_cuped
WITH m AS (SELECT covar_samp(revenue, pre_revenue) / var_samp(pre_revenue) AS theta, avg(pre_revenue) AS mean FROM users)
SELECT variant, avg(revenue - theta * (pre_revenue - mean)), var_samp(revenue - theta * (pre_revenue - mean)) FROM users, m GROUP BY variant;
-- query: users_rollup
SELECT variant, country, count(*), sum(converted) FROM users GROUP BY ROLLUP (variant, country);
-- query: users_pivot
SELECT country, sum(CASE WHEN variant = 'A' THEN converted END) AS a, sum(CASE WHEN variant = 'B' THEN converted END) AS b, sum(CASE WHEN variant = 'C' THEN converted END) AS c FROM users GROUP BY country ORDER BY country;
-- query: latency_quantiles
-- DataFusion 55 interpolates quantiles with six digits (docs/sql.md, "Known faults").
-- tolerance: 1e-5
SELECT variant, median(latency_ms), percentile_cont(0.95) WITHIN GROUP (ORDER BY latency_ms), min(latency_ms), max(latency_ms) FROM latencies GROUP BY variant;
-- query: latency_join
SELECT u.country, l.variant, count(*), avg(l.latency_ms), count(DISTINCT l.user_id) FROM latencies l JOIN users u USING (user_id) GROUP BY 1, 2;
-- query: latency_per_user
SELECT variant, avg(s), var_samp(s), covar_samp(s, n) FROM (SELECT variant, user_id, sum(latency_ms) AS s, count(*) AS n FROM latencies GROUP BY 1, 2) GROUP BY variant;
-- query: latency_range
SELECT count(*), sum(user_id) FROM latencies WHERE latency_ms > 500 AND latency_ms <= 800;
-- query: users_without_latency
SELECT count(*), sum(revenue) FROM users u WHERE NOT EXISTS (SELECT 1 FROM latencies l WHERE l.user_id = u.user_id AND l.latency_ms > 600);
