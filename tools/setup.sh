# SPDX-License-Identifier: MIT
# shellcheck shell=bash
# Sourced by tools/demo and tools/test: installs what is missing, configures a build, runs steps
# quietly. Expects $title, which stands before every message. Sets $root.

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd) || exit 1
export DEBIAN_FRONTEND=noninteractive

say() { printf '%s: %s\n' "$title" "$*"; }
die() {
  say "$*" >&2
  exit 1
}

# Runs a command with its output in a log; shows the log only if the command fails.
quietly() {
  local what=$1 log status=0
  shift
  log=$(mktemp) || die "no temporary file can be made"
  "$@" >"$log" 2>&1 </dev/null || status=$?
  if [ "$status" -ne 0 ]; then
    cat "$log" >&2
    say "$what failed (status $status): $*" >&2
  fi
  rm -f "$log"
  return "$status"
}

# Whether what a Debian package is needed for is there, from whatever source.
provided() {
  case $1 in
    gcc | g++ | clang | meson | pkg-config | clang-format) command -v "$1" >/dev/null ;;
    ninja-build) command -v ninja >/dev/null ;;
    libc6-dev) [ -e /usr/include/stdio.h ] ;;
    systemtap-sdt-dev) find /usr/include -path '*/sys/sdt.h' | grep -q . ;;
    libatomic-ops-dev) pkg-config --exists atomic_ops 2>/dev/null ;;
    libjansson-dev) pkg-config --exists jansson 2>/dev/null ;;
    libgc-dev) pkg-config --exists bdw-gc 2>/dev/null ;;
    libmimalloc-dev) [ -e /usr/include/mimalloc.h ] ;;
    golang-go) command -v go >/dev/null ;;
    gnuplot-nox) command -v gnuplot >/dev/null ;;
    check) pkg-config --exists check 2>/dev/null ;;
    *) dpkg-query -W -f '${Status}' "$1" 2>/dev/null | grep -q 'ok installed' ;;
  esac
}

# Installs those of the packages that are missing, or says which are and gives up.
need() {
  local package missing=() become=()
  for package in "$@"; do
    provided "$package" || missing+=("$package")
  done
  [ ${#missing[@]} -gt 0 ] || return 0
  local advice="missing: ${missing[*]}"
  command -v apt-get >/dev/null || die "$advice (install them; there is no apt-get here)"
  if [ "$(id -u)" -ne 0 ]; then
    { command -v sudo && sudo -n true; } >/dev/null 2>&1 ||
      die "$advice (run: sudo apt-get install ${missing[*]})"
    become=(sudo -n --preserve-env=DEBIAN_FRONTEND)
  fi
  say "installing ${missing[*]}"
  # A stale list of packages may still serve.
  quietly "apt-get update" "${become[@]}" apt-get -q update || true
  quietly "apt-get install" "${become[@]}" apt-get -q -y --no-install-recommends install \
    "${missing[@]}" || die "$advice (apt-get could not install them)"
}

# configure DIR OPTION...: a build directory with these meson options, made once. $CC is the
# compiler.
configure() {
  local build=$1
  shift
  [ -e "$build/build.ninja" ] || quietly "configuring $build" meson setup "$@" "$build" "$root"
}
