#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The command line of `tidepool`, from outside: exit statuses, messages, the three forms of a
# result, files, and environments that mean no good. The experiments run with tiny numbers; what
# they measure is only checked where it must be exact.
#
# Usage: test_tool.sh PATH-OF-TIDEPOOL ENGINES, those that were built, as in `native,bdw`. Prints one
# line a check and ends with a count.
set -u
tool=${1:?usage: test_tool.sh PATH-OF-TIDEPOOL ENGINES}
engines=${2:?usage: test_tool.sh PATH-OF-TIDEPOOL ENGINES}
dir=$(mktemp -d) || exit 1
trap 'chmod -R u+w "$dir" 2>/dev/null; rm -rf "$dir"' EXIT
unset TIDE_GCPERCENT TIDE_PROCS TIDE_MINHEAP TIDE_MARKSTACK TIDE_DEBUG NO_COLOR
export LC_ALL=C
checks=0
failures=0
small=(--procs "1,2" --bursts 4 --workers 8)

# check WHAT COMMAND...: the command succeeds.
check() {
  local what=$1
  shift
  checks=$((checks + 1))
  if "$@"; then
    echo "ok   $what"
  else
    failures=$((failures + 1))
    echo "FAIL $what"
    echo "     status $status"
    sed 's/^/     stdout: /' "$dir/out"
    sed 's/^/     stderr: /' "$dir/err"
  fi
}

# run ARGUMENT...: status, $dir/out and $dir/err of the tool.
run() {
  status=0
  timeout 120 "$tool" "$@" >"$dir/out" 2>"$dir/err" </dev/null || status=$?
}

lines() { [ "$(wc -l <"$dir/$1")" -eq "$2" ]; }
has() { grep -qF -- "$2" "$dir/$1"; }
matches() { grep -qE -- "$2" "$dir/$1"; }
exits() { [ "$status" -eq "$1" ]; }

# refused STATUS TEXT: nothing but one line on stderr, which holds the text.
refused() { exits "$1" && lines out 0 && lines err 1 && has err "$2"; }

# usage WHAT TEXT ARGUMENT...: bad usage is refused with status 2.
usage() {
  local what=$1 text=$2
  shift 2
  run "$@"
  check "$what" refused 2 "$text"
}

# environment WHAT TEXT NAME=VALUE: a value in the environment is refused with status 2.
environment() {
  status=0
  env "$3" timeout 120 "$tool" forced "${small[@]}" >"$dir/out" 2>"$dir/err" </dev/null ||
    status=$?
  check "$1" refused 2 "$2"
}

is_json() {
  if command -v jq >/dev/null; then
    jq -e -s 'length > 0 and all(type == "object")' "$1" >/dev/null
  else
    [ -s "$1" ] && ! grep -qvE '^\{"[a-z_]+": .*\}$' "$1"
  fi
}

# ---- Help ------------------------------------------------------------------------------------

