#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Every event that the sources emit is a USDT probe of the shared library, with four arguments.
# usage: test_probes.sh SOURCE_ROOT LIBRARY. Exit status 77: there is no readelf.
set -u
export LC_ALL=C
cd "$1" || exit 1
library=$2
here=$(mktemp -d) || exit 1
trap 'rm -rf "$here"' EXIT

command -v readelf >/dev/null || exit 77
find runtime gc pool -name '*.c' -exec cat {} + | tr '\n' ' ' |
  grep -oE '\<rt_event(_labelled|_probe)?\( *TIDE_EVENT_[A-Z_]+' | sed 's/.*TIDE_EVENT_//' |
  tr '[:upper:]' '[:lower:]' | sort -u >"$here/emitted"
readelf -n "$library" >"$here/notes" || exit 1
awk '/Provider: / { ours = ($2 == "tidepool") }
     ours && /Name: / { name = $2 }
     ours && /Arguments: / { if (NF == 5) print name; else print name, "has", NF - 1, "arguments" }
    ' "$here/notes" | sort -u >"$here/probes"

echo "events emitted: $(wc -l <"$here/emitted"), probes: $(wc -l <"$here/probes")"
[ "$(wc -l <"$here/emitted")" -ge 4 ] || exit 1
missing=$(comm -23 "$here/emitted" "$here/probes")
odd=$(grep ' ' "$here/probes")
[ -z "$missing" ] || echo "not a probe: $missing"
[ -z "$odd" ] || echo "$odd"
[ -z "$missing$odd" ]
