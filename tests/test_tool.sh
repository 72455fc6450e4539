#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The command line of `tidepool`, from outside: help, bad usage, environments that mean no good, the
# three forms of a result (of `forced`, `period` and `knobs`), files, the other engine, and signals.
# The experiments run with tiny numbers; what they measure is only checked where it must be exact.
#
# Usage: test_tool.sh PATH-OF-TIDEPOOL ENGINES, those that were built, as in `native,bdw`. Prints
# one line a check and ends with a count.
set -u
tool=${1:?usage: test_tool.sh PATH-OF-TIDEPOOL ENGINES}
engines=${2:?usage: test_tool.sh PATH-OF-TIDEPOOL ENGINES}
# shellcheck source=tests/tool_testing.sh
. "$(dirname "$0")/tool_testing.sh"
small=(--procs "1,2" --bursts 4 --workers 8)

# ---- Help ------------------------------------------------------------------------------------

listed() {
  local command
  exits 0 && lines err 0 || return 1
  for command in forced period knobs uneven procs sawtooth marshal replay bench all; do
    has out "  $command " || { echo "$command" && return 1; }
  done
}
run --help
check "--help lists the commands" listed
for command in forced period knobs uneven procs sawtooth marshal replay all; do
  described() { exits 0 && lines err 0 && has out "Usage: tidepool $command" && has out --out=DIR; }
  run "$command" --help
  check "$command --help" described
done
run --version
check "--version" matches out '^tidepool [0-9]+\.[0-9]+\.[0-9]+$'

# ---- Bad usage -------------------------------------------------------------------------------

usage "no command" "commands: forced, period, knobs, uneven, procs, sawtooth, marshal, replay, bench"
usage "unknown command" "unknown command 'tides'; commands: forced, period, knobs, uneven, procs" tides
usage "option in place of a command" "unknown option '--procs'" --procs 2
usage "unknown option" "unknown option '--waves'; accepted: --procs" forced --waves
usage "argument too many" "unexpected argument 'extra'" forced extra
usage "number out of range" "--procs: '0' is not a whole number from 1 to 1024" forced --procs 0
usage "number with a tail" "--bursts: '3x' is not a whole number" forced --bursts 3x
usage "hole in a list" "--procs: '' is not a whole number" forced --procs 1,,2
usage "value missing" "--procs needs a value" forced --procs
usage "value too many" "--quick takes no value" period --quick=1
usage "not a size" "--live: '32MB' is not a size" period --live 32MB
usage "negative size" "--live: '-1MiB' is not a size" period --live -1MiB
usage "infinite rate" "--rates: 'inf' is not a number from" period --rates inf
usage "unknown engine" "--engine: 'steam' is not accepted; accepted: native,bdw" forced --engine steam
usage "unknown format" "--format: 'xml' is not accepted; accepted: table,csv,json" \
  forced --format xml
usage "two modes" "exclude each other" period --quick --full
usage "two modes of knobs" "exclude each other" knobs --quick --full
usage "limit that is no size" "--limits: 'x' is not a size from 1MiB to 1TiB" knobs --limits x
check "  or a word" has err "or off"
usage "hole in a list of limits" "--limits: '' is not a size" knobs --limits 40MiB,,off
usage "negative percent" "--percents: '-5' is not a whole number from 1 to 1000000 or off" \
  knobs --percents -5
usage "percent and a word" "--percents: '100off' is not a whole number" knobs --percents 100off
usage "percent off alone" "--percents: 'off' is accepted only beside --limits" knobs --percents off
usage "percent off without a limit" "--percents: 'off' is accepted only beside --limits" \
  knobs --percents off --limits off
usage "line break in a value" "is not accepted" forced --format $'ta\nble'

# ---- The environment -------------------------------------------------------------------------

environment() { # environment WHAT TEXT NAME=VALUE: such a value is refused with status 2
  observe env "$3" timeout 120 "$tool" forced "${small[@]}"
  check "$1" refused 2 "$2"
}
environment "TIDE_GCPERCENT=abc" "TIDE_GCPERCENT" TIDE_GCPERCENT=abc
check "  it names the value" has err abc
environment "TIDE_PROCS=-3" "TIDE_PROCS" TIDE_PROCS=-3
environment "TIDE_MINHEAP=4XB" "TIDE_MINHEAP" TIDE_MINHEAP=4XB
environment "TIDE_DEBUG=nonsense=1" "TIDE_DEBUG" TIDE_DEBUG=nonsense=1
environment "a recording that cannot be made" "option record: record file '/dev/full': No space" \
  TIDE_DEBUG=record=/dev/full
TIDE_GCPERCENT=abc run forced --help
check "help whatever the environment" exits 0
TIDE_GCPERCENT=off run period --quick
check "period without automatic collections" refused 2 "TIDE_GCPERCENT"

