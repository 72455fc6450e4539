#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The experiments `uneven`, `procs`, `sawtooth` and `marshal`, from outside: bad usage, and their
# results in all forms, on both engines. They run with tiny numbers; what they measure is only checked where
# it must be exact, or where it follows from other numbers of the same run.
#
# Usage: test_experiments.sh PATH-OF-TIDEPOOL ENGINES, those that were built, as in `native,bdw`.
# Prints one line a check and ends with a count.
set -u
tool=${1:?usage: test_experiments.sh PATH-OF-TIDEPOOL ENGINES}
engines=${2:?usage: test_experiments.sh PATH-OF-TIDEPOOL ENGINES}
# shellcheck source=tests/tool_testing.sh
. "$(dirname "$0")/tool_testing.sh"

# ---- uneven ----------------------------------------------------------------------------------

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
TIDE_GCPERCENT=off run uneven --quick
check "uneven without automatic collections" refused 2 "TIDE_GCPERCENT"

# Periods of about 20 ms.
tiny=(--live 4MiB --rates 200 --ratios "0.4,1.5" --window-ms 400 --bursts 30)
run uneven "${tiny[@]}" --format json
check "uneven --format json" went_well 11
check "  is JSON lines" json out
promised() {
  fields out 10 engine pattern rate_mb_s gap_ms gc_period_ms period_cv gap_over_period predicted \
    straight measured error blur bursts &&
    times '"experiment": "uneven", ' 11 && times '"partial": false' 11
}
check "  has the promised fields" promised
named() {
  local pattern
  for pattern in steady poisson bursty phased replay; do
    times "\"pattern\": \"$pattern\", " 2 || return 1
  done
  times '"rate_mb_s": 200.0, "measured_rate_mb_s": ' 10 && times '"bursts": 30, ' 10
}
check "  each row names its pattern" named
# A gap lost its items if and only if it met two collections, but for those that came while items
# were taken or put, and for one item of a gap that is out of reach.
as_counted() {
  paste <(value measured) <(value counted) |
    awk '{ off = $1 - $2 } NF != 2 || off > 0.1 || off < -0.1 { bad = 1 } END { exit bad || NR != 10 }'
}
check "  gaps lose what the collections in them say" as_counted
differences() {
  paste <(value "$1") <(value "$2") <(value "$3") | awk '
    { off = $1 - $2; if (off < 0) off = -off; off -= $3 }
    NF != 3 || off > 0.0011 || off < -0.0011 { bad = 1 }
    END { exit bad || NR != 10 }'
}
check "  error is |measured - predicted|" differences measured predicted error
check "  blur is |predicted - straight|" differences predicted straight blur
ratio() {
  paste <(value gap_ms) <(value gc_period_ms) <(value gap_over_period) | awk '
    { off = $1 / $2 - $3 } NF != 3 || off > 0.02 || off < -0.02 { bad = 1 }
    END { exit bad || NR != 10 }'
}
check "  gap_over_period is what it says" ratio
paced() {
  value measured_rate_mb_s | awk '$1 < 10 || $1 > 1000 { bad = 1 } END { exit bad || NR != 10 }'
}
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
repeated() { [ -n "$seed_77" ] && [ "$(planned)" = "$seed_77" ]; }
check "  the same seed is the same run" repeated
# The steady pattern has nothing to choose; the first of the others has.
differs() {
  [ "${first%% *}" = "${seed_77%% *}" ] &&
    [ "$(cut -d' ' -f3 <<<"$first")" != "$(cut -d' ' -f2 <<<"$seed_77")" ]
}
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
own_rate() { exits 0 && matches out '^uneven,native,[0-9]+,100,replay,250(\.0)?,'; }
check "a curve from a file has its own rate" own_rate
check "uneven --format csv" csv out 2
survives() { exits 0 && value straight | grep -qE '^(1\.0|0\.[89])' && has out '"survive": 3, '; }
run uneven "${few[@]}" --ratios 2.5 --window-ms 300 --survive 3 --format json
check "uneven --survive" survives
run uneven "${few[@]}" --window-ms 300 --out "$dir/uneven"
written() { exits 0 && results uneven uneven; }
check "uneven --out" written

# ---- procs -----------------------------------------------------------------------------------

usage "three collections" "--collections: '3' is not a whole number from 0 to 1" \
  procs --collections 0,3

