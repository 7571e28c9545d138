"""How each function is called: templates, by the types that each promises to take.

`{N}` is an argument of any numeric type, and so on; see `CLASSES`. `{N2}` is another value of the
same type as `{N}`, `{E}` a value of the type of the elements of `{L}`.

Not here: values, tables and asking (`test_every_function`).
"""

import re

# Columns by class; each is a type that a table can hold.
CLASSES = {
    "N": ["i16", "i32", "i64", "f32", "f64", "dec"],
    "I": ["i16", "i32", "i64"],
    "F": ["f32", "f64"],
    "D": ["i16", "i32", "i64", "f32", "f64"],
    "X": ["text"],
    "B": ["bool"],
    "Y": ["bin"],
    "Z": ["text", "bin"],
    "T": ["date", "ts", "tz"],
    "S": ["ts", "tz"],
    "V": ["date", "ts", "tz"],
    "L": ["li", "lf", "lt"],
    "M": ["li", "lf"],
    "K": ["li"],
    "J": ["lt"],
    "G": ["ll"],
    "R": ["st"],
    "P": ["bm"],
    "A": ["bool", "i16", "i32", "i64", "f32", "f64", "dec", "text", "bin", "date", "ts", "tz"],
    "O": ["bool", "i16", "i32", "i64", "f32", "f64", "dec", "text", "date", "ts", "tz"],
    "U": ["i64", "text"],
}
ELEMENTS = {"li": "i64", "lf": "f64", "lt": "text", "ll": "li"}


def families(text):
    """`a b c: call ; call` a line, `@` for the name; a line that is indented goes on."""
    found = {}
    for line in re.sub(r"\n +", " ", text).strip().splitlines():
        names, _, calls = line.partition(": ")
        for name in names.split():
            found.setdefault(name, []).extend(
                c.strip().replace("@", name) for c in calls.split(" ;")
            )
    return found


