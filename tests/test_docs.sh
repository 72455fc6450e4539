#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# The documentation against the code. Every ```c block is compiled; one with `int main` is run too,
# and what follows it under `Output:` is compared. Options, public functions, the trace line, links,
# files and names that the documentation mentions are looked up in the sources.
#
# A ```c block that is no program must compile as it stands with <tidepool.h> in front.
#
# usage: test_docs.sh SOURCE_ROOT BUILD_ROOT. Prints one line a check, the details of a failure
# below it, and a total. Exit status 1 when something failed.
set -u
export LC_ALL=C
source_root=$(cd "${1:?usage: test_docs.sh SOURCE_ROOT BUILD_ROOT}" && pwd) || exit 1
build_root=$(cd "${2:?usage: test_docs.sh SOURCE_ROOT BUILD_ROOT}" && pwd) || exit 1
here=$(mktemp -d) || exit 1
trap 'rm -rf "$here"' EXIT
cd "$source_root" || exit 1
unset "${!TIDE_@}"

passed=0
failed=0

# check WHAT COMMAND...: the command succeeds; what it says is shown if it does not.
check() {
  local what=$1
  shift
  if "$@" >"$here/log" 2>&1; then
    passed=$((passed + 1))
    echo "ok: $what"
  else
    failed=$((failed + 1))
    echo "FAILED: $what"
    sed 's/^/    /' "$here/log" | head -n 25
  fi
}

mapfile -t docs < <(
  ls README.md
  find docs -name '*.md' | sort
)
mapfile -t headers < <(find runtime/include gc/include pool/include -name '*.h' | sort)

# ---- How the library was built ------------------------------------------------------------------

# The compiler of the build, and its sanitizers, which a program must be linked with too.
read -r -a compiler < <(sed -n '/^rule c_COMPILER$/,/^ command/s/^ command = //p' \
  "$build_root/build.ninja" | sed 's/ \$ARGS.*//; s/ -[^ ]*//g')
mapfile -t sanitizers < <(grep -oE -- '-fsanitize=[a-z,]+' "$build_root/build.ninja" | sort -u)
includes=(-Iruntime/include -Igc/include -Ipool/include)
library=$build_root/libtidepool.a
flags=(-std=gnu11 -g -O1 -Wall -Wextra -Werror "${sanitizers[@]}" "${includes[@]}")

build() { # build PROGRAM SOURCE
  "${compiler[@]}" "${flags[@]}" -o "$1" "$2" "$library" -pthread -ldl
}

check "there is a compiler, a library and documentation" \
  test -n "${compiler[*]}" -a -e "$library" -a "${#docs[@]}" -gt 5

# ---- Code blocks --------------------------------------------------------------------------------

# Writes each ```c block to blocks/N.c, its place to blocks/N.where, and the expected output, if one
# follows, to blocks/N.out. Prints blocks that are not well formed.
extract() {
  mkdir "$here/blocks"
  awk -v dir="$here/blocks" '
    function name(suffix) { return sprintf("%s/%03d.%s", dir, n, suffix) }
    FNR == 1 && state { print before ": block is not closed"; state = "" }
    FNR == 1 { n_follows = 0 }
    { before = FILENAME }
    state == "" && /^ *```/ {
      fence = $0
      if (fence == "```c") {
        n++
        state = "code"
        printf "%s:%d", FILENAME, FNR > name("where")
        printf "" > name("c")
      } else if (fence ~ /^```c[^a-z]/) {
        printf "%s:%d: a c block with a mark behind it would not be tested\n", FILENAME, FNR
        state = "other"
      } else if (fence == "```text" && n_follows == 2) {
        state = "output"
        printf "" > name("out")
      } else if (fence ~ /^```[a-z]+$/) {
        state = "other"
      } else {
        printf "%s:%d: a block without a language\n", FILENAME, FNR
        state = "other"
      }
      if (n_follows && state != "output") n_follows = 0
      next
    }
    state != "" && $0 == "```" { n_follows = (state == "code"); state = ""; next }
    state == "code" { print > name("c"); next }
    state == "output" { print > name("out"); next }
    state == "other" { next }
    /^$/ { next }
    { n_follows = (n_follows == 1 && $0 == "Output:") ? 2 : 0 }
    END { if (state) print before ": block is not closed" }
  ' "${docs[@]}" >"$here/malformed"
  ! grep . "$here/malformed"
}