few=(--procs "5,1,2" --workers 16 --rounds 2)
titled() {
  exits 0 && lines err 0 && has out "procs: native engine, 16 workers" &&
    has out "24 bursts: nothing lost beyond the documented, nothing doubled."
}
run procs "${few[@]}"
check "procs prints a table and its verdict" titled

run procs "${few[@]}" --collections 1,0 --bursts 3 --format json
check "procs --format json" went_well 19
check "  is JSON lines" json out
promised() {
  fields out 18 from to collections put hits lost lost_most documented &&
    times '"beyond": 0, "doubled": 0' 19
}
check "  has the promised fields" promised
changes() {
  times '"from": 2, "to": 5, ' 2 && times '"from": 5, "to": 1, ' 2 && times '"from": 1, "to": 1, ' 4
}
check "  goes round the list" changes
# After a collection no set is left that is for fewer processors than there are.
bounded() {
  times '"to": 1, "during": false, "collections": 1, "burst": 3, ' 1 && matches out \
    '"to": 1, .*"collections": 1, "burst": 3, .*"lost_most": [01], "documented": 1,'
}
check "  loses no more than an item a processor" bounded
from() { tail -n 1 "$dir/out" | grep -qE '"default_procs": [0-9]+, "default_from": "'"$1\""; }
check "  the number at the start" from '(affinity|quota)'
TIDE_PROCS=3 run procs --quick --format json
check "  where it comes from" from TIDE_PROCS

during() { exits 0 && lines err 0 && times '"during": true' 6 && times '"during": false' 6; }
run procs "${few[@]}" --during --format json
check "procs --during" during
table() { exits 0 && csv out 13; }
run procs "${few[@]}" --format csv
check "procs --format csv" table
# A pool that loses what it should not.
TIDE_DEBUG=poolchaos=1 run procs "${few[@]}"
beyond() { exits 1 && lines err 1 && has err "lost beyond the documented" && has out "to"; }
check "procs finds a pool that loses more" beyond

# ---- sawtooth --------------------------------------------------------------------------------

usage "a case that is none" "--cases: 'tides' is not accepted; accepted: steady,below,beyond" \
  sawtooth --cases beyond,tides
usage "two ratios" "--ratio: 2 numbers; accepted: one" sawtooth --ratio 1,2
usage "no requests" "--rate: '0' is not a whole number from 1 to 1000000" sawtooth --rate 0
usage "too many requests" "requests in a case; accepted: at most 20000000" \
  sawtooth --rate 1000000 --seconds 21
TIDE_GCPERCENT=off run sawtooth --quick
check "sawtooth without automatic collections" refused 2 "TIDE_GCPERCENT"

# Collections every 10 ms or so, 25 ms of requests, and gaps that are long whatever else runs.
brief=(--live 4MiB --alloc-rate 500 --seconds 1 --wave-ms 25 --ratio 6)
run sawtooth "${brief[@]}" --out "$dir/saw" --series --format json
eight_cases() { exits 0 && lines err 0 && times '"gap_over_period": ' 8; }
check "sawtooth --format json" eight_cases
check "  is JSON lines" json out
grep '"gap_over_period": ' "$dir/out" >"$dir/cases"
check "  has the promised fields" fields cases 8 engine rate workers waves requests hit_rate misses \
  p999_us first_us later_us tooth tooth_share late_share collections bytes_kept gc_percent survive \
  min_idle_ms
