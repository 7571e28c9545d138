-- Q6 ordered funnel visit -> click -> add_to_cart -> pay within 1 hour of the visit, per variant
WITH u AS (SELECT user_id, MIN(variant) AS variant FROM exposures
           WHERE exp_id = {exp} AND dt BETWEEN DATE '{a}' AND DATE '{b}' GROUP BY user_id),
 f AS (SELECT user_id, window_funnel(INTERVAL '1' HOUR, ts, event = 'visit', event = 'click', event = 'add_to_cart', event = 'pay') AS lvl
       FROM events WHERE dt BETWEEN DATE '{a}' AND DATE '{b}' AND event IN ('visit', 'click', 'add_to_cart', 'pay') GROUP BY user_id)
SELECT u.variant AS variant, SUM(CASE WHEN lvl >= 1 THEN 1 ELSE 0 END) AS l1, SUM(CASE WHEN lvl >= 2 THEN 1 ELSE 0 END) AS l2,
       SUM(CASE WHEN lvl >= 3 THEN 1 ELSE 0 END) AS l3, SUM(CASE WHEN lvl >= 4 THEN 1 ELSE 0 END) AS l4
FROM f JOIN u ON f.user_id = u.user_id GROUP BY u.variant
