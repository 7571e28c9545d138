-- Reviews (578,805 rows, clustered by vendorId): filters, groups, windows, sets. `date` is text.
-- query: count
SELECT count(*), count(DISTINCT "reviewerId"), count(DISTINCT "vendorId"), min(rating), max(rating), sum(rating) FROM reviews;
-- query: by_rating
SELECT rating, count(*) AS c FROM reviews GROUP BY rating ORDER BY rating;
-- query: mixed_case_names
SELECT vendorid, COUNT(*) AS c FROM reviews WHERE REVIEWERID < 1000 GROUP BY VendorId ORDER BY c DESC, vendorid LIMIT 20;
-- query: one_vendor
SELECT reviewerId, rating, "date" FROM reviews WHERE vendorId = 17 ORDER BY 1, 2, 3;
-- query: vendor_range
SELECT count(*), avg(rating) FROM reviews WHERE vendorId BETWEEN 1000 AND 1010;
-- query: vendor_in_thousands
SELECT count(*), sum(rating), count(DISTINCT vendorId) FROM reviews WHERE vendorId IN ({many});
-- query: reviewer_not_in_thousands
SELECT count(*), sum(rating) FROM reviews WHERE reviewerId NOT IN ({many});
-- query: text_in_thousands
SELECT count(*) FROM reviews WHERE CAST(reviewerId AS VARCHAR) IN ({many_texts});
-- query: disjunction
SELECT count(*) FROM reviews WHERE vendorId < 5 OR vendorId > 18000 OR (rating = 1 AND reviewerId % 7 = 3);
-- query: negated_range
SELECT count(*), min(vendorId), max(vendorId) FROM reviews WHERE NOT (vendorId >= 100 AND vendorId < 18000);
-- query: year_of_text
SELECT substr("date", 1, 4) AS y, count(*), avg(rating) FROM reviews GROUP BY 1 ORDER BY 1;
-- query: text_order
SELECT "date" FROM reviews WHERE "date" >= '2006-04' AND "date" < '2006-05' ORDER BY "date", rating LIMIT 50;
-- query: cast_to_timestamp
SELECT date_trunc('month', CAST("date" || ':00' AS TIMESTAMP)) AS m, count(*) FROM reviews GROUP BY 1 ORDER BY 1;
-- query: weekday
SELECT extract(dow FROM CAST("date" || ':00' AS TIMESTAMP)) AS d, count(*) FROM reviews WHERE vendorId < 500 GROUP BY 1 ORDER BY 1;
-- query: having
SELECT vendorId, count(*) AS c, avg(rating) AS r FROM reviews GROUP BY vendorId HAVING count(*) > 100 AND avg(rating) < 4 ORDER BY c DESC, vendorId;
-- query: distinct_pairs
SELECT count(*) FROM (SELECT DISTINCT vendorId, rating FROM reviews);
-- query: two_distincts
SELECT rating, count(DISTINCT vendorId), count(DISTINCT reviewerId) FROM reviews GROUP BY rating;
-- query: filtered_aggregates
SELECT count(*) FILTER (WHERE rating = 5), avg(rating) FILTER (WHERE vendorId < 100), sum(rating) FILTER (WHERE rating > 9) FROM reviews;
-- query: variance
SELECT rating > 3 AS good, var_samp(vendorId), var_pop(vendorId), stddev_samp(reviewerId), stddev_pop(reviewerId) FROM reviews GROUP BY 1;
-- query: correlation
SELECT corr(vendorId, rating), covar_samp(vendorId, rating), covar_pop(reviewerId, rating) FROM reviews;
-- query: regression
SELECT regr_slope(rating, vendorId), regr_intercept(rating, vendorId), regr_r2(rating, vendorId), regr_count(rating, vendorId) FROM reviews;
-- query: median_by_rating
SELECT rating, median(vendorId) FROM reviews GROUP BY rating ORDER BY rating;
-- query: quantiles
SELECT percentile_cont(0.01) WITHIN GROUP (ORDER BY vendorId), percentile_cont(0.5) WITHIN GROUP (ORDER BY vendorId), percentile_cont(0.99) WITHIN GROUP (ORDER BY reviewerId) FROM reviews;
-- query: top_per_group
SELECT rating, vendorId, c FROM (SELECT rating, vendorId, count(*) AS c, row_number() OVER (PARTITION BY rating ORDER BY count(*) DESC, vendorId) AS n FROM reviews GROUP BY rating, vendorId) WHERE n <= 3 ORDER BY rating, n;
-- query: running_total
SELECT m, c, sum(c) OVER (ORDER BY m ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW) AS total FROM (SELECT substr("date", 1, 7) AS m, count(*) AS c FROM reviews GROUP BY 1) ORDER BY m;
-- query: moving_average
SELECT m, avg(c) OVER (ORDER BY m ROWS BETWEEN 2 PRECEDING AND 2 FOLLOWING) AS a FROM (SELECT substr("date", 1, 7) AS m, count(*) AS c FROM reviews GROUP BY 1) ORDER BY m;
-- query: ranks
SELECT vendorId, c, rank() OVER (ORDER BY c DESC), dense_rank() OVER (ORDER BY c DESC), ntile(4) OVER (ORDER BY c DESC, vendorId), percent_rank() OVER (ORDER BY c), cume_dist() OVER (ORDER BY c) FROM (SELECT vendorId, count(*) AS c FROM reviews WHERE vendorId < 300 GROUP BY 1);
-- query: self_join
SELECT count(*) FROM reviews a JOIN reviews b ON a.reviewerId = b.reviewerId AND a.vendorId < b.vendorId WHERE a.vendorId < 200 AND b.vendorId < 200;
-- query: union_all_sum
SELECT sum(x) FROM (SELECT rating AS x FROM reviews WHERE vendorId < 10 UNION ALL SELECT vendorId FROM reviews WHERE rating = 1);
-- query: intersect
SELECT reviewerId FROM reviews WHERE vendorId = 17 INTERSECT SELECT reviewerId FROM reviews WHERE vendorId = 26 ORDER BY 1;
-- query: except
SELECT vendorId FROM reviews WHERE rating = 1 EXCEPT SELECT vendorId FROM reviews WHERE rating = 5 ORDER BY 1;
-- query: rollup
SELECT rating, vendorId % 3 AS g, count(*), grouping(rating), grouping(vendorId % 3) FROM reviews GROUP BY ROLLUP (rating, vendorId % 3);
-- query: integer_division
SELECT vendorId / 100 AS h, sum(rating / 2), sum(rating % 2), count(*) FROM reviews GROUP BY 1;
-- query: limit_offset
SELECT vendorId, reviewerId, "date" FROM reviews ORDER BY vendorId DESC, reviewerId, "date" LIMIT 25 OFFSET 1000;
-- query: avg_of_avgs
SELECT avg(a), min(a), max(a) FROM (SELECT vendorId, avg(rating) AS a, count(*) AS c FROM reviews GROUP BY vendorId) WHERE c >= 10;
-- query: scalar_subquery
SELECT count(*) FROM reviews WHERE rating > (SELECT avg(rating) FROM reviews);
-- query: correlated
SELECT count(*) FROM reviews r WHERE vendorId < 300 AND rating < (SELECT avg(rating) FROM reviews s WHERE s.vendorId = r.vendorId);
-- query: case_buckets
SELECT CASE WHEN rating >= 4 THEN 'good' WHEN rating >= 2 THEN 'so so' ELSE 'bad' END AS k, count(*) FROM reviews GROUP BY 1;
-- query: bits
SELECT bit_and(vendorId), bit_or(vendorId), bit_xor(reviewerId), sum(vendorId & 7), sum(vendorId | 1) FROM reviews;