observe env -i PATH="$PATH" "$tool" forced "${small[@]}"
check "an empty environment" exits 0
LC_ALL=nowhere LANG=xx TERM='' COLUMNS=-4 run forced "${small[@]}"
check "a locale and a terminal that do not exist" exits 0

# ---- forced ----------------------------------------------------------------------------------

titled() { exits 0 && lines err 0 && has out "forced: native engine, 8 workers"; }
run forced "${small[@]}"
check "forced prints a table" titled
check "  with its conclusion" has out "survives one collection and is lost at the second"
check "  without colours in a pipe" lacks out $'\033'
ascii() { [ -s "$dir/out" ] && ! grep -qP '[^\x00-\x7f]' "$dir/out"; }
check "  in ASCII in the C locale" ascii

run forced "${small[@]}" --format json
check "forced --format json" went_well 8
check "  is JSON lines" json out
check "  has the promised fields" fields out 8 experiment engine procs forced bursts workers \
  hits_per_burst hit_rate
none_left() { [ "$(grep -E '"forced": [23]' "$dir/out" | grep -c '"hit_rate": 0.0,')" -eq 4 ]; }
check "  two and three collections leave nothing" none_left
all_left() {
  [ "$(grep '"forced": 0' "$dir/out" | grep -cE '"hit_rate": (1\.0|0\.9[0-9]*),')" -eq 2 ]
}
check "  no collection leaves all" all_left

table() { exits 0 && csv out 9 && matches out '^experiment,engine,procs,forced,'; }
run forced "${small[@]}" --format csv
check "forced --format csv" table

one_worker() { exits 0 && lines out 2; }
run forced --procs 3 --bursts 1 --workers 1 --item-bytes 16B --max-forced 1 --format json
check "forced with the least of everything" one_worker

# ---- period ----------------------------------------------------------------------------------

run period --live 4MiB --rates 200,400 --ratios 0.5,3 --bursts 4 --workers 8 --format json
check "period --format json" went_well 5
check "  is JSON lines" json out
check "  has the promised fields" fields out 4 rate_mb_s gap_ms gc_period_ms gap_over_period \
  predicted measured error bursts
summary() { tail -n 1 "$dir/out" | grep -q "\"summary\": true, \"configs\": $1, \"max_abs_error\": "; }
check "  and a summary" summary 4

titled() { exits 0 && lines err 0 && has out "period: native engine" && has out "hit rate"; }
run period --live 4MiB --rates 400 --ratios 0.5 --bursts 4 --workers 8
check "period prints a table" titled
check "  and how phases are chosen" has out "phases of the collection period"

# ---- knobs -----------------------------------------------------------------------------------

