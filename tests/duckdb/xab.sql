-- XAB: events and exposures partitioned by day, products clustered. Q1 to Q9 are the benchmark's.
-- query: q1
-- Q1 exact distinct users per experiment and variant
SELECT exp_id, variant, COUNT(DISTINCT user_id) AS users, COUNT(*) AS exposures
FROM exposures WHERE dt BETWEEN DATE '{a}' AND DATE '{b}'
GROUP BY exp_id, variant;
-- query: q2
-- Q2 metric sums and means per variant per day (events of all exposed users)
-- tolerance: 1e-6
WITH u AS (SELECT user_id, MIN(variant) AS variant FROM exposures
           WHERE exp_id = {exp} AND dt BETWEEN DATE '{a}' AND DATE '{b}' GROUP BY user_id)
SELECT e.dt AS dt, u.variant AS variant, COUNT(*) AS n,
       SUM(CASE WHEN e.event = 'pay' THEN e.value ELSE 0.0 END) AS gmv,
       AVG(CASE WHEN e.event = 'pay' THEN e.value END) AS mean_pay,
       SUM(e.duration_ms) AS dur, AVG(e.duration_ms) AS mean_dur
FROM events e JOIN u ON e.user_id = u.user_id
WHERE e.dt BETWEEN DATE '{a}' AND DATE '{b}'
GROUP BY e.dt, u.variant;
-- query: q3
-- Q3 experiment covariance: first exposure per user, per-user sums of two metrics after it, moments per variant
-- tolerance: 1e-6
WITH fe AS (SELECT user_id, MIN(variant) AS variant, MIN(ts) AS first_ts FROM exposures
            WHERE exp_id = {exp} AND dt BETWEEN DATE '{a}' AND DATE '{b}' GROUP BY user_id),
     pu AS (SELECT fe.user_id AS user_id, MIN(fe.variant) AS variant,
                   SUM(CASE WHEN e.ts >= fe.first_ts AND e.event = 'pay' THEN e.value ELSE 0.0 END) AS x,
                   SUM(CASE WHEN e.ts >= fe.first_ts AND e.event = 'click' THEN 1.0 ELSE 0.0 END) AS y
            FROM fe LEFT JOIN (SELECT user_id, ts, event, value FROM events
                               WHERE dt BETWEEN DATE '{a}' AND DATE '{b}') e ON e.user_id = fe.user_id
            GROUP BY fe.user_id)
SELECT variant, COUNT(*) AS n, AVG(x) AS mx, AVG(y) AS my, VAR_SAMP(x) AS vx, VAR_SAMP(y) AS vy,
       COVAR_SAMP(x, y) AS cxy, SUM(x) / SUM(y) AS ratio
FROM pu GROUP BY variant;
-- query: q4
-- Q4 substring filter on a url, distinct users per page group
SELECT split_part(page, '/', 4) AS page_group, COUNT(*) AS pv, COUNT(DISTINCT user_id) AS uv
FROM events WHERE dt BETWEEN DATE '{a}' AND DATE '{b}' AND page LIKE '%flash-sale%'
GROUP BY 1;
-- query: q5
-- Q5 bitmap-style cohort: exposed to exp AND active on day {b} AND NOT paid in the range
WITH x AS (SELECT user_id, MIN(variant) AS variant FROM exposures
           WHERE exp_id = {exp} AND dt BETWEEN DATE '{a}' AND DATE '{b}' GROUP BY user_id)
SELECT variant, COUNT(*) AS users FROM x
WHERE EXISTS (SELECT 1 FROM events e WHERE e.dt = DATE '{b}' AND e.user_id = x.user_id)
  AND NOT EXISTS (SELECT 1 FROM events p WHERE p.dt BETWEEN DATE '{a}' AND DATE '{b}' AND p.event = 'pay' AND p.user_id = x.user_id)