SCALAR = families("""
abs ceil floor signum trunc round: @({N})
round trunc: @({N}, 1)
acos asin atan atanh cbrt cos cosh cot degrees exp ln log10 log2 log radians sin sinh sqrt tan
    tanh asinh: @({D})
acosh: @({D} + 1)
atan2 power pow log: @({D}, {D2})
nanvl: @({F}, {F2})
isnan iszero: @({F})
factorial: @({I})
gcd lcm: @({I}, {I2})
pi random rand uuid now today version current_date current_time current_timestamp bitmap_empty: @()
ascii bit_length char_length character_length length initcap lower upper reverse trim ltrim rtrim
    btrim octet_length: @({X})
btrim ltrim rtrim: @({X}, 'a')
chr: @({I} + 64)
to_hex: @({I})
concat: @({X}, {X2}) ; @({X}, '-', {I})
concat_ws: @('-', {X}, {X2})
contains starts_with ends_with strpos instr position levenshtein find_in_set: @({X}, {X2})
left right repeat: @({X}, {I})
lpad rpad: @({X}, 6) ; @({X}, 6, {X2})
replace translate: @({X}, 'a', {X2})
overlay: overlay({X} placing 'x' from 2 for 1)
split_part: @({X}, 'b', 1)
substr substring: @({X}, 2) ; @({X}, 2, 1) ; @({X}, {I})
substr_index substring_index: @({X}, 'b', 1)
regexp_like regexp_match regexp_count: @({X}, 'a|o') ; @({X}, {X2})
regexp_instr: @({X}, 'b')
regexp_replace: @({X}, 'a', {X2}) ; @({X}, '(b)', '[\\\\1]', 'g')
string_to_array string_to_list: @({X}, 'b') ; @({X}, 'b', 'c')
md5 sha224 sha256 sha384 sha512: @({Z})
digest: @({Z}, 'sha256')
encode: @({Z}, 'hex') ; @({Z}, 'base64')
decode: @(encode({Z}, 'hex'), 'hex')
coalesce nvl ifnull nullif greatest least: @({A}, {A2})
nvl2: @({A}, {A2}, {A})
to_char date_format: @({T}, '%Y-%m-%d')
date_part datepart: @('month', {T}) ; @('hour', {S}) ; @('dow', {T})
date_trunc datetrunc: @('month', {T}) ; @('hour', {S})
timezone: @('Europe/Berlin', {T})
date_bin: @(INTERVAL '15 minutes', {S}, TIMESTAMP '2001-01-01') ; @(INTERVAL '15 minutes', {S})
from_unixtime: @({I})
make_date: @(2024, {I}, 5)
make_time: @(10, {I}, 5)
to_date: @({T}) ; @(cast({T} AS text)) ; @({I})
to_time: @(to_char({S}, '%H:%M:%S')) ; @(to_char({S}, '%H-%M'), '%H-%M')
to_timestamp to_timestamp_seconds to_timestamp_millis to_timestamp_micros to_timestamp_nanos:
    @({S}) ; @({I}) ; @('2024-02-03 04:05:06') ; @(cast({V} AS text)) ; @(to_char({T},
    '%Y/%m/%d'), '%Y/%m/%d')
to_unixtime: @({T}) ; @('2024-02-03 04:05:06') ; @(cast({V} AS text))
to_local_time: @({S})
make_array make_list: @({A}, {A2})
array_append list_append array_push_back list_push_back array_position list_position array_indexof
    list_indexof array_positions list_positions array_remove list_remove array_remove_all
    list_remove_all array_has list_has array_contains list_contains: @({L}, {E})
array_prepend list_prepend array_push_front list_push_front: @({E}, {L})
array_concat array_cat list_concat list_cat array_except list_except array_intersect
    list_intersect array_union list_union array_has_all list_has_all array_has_any list_has_any
    arrays_overlap: @({L}, {L2})
array_concat array_cat list_concat list_cat: @({G}, {G2}) ; @({G}, [[7, 8]])
array_dims list_dims array_ndims list_ndims array_length list_length cardinality array_distinct
    list_distinct array_empty list_empty empty array_pop_back list_pop_back array_pop_front
    list_pop_front array_reverse list_reverse array_compact list_compact: @({L}) ; @({G})
array_sort list_sort array_max list_max array_min array_any_value list_any_value: @({L})
array_sort list_sort: @({L}, 'DESC', 'NULLS FIRST')
array_sum list_sum array_avg list_avg array_product list_product array_normalize list_normalize:
    @({M})
array_add list_add array_subtract list_subtract array_distance list_distance cosine_distance
    inner_product dot_product: @({M}, {M2})
array_scale list_scale: @({M}, 2.0)
array_element array_extract list_element list_extract: @({L}, 2) ; @({L}, {I}) ; @({G}, 1)
array_slice list_slice: @({L}, 1, 2)
array_join list_join array_to_string list_to_string: @({L}, ',') ; @({L}, ',', '-')
array_remove_n list_remove_n: @({L}, {E}, 1)
array_replace list_replace array_replace_all list_replace_all: @({L}, {E}, {E2})
array_replace_n list_replace_n: @({L}, {E}, {E2}, 1)
array_repeat list_repeat: @({A}, 2) ; @({L}, 2) ; @({L}, {I})
array_resize list_resize: @({L}, 4) ; @({L}, 4, {E})
arrays_zip list_zip: @({L}, {L2})
flatten: @({G})
generate_series range: @(1, {I}) ; @(1, {I}, 2)
named_struct: @('a', {A}, 'b', {A2})
struct row: @({A}, {A2})
get_field: @({R}, 'a')
map: @(['k'], [{A}]) ; @(['k', 'l'], [{A}, {A2}])
map_keys map_values map_entries: @(map(['k'], [{A}]))
map_extract element_at: @(map(['abc'], [{A}]), 'abc')
arrow_cast arrow_try_cast: @({D}, 'Int64') ; @({O}, 'Utf8')
cast_to_type try_cast_to_type: @({D}, 1::bigint) ; @({O}, 'x')
arrow_metadata: @({A})
match: match({X}, 'abc')
local_day: @({S}, 'Europe/Berlin')
gb_bucket: @('seed', {U}, 1) ; @('seed', {U}, 2)
gb_variation: @('seed', {U}, 2, 1.0, [0.5, 0.5])
gb_in_namespace: @({U}, 'space', 0.0, 0.5)
murmur3_32: @({X}, 7)
optimizely_bucket: @({U}, 'experiment')
unleash_value: @({U}, 'group', 100, 0)
statsig_hash: @('salt', 'rule', {U})
statsig_user_bucket: @('salt', {U})
planout_hash: @('salt', 'parameter', {U})
eppo_shard: @({X}, 100)
to_bitmap: @({I})
bitmap_from_array: @({K})
bitmap_from_string: @('1,2') ; @(cast({I} AS text))
bitmap_to_array bitmap_to_string bitmap_count bitmap_min bitmap_max: @({P})
bitmap_contains: @({P}, {I})
bitmap_has_any bitmap_has_all bitmap_and bitmap_or bitmap_xor bitmap_not bitmap_and_not
    bitmap_andnot bitmap_and_count bitmap_or_count bitmap_xor_count bitmap_not_count
    bitmap_and_not_count bitmap_andnot_count: @({P}, {P2})
bitmap_subset_in_range bitmap_subset_limit: @({P}, 1, 4)
sub_bitmap: @({P}, 0, 1)
p_adjust: @([0.1, 0.03, NULL], 'holm')
poisson_weight: @({X}, 1) ; @({I}, 2, 3)
""")

