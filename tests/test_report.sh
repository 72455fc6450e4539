#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# `tidepool all`, from outside: the record, the page and its plots, the same page again, and what is
# left where something is missing: gnuplot, an experiment, the end of a run.
#
# Usage: test_report.sh PATH-OF-TIDEPOOL SOURCE-OF-TESTS. Prints one line a check and ends with a
# count. The plots are drawn from results in report/, which a short run has left; without gnuplot
# they are not checked.
set -u
tool=${1:?usage: test_report.sh PATH-OF-TIDEPOOL SOURCE-OF-TESTS}
source=${2:?usage: test_report.sh PATH-OF-TIDEPOOL SOURCE-OF-TESTS}
# shellcheck source=tests/tool_testing.sh
. "$(dirname "$0")/tool_testing.sh"
before=(all)

# wait_for PROCESS COMMAND...: until the command succeeds, the process ends, or two minutes are over.
wait_for() {
  local i
  for ((i = 0; i < 1200; i++)); do
    "${@:2}" && return
    kill -0 "$1" 2>/dev/null || return
    sleep 0.1
  done
}

same() { cmp "$dir/$1" "$dir/$2"; }

sound() { # sound DIR: a page that is whole and needs nothing from elsewhere
  if command -v python3 >/dev/null; then
    python3 "$source/check_page.py" "$dir/$1/report.html"
  else
    tail -n 1 "$dir/$1/report.html" | grep -qx '</html>'
  fi
}

# ---- Bad usage -------------------------------------------------------------------------------

usage "no directory" "--out is missing; accepted: a directory"
usage "a part that is none" "--only: 'tides' is not accepted; accepted: forced,period,knobs" \
  --only forced,tides --out "$dir/none"
usage "an engine that is none" "--engine: 'steam' is not accepted; accepted: native,bdw" \
  --engine steam --out "$dir/none"
usage "two modes" "exclude each other" --quick --full --out "$dir/none"
usage "a recording that is not there" "--trace: cannot read '$dir/none.trace': No such file" \
  --trace "$dir/none.trace" --out "$dir/none"
usage "replay without a recording" "--only: replay is accepted only beside --trace" \
  --only replay --out "$dir/none"
usage "a new run from old results" "--from measures nothing" --from "$dir/none" --quick
check "nothing was made" test ! -e "$dir/none"
run --from "$dir/none"
check "no results" exits 1
check "  and what is missing" has err "there are no results in '$dir/none/data'"

# ---- A run -----------------------------------------------------------------------------------

run --quick --only forced,procs --engine native --seed 7 --out "$dir/run"
check "a run" exits 0
check "  says how to repeat it" has out \
  "Repeat with: tidepool all --seed 7 --quick --only forced,procs --engine native --out DIR"
check "  and where the report is" has out "The report is $dir/run/report.html."
files() {
  local file
  for file in all.txt all.csv all.json data/forced.json data/procs.json data/procs.csv; do
    [ -s "$dir/run/$file" ] || { echo "no $file" && return 1; }
  done
}
check "  leaves the record and the results" files
check "  writes a sound page" sound run
check "  with the machine" has run/report.html "$(uname -r)"
check "  and both themes" has run/report.html "prefers-color-scheme:dark"
rows() { [ "$(grep -c '"experiment": "all", "name"' "$dir/run/all.json")" -eq 2 ]; }
check "  records both" rows

cp "$dir/run/report.html" "$dir/before.html"
run --from "$dir/run"
check "--from" exits 0
check "  writes the same page" same before.html run/report.html

run --quick --only marshal,procs --engine native --out "$dir/run"
check "a part more" exits 0
check "  leaves the others in the report" has run/report.html 'id="forced"'

cp "$source/traces/waves.trace" "$dir/a trace"
run --quick --only replay --engine native --trace "$dir/a trace" --out "$dir/run"
check "a recording" exits 0
check "  is replayed" has run/all.json '"name": "replay", "engine": "native", "outcome": "done"'
check "  and in the report, with its pool" has run/report.html '<td class="l">encoders</td>'
check "  with a distance, whatever its sign" lacks run/report.html "hit rates are within -"
check "  which is sound" sound run

# An engine or a command that is not in this build is skipped, and that is no failure.
run --quick --only procs --engine bdw --out "$dir/engine"
either() { has engine/all.json '"outcome": "done"' || has engine/report.html "this build has no engine bdw: procs."; }
check "an engine that may be missing" exits 0
check "  is measured or left out, in a line" either
check "  on a sound page" sound engine

# ---- Something goes wrong --------------------------------------------------------------------

mkdir -p "$dir/broken/data/procs.json"
run --quick --only procs,replay --engine native --trace "$dir/a trace" --out "$dir/broken"
check "an experiment that fails" exits 1
check "  is named with the reason" has err "procs failed: exit status 1, tidepool procs: cannot write"
check "  does not take the others with it" has broken/all.json '"name": "replay", "engine": "native", "outcome": "done"'
check "  is in the page" has broken/report.html "procs failed: exit status 1"
check "  which is sound" sound broken