tiny=(--live 8MiB --rates 400 --gaps "20,50" --bursts 4 --workers 8)
run knobs "${tiny[@]}" --percents "100,400" --limits "12MiB,off" --format json
check "knobs --format json" went_well 7 # 100 without a limit is measured once
check "  is JSON lines" json out
promised() {
  fields out 6 gc_percent memory_limit rate_mb_s gap_ms gc_period_ms expected_period_ms \
    gap_over_period predicted measured error collections_by_goal collections_by_limit paused_share \
    limiter_active limiter_episodes && fields out 7 phases # also in the summary
}
check "  has the promised fields" promised
named() {
  times '"gc_percent": 400, "memory_limit": null' 2 &&
    times '"gc_percent": 100, "memory_limit": null' 2 &&
    times '"gc_percent": 100, "memory_limit": 12582912' 2
}
check "  each row names its setting" named
by_goal() { [ "$(grep '"memory_limit": null' "$dir/out" | grep -c '_by_limit": 0,')" -eq 4 ]; }
check "  no limit, no collection by it" by_goal
by_limit() { [ "$(grep '"memory_limit": 1' "$dir/out" | grep -c '_by_limit": [1-9]')" -eq 2 ]; }
check "  the limit makes collections" by_limit
check "  and a summary" summary 6

off() { exits 0 && lines out 3 && matches out '^knobs,native,[0-9]+,,67108864,'; }
run knobs "${tiny[@]}" --percents off --limits 64MiB --format csv
check "knobs with percent off beside a limit" off

titled() { exits 0 && lines err 0 && has out "knobs: native engine" && has out "hit rate"; }
run knobs "${tiny[@]}" --percents 400 --limits 12MiB
check "knobs prints a table" titled
check "  with the limit as a size" matches out '^ +100  12 MiB +400 '
check "  and what a setting does to a pool" has out "400 MB/s, a burst every 50 ms, hit rate: "

# ---- The other engine ------------------------------------------------------------------------

# The command by itself, as where there was no libgc.
cp "$tool" "$dir/alone"
alone() { observe env LD_LIBRARY_PATH="$(dirname "$tool")/.." "$dir/alone" "$@"; }
alone forced --engine bdw
check "an engine that was not built" refused 2 "--engine: bdw was not built"
alone forced "${small[@]}" --engine native
check "  and the one that was" exits 0

if [[ ,$engines, = *,bdw,* ]]; then
  run forced "${small[@]}" --engine=bdw --format json
  check "forced --engine bdw" on_bdw 8
  check "  two and three collections leave nothing" none_left
  check "  no collection leaves all" all_left
  run period --live 4MiB --rates 100 --ratios 0.5 --bursts 4 --engine bdw --format json
  check "period --engine bdw" on_bdw 1
  run knobs --live 4MiB --percents 100 --gaps 10 --bursts 4 --engine bdw --format json
  check "knobs --engine bdw" on_bdw 1
  run bench alloc --quick --engine bdw --format json
  check "bench --engine bdw" on_bdw 1
  TIDE_MARKSTACK=1MiB run forced "${small[@]}" --engine bdw
  check "an option that it does not have" refused 2 "TIDE_MARKSTACK"
  usage "bad usage" "--bursts: '3x' is not a whole number" forced --engine bdw --bursts 3x
  observe "$(dirname "$tool")/tidepool-bdw" forced "${small[@]}" --engine native --format json
  back() { exits 0 && times '"engine": "native"' 8; }
  check "from there back to the native engine" back
  redirected '>&-' forced "${small[@]}" --engine bdw
  check "a closed standard output" refused 1 "standard output"
fi

# ---- Where results go ------------------------------------------------------------------------

run forced "${small[@]}" --out "$dir/new/place"
three_files() { exits 0 && results new/place forced; }
check "--out makes the directory and three files" three_files
run forced "${small[@]}" --out /dev/null/place
check "--out below a file" refused 1 "/dev/null/place"
if [ "$(id -u)" -ne 0 ]; then
  mkdir "$dir/locked" && chmod a-w "$dir/locked"
  run forced "${small[@]}" --out "$dir/locked"
  check "--out without permission" refused 1 "$dir/locked"
fi
mkdir -p "$dir/taken/forced.csv"
run forced "${small[@]}" --out "$dir/taken"
check "--out where a file cannot be made" refused 1 "forced.csv"
mkdir -p "$dir/full" && ln -s /dev/full "$dir/full/forced.json"
run forced "${small[@]}" --out "$dir/full"
check "--out on a full disk" refused 1 "forced.json"

redirected '>/dev/full' forced "${small[@]}"
check "a full disk at standard output" refused 1 "standard output"
redirected '>/dev/full' forced --help
check "a full disk under --help" refused 1 "standard output"
redirected '>&-' forced "${small[@]}"
check "a closed standard output" refused 1 "standard output"
redirected '<&- >&- 2>&-' forced "${small[@]}" --out "$dir/closed"
clean_files() { exits 1 && json closed/forced.json; }
check "all standard streams closed" clean_files

# ---- Signals ---------------------------------------------------------------------------------

partial() { exits "$1" && lines err 0 && has out "Partial result"; }
signalled TERM 5 period --live 4MiB --rates 50 --ratios 1.5 --bursts 10000
check "a signal ends the run with what there is" partial 143
signalled INT 5 knobs --percents 25 --gaps 100 --bursts 10000
check "Ctrl-C ends knobs with what there is" partial 130
signalled INT 2 uneven --live 4MiB --rates 200 --ratios 0.5 --window-ms 60000 --format json
partial_rows() { exits 130 && lines err 0 && lines out 2 && json out && times '"partial": true' 2; }
check "Ctrl-C ends uneven with what there is" partial_rows
signalled INT 2 procs --rounds 1000000 --collections 0
check "Ctrl-C ends procs with what there is" partial 130
signalled INT 3 sawtooth --cases beyond,owned --live 4MiB --format json
partial_waves() {
  exits 130 && lines err 0 && json out &&
    grep '"case": "beyond"' "$dir/out" | grep -q '"partial": true'
}
check "Ctrl-C ends sawtooth with the waves that were complete" partial_waves
signalled INT 2 marshal --runs 1000 --rounds 10
check "Ctrl-C ends marshal with the runs that were complete" partial 130

if terminal; then
  TERM=xterm observe timeout 120 script -qec "'$tool' period --live 8MiB --rates 200 --ratios 1.5 \
    --bursts 60 --workers 8" /dev/null
  check "a progress bar on a terminal" matches out 'period \[=*>? *\] +[0-9]+ %, [0-9]+:[0-9]+ left'
fi

finish