AGGREGATE = families("""
any_value: @({A}) FILTER (WHERE n = 2)
first_value last_value: @({A} ORDER BY n)
min max: @({A})
min max: @({L})
count approx_distinct approx_count_distinct: @({A})
count: @(DISTINCT {A}) ; @(*)
sum avg mean: @({N})
sum avg: @(DISTINCT {N})
median approx_median: @({N})
stddev stddev_pop stddev_samp var var_pop var_population var_samp var_sample: @({D})
corr covar covar_pop covar_samp regr_avgx regr_avgy regr_count regr_intercept regr_r2 regr_slope
    regr_sxx regr_sxy regr_syy: @({D}, {D2})
bit_and bit_or bit_xor: @({I})
bool_and bool_or: @({B})
array_agg: @({A} ORDER BY n) ; array_sort(@(DISTINCT {O}))
string_agg: @({X}, ',' ORDER BY n)
percentile_cont quantile_cont approx_percentile_cont: @(0.5) WITHIN GROUP (ORDER BY {N})
approx_percentile_cont_with_weight: @(n, 0.5) WITHIN GROUP (ORDER BY {N})
nth_value: @({A}, 2 ORDER BY n)
first_value_by last_value_by min_by max_by arg_min arg_max: @({O}, n) ; @(n, {O})
exact_sum: @({F})
daily_sums: daily_sums(cast(date AS date), {F})
daily_first daily_last: @(DATE '2026-11-01', TIMESTAMP '2026-11-01 05:00:00', {F})
bitmap_agg: @({I})
bitmap_union_int: @({I})
bitmap_union bitmap_intersect bitmap_union_count: @({P})
intersect_count: intersect_count({P}, text, 'abc', 'x')
window_funnel conversion_times: @(INTERVAL '30 days', {T}, n = 1, n = 2) ; @(3600, n, n = 1, n = 2)
sequence_match sequence_count: @('(?1)(?2)', {T}, n = 1, n = 2)
funnel: funnel({T}, n)
event_path: @(INTERVAL '30 days', 5, {T}, text, n = 1, n = 2) ; @(3600, 5, 'collapse_repeats', n, {X}, {B}, n = 2)
retention: @({B}, n > 1)
ab_test_mean: @(v, {N}) ; @(v, {N}, 'a')
ab_test_proportion: @(v, {B})
ab_test_ratio ab_test_cuped: @(v, {N}, {N2}) ; @(v, {N}, {N2}, {{'alpha': 0.1, 'equivalence': 0.5}})
ab_test_cuped: @(v, {N}, {N2}, {B})
ab_test_cuped_ratio: @(v, {N}, n, {N2}, n)
srm_test: @(v) ; @(v, {{'a': 0.5, 'b': 0.5}})
""")

WINDOW = families("""
row_number rank dense_rank percent_rank cume_dist: @() OVER (ORDER BY n)
ntile: @(2) OVER (ORDER BY n)
lag lead: @({A}) OVER (ORDER BY n) ; @({A}, 2) OVER (ORDER BY n) ; @({L}) OVER (ORDER BY n)
first_value last_value: @({A}) OVER (ORDER BY n) ; @({A}) OVER (ORDER BY n ROWS BETWEEN 1
    PRECEDING AND 1 FOLLOWING)
nth_value: @({A}, 2) OVER (ORDER BY n)
session_number: @({T}, INTERVAL '1 day') OVER (ORDER BY n)
adjusted_p: @(cast(n AS double) / 1000, 'benjamini-hochberg') OVER (PARTITION BY n % 2)
min max count: @({A}) OVER (ORDER BY n) ; @({O}) OVER (ORDER BY n ROWS BETWEEN 1 PRECEDING AND
    CURRENT ROW)
sum avg: @({N}) OVER (ORDER BY n) ; @({N}) OVER (ORDER BY n ROWS BETWEEN 1 PRECEDING AND CURRENT
    ROW)
""")

# Calls that say something of the file or the moment, not of their arguments.
CHANGING = {
    "random",
    "rand",
    "uuid",
    "now",
    "today",
    "version",
    "current_date",
    "current_time",
    "current_timestamp",
}
# Sketches: how they meet their rows is not promised.
APPROXIMATE = {"approx_percentile_cont", "approx_percentile_cont_with_weight", "approx_median"}
# Calls that are refused for a type, each with its reason; one that is answered must go from here.
BYTES = "DataFusion finds no common type of a bytea column, a view, and a bytea literal"
REFUSED = {
    "coalesce({A}, {A2})": {"bin": BYTES},
    "nvl({A}, {A2})": {"bin": "DataFusion takes bytea for text"},
    "ifnull({A}, {A2})": {"bin": "DataFusion takes bytea for text"},
    "make_array({A}, {A2})": {"bin": BYTES},
    "make_list({A}, {A2})": {"bin": BYTES},
    "map(['k', 'l'], [{A}, {A2}])": {"bin": BYTES},
    "approx_distinct({A})": {"f32": "not for doubles", "f64": "not for doubles"},
    "approx_count_distinct({A})": {"f32": "not for doubles", "f64": "not for doubles"},
}
# Names that no call of a table's columns can have, each with its reason.
ELSEWHERE = {
    "__id_set": "what IN ID SET becomes inside",
    "id_of": "needs an id domain: tests/sql",
    "key_of": "needs an id domain: tests/sql",
    "grouping": "is asked of GROUP BY itself: tests/sql/aggregates.slt",
    "input_file_name": "names the file: tests/sql/files_in_place.slt",
    "file_row_index": "numbers rows of the file",
    "arrow_typeof": "a column's type of Arrow is not a literal's: text is a view",
    "arrow_field": "as arrow_typeof",
    "with_metadata": "metadata of Arrow, which tables do not keep",
    "union_tag": "no SQL makes a union, and tables do not keep them",
    "union_extract": "as union_tag",
}