mkdir -p "$dir/odd/data"
printf '{"experiment": "procs", "from": "<b>", "to": 1e99, "hits": null, "beyond": "x"}\n' \
  >"$dir/odd/data/procs.json"
printf '{"experiment": "forced"\n' >"$dir/odd/data/forced.json"
printf '{"gap_over_period": "x"}\n{"gap_over_period": 1, "measured": 1e308, "error": 1}\n{}\n' \
  >"$dir/odd/data/period.json"
cp "$dir/odd/data/period.json" "$dir/odd/data/knobs.json"
cp "$dir/odd/data/period.json" "$dir/odd/data/uneven.json"
printf '{"case": "beyond", "engine": "native"}\n{"series": true, "case": "beyond"}\n' \
  >"$dir/odd/data/sawtooth.json"
run --from "$dir/odd"
check "results that make no sense" exits 1
check "  are named" has err "data/forced.json: line 1 is not a JSON object"
check "  leave a sound page" sound odd
check "  in which nothing is markup" lacks odd/report.html "<b>1"

# Ends once the first experiment is on record.
"$tool" all --quick --only forced,period --engine native --out "$dir/cut" >"$dir/out" 2>"$dir/err" \
  </dev/null &
id=$!
wait_for $id test -e "$dir/cut/all.json"
kill -TERM $id
status=0
wait $id || status=$?
check "a signal ends the run" exits 143
check "  with what there is" has cut/all.json '"name": "forced", "engine": "native", "outcome": "done"'
check "  the page says so" has cut/report.html "A partial result."
check "  and is sound" sound cut

# ---- Plots -----------------------------------------------------------------------------------

cp -r "$source/report" "$dir/plots" && chmod -R u+w "$dir/plots"
figures="rule periods knobs uneven tooth shape cures throughput pauses"

# A PATH without gnuplot.
mkdir "$dir/bin"
observe env PATH="$dir/bin" "$tool" all --from "$dir/plots"
check "no gnuplot" exits 0
check "  is said in one line" lines err 1
check "  with the package" has err "gnuplot is not installed, so the report has tables and scripts"
check "  leaves the tables" has plots/report.html "<table>"
check "  and the data and the scripts" test -s "$dir/plots/plots/rule.csv" -a -s "$dir/plots/plots/rule.gp"
check "  and a sound page" sound plots

if command -v gnuplot >/dev/null; then
  run --from "$dir/plots"
  check "plots from results" exits 0
  check "  without a word on stderr" lines err 0
  check "  on a sound page" sound plots
  for figure in $figures; do
    drawn() {
      grep -q "<figure id=\"figure-$figure\">" "$dir/plots/report.html" &&
        [ -s "$dir/plots/plots/$figure.png" ] && [ "$(wc -l <"$dir/plots/plots/$figure.csv")" -gt 2 ]
    }
    check "figure $figure" drawn
    again() {
      rm "$dir/plots/plots/$figure.svg" "$dir/plots/plots/$figure-narrow.svg" \
        "$dir/plots/plots/$figure.png" || return
      local said
      said=$(cd "$dir/plots" && LC_ALL=C.UTF-8 gnuplot "plots/$figure.gp" 2>&1) || return
      [ -z "$said" ] || { echo "gnuplot said: $said" && return 1; }
      [ -s "$dir/plots/plots/$figure.svg" ] && [ -s "$dir/plots/plots/$figure-narrow.svg" ] &&
        [ -s "$dir/plots/plots/$figure.png" ]
    }
    check "  its script runs again" again
  done
  pictures() { [ "$(grep -c '<svg class=' "$dir/plots/report.html")" -eq 18 ]; }
  check "each for two widths" pictures
  coloured() {
    grep -q "fill *= *['\"]var(--series0)" "$dir/plots/report.html" &&
      grep -q "stroke=['\"]var(--series1)" "$dir/plots/report.html" &&
      ! grep -q "rgb(" "$dir/plots/report.html"
  }
  check "in colours of the page" coloured
  cp "$dir/plots/report.html" "$dir/before.html"
  run --from "$dir/plots"
  check "the same page again" same before.html plots/report.html
fi

# Ends once there is a share between nothing and all. Signals go to the command, not to its terminal.
if terminal; then
  status=0
  TERM=xterm timeout 120 script -qefc "echo \$\$ >'$dir/id'; exec '$tool' all --quick --only period \
    --engine native --out '$dir/bar'" /dev/null >"$dir/out" 2>"$dir/err" </dev/null &
  id=$!
  bar() {
    matches out 'all: period \(1 of 1\) \[=*> *\] +[1-9][0-9]? %, [0-9]+:[0-9]+ left'
  }
  wait_for "$id" bar
  kill -TERM "$(cat "$dir/id")"
  wait $id || status=$?
  check "progress with the time left on a terminal" bar
fi

finish
