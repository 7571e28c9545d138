#!/usr/bin/env bash
# Makes the data, runs load, queries and concurrency in order, and writes their tables.
#
#   bench/run.sh            20 days, 40 million events; estimated: an hour, 15 GB of disk
#   QUICK=1 bench/run.sh    7 days, 350,000 events: a minute or two; proves the programs, gives no figure
#
# UPLAKE      the binary (default: target/release/uplake of this checkout)
# BENCH_DATA  where data and results go (default: the user's cache folder)
# PYTHON      a Python that has requirements.txt (default: a venv made in BENCH_DATA)
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export UPLAKE=${UPLAKE:-$here/../target/release/uplake}
root=${BENCH_DATA:-${XDG_CACHE_HOME:-$HOME/.cache}/uplake/bench}

if [[ ! -x $UPLAKE ]]; then
    echo "bench: $UPLAKE is missing; build it with \`cargo build --release\` or set UPLAKE" >&2
    exit 1
fi
mkdir -p "$root"

if [[ ${QUICK:-0} == 1 ]]; then
    data=$root/quick results=$root/results-quick
    size=(--users 20000 --events-per-day 50000 --days 7 --products 50000)
    load=(--runs 1) queries=(--ranges 1,7) allocator=(--rounds 1 --seconds 3)
else
    data=$root/full results=$root/results
    size=()
    load=(--runs 3) queries=(--ranges 1,7,20) allocator=(--rounds 3 --seconds 20)
fi

if [[ -z ${PYTHON:-} ]]; then
    PYTHON=$root/venv/bin/python
    if [[ ! -x $PYTHON ]]; then
        python3 -m venv "$root/venv" || {
            echo "bench: python3 with venv is missing (Debian: apt-get install python3-venv)" >&2
            exit 1
        }
    fi
    "$PYTHON" -m pip install --quiet --requirement "$here/requirements.txt"
fi

# Into another folder first: data that an interrupted run left half-made is never measured.
if [[ ! -f $data/params.json ]]; then
    rm -rf "$data" "$data.partial"
    "$UPLAKE" generate "${size[@]}" "$data.partial"
    mv "$data.partial" "$data"
fi

mkdir -p "$results"
if command -v perf >/dev/null; then
    allocator+=(--perf system)
else
    echo "bench: no perf, so no frames are looked at (Debian: apt-get install linux-perf)" >&2
fi

failed=()
measure() { # NAME PROGRAM ARGUMENTS…: the table goes to the terminal and to results/NAME.md
    local name=$1
    shift
    "$PYTHON" "$here/$@" --out "$results" | tee "$results/$name.md" || failed+=("$name")
}
measure load load.py "$data" "${load[@]}"
measure queries queries.py "$data" "${queries[@]}"
measure concurrency allocator.py "$data" "${allocator[@]}"

echo "bench: tables and raw results are in $results" >&2
if ((${#failed[@]})); then
    echo "bench: FAILED: ${failed[*]}" >&2
    exit 1
fi
