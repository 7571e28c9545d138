-- Literals and small tables: NULL logic, casts, decimals, dates, intervals, CASE, sets.
-- query: three_valued
SELECT a, b, a AND b AS x, a OR b AS y, NOT a AS z, a = b AS e, a IS DISTINCT FROM b AS d FROM (VALUES (true, true), (true, false), (true, NULL), (false, false), (false, NULL), (NULL, NULL)) AS t(a, b);
-- query: in_lists
SELECT x, x IN (1, 2), x IN (1, NULL), x NOT IN (1, 2), x NOT IN (1, NULL), x BETWEEN 1 AND NULL FROM (VALUES (1), (2), (3), (NULL)) AS t(x);
-- query: coalesce
SELECT coalesce(a, b, -1), nullif(a, b), greatest(a, b), least(a, b), CASE WHEN a > b THEN 'a' WHEN a <= b THEN 'b' END FROM (VALUES (1, 2), (2, 1), (NULL, 1), (1, NULL), (3, 3)) AS t(a, b);
-- query: integer_division
-- With integer_division; towards zero, and the remainder has the dividend's sign.
SELECT a, b, a / b, a % b FROM (VALUES (7, 2), (-7, 2), (7, -2), (-7, -2), (0, 5), (6, 3)) AS t(a, b);
-- query: float_division
SELECT a / 2.0e0, a / 3.0e0, CAST(a AS DOUBLE) / 4 FROM (VALUES (7), (-7), (0)) AS t(a);
-- query: rounding
-- Halves go away from zero. Our signum is DuckDB's sign.
SELECT round(x), round(x, 1), floor(x), ceil(x), trunc(x), abs(x), signum(x) FROM (VALUES (2.5e0), (-2.5e0), (0.5e0), (1.25e0), (-1.75e0), (0e0)) AS t(x);
-- duckdb:
SELECT round(x), round(x, 1), floor(x), ceil(x), trunc(x), abs(x), sign(x) FROM (VALUES (2.5e0), (-2.5e0), (0.5e0), (1.25e0), (-1.75e0), (0e0)) AS t(x);
-- query: casts
SELECT CAST(x AS INT) AS i, CAST(x AS BIGINT) AS b, CAST(x AS DOUBLE) AS f, CAST(x AS VARCHAR) AS t, TRY_CAST(x AS DATE) AS d FROM (VALUES ('1'), ('-42'), ('007'), (NULL)) AS t(x);
-- query: try_cast
SELECT TRY_CAST(x AS INT) AS i, TRY_CAST(x AS DOUBLE) AS f, TRY_CAST(x AS BOOLEAN) AS b, TRY_CAST(x AS DATE) AS d FROM (VALUES ('1'), ('1.5'), ('abc'), ('true'), ('2026-02-28'), ('2026-02-30'), (NULL)) AS t(x);
-- ours cuts nothing: '1.5' is no integer; DuckDB rounds it to 2.
-- duckdb:
SELECT CASE WHEN x = '1.5' THEN NULL ELSE TRY_CAST(x AS INT) END, TRY_CAST(x AS DOUBLE), TRY_CAST(x AS BOOLEAN), TRY_CAST(x AS DATE) FROM (VALUES ('1'), ('1.5'), ('abc'), ('true'), ('2026-02-28'), ('2026-02-30'), (NULL)) AS t(x);
-- query: float_to_integer
SELECT x, CAST(x AS INT) AS i FROM (VALUES (1.9e0), (-1.9e0), (0.5e0), (1.5e0), (2.5e0), (-2.5e0)) AS t(x);
-- query: decimals
SELECT x + y, x - y, x * y, -x, abs(x) FROM (SELECT CAST(a AS DECIMAL(10, 2)) AS x, CAST(b AS DECIMAL(10, 3)) AS y FROM (VALUES ('1.10', '2.205'), ('-0.01', '0.001'), ('99999999.99', '1.000')) AS t(a, b));
-- query: decimal_sums
SELECT sum(x), min(x), max(x), count(DISTINCT x) FROM (SELECT CAST(a AS DECIMAL(18, 6)) AS x FROM (VALUES ('0.1'), ('0.2'), ('0.3'), ('0.3'), ('-1000000.000001')) AS t(a));
-- query: decimal_compare
SELECT a, CAST(a AS DECIMAL(10, 2)) = 1.1, CAST(a AS DECIMAL(10, 2)) > 1, CAST(a AS DECIMAL(10, 2)) < CAST('1.105' AS DECIMAL(10, 3)) FROM (VALUES ('1.10'), ('1.11'), ('1.00')) AS t(a);
-- query: big_integers
SELECT x, x - 1, -x, x % 1000, x / 1000 FROM (VALUES (CAST(9223372036854775807 AS BIGINT)), (CAST(-9223372036854775807 AS BIGINT))) AS t(x);
-- query: wide_sum
-- The sum does not fit 64 bits.
SELECT sum(x) FROM (VALUES (CAST(9223372036854775807 AS BIGINT)), (CAST(1 AS BIGINT)), (CAST(-5 AS BIGINT))) AS t(x) HAVING sum(x) < 0 OR count(*) > 0;
-- query: dates
-- A date and an interval of days or longer give a date; DuckDB gives a timestamp.
SELECT d + INTERVAL '1 month', d - INTERVAL '1 year', d + INTERVAL '10 days', d - DATE '2024-01-01' FROM (VALUES (DATE '2024-02-29'), (DATE '2024-01-31'), (DATE '2023-12-31'), (DATE '1969-12-31')) AS t(d);
-- duckdb:
SELECT CAST(d + INTERVAL '1 month' AS DATE), CAST(d - INTERVAL '1 year' AS DATE), CAST(d + INTERVAL '10 days' AS DATE), d - DATE '2024-01-01' FROM (VALUES (DATE '2024-02-29'), (DATE '2024-01-31'), (DATE '2023-12-31'), (DATE '1969-12-31')) AS t(d);
-- query: date_parts
SELECT d, extract(year FROM d), extract(quarter FROM d), extract(month FROM d), extract(week FROM d), extract(doy FROM d), extract(dow FROM d), extract(day FROM d) FROM (VALUES (DATE '2024-02-29'), (DATE '2024-12-30'), (DATE '2021-01-03'), (DATE '1969-12-31'), (DATE '2000-01-01')) AS t(d);
-- query: timestamp_parts
SELECT extract(hour FROM t), extract(minute FROM t), extract(epoch FROM t), date_trunc('minute', t), date_trunc('week', t), date_trunc('quarter', t), CAST(t AS DATE) FROM (VALUES (TIMESTAMP '2026-05-17 23:59:59'), (TIMESTAMP '1969-12-31 23:59:59'), (TIMESTAMP '2000-02-29 00:00:00')) AS x(t);
-- query: timestamp_arithmetic
SELECT t + INTERVAL '90 minutes', t - INTERVAL '1 day', t + INTERVAL '1 month 2 days', t < TIMESTAMP '2026-03-01 00:00:00' FROM (VALUES (TIMESTAMP '2026-01-31 23:00:00'), (TIMESTAMP '2026-03-29 01:30:00')) AS x(t);
-- query: text
SELECT s, upper(s), lower(s), length(s), reverse(s), substr(s, 2), substr(s, 1, 2), left(s, -1), right(s, 2), repeat(s, 2), concat(s, '-', NULL, 'x'), s || '!', starts_with(s, 'a') FROM (VALUES ('abc'), (''), ('été'), ('烤鸭店'), (NULL)) AS t(s);
-- query: pads_and_trims
SELECT lpad(s, 5, '*'), rpad(s, 2, '-'), trim(s), ltrim(s), rtrim(s), btrim(s, 'ab '), replace(s, ' ', '_'), translate(s, 'ab', 'xy'), strpos(s, 'b'), ascii(s) FROM (VALUES (' ab '), ('b'), ('banana')) AS t(s);
-- DuckDB's trim with two arguments is PostgreSQL's btrim.
-- duckdb:
SELECT lpad(s, 5, '*'), rpad(s, 2, '-'), trim(s), ltrim(s), rtrim(s), trim(s, 'ab '), replace(s, ' ', '_'), translate(s, 'ab', 'xy'), strpos(s, 'b'), ascii(s) FROM (VALUES (' ab '), ('b'), ('banana')) AS t(s);
-- query: like_patterns
SELECT s, p, s LIKE p FROM (VALUES ('abc', 'a%'), ('abc', '%c'), ('abc', '_b_'), ('abc', ''), ('', '%'), ('a%c', 'a%c'), ('烤鸭', '_鸭'), ('abc', 'A%'), (NULL, '%'), ('abc', NULL)) AS t(s, p);
-- query: float_specials
SELECT x, x = 'NaN'::DOUBLE, x > 1, x < 1, x = 0 FROM (VALUES ('NaN'::DOUBLE), ('inf'::DOUBLE), ('-inf'::DOUBLE), (0e0), (-0e0), (NULL)) AS t(x);
-- query: float_order
SELECT x, n FROM (VALUES ('NaN'::DOUBLE, 1), ('inf'::DOUBLE, 2), ('-inf'::DOUBLE, 3), (1e0, 4), (NULL, 5)) AS t(x, n) ORDER BY x, n;
-- query: float_groups
SELECT x, count(*), sum(n) FROM (VALUES ('NaN'::DOUBLE, 1), ('NaN'::DOUBLE, 2), (0e0, 3), (-0e0, 4), (1e0, 5)) AS t(x, n) GROUP BY x;
-- query: empty_aggregates
SELECT count(*), count(x), sum(x), avg(x), min(x), max(x), var_samp(x), count(DISTINCT x) FROM (VALUES (1), (2)) AS t(x) WHERE x > 5;
-- query: single_value_variance
SELECT var_samp(x), var_pop(x), stddev_samp(x), covar_samp(x, x) FROM (VALUES (3.5e0)) AS t(x);
-- query: set_operations
SELECT * FROM (VALUES (1, 'a'), (1, 'a'), (2, NULL), (NULL, NULL)) AS t(x, y) UNION SELECT * FROM (VALUES (2, NULL), (NULL, NULL), (3, 'c')) AS u(x, y);
-- query: set_intersect
SELECT * FROM (VALUES (1, 'a'), (2, NULL), (NULL, NULL)) AS t(x, y) INTERSECT SELECT * FROM (VALUES (2, NULL), (NULL, NULL), (3, 'c')) AS u(x, y);
-- query: set_except
SELECT * FROM (VALUES (1, 'a'), (1, 'a'), (2, NULL), (NULL, 'z')) AS t(x, y) EXCEPT SELECT * FROM (VALUES (2, NULL), (NULL, NULL), (3, 'c')) AS u(x, y);
-- query: recursive
WITH RECURSIVE f AS (SELECT CAST(0 AS BIGINT) AS a, CAST(1 AS BIGINT) AS b, 1 AS n UNION ALL SELECT b, a + b, n + 1 FROM f WHERE n < 60) SELECT n, a FROM f ORDER BY n;
-- query: series
SELECT sum(v), count(*), avg(v), var_samp(v) FROM generate_series(1, 100000) AS g(v);
-- query: window_frames
SELECT v, sum(v) OVER (ORDER BY v ROWS BETWEEN 3 PRECEDING AND 1 PRECEDING), count(*) OVER (ORDER BY v RANGE BETWEEN 10 PRECEDING AND 5 FOLLOWING), max(v) OVER (ORDER BY v DESC ROWS BETWEEN CURRENT ROW AND 2 FOLLOWING), nth_value(v, 3) OVER (ORDER BY v) FROM (SELECT CAST(x * x % 97 AS BIGINT) AS v FROM generate_series(1, 48) AS g(x)) ORDER BY v;