GROUP BY variant;
-- query: q5r
-- Q5R retention day 1 / day 7 of the users exposed on day 0
WITH c AS (SELECT user_id, MIN(variant) AS variant FROM exposures WHERE exp_id = {exp} AND dt = DATE '{d0}' GROUP BY user_id),
     a1 AS (SELECT DISTINCT user_id FROM events WHERE dt = DATE '{d1}'),
     a7 AS (SELECT DISTINCT user_id FROM events WHERE dt = DATE '{d7}')
SELECT c.variant AS variant, COUNT(*) AS users, COUNT(a1.user_id) AS r1, COUNT(a7.user_id) AS r7
FROM c LEFT JOIN a1 ON c.user_id = a1.user_id LEFT JOIN a7 ON c.user_id = a7.user_id
GROUP BY c.variant;
-- query: q6
-- Q6 ordered funnel visit -> click -> add_to_cart -> pay within 1 hour of the visit, per variant
-- (exact: for each step keep the latest start among chains that reached it; = windowFunnel's default mode)
WITH u AS (SELECT user_id, MIN(variant) AS variant FROM exposures
           WHERE exp_id = {exp} AND dt BETWEEN DATE '{a}' AND DATE '{b}' GROUP BY user_id),
 e AS (SELECT user_id, ts, CASE event WHEN 'visit' THEN 1 WHEN 'click' THEN 2 WHEN 'add_to_cart' THEN 3 ELSE 4 END AS k
       FROM events WHERE dt BETWEEN DATE '{a}' AND DATE '{b}' AND event IN ('visit', 'click', 'add_to_cart', 'pay')),
 e1 AS (SELECT user_id, ts, k, MAX(CASE WHEN k = 1 THEN ts END) OVER (PARTITION BY user_id ORDER BY ts, k ROWS UNBOUNDED PRECEDING) AS s1 FROM e),
 e2 AS (SELECT user_id, ts, k, s1, MAX(CASE WHEN k = 2 AND ts <= s1 + INTERVAL '1' HOUR THEN s1 END) OVER (PARTITION BY user_id ORDER BY ts, k ROWS UNBOUNDED PRECEDING) AS s2 FROM e1),
 e3 AS (SELECT user_id, ts, k, s1, s2, MAX(CASE WHEN k = 3 AND ts <= s2 + INTERVAL '1' HOUR THEN s2 END) OVER (PARTITION BY user_id ORDER BY ts, k ROWS UNBOUNDED PRECEDING) AS s3 FROM e2),
 f AS (SELECT user_id, MAX(CASE WHEN k = 4 AND ts <= s3 + INTERVAL '1' HOUR THEN 4 WHEN s3 IS NOT NULL THEN 3
                                WHEN s2 IS NOT NULL THEN 2 WHEN s1 IS NOT NULL THEN 1 ELSE 0 END) AS lvl FROM e3 GROUP BY user_id)
SELECT u.variant AS variant, SUM(CASE WHEN lvl >= 1 THEN 1 ELSE 0 END) AS l1, SUM(CASE WHEN lvl >= 2 THEN 1 ELSE 0 END) AS l2,
       SUM(CASE WHEN lvl >= 3 THEN 1 ELSE 0 END) AS l3, SUM(CASE WHEN lvl >= 4 THEN 1 ELSE 0 END) AS l4
FROM f JOIN u ON f.user_id = u.user_id GROUP BY u.variant;
-- query: q7
-- Q7 top users by event count (high-cardinality group by)
SELECT user_id, COUNT(*) AS c, SUM(value) AS v FROM events
WHERE dt BETWEEN DATE '{a}' AND DATE '{b}' GROUP BY user_id ORDER BY c DESC, user_id LIMIT 20;
-- query: q8
-- Q8 product search: substring + 10,000-id IN list of one city
SELECT poi_id, spu_name, price, sales FROM products
WHERE city_id = 1 AND spu_name LIKE '%烤鸭%' AND poi_id IN ({ids})
ORDER BY sales DESC, poi_id, spu_name, price LIMIT 20;
-- query: q9
-- Q9 point lookup: all rows of one user
SELECT dt, ts, event, page, item_id, value FROM events
WHERE dt BETWEEN DATE '{a}' AND DATE '{b}' AND user_id = '{user}' ORDER BY ts, event, page;
-- query: days
SELECT dt, count(*), count(DISTINCT user_id), sum(value), min(ts), max(ts) FROM events GROUP BY dt ORDER BY dt;
-- query: one_day
SELECT event, count(*), avg(duration_ms) FROM events WHERE dt = DATE '{mid}' GROUP BY event;
-- query: day_text
SELECT count(*) FROM events WHERE dt = '{mid}' AND event = 'pay';
-- query: days_open_range
SELECT dt, count(*) FROM events WHERE dt > DATE '{a}' AND dt < DATE '{b}' GROUP BY dt;
-- query: days_in
SELECT dt, count(*) FROM exposures WHERE dt IN (DATE '{a}', DATE '{b}', DATE '2030-01-01') GROUP BY dt;
-- query: not_that_day
SELECT count(*) FROM events WHERE dt <> DATE '{mid}' AND NOT dt = DATE '{a}';
-- query: day_by_function
SELECT extract(day FROM dt), count(*) FROM events WHERE extract(day FROM dt) % 2 = 1 GROUP BY 1;
-- query: day_from_subquery
SELECT count(*), sum(value) FROM events WHERE dt = (SELECT max(dt) FROM events);
-- query: time_range
SELECT count(*), count(DISTINCT user_id) FROM events WHERE ts >= TIMESTAMP '{mid} 06:00:00' AND ts < TIMESTAMP '{mid} 18:30:00';
-- query: time_and_day
SELECT date_trunc('hour', ts) AS h, count(*) FROM events WHERE dt = DATE '{mid}' GROUP BY 1 ORDER BY 1;
-- query: user_prefix
SELECT count(*), min(user_id), max(user_id) FROM events WHERE user_id >= '8' AND user_id < '9';
-- query: user_like
SELECT dt, count(*) FROM events WHERE user_id LIKE '70d8%' GROUP BY dt;
-- query: user_not
SELECT count(*) FROM events WHERE user_id <> '{user}' AND user_id > '7';
-- query: exp_cluster
SELECT exp_id, variant, count(*) FROM exposures WHERE exp_id IN (101, 109) OR exp_id > 111 GROUP BY 1, 2;
-- query: sessions
SELECT count(*), count(DISTINCT user_id), max(n) FROM (SELECT user_id, s, count(*) AS n FROM (SELECT user_id, sum(CASE WHEN gap IS NULL OR gap > 1800 THEN 1 ELSE 0 END) OVER (PARTITION BY user_id ORDER BY ts, rn) AS s FROM (SELECT user_id, ts, row_number() OVER (PARTITION BY user_id ORDER BY ts) AS rn, extract(epoch FROM ts) - lag(extract(epoch FROM ts)) OVER (PARTITION BY user_id ORDER BY ts) AS gap FROM events)) GROUP BY user_id, s);
-- query: first_exposure
SELECT e.variant, count(*), min(e.ts), max(e.ts) FROM (SELECT user_id, variant, ts, row_number() OVER (PARTITION BY user_id ORDER BY ts, variant) AS n FROM exposures WHERE exp_id = {exp}) e WHERE n = 1 GROUP BY e.variant;
-- query: crossed_users
SELECT exp_id, count(*) FROM (SELECT exp_id, user_id FROM exposures GROUP BY 1, 2 HAVING min(variant) = max(variant)) GROUP BY exp_id;
-- query: conversion
WITH x AS (SELECT user_id, min(variant) AS v, min(ts) AS t FROM exposures WHERE exp_id = {exp} GROUP BY 1)
SELECT v, count(*), count(p.user_id) FROM x LEFT JOIN (SELECT DISTINCT e.user_id FROM events e JOIN x ON x.user_id = e.user_id WHERE e.event = 'pay' AND e.ts >= x.t) p ON p.user_id = x.user_id GROUP BY v;
-- query: within_a_day
SELECT x.variant, count(DISTINCT e.user_id), sum(e.value) FROM exposures x JOIN events e ON e.user_id = x.user_id AND e.ts BETWEEN x.ts AND x.ts + INTERVAL '1 day' WHERE x.exp_id = 103 AND x.dt = DATE '{a}' GROUP BY x.variant;
-- query: retention
SELECT a.dt, b.dt - a.dt AS later, count(DISTINCT a.user_id) FROM events a JOIN (SELECT DISTINCT dt, user_id FROM events) b ON a.user_id = b.user_id AND b.dt >= a.dt GROUP BY 1, 2;
-- query: pages
SELECT split_part(page, '/', 4) AS g, split_part(split_part(page, '?', 1), '/', 5) AS h, count(*) FROM events GROUP BY 1, 2;
-- query: query_string
SELECT count(*), count(DISTINCT split_part(page, 'item=', 2)) FROM events WHERE page LIKE '%?item=%' AND split_part(page, 'item=', 2) <> CAST(item_id AS VARCHAR);
-- query: dimensions
SELECT os, channel, count(*), count(DISTINCT city), count(DISTINCT app_version) FROM events GROUP BY os, channel;
-- query: versions
SELECT CAST(split_part(app_version, '.', 1) AS INT) AS major, count(*), max(app_version) FROM exposures GROUP BY 1;
-- query: value_stats
-- tolerance: 1e-6
SELECT event, avg(value), var_samp(value), covar_samp(value, duration_ms), corr(value, duration_ms), min(value), max(value) FROM events GROUP BY event;
-- query: value_median
SELECT event, median(value), percentile_cont(0.9) WITHIN GROUP (ORDER BY duration_ms) FROM events GROUP BY event;
-- query: null_items
SELECT event, count(*), count(item_id), count(value), count(*) - count(duration_ms) FROM events GROUP BY event;
-- query: cube
SELECT dt, event, os, count(*) FROM events GROUP BY CUBE (dt, event, os);
-- query: events_in_thousands
SELECT count(*), sum(value) FROM events WHERE item_id IN (SELECT DISTINCT item_id FROM events WHERE event = 'pay') AND item_id NOT IN ({many});
-- query: products_city
SELECT city_id, count(*), count(DISTINCT poi_id), avg(price), sum(sales) FROM products GROUP BY city_id ORDER BY city_id;
-- query: products_search
SELECT spu_name, count(*) AS n FROM products WHERE spu_name LIKE '%烤鸭%' OR spu_name LIKE '%【新品】' GROUP BY spu_name ORDER BY n DESC, spu_name LIMIT 30;
-- query: products_names
SELECT length(spu_name) AS l, count(*), min(spu_name), max(spu_name) FROM products GROUP BY 1 ORDER BY 1;
-- query: products_geohash
SELECT substr(geohash, 1, 2) AS g, count(*), count(DISTINCT geohash) FROM products WHERE city_id BETWEEN 2 AND 20 GROUP BY 1;
-- query: products_best
SELECT city_id, poi_id, price FROM (SELECT *, rank() OVER (PARTITION BY city_id ORDER BY price DESC) AS r FROM products WHERE city_id < 30) WHERE r = 1;
-- query: products_limit
SELECT poi_id, spu_name, price, sales FROM products ORDER BY sales DESC, poi_id, spu_name, price LIMIT 50 OFFSET 10;
-- query: products_price_bands
SELECT width, count(*) FROM (SELECT CAST(floor(price / 10) AS INT) * 10 AS width FROM products) GROUP BY width ORDER BY width;
-- query: limit_counts
SELECT count(*) FROM (SELECT * FROM events WHERE dt = DATE '{b}' LIMIT 777);
-- query: union_of_days
SELECT count(*), sum(v) FROM (SELECT value AS v FROM events WHERE dt = DATE '{a}' UNION ALL SELECT value FROM events WHERE dt = DATE '{b}');
-- query: exists_across_days
SELECT dt, count(*) FROM exposures x WHERE exp_id = 110 AND NOT EXISTS (SELECT 1 FROM events e WHERE e.user_id = x.user_id AND e.dt = x.dt AND e.event = 'pay') GROUP BY dt;
