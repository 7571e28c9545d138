-- Invoices of a shop (525,461 rows, partitioned by Country, clustered by StockCode, InvoiceDate).
-- Names have capitals, and one has a space. InvoiceDate is text.
-- query: totals
SELECT count(*), count(DISTINCT invoice), count("Customer ID"), count(description), sum(quantity), sum(quantity * price) FROM retail;
-- query: by_country
SELECT country, count(*) AS n, sum(quantity) AS q, sum(quantity * price) AS v FROM retail GROUP BY country ORDER BY country;
-- query: one_partition
SELECT count(*), min(stockcode), max(stockcode), min(invoicedate), max(invoicedate) FROM retail WHERE country = 'France';
-- query: partitions_like
SELECT country, count(*) FROM retail WHERE country LIKE 'U%' OR country ILIKE '%LAND%' GROUP BY country;
-- query: partitions_not
SELECT country, count(*) FROM retail WHERE country <> 'United Kingdom' AND country NOT IN ('France', 'Germany', 'EIRE') GROUP BY country HAVING count(*) > 500;
-- query: partition_and_cluster
SELECT invoice, invoicedate, quantity, price FROM retail WHERE country = 'Germany' AND stockcode = '22423' ORDER BY invoicedate, invoice, quantity, price;
-- query: cluster_range
SELECT stockcode, count(*) FROM retail WHERE stockcode >= '85' AND stockcode < '851' GROUP BY stockcode;
-- query: cluster_prefix
SELECT stockcode, count(*), sum(quantity) FROM retail WHERE stockcode LIKE '8509%' GROUP BY stockcode;
-- query: like_in_text
SELECT description, count(*) AS c FROM retail WHERE description LIKE '%CHRISTMAS%' GROUP BY description ORDER BY c DESC, description LIMIT 20;
-- query: like_underscore
SELECT DISTINCT description FROM retail WHERE description LIKE '_______' ORDER BY 1;
-- query: ilike
SELECT count(*) FROM retail WHERE description ILIKE '%light%' AND description NOT LIKE '%LIGHT%';
-- query: regex
SELECT count(*), count(DISTINCT stockcode) FROM retail WHERE regexp_like(stockcode, '^[0-9]{5}[A-Z]$');
-- duckdb:
SELECT count(*), count(DISTINCT stockcode) FROM retail WHERE regexp_matches(stockcode, '^[0-9]{5}[A-Z]$');
-- query: regex_plain
SELECT count(*), count(DISTINCT stockcode) FROM retail WHERE regexp_like(stockcode, '[A-Za-z]+$');
-- DuckDB calls it regexp_matches.
-- duckdb:
SELECT count(*), count(DISTINCT stockcode) FROM retail WHERE regexp_matches(stockcode, '[A-Za-z]+$');
-- query: regex_replace
-- Both replace the first match only without 'g'.
SELECT regexp_replace(stockcode, '[0-9]+', '#') AS k, count(*) FROM retail GROUP BY 1;
-- query: regex_operator
-- DuckDB's ~ must match the whole text; ours (PostgreSQL's) any part.
SELECT count(*) FROM retail WHERE description ~ 'T[- ]LIGHT';
-- duckdb:
SELECT count(*) FROM retail WHERE regexp_matches(description, 'T[- ]LIGHT');
-- query: nulls
SELECT count(*), count(*) - count("Customer ID"), sum(CASE WHEN "Customer ID" IS NULL THEN quantity END) FROM retail WHERE description IS NULL OR "Customer ID" IS NULL;
-- query: null_group
SELECT "Customer ID" IS NULL AS anon, description IS NULL AS bare, count(*), min(price), max(price) FROM retail GROUP BY 1, 2;
-- query: null_logic
SELECT count(*) FROM retail WHERE NOT ("Customer ID" > 15000 AND quantity > 10);
-- query: null_order_first
SELECT "Customer ID", invoice FROM retail WHERE country = 'Japan' OR country = 'Nigeria' OR country = 'Hong Kong' ORDER BY "Customer ID" NULLS FIRST, invoice, stockcode, quantity LIMIT 40;
-- query: null_order_default
SELECT "Customer ID" AS c, count(*) FROM retail WHERE country = 'EIRE' GROUP BY 1 ORDER BY c DESC;
-- query: not_in_with_null
SELECT count(*) FROM retail WHERE country = 'France' AND "Customer ID" NOT IN (SELECT "Customer ID" FROM retail WHERE country = 'EIRE' AND "Customer ID" IS NOT NULL);
-- query: distinct_on
SELECT DISTINCT ON (country) country, price, stockcode FROM retail WHERE quantity > 0 ORDER BY country, price DESC, stockcode;
-- query: months
SELECT date_trunc('month', CAST(invoicedate AS TIMESTAMP)) AS m, count(DISTINCT invoice), sum(quantity * price) FROM retail GROUP BY 1 ORDER BY 1;
-- query: hours
SELECT extract(hour FROM CAST(invoicedate AS TIMESTAMP)) AS h, count(*) FROM retail GROUP BY 1 ORDER BY 1;
-- query: weeks
SELECT extract(week FROM CAST(invoicedate AS TIMESTAMP)) AS w, extract(year FROM CAST(invoicedate AS TIMESTAMP)) AS y, count(*) FROM retail GROUP BY 1, 2;
-- query: dates_between
SELECT CAST(CAST(invoicedate AS TIMESTAMP) AS DATE) AS d, count(*) FROM retail WHERE CAST(invoicedate AS TIMESTAMP) >= DATE '2010-06-01' AND CAST(invoicedate AS TIMESTAMP) < DATE '2010-06-01' + INTERVAL '10 days' GROUP BY 1 ORDER BY 1;
-- query: date_difference
SELECT country, CAST(max(invoicedate) AS DATE) - CAST(min(invoicedate) AS DATE) AS days FROM (SELECT country, substr(invoicedate, 1, 10) AS invoicedate FROM retail) GROUP BY country;
-- query: cohorts
WITH f AS (SELECT "Customer ID" AS c, min(substr(invoicedate, 1, 7)) AS first FROM retail WHERE "Customer ID" IS NOT NULL GROUP BY 1)
SELECT f.first, substr(r.invoicedate, 1, 7) AS m, count(DISTINCT f.c) FROM f JOIN retail r ON r."Customer ID" = f.c GROUP BY 1, 2 ORDER BY 1, 2;
-- query: baskets
SELECT n, count(*) FROM (SELECT invoice, count(*) AS n FROM retail GROUP BY invoice) GROUP BY n ORDER BY n LIMIT 100;
-- query: bought_together
SELECT a.stockcode AS x, b.stockcode AS y, count(DISTINCT a.invoice) AS c FROM retail a JOIN retail b ON a.invoice = b.invoice AND a.stockcode < b.stockcode WHERE a.country = 'France' AND b.country = 'France' GROUP BY 1, 2 ORDER BY c DESC, x, y LIMIT 15;
-- query: returns
SELECT count(*), sum(quantity) FROM retail r WHERE invoice LIKE 'C%' AND EXISTS (SELECT 1 FROM retail b WHERE b."Customer ID" = r."Customer ID" AND b.stockcode = r.stockcode AND b.quantity = -r.quantity);
-- query: never_returned
SELECT count(*) FROM (SELECT DISTINCT stockcode FROM retail) s WHERE NOT EXISTS (SELECT 1 FROM retail c WHERE c.stockcode = s.stockcode AND c.invoice LIKE 'C%');
-- query: repeat_interval
SELECT count(*), avg(gap), max(gap) FROM (SELECT day - lag(day) OVER (PARTITION BY c ORDER BY day) AS gap FROM (SELECT DISTINCT "Customer ID" AS c, CAST(substr(invoicedate, 1, 10) AS DATE) AS day FROM retail WHERE "Customer ID" IS NOT NULL));
-- query: share_of_country
SELECT country, sum(quantity) * 1.0 / sum(sum(quantity)) OVER () AS share FROM retail GROUP BY country;
-- query: decimals
SELECT country, sum(CAST(price AS DECIMAL(18, 3))), max(CAST(price AS DECIMAL(18, 3))), sum(CAST(quantity AS DECIMAL(18, 0))) FROM retail GROUP BY country;
-- query: decimal_product
SELECT sum(CAST(quantity AS DECIMAL(10, 0)) * CAST(price AS DECIMAL(10, 2))) FROM retail WHERE country = 'Spain';
-- query: rounding
SELECT stockcode, round(price, 1), floor(price), ceil(price), trunc(price), CAST(price AS DECIMAL(10, 1)) FROM retail WHERE country = 'Spain' AND price < 100;
-- query: text_functions
SELECT DISTINCT upper(country), lower(country), length(country), reverse(country), substr(country, 2, 3), left(country, 3), right(country, 2), strpos(country, 'a'), replace(country, 'a', '-'), lpad(country, 6, '*') FROM retail;
-- query: trim_descriptions
SELECT count(*), count(DISTINCT description), count(DISTINCT trim(description)), sum(length(description)) FROM retail WHERE description <> trim(description);
-- query: string_agg
SELECT country, string_agg(DISTINCT substr(stockcode, 1, 1), '' ORDER BY substr(stockcode, 1, 1)) FROM retail GROUP BY country;
-- query: grouping_sets
SELECT country, substr(invoicedate, 1, 7) AS m, count(*), sum(quantity) FROM retail GROUP BY GROUPING SETS ((country), (substr(invoicedate, 1, 7)), ());
-- query: cube
SELECT country, "Customer ID" IS NULL AS anon, count(*), grouping(country) FROM retail WHERE country < 'G' GROUP BY CUBE (country, "Customer ID" IS NULL);
-- query: quantiles
-- DataFusion 55 interpolates quantiles with six digits (docs/sql.md, "Known faults").
-- tolerance: 1e-5
SELECT country, median(price), percentile_cont(0.9) WITHIN GROUP (ORDER BY price) FROM retail GROUP BY country;
-- query: variances
-- tolerance: 1e-6
SELECT country, var_samp(price), stddev_pop(quantity), covar_samp(quantity, price), corr(quantity, price) FROM retail GROUP BY country HAVING count(*) > 100;
-- query: first_last
SELECT DISTINCT country, first_value(invoice) OVER w AS f, last_value(invoice) OVER w AS l FROM retail WHERE country IN ('Japan', 'Malta', 'USA') WINDOW w AS (PARTITION BY country ORDER BY invoicedate, invoice ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING);
-- query: union_distinct
SELECT country FROM retail WHERE price > 1000 UNION SELECT country FROM retail WHERE quantity > 5000 ORDER BY 1;
-- query: full_join_months
SELECT a.m, a.n, b.n FROM (SELECT substr(invoicedate, 1, 10) AS m, count(*) AS n FROM retail WHERE country = 'France' GROUP BY 1) a FULL JOIN (SELECT substr(invoicedate, 1, 10) AS m, count(*) AS n FROM retail WHERE country = 'Spain' GROUP BY 1) b ON a.m = b.m;
-- query: all_columns_of_a_few
SELECT * FROM retail WHERE country = 'Nigeria' OR (country = 'Lebanon' AND quantity > 20);
-- query: top_customers
SELECT "Customer ID", sum(quantity * price) AS v FROM retail WHERE "Customer ID" IS NOT NULL GROUP BY 1 ORDER BY v DESC LIMIT 10;
-- query: approximate_free_distinct
SELECT substr(stockcode, 1, 2) AS p, count(DISTINCT stockcode), count(DISTINCT "Customer ID"), count(DISTINCT country) FROM retail GROUP BY 1;