run_block() { # run_block N: compiles it, runs it, compares
  local base=$here/blocks/$1 status=0
  build "$base.exe" "$base.c" || return 1
  (cd "$here" && timeout 20 "$base.exe" >"$base.said" 2>"$base.err" </dev/null) || status=$?
  if [ "$status" -ne 0 ]; then
    echo "exit status $status"
    cat "$base.said" "$base.err"
    return 1
  fi
  [ ! -e "$base.out" ] || diff "$base.out" "$base.said"
}

compile_block() { # compile_block N: as a translation unit of its own
  local base=$here/blocks/$1
  [ ! -e "$base.out" ] || { echo "output is expected of a block without main" && return 1; }
  { echo '#include <tidepool.h>' && cat "$base.c"; } >"$base.unit.c"
  "${compiler[@]}" "${flags[@]}" -Wno-unused -fsyntax-only "$base.unit.c"
}

check "code blocks are well formed" extract
check "there are code blocks in README.md and in the guide" \
  sh -c "cat '$here'/blocks/*.where >'$here/all' && grep -q README '$here/all' &&
    grep -q guide '$here/all'"
for block in "$here"/blocks/*.c; do
  [ -e "$block" ] || break
  n=$(basename "$block" .c)
  where=$(cat "$here/blocks/$n.where")
  if grep -q 'int main' "$block"; then
    check "$where runs" run_block "$n"
  else
    check "$where compiles" compile_block "$n"
  fi
done

# ---- Options ------------------------------------------------------------------------------------

print_options() {
  cat >"$here/options.c" <<'END'
#include <inttypes.h>
#include <stdio.h>
#include <string.h>
#include <tidepool/options.h>

enum form { INTEGER, PERCENT, BYTES, LIMIT, TEXT };

static void row(const char *field, enum form form, const char *environment, const char *key,
                int64_t standard, int64_t lowest, int64_t highest, const char *help) {
  static const char *const forms[] = {"", ", or `off`", ", a size", ", a size, or `off`"};
  int takes_auto = form == LIMIT && lowest == TIDE_LIMIT_AUTO;
  printf("| `%s` | `%s%s%s%s` | ", field, environment, *key ? "=" : "", key,
         !*key ? "" : form == TEXT ? "=TEXT" : "=N");
  if (form == TEXT) {
    printf("none | a text | %s |\n", help);
    return;
  }
  if (form == LIMIT && standard == INT64_MAX)
    printf("`off` | ");
  else
    printf("%" PRId64 " | ", standard);
  if (highest == INT64_MAX)
    printf("at least %" PRId64, takes_auto ? 0 : lowest);
  else
    printf("%" PRId64 " to %" PRId64, lowest, highest);
  printf("%s%s | %s |\n", forms[form], takes_auto ? " or `auto`" : "", help);
}

int main(void) {
#define ROW(field, form, environment, key, standard, lowest, highest, help)                        \
  row(#field, form, environment, key, standard, lowest, highest, help);
  TIDE_OPTION_TABLE(ROW)
  return 0;
}
END
  build "$here/options" "$here/options.c" && "$here/options"
}

same_options() {
  print_options >"$here/options.want" || { cat "$here/options.want" && return 1; }
  grep '^| `' docs/options.md >"$here/options.have"
  diff "$here/options.have" "$here/options.want"
}
check "docs/options.md has the table of options.h" same_options

# ---- Events -------------------------------------------------------------------------------------

print_events() {
  cat >"$here/events.c" <<'END'
#include <stdio.h>
#include <tidepool/events.h>

enum form { SPAN, INSTANT, COUNTER };

static void row(const char *name, enum form form, const char *a, const char *b, const char *help) {
  static const char *const forms[] = {"span", "instant", "counter"};
  printf("| `%s` | %s |%s%s |%s%s | %s |\n", name, forms[form], *a ? " " : "", a, *b ? " " : "", b,
         help);
}

int main(void) {
#define ROW(NAME, name, form, a, b, help) row(#name, form, a, b, help);
  TIDE_EVENT_TABLE(ROW)
  return 0;
}
END
  build "$here/events" "$here/events.c" && "$here/events"
}

same_events() {
  print_events >"$here/events.want" || { cat "$here/events.want" && return 1; }
  grep '^| `' docs/events.md >"$here/events.have"
  diff "$here/events.have" "$here/events.want"
}
check "docs/events.md has the table of events.h" same_events

# ---- Public functions ---------------------------------------------------------------------------

all_mentioned() {
  local missing=0 functions function
  functions=$(sed 's,//.*,,' "${headers[@]}" | grep -E '^(TIDE_API|static inline) ' |
    grep -oE 'tide_[a-z_0-9]+\(' | tr -d '(' | sort -u)
  [ "$(wc -l <<<"$functions")" -gt 40 ] || { echo "found only: $functions" && return 1; }
  for function in $functions; do
    grep -qwF -- "$function" "${docs[@]}" && continue
    echo "no document mentions $function"
    missing=1
  done
  return $missing
}
check "every public function is mentioned" all_mentioned

# ---- The trace line -----------------------------------------------------------------------------

# The format of gc/gctrace.c in one piece. Its `%s` stand for one of a few texts each.
trace_format() {
  awk '/rt_report\(/ { on = 1 }
       on { line = $0
            while (match(line, /"[^"]*"/)) {
              printf "%s", substr(line, RSTART + 1, RLENGTH - 2)
              line = substr(line, RSTART + RLENGTH)
            }
            if ($0 ~ /",$/ || $0 ~ /", *$/ || $0 ~ /",[^"]*$/) exit }' gc/gctrace.c
}

grammar() { grep -m1 '^gc <' docs/gctrace.md; }

escaped() { sed 's/[][\\.*^$+?(){}|]/\\&/g'; }

same_grammar() {
  local format pattern
  format=$(trace_format)
  echo "format:  $format"
  pattern=$(escaped <<<"$format" |
    sed -E 's/%%/\x01/g; s/%[0-9\\.]*(llu|[sfdu])/<[a-z_]+>/g; s/\x01/%/g')
  echo "grammar: $(grammar)"
  [ -n "$format" ] && grammar | grep -qxE -- "$pattern"
}
check "the grammar in docs/gctrace.md is the format of gc/gctrace.c" same_grammar

fields_explained() {
  local field missing=0
  for field in $(grammar | grep -oE '<[a-z_]+>' | tr -d '<>'); do
    grep -qF "| \`$field\` |" docs/gctrace.md || { echo "<$field> is not explained" && missing=1; }
  done
  for field in $(grep -oE 'c->[a-z_]+' gc/gctrace.c | sed 's/c->//' | sort -u); do
    grep -qF "| \`$field\` |" docs/gctrace.md || { echo "$field is not named" && missing=1; }
  done
  return $missing
}
check "every field of the trace line is explained" fields_explained

trace_is_so() { # a line that a program prints, and the example
  cat >"$here/trace.c" <<'END'
#include <tidepool.h>
int main(void) {
  tide_collect();
  tide_gc_percent_set(-1);
  tide_collect();
  return 0;
}
END
  build "$here/trace" "$here/trace.c" || return 1
  TIDE_DEBUG=gctrace=1 timeout 20 "$here/trace" 2>"$here/trace.err" || return 1
  grep '^tidepool: gc ' docs/gctrace.md >"$here/trace.example"
  local pattern
  pattern="tidepool: $(grammar | escaped | sed -E 's/<goal>/([0-9.]+ MB goal|no goal)/
    s/<limit>/([0-9.]+ MB limit|no limit)/; s/<states>/(, limiter)?(, disabled [0-9]+)?/
    s/<cause>/(goal|limit|time|forced|memory|stress)/; s/<(number|markers|procs)>/[0-9]+/g
    s/<[a-z]+>/[0-9]+\\.[0-9]+/g')"
  echo "pattern: $pattern"
  cat "$here/trace.example" "$here/trace.err"
  [ "$(grep -cxE -- "$pattern" "$here/trace.err")" -eq 2 ] &&
    [ "$(grep -cxE -- "$pattern" "$here/trace.example")" -eq "$(wc -l <"$here/trace.example")" ] &&
    [ -s "$here/trace.example" ]
}
check "a real trace line and the example follow the grammar" trace_is_so

# ---- Links and names ----------------------------------------------------------------------------

# The text outside code blocks.
prose() { awk '/^ *```/ { inside = !inside; next } !inside' "$1"; }

# The anchors of a document: its headings in small letters, without punctuation, spaces as hyphens.
anchors() {
  prose "$1" | sed -nE 's/^#+ +//p' | tr 'A-Z' 'a-z' | sed -E 's/[^a-z0-9 _-]//g; s/ /-/g'
}

links_lead_somewhere() {
  local doc link target path broken=0
  for doc in "${docs[@]}"; do
    while read -r link; do
      case $link in http://* | https://* | mailto:* | '') continue ;; esac
      path=${link%%#*}
      target=$doc
      [ -z "$path" ] || target=$(dirname "$doc")/$path
      if [ ! -e "$target" ]; then
        echo "$doc: $link: no such file"
        broken=1
      elif [ "$path" != "$link" ] && ! anchors "$target" | grep -qxF -- "${link#*#}"; then
        echo "$doc: $link: no such heading"
        broken=1
      fi
    done < <(prose "$doc" | grep -oE '\]\([^)]*\)' | sed 's/^](//; s/)$//')
  done
  return $broken
}
check "every relative link leads to a file and a heading" links_lead_somewhere

# Prints what stands between backquotes, one a line, and matches the pattern.
quoted() { # quoted PATTERN
  local doc
  for doc in "${docs[@]}"; do prose "$doc"; done | tr '\n' ' ' | grep -oE '`[^`]+`' | tr -d '`' |
    grep -oE -- "$1" | sort -u
}

files_exist() {
  local file missing=0
  for file in $(quoted '^(runtime|gc|pool|tools|tests|docs)/[A-Za-z0-9_./-]+$'); do
    [ -e "$file" ] || { echo "$file: no such file" && missing=1; }
  done
  return $missing
}
check "every file that is named exists" files_exist

names_exist() {
  local name missing=0
  find runtime gc pool tools -name '*.[ch]' -exec cat {} + >"$here/sources"
  cat "${headers[@]}" >"$here/headers"
  for name in $(quoted '\<(tide|TIDE)_[A-Za-z0-9_]+\>'); do
    grep -qwF -- "$name" "$here/headers" || { echo "$name is in no public header" && missing=1; }
  done
  # Functions of the inside. The system's that are spelled alike are listed here.
  for name in $(quoted '^[a-z]+_[a-z_]+(\(\))?$' | tr -d '()'); do
    case $name in clock_nanosleep | epoll_wait | posix_spawn | pthread_*) continue ;; esac
    grep -qwF -- "$name" "$here/sources" || { echo "$name is nowhere in the sources" && missing=1; }
  done
  return $missing
}
check "every name of the library that is quoted exists" names_exist

lines_fit() {
  awk '/^ *```/ { inside = !inside } !inside && !/^\|/ && length($0) > 100 {
         print FILENAME ":" FNR ": " length($0) " columns"; bad = 1 } END { exit bad }' "${docs[@]}"
}
check "lines of prose are at most 100 columns wide" lines_fit

total="$passed passed, $failed failed"
echo "$total"
[ "$failed" -eq 0 ]