listed() {
  exits 0 && lines err 0 && has out forced && has out period && has out knobs && has out uneven &&
    has out procs && has out sawtooth && has out marshal && has out bench && has out report
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
usage "two modes of uneven" "exclude each other" uneven --quick --full
usage "unknown pattern" "--patterns: 'waves' is not accepted; accepted: steady,poisson,bursty" \
  uneven --patterns steady,waves
usage "hole in a list of patterns" "--patterns: '' is not accepted" uneven --patterns steady,,replay
usage "negative ratio" "--ratios: '-1' is not a number from 0.01 to 100" uneven --ratios 0.5,-1
usage "seed that is no number" "--seed: 'x' is not a whole number from 0" uneven --seed x
usage "survive nothing" "--survive: '0' is not a whole number from 1 to 64" uneven --survive 0
usage "chunk without poisson" "--chunk: accepted only with poisson among --patterns" \
  uneven --chunk 1MiB --patterns bursty,replay
usage "curve without replay" "--curve: accepted only with replay among --patterns" \
  uneven --curve /dev/null --patterns poisson
usage "window too short" "--window-ms: 90 is too short for steady at 50 MB/s, where" \
  uneven --window-ms 90 --rates 50
check "  and what is accepted" has err "accepted: 4 periods or more"
usage "window without a chunk" "--window-ms: 1 is too short for bursty" \
  uneven --window-ms 1 --patterns bursty
usage "window too long" "--window-ms: 86400000 is too long for steady at 100000 MB/s; accepted: at" \
  uneven --window-ms 86400000 --rates 100000
usage "no curve" "--curve: $dir/none: No such file or directory" uneven --curve "$dir/none"
usage "curve that is a directory" "--curve: $dir: Is a directory" uneven --curve "$dir"
usage "curve without a line" "--curve: /dev/null: no line; accepted: two lines or more" \
  uneven --curve /dev/null
usage "curve without an end" "--curve: /dev/zero: line 1: longer than 200 characters, or not text" \
  uneven --curve /dev/zero
printf '# milliseconds MB/s\n0 100\n10 1e3\n' >"$dir/curve"
usage "curve with a bad number" "--curve: $dir/curve: line 3: accepted: a moment in milliseconds" \
  uneven --curve "$dir/curve"
printf '0 100\n10 50\n10 100\n' >"$dir/curve"
usage "curve that goes back" "--curve: $dir/curve: line 3: not later than the moment before it" \
  uneven --curve "$dir/curve"
printf '0 0\n10 0\n' >"$dir/curve"
usage "curve without allocation" "--curve: $dir/curve: 10 ms with a mean of 0 MB/s; accepted: 1 ms" \
  uneven --curve "$dir/curve"
usage "line break in a curve's name" "--curve: a?b: No such file" uneven --curve $'a\nb'
usage "three collections" "--collections: '3' is not a whole number from 0 to 1" \
  procs --collections 0,3
usage "a case that is none" "--cases: 'tides' is not accepted; accepted: steady,below,beyond" \
  sawtooth --cases beyond,tides
usage "two ratios" "--ratio: 2 numbers; accepted: one" sawtooth --ratio 1,2
usage "no requests" "--rate: '0' is not a whole number from 1 to 1000000" sawtooth --rate 0
usage "too many requests" "requests in a case; accepted: at most 20000000" \
  sawtooth --rate 1000000 --seconds 21
usage "a mode that is none" "--modes: 'borrowed' is not accepted; accepted: fresh,pool,freelist" \
  marshal --modes fresh,borrowed
usage "no envelopes" "--envelopes: '0' is not a whole number from 1 to 1000000" \
  marshal --envelopes 0
usage "line break in a value" "is not accepted" forced --format $'ta\nble'

# ---- The environment -------------------------------------------------------------------------

environment "TIDE_GCPERCENT=abc" "TIDE_GCPERCENT" TIDE_GCPERCENT=abc
check "  it names the value" has err abc
environment "TIDE_PROCS=-3" "TIDE_PROCS" TIDE_PROCS=-3
environment "TIDE_MINHEAP=4XB" "TIDE_MINHEAP" TIDE_MINHEAP=4XB
environment "TIDE_DEBUG=nonsense=1" "TIDE_DEBUG" TIDE_DEBUG=nonsense=1
status=0
TIDE_GCPERCENT=abc "$tool" forced --help >"$dir/out" 2>"$dir/err" || status=$?
check "help whatever the environment" exits 0
status=0
TIDE_GCPERCENT=off "$tool" period --quick >"$dir/out" 2>"$dir/err" || status=$?
check "period without automatic collections" refused 2 "TIDE_GCPERCENT"
status=0
TIDE_GCPERCENT=off "$tool" uneven --quick >"$dir/out" 2>"$dir/err" || status=$?
check "uneven without automatic collections" refused 2 "TIDE_GCPERCENT"

# ---- forced ----------------------------------------------------------------------------------

titled() { exits 0 && lines err 0 && has out "forced: native engine, 8 workers"; }
run forced "${small[@]}"
check "forced prints a table" titled
check "  with its conclusion" has out "survives one collection and is lost at the second"
no_escapes() { ! grep -q $'\033' "$dir/out"; }
check "  without colours in a pipe" no_escapes
ascii() { ! grep -qP '[^\x00-\x7f]' "$dir/out"; }
check "  in ASCII in the C locale" ascii

run forced "${small[@]}" --format json
eight_rows() { exits 0 && lines err 0 && lines out 8; }
check "forced --format json" eight_rows
check "  is JSON lines" is_json "$dir/out"
fields() {
  local field
  for field in experiment engine procs forced bursts workers hits_per_burst hit_rate; do
    [ "$(grep -c "\"$field\": " "$dir/out")" -eq 8 ] || return 1
  done
}
check "  has the promised fields" fields
none_left() { [ "$(grep -E '"forced": [23]' "$dir/out" | grep -c '"hit_rate": 0.0,')" -eq 4 ]; }
check "  two and three collections leave nothing" none_left
all_left() {
  [ "$(grep '"forced": 0' "$dir/out" | grep -cE '"hit_rate": (1\.0|0\.9[0-9]*),')" -eq 2 ]
}
check "  no collection leaves all" all_left

csv() {
  exits 0 && lines out 9 && head -n 1 "$dir/out" | grep -q '^experiment,engine,procs,forced,' &&
    awk -F, 'NR == 1 { n = NF } NF != n { exit 1 }' "$dir/out"
}
run forced "${small[@]}" --format csv
check "forced --format csv" csv

one_worker() { exits 0 && lines out 2; }
run forced --procs 3 --bursts 1 --workers 1 --item-bytes 16B --max-forced 1 --format json
check "forced with the least of everything" one_worker

# ---- period ----------------------------------------------------------------------------------

run period --live 4MiB --rates 200,400 --ratios 0.5,3 --bursts 4 --workers 8 --format json
five_rows() { exits 0 && lines err 0 && lines out 5; }
check "period --format json" five_rows
check "  is JSON lines" is_json "$dir/out"
fields() {
  local field
  for field in rate_mb_s gap_ms gc_period_ms gap_over_period predicted measured error bursts; do
    [ "$(grep -c "\"$field\": " "$dir/out")" -eq 4 ] || return 1
  done
}
check "  has the promised fields" fields
summary() { tail -n 1 "$dir/out" | grep -q '"summary": true, "configs": 4, "max_abs_error": '; }
check "  and a summary" summary

titled() { exits 0 && lines err 0 && has out "period: native engine" && has out "hit rate"; }
run period --live 4MiB --rates 400 --ratios 0.5 --bursts 4 --workers 8
check "period prints a table" titled
check "  and how phases are chosen" has out "phases of the collection period"

# ---- knobs -----------------------------------------------------------------------------------

tiny=(--live 8MiB --rates 400 --gaps "20,50" --bursts 4 --workers 8)
run knobs "${tiny[@]}" --percents "100,400" --limits "12MiB,off" --format json
seven_rows() { exits 0 && lines err 0 && lines out 7; } # 100 and no limit is measured once
check "knobs --format json" seven_rows
check "  is JSON lines" is_json "$dir/out"
times() { [ "$(grep -cF -- "$1" "$dir/out")" -eq "$2" ]; }
fields() {
  local field
  for field in gc_percent memory_limit rate_mb_s gap_ms gc_period_ms expected_period_ms \
    gap_over_period predicted measured error collections_by_goal collections_by_limit paused_share \
    limiter_active limiter_episodes; do
    times "\"$field\": " 6 || return 1
  done
  times '"phases": ' 7 # also in the summary
}
check "  has the promised fields" fields
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
summary() { tail -n 1 "$dir/out" | grep -q '"summary": true, "configs": 6, "max_abs_error": '; }
check "  and a summary" summary

off() { exits 0 && lines out 3 && matches out '^knobs,native,[0-9]+,,67108864,'; }
run knobs "${tiny[@]}" --percents off --limits 64MiB --format csv
check "knobs with percent off beside a limit" off

titled() { exits 0 && lines err 0 && has out "knobs: native engine" && has out "hit rate"; }
run knobs "${tiny[@]}" --percents 400 --limits 12MiB
check "knobs prints a table" titled
check "  with the limit as a size" matches out '^ +100  12 MiB +400 '
check "  and what a setting does to a pool" has out "400 MB/s, a burst every 50 ms, hit rate: "

# ---- uneven ----------------------------------------------------------------------------------

# Periods of about 20 ms.
tiny=(--live 4MiB --rates 200 --ratios "0.4,1.5" --window-ms 400 --bursts 30)
run uneven "${tiny[@]}" --format json
eleven_rows() { exits 0 && lines err 0 && lines out 11; }
check "uneven --format json" eleven_rows
check "  is JSON lines" is_json "$dir/out"
fields() {
  local field
  for field in engine pattern rate_mb_s gap_ms gc_period_ms period_cv gap_over_period predicted \
    straight measured error blur bursts; do
    times "\"$field\": " 10 || return 1
  done
  times '"experiment": "uneven", ' 11 && times '"partial": false' 11
}
check "  has the promised fields" fields
named() {
  local pattern
  for pattern in steady poisson bursty phased replay; do
    times "\"pattern\": \"$pattern\", " 2 || return 1
  done
  times '"rate_mb_s": 200.0, "measured_rate_mb_s": ' 10 && times '"bursts": 30, ' 10
}
check "  each row names its pattern" named
# numbers FIELD: each number of that name on standard input. Small ones are printed like 3.8e-05.
numbers() { sed -nE "s/.*\"$1\": (-?[0-9.]+(e[-+]?[0-9]+)?)[,}].*/\1/p"; }
# value FIELD: of each row, its number.
value() { sed '/"summary"/d' "$dir/out" | numbers "$1"; }
# A gap lost its items if and only if it met two collections, but for those that came while items
# were taken or put, and for one item of a gap that is out of reach.
as_counted() { paste <(value measured) <(value counted) |
  awk '{ off = $1 - $2 } off > 0.1 || off < -0.1 { bad = 1 } END { exit bad || NR != 10 }'; }
check "  gaps lose what the collections in them say" as_counted
differences() { paste <(value "$1") <(value "$2") <(value "$3") | awk '
  { off = $1 - $2; if (off < 0) off = -off; off -= $3 } off > 0.0011 || off < -0.0011 { bad = 1 }
  END { exit bad || NR != 10 }'; }
check "  error is |measured - predicted|" differences measured predicted error
check "  blur is |predicted - straight|" differences predicted straight blur
ratio() { paste <(value gap_ms) <(value gc_period_ms) <(value gap_over_period) | awk '
  { off = $1 / $2 - $3 } off > 0.02 || off < -0.02 { bad = 1 } END { exit bad || NR != 10 }'; }
check "  gap_over_period is what it says" ratio
paced() { value measured_rate_mb_s | awk '$1 < 10 || $1 > 1000 { exit 1 }'; }
check "  rates are in MB/s" paced
summary() { tail -n 1 "$dir/out" | grep -q '"summary": true, "configs": 10, "max_abs_error": '; }
check "  and a summary" summary
seeded() { tail -n 1 "$dir/out" | grep -q '"seed": '"$1"', '; }
check "  with the seed" seeded 1

# What is planned follows from the seed.
planned() { value expected_period_ms | tr '\n' ' '; }
first=$(planned)
run uneven "${tiny[@]}" --ratios 0.4 --seed 77 --format json
seed_77=$(planned)
check "uneven --seed" seeded 77
run uneven "${tiny[@]}" --ratios 0.4 --seed 77 --format json
repeated() { [ "$(planned)" = "$seed_77" ]; }
check "  the same seed is the same run" repeated
differs() { [ "${first%% *}" = "${seed_77%% *}" ] && [ "$(cut -d' ' -f3 <<<"$first")" != \
  "$(cut -d' ' -f2 <<<"$seed_77")" ]; }
check "  another seed is another" differs

titled() { exits 0 && lines err 0 && has out "uneven: native engine" && has out "seed 5"; }
run uneven "${tiny[@]}" --patterns steady,phased --seed 5
check "uneven prints a table" titled
check "  with a row for each gap" matches out '^phased +200 '
check "  a plot" has out "hit rate, measured"
check "  what each pattern blurs" matches out '^phased: periods vary by [0-9.]+ of their mean'
check "  and how gaps are chosen" has out "at a place that the seed"
check "  and a verdict" has out "4 configurations, largest error 0."

few=(--live 4MiB --patterns replay --ratios 1 --bursts 10)
printf '# a step\n0 400\n49.75 400\n\n50.25 100 \n100 100\n' >"$dir/curve"
run uneven "${few[@]}" --window-ms 300 --curve "$dir/curve" --format csv
own_rate() { exits 0 && lines out 2 && matches out '^uneven,native,[0-9]+,100,replay,250(\.0)?,'; }
check "a curve from a file has its own rate" own_rate
csv() { awk -F, 'NR == 1 { n = NF } NF != n { exit 1 }' "$dir/out"; }
check "uneven --format csv" csv
survives() { exits 0 && value straight | grep -qE '^(1\.0|0\.[89])' && has out '"survive": 3, '; }
run uneven "${few[@]}" --ratios 2.5 --window-ms 300 --survive 3 --format json
check "uneven --survive" survives
run uneven "${few[@]}" --window-ms 300 --out "$dir/uneven"
written() { exits 0 && [ -s "$dir/uneven/uneven.txt" ] && [ -s "$dir/uneven/uneven.csv" ] &&
  is_json "$dir/uneven/uneven.json"; }
check "uneven --out" written

# ---- procs -----------------------------------------------------------------------------------

few=(--procs "5,1,2" --workers 16 --rounds 2)
titled() {
  exits 0 && lines err 0 && has out "procs: native engine, 16 workers" &&
    has out "24 bursts: nothing lost beyond the documented, nothing doubled."
}
run procs "${few[@]}"
check "procs prints a table and its verdict" titled

run procs "${few[@]}" --collections 1,0 --bursts 3 --format json
rows() { exits 0 && lines err 0 && lines out 19; }
check "procs --format json" rows
check "  is JSON lines" is_json "$dir/out"
fields() {
  local field
  for field in from to collections put hits lost lost_most documented; do
    times "\"$field\": " 18 || return 1
  done
  times '"beyond": 0, "doubled": 0' 19
}
check "  has the promised fields" fields
changes() {
  times '"from": 2, "to": 5, ' 2 && times '"from": 5, "to": 1, ' 2 && times '"from": 1, "to": 1, ' 4
}
check "  goes round the list" changes
# After a collection no set is left that is for fewer processors than there are.
bounded() { times '"to": 1, "during": false, "collections": 1, "burst": 3, ' 1 && grep -qE \
  '"to": 1, .*"collections": 1, "burst": 3, .*"lost_most": [01], "documented": 1,' "$dir/out"; }
check "  loses no more than an item a processor" bounded
summary() { tail -n 1 "$dir/out" | grep -qE '"default_procs": [0-9]+, "default_from": "'"$1\""; }
check "  the number at the start" summary '(affinity|quota)'
TIDE_PROCS=3 run procs --quick --format json
check "  where it comes from" summary TIDE_PROCS

during() { exits 0 && lines err 0 && times '"during": true' 6 && times '"during": false' 6; }
run procs "${few[@]}" --during --format json
check "procs --during" during
csv() { exits 0 && lines out 13 && awk -F, 'NR == 1 { n = NF } NF != n { exit 1 }' "$dir/out"; }
run procs "${few[@]}" --format csv
check "procs --format csv" csv
# A pool that loses what it should not.
TIDE_DEBUG=poolchaos=1 run procs "${few[@]}"
beyond() { exits 1 && lines err 1 && has err "lost beyond the documented" && has out "to"; }
check "procs finds a pool that loses more" beyond

# ---- sawtooth --------------------------------------------------------------------------------

# Collections every 10 ms or so, 25 ms of requests, and gaps that are long whatever else runs.
brief=(--live 4MiB --alloc-rate 500 --seconds 1 --wave-ms 25 --ratio 6)
run sawtooth "${brief[@]}" --out "$dir/saw" --series --format json
rows() { exits 0 && lines err 0 && times '"gap_over_period": ' 8; }
check "sawtooth --format json" rows
check "  is JSON lines" is_json "$dir/out"
fields() {
  local field
  for field in engine rate workers waves requests hit_rate misses p999_us first_us later_us tooth \
    tooth_share late_share collections bytes_kept gc_percent survive min_idle_ms; do
    [ "$(grep '"gap_over_period": ' "$dir/out" | grep -c "\"$field\": ")" -eq 8 ] || return 1
  done
}
check "  has the promised fields" fields
# value CASE FIELD: of a row.
value() { grep "\"case\": \"$1\", \"rate\"" "$dir/out" | sed "s/.*\"$2\": //; s/[,}].*//"; }
wholly() { awk -v a="$(value "$1" "$2")" -v b="$4" "BEGIN { exit !(a $3 b) }"; }
# A wave on an empty pool has a miss at least.
missed() { wholly beyond misses ">=" "$(value beyond waves)" && wholly beyond waves ">=" 2; }
check "  every wave beyond two periods begins with a miss" missed
# Each worker makes one encoder, all but the list's in the wave that does not count.
cured() { wholly freelist misses "<=" 4 && wholly owned misses == 0; }
check "  a free list and an owned encoder are not emptied" cured
settings() {
  wholly survive survive == 7 && wholly min_idle min_idle_ms ">" 10 &&
    wholly percent gc_percent ">" 300 && wholly beyond gc_percent == 100
}
check "  the cures are what they say" settings
ordered() {
  local name
  for name in steady below beyond freelist owned survive min_idle percent; do
    wholly $name p50_us "<=" "$(value $name p99_us)" &&
      wholly $name p99_us "<=" "$(value $name p999_us)" &&
      wholly $name p999_us "<=" "$(value $name max_us)" || return 1
  done
}
check "  quantiles are in order" ordered
# All requests of the waves that count, and the misses among them, are in the series.
whole_series() {
  awk -F, 'NR == 1 { if ($0 != "case,t_ms,requests,p50_us,max_us,misses") exit bad = 1; next }
    $1 == "beyond" { r += $3; m += $6; if ($4 > $5) exit bad = 1 }
    END { exit bad || r != '"$(value beyond requests)"' || m != '"$(value beyond misses)"' }' \
    "$dir/saw/sawtooth-series.csv"
}
check "  --out writes the series" whole_series
marked() {
  head -n 1 "$dir/saw/sawtooth-collections.csv" | grep -qx 'case,t_ms,pause_us' &&
    [ "$(grep -c '^beyond,' "$dir/saw/sawtooth-collections.csv")" -eq \
      "$(value beyond collections)" ] && wholly beyond collections ">" 2
}
check "  and the collections" marked
series() {
  [ "$(grep -c '"series": true' "$dir/out")" -eq \
    $(($(wc -l <"$dir/saw/sawtooth-series.csv") - 1)) ] &&
    [ "$(grep -c '"collection": true' "$dir/out")" -eq \
      $(($(wc -l <"$dir/saw/sawtooth-collections.csv") - 1)) ]
}
check "  --series has both in JSON" series
summary() { grep '"summary": true' "$dir/out" | grep -q '"seed": 1, .*"cures": 5, '; }
check "  and a summary" summary

drawn() {
  exits 0 && lines err 0 && has out "sawtooth: native engine" && has out "seed 7" &&
    has out "beyond (a pool, long gaps): the worst latency, us" &&
    matches out '^ +0 \+-+=+-+=+-+=+-+$' && matches out '^ +\^ ' &&
    matches out '^  owned    \|.{50}\| +[0-9]+$'
}
run sawtooth "${brief[@]}" --cases beyond,owned --seed 7
check "sawtooth draws its pictures" drawn
# The table is wider if the machine is so busy that latencies have many digits.
narrow() { ! grep -v '^\(case\|beyond\|owned\) ' "$dir/out" | grep -q '.\{80\}'; }
check "  in 79 columns" narrow
csv() { exits 0 && lines out 3 && awk -F, 'NR == 1 { n = NF } NF != n { exit 1 }' "$dir/out"; }
run sawtooth "${brief[@]}" --cases steady,survive --rate 100 --workers 1 --format csv
check "sawtooth --format csv" csv
# One worker that cannot keep up: what waits in line counts, though nobody has begun it.
behind() { exits 0 && wholly owned p50_us ">" 200 && wholly owned late_share ">" 0.3; }
run sawtooth "${brief[@]}" --cases owned --rate 1000000 --workers 1 --format json
check "latencies count from when a request was due" behind
status=0
TIDE_GCPERCENT=off "$tool" sawtooth --quick >"$dir/out" 2>"$dir/err" || status=$?
check "sawtooth without automatic collections" refused 2 "TIDE_GCPERCENT"

# ---- marshal ---------------------------------------------------------------------------------

few=(--envelopes 200 --rounds 10 --runs 2)
run marshal "${few[@]}" --format json
nine_rows() { exits 0 && lines err 0 && lines out 9; }
check "marshal --format json" nine_rows
check "  is JSON lines" is_json "$dir/out"
fields() {
  local field
  for field in experiment engine mode threads envelopes ns_op allocs_op bytes_op; do
    [ "$(grep '"mode": ' "$dir/out" | grep -c "\"$field\": ")" -eq 8 ] || return 1
  done
}
check "  has the promised fields" fields
# An encoder is three objects, and its smaller buffer may grow. Counts are exact, so they are the
# same on each number of threads.
fresh() {
  grep '"mode": "fresh"' "$dir/out" | numbers allocs_op |
    awk '$1 < 3 || $1 > 4 || (NR > 1 && $1 != last) { bad = 1 } { last = $1 }
      END { exit bad || NR != 2 }'
}
check "  without a pool an op makes an encoder" fresh
pooled() {
  tail -n 1 "$dir/out" | numbers pool_allocs_over_fresh |
    awk '$1 >= 0.01 { bad = 1 } END { exit bad || NR != 1 }'
}
check "  with it there are under 1 % of those allocations" pooled
none() {
  [ "$(grep '"mode": "owned"' "$dir/out" | grep -c '"allocs_op": 0.0, "bytes_op": 0.0,')" -eq 2 ]
}
check "  with an encoder of their own threads allocate nothing" none
run marshal "${few[@]}" --modes pool,fresh --threads 3
titled() {
  exits 0 && lines err 0 && has out "marshal: native engine, 200 envelopes" &&
    has out "3 threads: with the pool"
}
check "marshal prints a table" titled
run marshal "${few[@]}" --modes owned --threads 1 --format csv --out "$dir/marshal"
csv() { exits 0 && lines out 2 && cmp -s "$dir/out" "$dir/marshal/marshal.csv"; }
check "marshal --format csv" csv
# ---- The other engine ------------------------------------------------------------------------

# The command by itself, as where there was no libgc.
cp "$tool" "$dir/alone"
status=0
LD_LIBRARY_PATH=$(dirname "$tool")/.. "$dir/alone" forced --engine bdw >"$dir/out" 2>"$dir/err" \
  </dev/null || status=$?
check "an engine that was not built" refused 2 "--engine: bdw was not built"
status=0
LD_LIBRARY_PATH=$(dirname "$tool")/.. "$dir/alone" forced "${small[@]}" --engine native \
  >"$dir/out" 2>"$dir/err" </dev/null || status=$?
check "  and the one that was" exits 0

if [[ ,$engines, = *,bdw,* ]]; then
  on_bdw() { exits 0 && lines err 0 && [ "$(grep -c '"engine": "bdw"' "$dir/out")" -ge "$1" ]; }
  run forced "${small[@]}" --engine=bdw --format json
  check "forced --engine bdw" on_bdw 8
  check "  two and three collections leave nothing" none_left
  check "  no collection leaves all" all_left
  run procs --procs "5,1,2" --workers 16 --rounds 2 --engine bdw --format json
  check "procs --engine bdw" on_bdw 12
  run uneven "${tiny[@]}" --engine bdw --format json
  check "uneven --engine bdw" on_bdw 10
  run sawtooth "${brief[@]}" --engine bdw --format json
  check "sawtooth --engine bdw" on_bdw 8
  run marshal "${few[@]}" --engine bdw --format json
  check "marshal --engine bdw" on_bdw 8
  run replay "$(dirname "$0")/traces/marshal.trace" --engine bdw --format json
  check "replay --engine bdw" on_bdw 20
  run period --live 4MiB --rates 100 --ratios 0.5 --bursts 4 --engine bdw --format json
  check "period --engine bdw" on_bdw 1
  run knobs --live 4MiB --percents 100 --gaps 10 --bursts 4 --engine bdw --format json
  check "knobs --engine bdw" on_bdw 1
  run bench alloc --quick --engine bdw --format json
  check "bench --engine bdw" on_bdw 1
  TIDE_MARKSTACK=1MiB run forced "${small[@]}" --engine bdw
  check "an option that it does not have" refused 2 "TIDE_MARKSTACK"
  run forced --engine bdw --bursts 3x
  check "bad usage" refused 2 "--bursts: '3x' is not a whole number"
  status=0
  "$(dirname "$tool")/tidepool-bdw" forced "${small[@]}" --engine native --format json \
    >"$dir/out" 2>"$dir/err" </dev/null || status=$?
  back() { exits 0 && [ "$(grep -c '"engine": "native"' "$dir/out")" -eq 8 ]; }
  check "from there back to the native engine" back
  : >"$dir/out"
  status=0
  "$tool" forced "${small[@]}" --engine bdw >&- 2>"$dir/err" || status=$?
  check "a closed standard output" refused 1 "standard output"
fi

# ---- Where results go ------------------------------------------------------------------------

run forced "${small[@]}" --out "$dir/new/place"
three_files() {
  exits 0 && [ -s "$dir/new/place/forced.txt" ] && [ -s "$dir/new/place/forced.csv" ] &&
    is_json "$dir/new/place/forced.json"
}
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

: >"$dir/out"
status=0
"$tool" forced "${small[@]}" >/dev/full 2>"$dir/err" || status=$?
check "a full disk at standard output" refused 1 "standard output"
status=0
"$tool" forced --help >/dev/full 2>"$dir/err" || status=$?
check "a full disk under --help" refused 1 "standard output"
status=0
"$tool" forced "${small[@]}" >&- 2>"$dir/err" || status=$?
check "a closed standard output" refused 1 "standard output"
status=0
"$tool" forced "${small[@]}" --out "$dir/closed" <&- >&- 2>&- || status=$?
clean_files() { exits 1 && is_json "$dir/closed/forced.json"; }
check "all standard streams closed" clean_files

# ---- Replay ----------------------------------------------------------------------------------

traces=$(dirname "$0")/traces
usage "replay without a file" \
  "a FILE is missing; accepted: one that TIDE_DEBUG=record=FILE has made" replay
usage "replay of a file that is not there" "no/such: No such file or directory" \
  replay "$dir/no/such"
usage "replay of a directory" "accepted: a file that TIDE_DEBUG=record=FILE has made" replay "$dir"
usage "replay of some other file" "line 1: '#!/usr/bin/env bash' is not accepted" replay "$0"
usage "two files" "unexpected argument" replay "$traces/waves.trace" "$traces/waves.trace"
usage "a speed" "--speed: 'slow' is not accepted; accepted: fast,recorded" \
  replay --speed slow "$traces/waves.trace"
usage "what to measure" "--measure: 'some' is not accepted; accepted: none,own,all" \
  replay --measure some "$traces/waves.trace"
usage "a limit below 1 MiB" "is not a size from 1MiB to 1TiB" \
  replay --limits 1KiB "$traces/waves.trace"
sed 's/^g 1 h.*/g 1 h 999999/' "$traces/waves.trace" >"$dir/bad.trace"
at=$(grep -n -m 1 '^g 1 h' "$dir/bad.trace" | cut -d: -f1)
usage "a bad line" "line $at: 'g 1 h 999999' is not accepted; accepted: g POOL h|m|n OBJECT" \
  replay "$dir/bad.trace"

run replay "$traces/waves.trace"
said() {
  exits 0 && lines err 0 && has out "replay: native engine" &&
    has out "encoders: hit rate by simulation" && has out "GC percent 200 makes it" &&
    has out "survive 2 makes it" &&
    matches out 'min_idle_ns = [0-9]+'
}
check "replay prints tables and what would help" said
matching_rows() { # percents in the table with a hit rate of 0.99 and more without a limit
  local kept='$1 ~ /^[0-9]+$/ && NF == 5 && $2 >= 0.99 { n++ } END { exit n != 3 }'
  awk "$kept" "$dir/out"
}
check "a higher percent keeps the items" matching_rows

run replay --format json --percents 50,400 --limits off,64MiB "$traces/marshal.trace"
fields() {
  exits 0 && lines err 0 && lines out 11 && is_json "$dir/out" || return 1
  local name
  for name in experiment engine pool pool_number gc_percent memory_limit recorded_setting gets \
    recorded measured simulated error recorded_collections collections simulated_collections \
    recorded_period_ms gc_period_ms simulated_period_ms use_gap idle_ms partial; do
    [ "$(grep -c "\"$name\": " "$dir/out")" -ge 10 ] || return 1
  done
  tail -n 1 "$dir/out" | grep -q '"summary": true, .*"max_abs_error": 0'
}
check "replay as JSON: two pools, five settings and a summary" fields
run replay --format csv --measure none --percents 100,off --limits off "$traces/waves.trace"
csv() {
  exits 0 && lines out 4 && awk -F, 'NR == 1 { n = NF } NF != n { exit 1 }' "$dir/out" &&
    grep -qE '^replay,native,encoders,1,,,false,' "$dir/out"
}
check "replay as CSV" csv
run replay --out "$dir/replayed" "$traces/marshal.trace"
files() {
  exits 0 && is_json "$dir/replayed/replay.json" && [ -s "$dir/replayed/replay.csv" ] &&
    [ -s "$dir/replayed/replay.txt" ]
}
check "replay writes its files" files

status=0
TIDE_DEBUG="record=$dir/own-%p.trace" timeout 60 "$tool" forced "${small[@]}" >"$dir/out" \
  2>"$dir/err" </dev/null || status=$?
check "a command can be recorded" exits 0
run replay --format json --measure own --percents 100 --limits off "$dir"/own-*.trace
as_recorded() { # every pool: measured as simulated, but for an item that is out of reach
  exits 0 && [ "$(grep -c '"recorded_setting": true' "$dir/out")" -eq 8 ] &&
    ! grep '"recorded_setting": true' "$dir/out" | grep -vqE '"error": -?0\.0[0-9]*,'
}
check "forced collections take the same from pools in a replay" as_recorded
environment "a recording that cannot be made" "option record: record file '/dev/full': No space" \
  TIDE_DEBUG=record=/dev/full

{
  printf 'tidepool-trace 1\nP 1 0 0 0 0 slow\n'
  yes "$(printf 'a 100 l\nt 100000')" | head -n 2000
} \
  >"$dir/slow.trace"
status=0
timeout --preserve-status -s INT 2 "$tool" replay --speed recorded --format json "$dir/slow.trace" \
  >"$dir/out" 2>"$dir/err" </dev/null || status=$?
partial() { exits 130 && lines err 0 && is_json "$dir/out" && has out '"partial": true'; }
check "Ctrl-C ends a replay with what there is" partial
no_children() { ! pgrep -f "$dir/slow.trace" >"$dir/err"; }
check "and leaves no process" no_children

# ---- Surroundings ----------------------------------------------------------------------------

status=0
env -i PATH="$PATH" "$tool" forced "${small[@]}" >"$dir/out" 2>"$dir/err" </dev/null || status=$?
check "an empty environment" exits 0
status=0
LC_ALL=nowhere LANG=xx TERM='' COLUMNS=-4 "$tool" forced "${small[@]}" >"$dir/out" 2>"$dir/err" ||
  status=$?
check "a locale and a terminal that do not exist" exits 0

partial() { exits 143 && lines err 0 && has out "Partial result"; }
status=0
timeout --preserve-status -s TERM 5 "$tool" period --live 4MiB --rates 50 --ratios 1.5 \
  --bursts 10000 >"$dir/out" 2>"$dir/err" </dev/null || status=$?
check "a signal ends the run with what there is" partial

status=0
timeout --preserve-status -s INT 5 "$tool" knobs --percents 25 --gaps 100 --bursts 10000 \
  >"$dir/out" 2>"$dir/err" </dev/null || status=$?
partial() { exits 130 && lines err 0 && has out "Partial result"; }
check "Ctrl-C ends knobs with what there is" partial

status=0
timeout --preserve-status -s INT 2 "$tool" uneven --live 4MiB --rates 200 --ratios 0.5 \
  --window-ms 60000 --format json >"$dir/out" 2>"$dir/err" </dev/null || status=$?
partial_rows() {
  exits 130 && lines err 0 && lines out 2 && is_json "$dir/out" && times '"partial": true' 2
}
check "Ctrl-C ends uneven with what there is" partial_rows

status=0
timeout --preserve-status -s INT 2 "$tool" procs --rounds 1000000 --collections 0 \
  >"$dir/out" 2>"$dir/err" </dev/null || status=$?
check "Ctrl-C ends procs with what there is" partial

status=0
timeout --preserve-status -s INT 3 "$tool" sawtooth --cases beyond,owned --live 4MiB --format json \
  >"$dir/out" 2>"$dir/err" </dev/null || status=$?
partial() {
  exits 130 && lines err 0 && is_json "$dir/out" &&
    grep '"case": "beyond"' "$dir/out" | grep -q '"partial": true'
}
check "Ctrl-C ends sawtooth with the waves that were complete" partial

status=0
timeout --preserve-status -s INT 2 "$tool" marshal --runs 1000 --rounds 10 \
  >"$dir/out" 2>"$dir/err" </dev/null || status=$?
partial() { exits 130 && lines err 0 && has out "Partial result"; }
check "Ctrl-C ends marshal with the runs that were complete" partial

if script -qec true /dev/null >/dev/null 2>&1 </dev/null; then
  TERM=xterm timeout 120 script -qec "'$tool' period --live 8MiB --rates 200 --ratios 1.5 \
    --bursts 60 --workers 8" /dev/null >"$dir/out" 2>"$dir/err" </dev/null
  status=$?
  check "a progress bar on a terminal" matches out 'period \[=*>? *\] +[0-9]+ %, [0-9]+:[0-9]+ left'
fi

echo "100%: Checks: $checks, Failures: $failures, Errors: 0"
[ "$failures" -eq 0 ]