# of CASE FIELD: the number in the case's row. holds CASE FIELD OPERATOR NUMBER: it compares so.
of() { value "$2" "\"case\": \"$1\", \"rate\""; }
holds() { compare "$(of "$1" "$2")" "$3" "$4" || { echo "$*" && return 1; }; }
# A wave on an empty pool has a miss at least.
missed() { holds beyond misses ">=" "$(of beyond waves)" && holds beyond waves ">=" 2; }
check "  every wave beyond two periods begins with a miss" missed
# Each worker makes one encoder, all but the list's in the wave that does not count.
cured() { holds freelist misses "<=" 4 && holds owned misses == 0; }
check "  a free list and an owned encoder are not emptied" cured
settings() {
  holds survive survive == 7 && holds min_idle min_idle_ms ">" 10 &&
    holds percent gc_percent ">" 300 && holds beyond gc_percent == 100
}
check "  the cures are what they say" settings
ordered() {
  local name
  for name in steady below beyond freelist owned survive min_idle percent; do
    holds $name p50_us "<=" "$(of $name p99_us)" && holds $name p99_us "<=" "$(of $name p999_us)" &&
      holds $name p999_us "<=" "$(of $name max_us)" || return 1
  done
}
check "  quantiles are in order" ordered
# All requests of the waves that count, and the misses among them, are in the series.
whole_series() {
  awk -F, -v requests="$(of beyond requests)" -v misses="$(of beyond misses)" '
    NR == 1 { bad = ($0 != "case,t_ms,requests,p50_us,max_us,misses"); next }
    $1 == "beyond" { r += $3; m += $6; if ($4 > $5) bad = 1 }
    END { exit bad || !r || r != requests || !m || m != misses }' "$dir/saw/sawtooth-series.csv"
}
check "  --out writes the series" whole_series
marked() {
  head -n 1 "$dir/saw/sawtooth-collections.csv" | grep -qx 'case,t_ms,pause_us' &&
    holds beyond collections == "$(grep -c '^beyond,' "$dir/saw/sawtooth-collections.csv")" &&
    holds beyond collections ">" 2
}
check "  and the collections" marked
series() {
  times '"series": true' $(($(wc -l <"$dir/saw/sawtooth-series.csv") - 1)) &&
    times '"collection": true' $(($(wc -l <"$dir/saw/sawtooth-collections.csv") - 1))
}
check "  --series has both in JSON" series
summary() { grep '"summary": true' "$dir/out" | grep -q '"seed": 1, .*"cures": 5, '; }
check "  and a summary" summary

drawn() {
  exits 0 && lines err 0 && has out "sawtooth: native engine" && has out "seed 7" &&
    has out "beyond (a pool, long gaps): the worst latency, us" &&
    matches out '^ +0 \+-+=+-+=+-' && matches out '^ +\^ ' &&
    matches out '^  owned    \|.{50}\| +[0-9]+$'
}
run sawtooth "${brief[@]}" --cases beyond,owned --seed 7
check "sawtooth draws its pictures" drawn
# The table is wider if the machine is so busy that latencies have many digits.
narrow() { [ -s "$dir/out" ] && ! grep -v '^\(case\|beyond\|owned\) ' "$dir/out" | grep '.\{80\}'; }
check "  in 79 columns" narrow
table() { exits 0 && csv out 3; }
run sawtooth "${brief[@]}" --cases steady,survive --rate 100 --workers 1 --format csv
check "sawtooth --format csv" table
# One worker that cannot keep up: what waits in line counts, though nobody has begun it.
behind() { exits 0 && holds owned p50_us ">" 200 && holds owned late_share ">" 0.3; }
run sawtooth "${brief[@]}" --cases owned --rate 1000000 --workers 1 --format json
check "latencies count from when a request was due" behind

# ---- marshal ---------------------------------------------------------------------------------

usage "a mode that is none" "--modes: 'borrowed' is not accepted; accepted: fresh,pool,freelist" \
  marshal --modes fresh,borrowed
usage "no envelopes" "--envelopes: '0' is not a whole number from 1 to 1000000" \
  marshal --envelopes 0

few=(--envelopes 200 --rounds 10 --runs 2)
run marshal "${few[@]}" --format json
check "marshal --format json" went_well 9
check "  is JSON lines" json out
grep '"mode": ' "$dir/out" >"$dir/modes"
check "  has the promised fields" fields modes 8 experiment engine mode threads envelopes ns_op \
  allocs_op bytes_op
# An encoder is three objects, and its smaller buffer may grow. Counts are exact, so they are the
# same on each number of threads.
fresh() {
  value allocs_op '"mode": "fresh"' |
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
table() { exits 0 && csv out 2 && cmp "$dir/out" "$dir/marshal/marshal.csv"; }
check "marshal --format csv" table

# ---- The other engine ------------------------------------------------------------------------

if [[ ,$engines, = *,bdw,* ]]; then
  run uneven "${tiny[@]}" --engine bdw --format json
  check "uneven --engine bdw" on_bdw 10
  run procs --procs "5,1,2" --workers 16 --rounds 2 --engine bdw --format json
  check "procs --engine bdw" on_bdw 12
  run sawtooth "${brief[@]}" --engine bdw --format json
  check "sawtooth --engine bdw" on_bdw 8
  run marshal "${few[@]}" --engine bdw --format json
  check "marshal --engine bdw" on_bdw 8
fi

finish
