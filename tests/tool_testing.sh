# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Sourced by the tests of the command: runs it, looks at what it said, counts checks. Expects $tool,
# the command's path. Sets $dir, a directory of the test's own.
#
#   run ARGUMENT...     the command, after what $before holds, which is empty at first
#   observe COMMAND...  anything else; both leave $status, $dir/out and $dir/err
#   check WHAT TEST...  a line, `ok` or `FAIL`, and then what the last run left
#   finish              the count; its status is the script's
#
# Every other function is a test for `check`: it looks at what the last run left.

dir=$(mktemp -d) || exit 1
trap 'chmod -R u+w "$dir" 2>/dev/null; rm -rf "$dir"' EXIT
unset "${!TIDE_@}" NO_COLOR
export LC_ALL=C
checks=0
failures=0
status=0
before=()
: >"$dir/out" >"$dir/err"

check() {
  local what=$1
  shift
  checks=$((checks + 1))
  if "$@" >"$dir/log" 2>&1; then
    echo "ok   $what"
  else
    failures=$((failures + 1))
    echo "FAIL $what"
    echo "     status $status"
    sed 's/^/     /' "$dir/log"
    sed 's/^/     stdout: /' "$dir/out"
    sed 's/^/     stderr: /' "$dir/err"
  fi
}

finish() {
  echo "100%: Checks: $checks, Failures: $failures, Errors: 0"
  [ "$failures" -eq 0 ]
}

# ---- Runs ------------------------------------------------------------------------------------

observe() {
  status=0
  "$@" >"$dir/out" 2>"$dir/err" </dev/null || status=$?
}

run() { observe timeout 200 "$tool" "${before[@]}" "$@"; }

# signalled SIGNAL SECONDS ARGUMENT...: a run that gets the signal after so long.
signalled() { observe timeout --preserve-status -s "$1" "$2" "$tool" "${before[@]}" "${@:3}"; }

# redirected HOW ARGUMENT...: a run whose streams go where the shell sends them, as by `>/dev/full`.
redirected() { observe sh -c "exec \"\$@\" $1" sh "$tool" "${before[@]}" "${@:2}"; }

# usage WHAT TEXT ARGUMENT...: bad usage is refused with status 2.
usage() {
  run "${@:3}"
  check "$1" refused 2 "$2"
}

# Whether there is a terminal for `script` to run something on.
terminal() { script -qec true /dev/null >/dev/null 2>&1 </dev/null; }

# ---- What a run left -------------------------------------------------------------------------

# In all of these FILE is below $dir; `out` and `err` are what the last run said.

exits() { [ "$status" -eq "$1" ]; }
lines() { [ "$(wc -l <"$dir/$1")" -eq "$2" ]; } # lines FILE COUNT
has() { grep -qF -- "$2" "$dir/$1"; }           # has FILE TEXT
lacks() { [ -s "$dir/$1" ] && ! has "$@"; }     # lacks FILE TEXT: there is something, but not that
matches() { grep -qE -- "$2" "$dir/$1"; }       # matches FILE PATTERN

# times TEXT COUNT: so many lines of the output hold the text.
times() { [ "$(grep -cF -- "$1" "$dir/out")" -eq "$2" ]; }

# refused STATUS TEXT: nothing but one line on stderr, which holds the text.
refused() { exits "$1" && lines out 0 && lines err 1 && has err "$2"; }

# json FILE: JSON objects, one a line, and at least one.
json() {
  if command -v jq >/dev/null; then
    jq -e -s 'length > 0 and all(type == "object")' "$dir/$1" >/dev/null
  else
    [ -s "$dir/$1" ] && ! grep -qvE '^\{"[a-z_]+": .*\}$' "$dir/$1"
  fi
}

# csv FILE LINES: so many lines, all with as many fields as the first.
csv() {
  awk -F, -v lines="$2" 'NR == 1 { n = NF } NF != n { bad = 1 }
    END { exit bad || n < 2 || NR != lines }' "$dir/$1"
}

# results DIR NAME: the three files of a result, below $dir/DIR.
results() { [ -s "$dir/$1/$2.txt" ] && [ -s "$dir/$1/$2.csv" ] && json "$1/$2.json"; }

# went_well COUNT: a run with so many lines of output, and nothing else to say.
went_well() { exits 0 && lines err 0 && lines out "$1"; }

# on_bdw COUNT: one that went well, with at least so many lines from the other engine.
on_bdw() { exits 0 && lines err 0 && [ "$(grep -c '"engine": "bdw"' "$dir/out")" -ge "$1" ]; }

# fields FILE COUNT NAME...: each of the fields is in so many lines.
fields() {
  local name
  for name in "${@:3}"; do
    [ "$(grep -c "\"$name\": " "$dir/$1")" -eq "$2" ] || { echo "$name" && return 1; }
  done
}

# ---- Numbers ---------------------------------------------------------------------------------

# numbers FIELD: each number of that name on standard input. Small ones are printed like 3.8e-05.
numbers() { sed -nE "s/.*\"$1\": (-?[0-9.]+(e[-+]?[0-9]+)?)[,}].*/\1/p"; }

# value FIELD [TEXT]: its number in each row, or in those that hold the text; not in the summary.
value() { sed '/"summary"/d' "$dir/out" | grep -F -- "${2:-}" | numbers "$1"; }

# compare A OPERATOR B: both are numbers, and it holds.
compare() {
  awk -v a="$1" -v b="$3" "BEGIN { number = \"^-?[0-9.]+(e[-+]?[0-9]+)?\$\"
    exit !(a ~ number && b ~ number && a + 0 $2 b + 0) }"
}
