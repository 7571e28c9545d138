-- Airports and routes: joins of every kind, NULL keys, distances.
-- query: counts
SELECT count(*), count(iata), count(icao), count(tz_offset), count(DISTINCT country), min(alt), max(alt), sum(id) FROM airports;
-- query: route_counts
SELECT count(*), count(airline_id), count(src_id), count(dst_id), count(codeshare), count(DISTINCT equipment), sum(stops) FROM routes;
-- query: text_as_read
SELECT id, name, city, country, iata, icao, tz FROM airports WHERE country IN ('Iceland', 'Côte d''Ivoire', 'Cote d''Ivoire', 'Papua New Guinea', 'Brazil') ORDER BY id;
-- query: odd_names
SELECT id, name, city FROM airports WHERE name LIKE '%"%' OR name LIKE '%\\%' OR name LIKE '%''%' OR city IS NULL OR name LIKE '%,%';
-- DuckDB's LIKE has no escape character unless it is named.
-- duckdb:
SELECT id, name, city FROM airports WHERE name LIKE '%"%' OR contains(name, '\') OR name LIKE '%''%' OR city IS NULL OR name LIKE '%,%';
-- query: by_country
SELECT country, count(*) AS n, avg(alt), min(lat), max(lon) FROM airports GROUP BY country ORDER BY n DESC, country LIMIT 30;
-- query: one_country
SELECT id, city, lat, lon FROM airports WHERE country = 'New Zealand' ORDER BY id;
-- query: countries_between
SELECT country, count(*) FROM airports WHERE country BETWEEN 'Ja' AND 'Ke' GROUP BY country;
-- query: inner_join
SELECT a.country, count(*) AS n FROM routes r JOIN airports a ON r.src_id = a.id GROUP BY a.country ORDER BY n DESC, 1 LIMIT 40;
-- query: two_joins
SELECT s.country, d.country, count(*) AS n FROM routes r JOIN airports s ON r.src_id = s.id JOIN airports d ON r.dst_id = d.id WHERE s.country <> d.country GROUP BY 1, 2 HAVING count(*) > 100;
-- query: left_join_nulls
SELECT count(*), count(a.id), sum(CASE WHEN r.src_id IS NULL THEN 1 ELSE 0 END) FROM routes r LEFT JOIN airports a ON r.src_id = a.id;
-- query: right_join
SELECT count(*), count(r.airline), count(a.id) FROM routes r RIGHT JOIN airports a ON r.dst_id = a.id;
-- query: full_join
SELECT count(*), count(r.src), count(a.id) FROM routes r FULL JOIN airports a ON r.src_id = a.id AND a.country = 'Germany';
-- query: left_join_on_constant
SELECT r.airline, count(*), count(a.id) FROM routes r LEFT JOIN airports a ON r.src_id = a.id AND a.alt > 3000 GROUP BY r.airline;
-- query: semi
SELECT count(*) FROM airports a WHERE EXISTS (SELECT 1 FROM routes r WHERE r.src_id = a.id);
-- query: anti
SELECT country, count(*) FROM airports a WHERE NOT EXISTS (SELECT 1 FROM routes r WHERE r.src_id = a.id OR r.dst_id = a.id) GROUP BY country;
-- query: in_subquery
SELECT count(*), avg(alt) FROM airports WHERE id IN (SELECT dst_id FROM routes WHERE airline = 'LH');
-- query: not_in_subquery_with_nulls
SELECT count(*) FROM airports WHERE id NOT IN (SELECT src_id FROM routes);
-- query: not_in_subquery
SELECT count(*) FROM airports WHERE id NOT IN (SELECT src_id FROM routes WHERE src_id IS NOT NULL);
-- query: anti_by_left_join
SELECT count(*) FROM airports a LEFT JOIN routes r ON r.src_id = a.id WHERE r.src_id IS NULL;
-- query: non_equi
SELECT count(*) FROM airports a JOIN airports b ON a.country = b.country AND a.alt < b.alt - 10000;
-- query: cross_join
SELECT count(*), sum(a.id * b.id) FROM (SELECT id FROM airports WHERE country = 'Malta' OR country = 'Nepal') a CROSS JOIN (SELECT id FROM airports WHERE country = 'Bhutan' OR country = 'Fiji') b;
-- query: using
SELECT count(*), min(country), max(country) FROM (SELECT country, count(*) AS n FROM airports GROUP BY country) a JOIN (SELECT country, max(alt) AS m FROM airports GROUP BY country) b USING (country) WHERE m > 5000;
-- query: null_safe_join
SELECT count(*) FROM (SELECT DISTINCT iata FROM airports WHERE country = 'Brazil') a JOIN (SELECT DISTINCT iata FROM airports WHERE country IN ('Brazil', 'Peru')) b ON a.iata IS NOT DISTINCT FROM b.iata;
-- query: one_stop
SELECT count(DISTINCT b.dst) FROM routes a JOIN routes b ON a.dst = b.src WHERE a.src = 'KEF';
-- query: three_hops
WITH RECURSIVE hop AS (SELECT 'KEF' AS place, 0 AS n UNION SELECT r.dst, n + 1 FROM hop JOIN routes r ON r.src = hop.place WHERE n < 2)
SELECT n, count(DISTINCT place) FROM hop GROUP BY n ORDER BY n;
-- query: distances
SELECT r.src, r.dst, 6371 * acos(least(1.0, sin(radians(a.lat)) * sin(radians(b.lat)) + cos(radians(a.lat)) * cos(radians(b.lat)) * cos(radians(b.lon - a.lon)))) AS km FROM routes r JOIN airports a ON r.src_id = a.id JOIN airports b ON r.dst_id = b.id WHERE r.airline = 'FI' AND r.src = 'KEF' ORDER BY r.dst, km;
-- query: arithmetic
SELECT sum(round(abs(lat) * 2, 2)), sum(floor(lon)), sum(ceil(lat)), sum(sqrt(abs(alt))), sum(power(lat, 2)), sum(exp(lat / 100)), sum(ln(abs(lon) + 1)), sum(signum(lat)) FROM airports;
-- Our signum is DuckDB's sign.
-- duckdb:
SELECT sum(round(abs(lat) * 2, 2)), sum(floor(lon)), sum(ceil(lat)), sum(sqrt(abs(alt))), sum(power(lat, 2)), sum(exp(lat / 100)), sum(ln(abs(lon) + 1)), sum(sign(lat)) FROM airports;
-- query: trigonometry
SELECT sum(sin(lat)), sum(cos(lat)), sum(atan2(lat, lon)), sum(degrees(radians(lon))) FROM airports;
-- query: coalesce
SELECT coalesce(iata, icao, 'none') AS code, id FROM airports WHERE country = 'Canada' AND (iata IS NULL OR icao IS NULL);
-- query: equipment_words
SELECT split_part(equipment, ' ', 1) AS first, count(*) AS n FROM routes GROUP BY 1 ORDER BY n DESC, first NULLS LAST LIMIT 25;
-- query: unnest_words
SELECT e, count(*) AS n FROM (SELECT unnest(string_to_array(equipment, ' ')) AS e FROM routes WHERE airline = 'BA') GROUP BY e ORDER BY n DESC, e LIMIT 20;
-- query: symmetric_routes
SELECT count(*) FROM (SELECT src, dst FROM routes INTERSECT SELECT dst, src FROM routes);
-- query: one_way_routes
SELECT count(*) FROM (SELECT src, dst FROM routes EXCEPT SELECT dst, src FROM routes);
-- query: null_order
SELECT iata, id FROM airports WHERE country = 'Russia' ORDER BY iata DESC NULLS LAST, id LIMIT 60;
-- query: null_order_first
SELECT iata, id FROM airports WHERE country = 'Russia' ORDER BY iata NULLS FIRST, id LIMIT 60;
-- query: lateral
SELECT a.country, x.n FROM (SELECT DISTINCT country FROM airports) a, LATERAL (SELECT count(*) AS n FROM airports b WHERE b.country = a.country) x;
-- query: correlated_max
SELECT a.country, a.id, a.alt FROM airports a WHERE a.alt = (SELECT max(b.alt) FROM airports b WHERE b.country = a.country) AND a.country < 'C';
-- query: except_all
-- EXCEPT ALL and INTERSECT ALL are refused (the engine below counts wrongly); the way round is the same.
SELECT src FROM (SELECT src, row_number() OVER (PARTITION BY src) AS n FROM routes WHERE airline = 'FI' EXCEPT SELECT dst, row_number() OVER (PARTITION BY dst) FROM routes WHERE airline = 'FI' AND dst < 'G');
-- duckdb:
SELECT src FROM routes WHERE airline = 'FI' EXCEPT ALL SELECT dst FROM routes WHERE airline = 'FI' AND dst < 'G';
-- query: intersect_all
SELECT src FROM (SELECT src, row_number() OVER (PARTITION BY src) AS n FROM routes WHERE airline = 'FI' INTERSECT SELECT dst, row_number() OVER (PARTITION BY dst) FROM routes WHERE airline = 'FI' AND dst < 'L');
-- duckdb:
SELECT src FROM routes WHERE airline = 'FI' INTERSECT ALL SELECT dst FROM routes WHERE airline = 'FI' AND dst < 'L';
