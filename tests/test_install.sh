#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Uses the library as somebody else's project does: installed with pkg-config, shared and static, from
# C and C++, and as a meson subproject.
# usage: test_install.sh SOURCE_ROOT BUILD_ROOT BDW, where BDW is `yes` if libtidepool-bdw was built
set -u
source_root=$1 build_root=$2 bdw=$3
here=$(mktemp -d) || exit 1
trap 'rm -rf "$here"' EXIT
failures=0

check() { # check NAME COMMAND...
  local name=$1
  shift
  if "$@" >"$here/log" 2>&1; then
    echo "ok: $name"
  else
    echo "FAILED: $name"
    sed 's/^/    /' "$here/log" | tail -n 20
    failures=$((failures + 1))
  fi
}

prefix=$here/prefix
# Nothing in here may depend on what the caller built with.
unset CFLAGS CXXFLAGS LDFLAGS
check "configure and install with a prefix" sh -c "
  meson setup '$here/build' '$source_root' --prefix='$prefix' --libdir=lib \
    -Dtests=false -Dtool=false -Dbuildtype=release && ninja -C '$here/build' install"

export PKG_CONFIG_PATH=$prefix/lib/pkgconfig
consumer=$source_root/tests/consumer
check "pkg-config knows the version" pkg-config --exact-version=0.1.0 tidepool
check "C program, shared library" sh -c "
  \${CC:-cc} -Wall -Wextra -Wno-unused-parameter -Werror '$consumer/main.c' -o '$here/shared' \
    \$(pkg-config --cflags --libs tidepool) -Wl,-rpath,'$prefix/lib' && '$here/shared'"
check "C program, static library" sh -c "
  \${CC:-cc} '$consumer/main.c' -o '$here/static' \$(pkg-config --cflags tidepool) \
    '$prefix/lib/libtidepool.a' -lpthread && '$here/static'"
check "fully static program" sh -c "
  \${CC:-cc} -static '$consumer/main.c' -o '$here/fullstatic' \$(pkg-config --cflags tidepool) \
    '$prefix/lib/libtidepool.a' -lpthread && '$here/fullstatic'"
for optimize in -O0 -O2; do
  check "C++ program of two files, $optimize" sh -c "
    \${CXX:-c++} -std=c++17 -Wall -Wextra -Werror $optimize -c -DSECOND_FILE \
      '$consumer/consumer.cc' -o '$here/second.o' \$(pkg-config --cflags tidepool) &&
    \${CXX:-c++} -std=c++17 -Wall -Wextra -Werror $optimize '$consumer/consumer.cc' \
      '$here/second.o' -o '$here/cxx' \$(pkg-config --cflags --libs tidepool) \
      -Wl,-rpath,'$prefix/lib' && '$here/cxx'"
done
only_ours() { # only_ours LIBRARY: what it exports, which is something
  nm -D --defined-only "$1" >"$here/names" && grep -qE ' tide_collect$' "$here/names" &&
    ! grep -vE ' tide_[a-z_]+$' "$here/names"
}
check "only tide_ names are exported" only_ours "$prefix/lib/libtidepool.so"
without_libgc() { # without_libgc LIBRARY: what it is linked with, which is something
  readelf -d "$1" >"$here/linked" && grep -q 'NEEDED.*libc\.' "$here/linked" &&
    ! grep libgc "$here/linked"
}
check "libgc is not linked" without_libgc "$prefix/lib/libtidepool.so"

if [ "$bdw" = yes ]; then
  check "pkg-config knows the library on Boehm GC" pkg-config --exact-version=0.1.0 tidepool-bdw
  check "  C program, shared library" sh -c "
    \${CC:-cc} '$consumer/main.c' -o '$here/shared-bdw' \$(pkg-config --cflags --libs tidepool-bdw) \
      -Wl,-rpath,'$prefix/lib' && '$here/shared-bdw' && readelf -d '$here/shared-bdw' |
      grep -F libtidepool-bdw.so.0"
  check "  C program, static library" sh -c "
    \${CC:-cc} '$consumer/main.c' -o '$here/static-bdw' \$(pkg-config --cflags tidepool-bdw) \
      '$prefix/lib/libtidepool-bdw.a' \$(pkg-config --static --libs-only-l bdw-gc) -lpthread &&
      '$here/static-bdw'"
  check "  only tide_ names are exported" only_ours "$prefix/lib/libtidepool-bdw.so"
else
  check "there is no library on Boehm GC" sh -c "! pkg-config --exists tidepool-bdw"
fi
check "an installation without it" sh -c "
  meson setup '$here/without' '$source_root' --prefix='$here/without-prefix' --libdir=lib \
    -Dtests=false -Dtool=false -Dbdw=disabled && ninja -C '$here/without' install &&
  [ -e '$here/without-prefix/lib/libtidepool.so' ] &&
  ! find '$here/without-prefix' -name '*bdw*' | grep ."

mkdir -p "$here/project/subprojects"
cp "$consumer/main.c" "$consumer/meson.build" "$here/project/"
ln -s "$source_root" "$here/project/subprojects/tidepool"
unset PKG_CONFIG_PATH
check "meson subproject" sh -c "
  meson setup '$here/sub' '$here/project' --force-fallback-for=tidepool && ninja -C '$here/sub' &&
  '$here/sub/consumer'"

echo "$failures failed"
exit $((failures > 0))
