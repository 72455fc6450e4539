#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `tidepool replay` from outside: bad usage and bad files, what it prints and writes, a recording of
# its own, and the end by a signal.
#
# Usage: test_tool_replay.sh PATH-OF-TIDEPOOL ENGINES, those that were built, as in `native,bdw`.
# Prints one line a check and ends with a count. The recordings are in traces/.
set -u
tool=${1:?usage: test_tool_replay.sh PATH-OF-TIDEPOOL ENGINES}
engines=${2:?usage: test_tool_replay.sh PATH-OF-TIDEPOOL ENGINES}
# shellcheck source=tests/tool_testing.sh
. "$(dirname "$0")/tool_testing.sh"
traces=$(dirname "$0")/traces
before=(replay)

# ---- Bad usage and bad files -----------------------------------------------------------------

usage "replay without a file" \
  "a FILE is missing; accepted: one that TIDE_DEBUG=record=FILE has made"
usage "replay of a file that is not there" "no/such: No such file or directory" "$dir/no/such"
usage "replay of a directory" "accepted: a file that TIDE_DEBUG=record=FILE has made" "$dir"
usage "replay of some other file" "line 1: '#!/usr/bin/env bash' is not accepted" "$0"
usage "two files" "unexpected argument" "$traces/waves.trace" "$traces/waves.trace"
usage "a speed" "--speed: 'slow' is not accepted; accepted: fast,recorded" \
  --speed slow "$traces/waves.trace"
usage "what to measure" "--measure: 'some' is not accepted; accepted: none,own,all" \
  --measure some "$traces/waves.trace"
usage "a limit below 1 MiB" "is not a size from 1MiB to 1TiB" --limits 1KiB "$traces/waves.trace"
sed 's/^g 1 h.*/g 1 h 999999/' "$traces/waves.trace" >"$dir/bad.trace"
at=$(grep -n -m 1 '^g 1 h' "$dir/bad.trace" | cut -d: -f1)
usage "a bad line" "line $at: 'g 1 h 999999' is not accepted; accepted: g POOL h|m|n OBJECT" \
  "$dir/bad.trace"

# ---- Results ---------------------------------------------------------------------------------

run "$traces/waves.trace"
said() {
  exits 0 && lines err 0 && has out "replay: native engine" &&
    has out "encoders: hit rate by simulation" && has out "GC percent 200 makes it" &&
    has out "survive 2 makes it" && matches out 'min_idle_ns = [0-9]+'
}
check "replay prints tables and what would help" said
matching_rows() { # percents in the table with a hit rate of 0.99 and more without a limit
  awk '$1 ~ /^[0-9]+$/ && NF == 5 && $2 >= 0.99 { n++ } END { exit n != 3 }' "$dir/out"
}
check "a higher percent keeps the items" matching_rows

run --format json --percents 50,400 --limits off,64MiB "$traces/marshal.trace"
promised() {
  went_well 11 && json out || return 1
  head -n 10 "$dir/out" >"$dir/rows"
  fields rows 10 experiment engine pool pool_number gc_percent memory_limit recorded_setting gets \
    recorded measured simulated error recorded_collections collections simulated_collections \
    recorded_period_ms gc_period_ms simulated_period_ms use_gap idle_ms partial &&
    tail -n 1 "$dir/out" | grep -q '"summary": true, .*"max_abs_error": 0'
}
check "replay as JSON: two pools, five settings and a summary" promised
run --format csv --measure none --percents 100,off --limits off "$traces/waves.trace"
table() { exits 0 && csv out 4 && matches out '^replay,native,encoders,1,,,false,'; }
check "replay as CSV" table
run --out "$dir/replayed" "$traces/marshal.trace"
files() { exits 0 && results replayed replay; }
check "replay writes its files" files

# ---- A recording -----------------------------------------------------------------------------

TIDE_DEBUG="record=$dir/own-%p.trace" observe timeout 60 "$tool" forced --procs 1,2 --bursts 4 \
  --workers 8
check "a command can be recorded" exits 0
run --format json --measure own --percents 100 --limits off "$dir"/own-*.trace
as_recorded() { # every pool: measured as simulated, but for an item that is out of reach
  exits 0 && times '"recorded_setting": true' 8 &&
    ! grep '"recorded_setting": true' "$dir/out" | grep -vE '"error": -?0\.0[0-9]*,'
}
check "forced collections take the same from pools in a replay" as_recorded

if [[ ,$engines, = *,bdw,* ]]; then
  run "$traces/marshal.trace" --engine bdw --format json
  check "replay --engine bdw" on_bdw 20
fi

# ---- A signal --------------------------------------------------------------------------------

{
  printf 'tidepool-trace 1\nP 1 0 0 0 0 slow\n'
  yes "$(printf 'a 100 l\nt 100000')" | head -n 2000
} >"$dir/slow.trace"
signalled INT 2 --speed recorded --format json "$dir/slow.trace"
partial() { exits 130 && lines err 0 && json out && has out '"partial": true'; }
check "Ctrl-C ends a replay with what there is" partial
no_process() { # whose arguments have the file
  local arguments
  for arguments in /proc/[0-9]*/cmdline; do
    ! tr '\0' '\n' 2>/dev/null <"$arguments" | grep -xF "$dir/slow.trace" || return 1
  done
}
check "and leaves no process" no_process

finish
