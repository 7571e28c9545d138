-- 10,000 lines of a web server's log as one text column: LIKE, regular expressions, cutting.
-- query: lines
SELECT count(*), sum(length(line)), sum(octet_length(line)), min(length(line)), max(length(line)) FROM logs;
-- DuckDB measures octets of blobs only; strlen counts a text's bytes.
-- duckdb:
SELECT count(*), sum(length(line)), sum(strlen(line)), min(length(line)), max(length(line)) FROM logs;
-- query: like
SELECT count(*) FROM logs WHERE line LIKE '%GET /presentations/%' AND line NOT LIKE '%.png%';
-- query: like_start_and_end
SELECT count(*) FROM logs WHERE line LIKE '83.149.9.%Safari/537.36"';
-- query: ilike
SELECT count(*) FROM logs WHERE line ILIKE '%GOOGLEBOT%';
-- query: like_escaped
SELECT count(*) FROM logs WHERE line LIKE '%\%20%' ESCAPE '\' OR line LIKE '%favicon_ico%';
-- query: status
SELECT split_part(split_part(line, '" ', 2), ' ', 1) AS status, count(*) FROM logs GROUP BY 1;
-- query: hosts
SELECT split_part(line, ' ', 1) AS host, count(*) AS n FROM logs GROUP BY 1 ORDER BY n DESC, host LIMIT 25;
-- query: regex_count
SELECT count(*) FROM logs WHERE regexp_like(line, '"(GET|POST) /[a-z]+/ HTTP/1\.[01]" 200');
-- duckdb:
SELECT count(*) FROM logs WHERE regexp_matches(line, '"(GET|POST) /[a-z]+/ HTTP/1\.[01]" 200');
-- query: regex_replace
SELECT regexp_replace(split_part(line, '"', 2), '[0-9]+', 'N', 'g') AS path, count(*) AS n FROM logs GROUP BY 1 ORDER BY n DESC, path LIMIT 40;
-- query: first_number_groups
SELECT regexp_replace(line, '^([0-9]+)\..*$', '\1') AS first, count(*) AS n FROM logs GROUP BY 1 ORDER BY n DESC, first LIMIT 20;
-- query: time_of_line
SELECT substr(line, strpos(line, '[') + 1, 14) AS hour, count(*) FROM logs GROUP BY 1 ORDER BY 1;
-- query: bytes
SELECT sum(TRY_CAST(split_part(split_part(line, '" ', 2), ' ', 2) AS BIGINT)), count(TRY_CAST(split_part(split_part(line, '" ', 2), ' ', 2) AS BIGINT)) FROM logs;
-- query: agents
SELECT CASE WHEN line LIKE '%Firefox%' THEN 'Firefox' WHEN line LIKE '%Chrome%' THEN 'Chrome' WHEN line LIKE '%MSIE%' THEN 'IE' ELSE 'other' END AS a, count(*), count(DISTINCT split_part(line, ' ', 1)) FROM logs GROUP BY 1;
-- query: distinct_lines
SELECT count(DISTINCT line), count(DISTINCT md5(line)) FROM logs;
-- query: min_max
SELECT min(line), max(line) FROM logs;
-- query: in_order
SELECT line FROM logs WHERE line > '9' ORDER BY line LIMIT 30;
