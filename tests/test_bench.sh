#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `tidepool bench` from outside: every workload on every peer that was built, with tiny numbers; bad
# usage; and workers that are missing, crash, hang or talk nonsense. What the runs measure is only
# checked for being there and for its sign.
#
# Usage: test_bench.sh PATH-OF-TIDEPOOL PEERS, the peers as their workers are called, separated by
# commas. Prints one line a check and ends with a count.
set -u
tool=${1:?usage: test_bench.sh PATH-OF-TIDEPOOL PEERS}
built=${2:?usage: test_bench.sh PATH-OF-TIDEPOOL PEERS}
# shellcheck source=tests/tool_testing.sh
. "$(dirname "$0")/tool_testing.sh"
before=(bench)

peers=${built#tide}
peers=${peers#,}
peer_count=$(tr ',' '\n' <<<"$built" | grep -c .)
workloads="alloc trees gcbench bigheap pause scale fragment pool hooks pools startup"

# ---- Help and bad usage ----------------------------------------------------------------------

listed() {
  local workload
  exits 0 && lines err 0 || return 1
  for workload in $workloads; do has out "  $workload" || return 1; done
}
run --help
check "--help lists the workloads" listed
for workload in $workloads; do
  described() { exits 0 && lines err 0 && has out "tidepool bench $workload" && has out --vs; }
  run "$workload" --help
  check "$workload --help" described
done

usage "no workload" "a workload is missing; workloads: alloc, trees, gcbench, bigheap"
usage "unknown workload" "unknown workload 'forest'; workloads: alloc, trees" forest
usage "option before the workload" "unknown option '--quick'; accepted before" --quick trees
usage "unknown peer" "--vs: 'jemalloc' is not accepted; accepted: bdw,malloc,mimalloc,go,all" \
  trees --vs malloc,jemalloc
usage "depth out of range" "N: '99' is not a whole number from 6 to 30" trees 99
usage "depth that is none" "N: '1e1' is not a whole number" gcbench 1e1
usage "size out of range" "MIB: '0' is not a whole number from 1 to 65536" bigheap 0
usage "argument too many" "unexpected argument '13'; accepted: options only" trees 12 13
usage "argument of a workload that has none" "unexpected argument '12'" alloc 12
usage "another workload's option" "unknown option '--live'; accepted: --vs" trees --live 1MiB
usage "no runs" "--runs: '0' is not a whole number from 1 to 100" trees --runs 0
usage "nothing to measure" "peers without a collector have nothing to measure here" \
  bigheap --vs malloc
check "  it names those who have" has err "accepted: bdw,go"
usage "no pools to measure" "peers without pools have nothing to measure here; accepted: go" \
  hooks --vs bdw,malloc
usage "size that is no size" "--sizes: '7' is not a whole number from 8 to 16777216 or struct" \
  pool --sizes 7
usage "unknown pattern" "--patterns: 'tide' is not accepted; accepted: pair,burst,empty,costly" \
  pool --patterns pair,tide
usage "fewer pools than a thread has" "N: '63' is not a whole number from 64" pools 63
TIDE_GCPERCENT=abc run trees --quick
check "a bad value in the environment" refused 2 TIDE_GCPERCENT

# ---- Every workload on every peer ------------------------------------------------------------

# measured CONFIGURATIONS METRIC: a row for each peer and configuration, whose metric is above 0
# where the peer has one, which at least Tidepool has; nothing is negative.
measured() {
  exits 0 && lines err 0 && lines out $((1 + $1 * peer_count)) && json out || return 1
  [ "$(grep -cE "\"$2\": ([1-9]|0\.0*[1-9]|null)" "$dir/out")" -eq $(($1 * peer_count)) ] &&
    [ "$(grep '"peer": "tidepool"' "$dir/out" | grep -c "\"$2\": [0-9]")" -eq "$1" ] &&
    ! grep -qE '": -[0-9]' "$dir/out" && ! grep -q '"partial": true' "$dir/out" &&
    tail -n 1 "$dir/out" | grep -q '"experiment": "bench", "summary": true, "workload": "'
}

try() { # try CONFIGURATIONS METRIC WORKLOAD ARGUMENT...
  local configurations=$1 metric=$2
  shift 2
  run "$@" --quick --runs 1 --format json ${peers:+--vs "$peers"}
  check "$*" measured "$configurations" "$metric"
}
try 2 ns alloc
try 1 wall_s trees
check "  a number in place of the default" has out '"depth": 10'
try 1 wall_s trees 8
check "  the number that was given" has out '"depth": 8'
try 1 wall_s gcbench
try 2 ns_per_object bigheap --markers 1,2
try 1 kops_s pause
try 2 mallocs_s scale
alone() { [ "$(grep -c '"threads": 1, .*"speed_up": 1.0,' "$dir/out")" -eq "$peer_count" ]; }
check "  speed-up is 1 with one thread" alone
try 1 rss_over_live fragment
try 1 process_ms startup

try 4 ns_pool pool
words() { [ "$(grep -c '"size": "struct", "pattern": "pair", ' "$dir/out")" -eq $((2 * peer_count)) ]; }
check "  sizes and patterns have names" words
tides() { [ "$(grep '"peer": "tidepool"' "$dir/out" | grep -cE "$1")" -eq "$2" ]; }
all_hit() { tides '"hit_rate": (1\.0|0\.9[0-9]*),' 4; }
check "  the pool has the items" all_hit
try 6 ns_pool pool --patterns burst,empty,costly --sizes 64
nothing_made() { tides '"pattern": "empty", .*"ns_make": null,' 2; }
check "  an empty pool makes nothing" nothing_made
try 4 hooks_us hooks
each() { tides '"items_each": (10|1000|50)\.0,' 4 && tides '"items_each": 50\.0,' 1; }
check "  with the items that were asked for" each
try 2 ns_per_pool pools
without_pools() { exits 0 && [ "$(grep -cE '"ns_pool": null, .*"ratio": [0-9]' "$dir/out")" -eq 1 ]; }
run pool --quick --threads 1 --sizes 64 --vs malloc --format json
check "who has no pools is compared by what making takes" without_pools

table() { exits 0 && lines err 0 && has out 'ns/object' && has out tidepool && has out 'ratio'; }
run alloc --quick --runs 2 --vs malloc --out "$dir/results"
check "a table" table
check "  with a conclusion" has out 'tidepool / malloc: '
three_files() { results results bench-alloc && csv results/bench-alloc.csv 5; }
check "  and three files" three_files

partial() { exits 143 && lines err 0 && json out && has out '"partial": true'; }
signalled TERM 2 alloc --sizes 32 --bytes 256MiB --runs 100 --vs malloc --format json
check "a signal ends the run with what there is" partial

# ---- Workers that fail -----------------------------------------------------------------------

# A copy of the command finds its workers beside itself.
mkdir "$dir/copy" "$dir/copy/bench"
cp "$tool" "$dir/copy/tidepool"
ln -s "$(dirname "$tool")/bench/tidepool-bench-tide" "$dir/copy/bench/"
export LD_LIBRARY_PATH=${tool%/tools/*}${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
tool=$dir/copy/tidepool

run trees --quick --vs bdw
check "a worker that was not built" refused 1 \
  "bdw: tidepool-bench-bdw was not built: install libgc-dev"
check "  is not tried" lines out 0

worker() { # worker LINE...: what the worker of bdw does
  printf '%s\n' '#!/bin/sh' "$@" >"$dir/copy/bench/tidepool-bench-bdw"
  chmod +x "$dir/copy/bench/tidepool-bench-bdw"
  rm -f "$dir/id"
  run trees --quick --vs bdw --timeout 1
}
worker 'echo out of luck >&2; exit 3'
check "a worker that fails" refused 1 "bdw: the worker failed in trees with status 3: out of luck"
worker 'kill -SEGV $$'
check "a worker that crashes" refused 1 "bdw: the worker crashed in trees (Segmentation fault)"
worker 'echo "{\"wall_s\": 1"'
check "a worker that talks nonsense" refused 1 "bdw: the worker's report on trees cannot be read"
worker 'echo "{\"wall_s\": 1}"'
check "a worker that leaves something out" refused 1 "bdw: the worker's report on trees"
worker 'while :; do echo much; done'
check "a worker that never stops talking" refused 1 "bdw: the worker hangs in trees"
worker "echo \$\$ >'$dir/id'" 'sleep 1000'
check "a worker that hangs" refused 1 "bdw: the worker hangs in trees: not done after 1 s"
ended() { [ -s "$dir/id" ] && ! kill -0 "$(cat "$dir/id")"; }
check "  is ended" ended
worker "echo \$\$ >'$dir/id'" 'exec >&- 2>&-' 'sleep 1000'
check "a worker that hangs without its streams" refused 1 "bdw: the worker hangs"
check "  is ended" ended

finish
