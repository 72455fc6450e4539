// SPDX-License-Identifier: MIT
// What control groups allow, read from false /proc and /sys trees in a temporary directory: both
// versions, containers, parents that are tighter, and files that are broken or missing.
#include "testing.h"

#include "rt.h"

#include <limits.h>
#include <sys/stat.h>

// ---- Trees ----------------------------------------------------------------------------------

#define GROUPS "/proc/self/cgroup"
#define MOUNTS "/proc/self/mountinfo"
#define FS     "/sys/fs/cgroup"

#define OTHER_MOUNTS                                                                               \
  "22 27 0:21 / /proc rw,relatime - proc proc rw\n"                                                \
  "27 1 254:0 / / rw,relatime shared:1 master:2 - ext4 /dev/vda rw,discard\n"
#define MOUNT_2_AT(point, group)                                                                   \
  "35 27 0:30 " group " " point " rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define MOUNT_2(group) MOUNT_2_AT(FS, group)
#define MOUNT_1(controllers, group)                                                                \
  "36 27 0:31 " group " " FS "/" controllers " rw,relatime - cgroup cgroup rw," controllers "\n"

#define NO_MEMORY_LIMIT UINT64_MAX
#define GIB             ((uint64_t)1 << 30)

typedef struct file {
  const char *path, *text; // NULL: a directory where a file should be
} file;

static const struct {
  const char *what;
  file files[11]; // and an empty one at the end
  uint64_t memory;
  int cpus;
} trees[] = {
    // Version 2.
    {"plain",
     {{GROUPS, "0::/app\n"},
      {MOUNTS, OTHER_MOUNTS MOUNT_2("/")},
      {FS "/app/memory.max", "1073741824\n"},
      {FS "/app/cpu.max", "200000 100000\n"}},
     GIB,
     2},
    {"max",
     {{GROUPS, "0::/app\n"},
      {MOUNTS, MOUNT_2("/")},
      {FS "/app/memory.max", "max\n"},
      {FS "/app/cpu.max", "max 100000\n"}},
     NO_MEMORY_LIMIT,
     0},
    {"a parent is tighter",
     {{GROUPS, "0::/a.slice/b/c.scope\n"},
      {MOUNTS, MOUNT_2("/")},
      {FS "/a.slice/memory.max", "1073741824\n"},
      {FS "/a.slice/b/memory.max", "max\n"},
      {FS "/a.slice/b/c.scope/memory.max", "4294967296\n"},
      {FS "/a.slice/cpu.max", "max 100000\n"},
      {FS "/a.slice/b/cpu.max", "10000 5000\n"},
      {FS "/a.slice/b/c.scope/cpu.max", "300000 100000\n"}},
     GIB,
     2},
    {"the child is tighter",
     {{GROUPS, "0::/a/b\n"},
      {MOUNTS, MOUNT_2("/")},
      {FS "/a/memory.max", "4294967296\n"},
      {FS "/a/b/memory.max", "1073741824\n"},
      {FS "/a/cpu.max", "800000 100000\n"},
      {FS "/a/b/cpu.max", "400000 100000\n"}},
     GIB,
     4},
    {"the smaller ratio counts, not the smaller quota",
     {{GROUPS, "0::/a/b\n"},
      {MOUNTS, MOUNT_2("/")},
      {FS "/a/cpu.max", "300000 100000\n"},
      {FS "/a/b/cpu.max", "50000 10000\n"}},
     NO_MEMORY_LIMIT,
     3},
    {"a group without files, but its parent has them",
     {{GROUPS, "0::/a/gone (deleted)\n"},
      {MOUNTS, MOUNT_2("/")},
      {FS "/a/memory.max", "1073741824\n"},
      {FS "/a/cpu.max", "200000 100000\n"}},
     GIB,
     2},
    {"siblings and children do not count",
     {{GROUPS, "0::/a/b\n"},
      {MOUNTS, MOUNT_2("/")},
      {FS "/a/memory.max", "1073741824\n"},
      {FS "/a/c/memory.max", "1\n"},
      {FS "/a/b/c/memory.max", "1\n"},
      {FS "/a/bb/memory.max", "1\n"},
      {FS "/b/memory.max", "1\n"}},
     GIB,
     0},
    {"container with a namespace",
     {{GROUPS, "0::/\n"},
      {MOUNTS, MOUNT_2("/")},
      {FS "/memory.max", "1073741824\n"},
      {FS "/cpu.max", "150000 100000\n"}},
     GIB,
     2},
    {"container that has its own group mounted",
     {{GROUPS, "0::/docker/abc\n"},
      {MOUNTS, MOUNT_2("/docker/abc")},
      {FS "/memory.max", "1073741824\n"},
      {FS "/cpu.max", "150000 100000\n"}},
     GIB,
     2},
    {"the same, in a group below",
     {{GROUPS, "0::/docker/abc/init\n"},
      {MOUNTS, MOUNT_2("/docker/abc")},
      {FS "/init/memory.max", "1073741824\n"},
      {FS "/init/cpu.max", "300000 100000\n"},
      {FS "/cpu.max", "150000 100000\n"}},
     GIB,
     2},
    {"a group whose name only begins like the mounted one",
     {{GROUPS, "0::/docker/abcdef\n"},
      {MOUNTS, MOUNT_2("/docker/abc")},
      {FS "/memory.max", "1073741824\n"},
      {FS "def/memory.max", "1\n"}},
     GIB,
     0},
    {"a group outside the mounted one",
     {{GROUPS, "0::/user/me\n"},
      {MOUNTS, MOUNT_2("/docker/abc")},
      {FS "/memory.max", "1073741824\n"},
      {FS "/user/me/memory.max", "1\n"}},
     GIB,
     0},
    {"a group outside the namespace",
     {{GROUPS, "0::/../../other\n"},
      {MOUNTS, MOUNT_2("/")},
      {FS "/memory.max", "1073741824\n"},
      {"/sys/other/memory.max", "1\n"}},
     GIB,
     0},
    {"the namespace's parent",
     {{GROUPS, "0::/..\n"}, {MOUNTS, MOUNT_2("/")}, {FS "/memory.max", "1073741824\n"}},
     GIB,
     0},
    {"a group whose name begins with two dots",
     {{GROUPS, "0::/..a\n"}, {MOUNTS, MOUNT_2("/")}, {FS "/..a/memory.max", "1073741824\n"}},
     GIB,
     0},
    {"mounted from above the namespace",
     {{GROUPS, "0::/../b\n"},
      {MOUNTS, MOUNT_2("/..")},
      {FS "/b/memory.max", "1073741824\n"},
      {FS "/memory.max", "2147483648\n"}},
     GIB,
     0},
    {"of two mounts the one that has the group",
     {{GROUPS, "0::/a\n"},
      {MOUNTS, MOUNT_2_AT("/first", "/x") MOUNT_2_AT("/second", "/") MOUNT_2_AT("/third", "/y")},
      {"/first/memory.max", "1\n"},
      {"/second/a/memory.max", "1073741824\n"},
      {"/third/memory.max", "2\n"}},
     GIB,
     0},
    {"blanks in names",
     {{GROUPS, "0::/a b\\c/d:e\n"},
      {MOUNTS, MOUNT_2_AT("/mnt/c\\040g\\134x\\011", "/a\\040b\\134c")},
      {"/mnt/c g\\x\t/d:e/memory.max", "1073741824\n"}},
     GIB,
     0},
    {"what looks like an escape and is none",
     {{GROUPS, "0::/\n"}, {MOUNTS, MOUNT_2_AT("/m\\08\\", "/")}, {"/m\\08\\/memory.max", "5\n"}},
     5,
     0},
    {"nothing is allowed",
     {{GROUPS, "0::/a\n"},
      {MOUNTS, MOUNT_2("/")},
      {FS "/a/memory.max", "0\n"},
      {FS "/a/cpu.max", "1000 100000\n"}},
     0,
     1},
    {"half a CPU",
     {{GROUPS, "0::/a\n"}, {MOUNTS, MOUNT_2("/")}, {FS "/a/cpu.max", "50000 100000\n"}},
     NO_MEMORY_LIMIT,
     1},
    {"a little more than two CPUs",
     {{GROUPS, "0::/a\n"}, {MOUNTS, MOUNT_2("/")}, {FS "/a/cpu.max", "200001 100000\n"}},
     NO_MEMORY_LIMIT,
     3},
    {"files without a newline at the end",
     {{GROUPS, "0::/a"},
      {MOUNTS, "35 27 0:30 / " FS " rw - cgroup2 cgroup2 rw"},
      {FS "/a/memory.max", "1073741824"},
      {FS "/a/cpu.max", "150000 100000"}},
     GIB,
     2},

    // Version 1.
    {"version 1",
     {{GROUPS, "5:memory:/m\n4:cpu:/c\n1:name=systemd:/s\n"},
      {MOUNTS, OTHER_MOUNTS MOUNT_1("cpu", "/") MOUNT_1("memory", "/")},
      {FS "/memory/m/memory.limit_in_bytes", "1073741824\n"},
      {FS "/memory/memory.limit_in_bytes", "9223372036854771712\n"},
      {FS "/cpu/c/cpu.cfs_quota_us", "150000\n"},
      {FS "/cpu/c/cpu.cfs_period_us", "100000\n"},
      {FS "/cpu/cpu.cfs_quota_us", "-1\n"},
      {FS "/cpu/cpu.cfs_period_us", "100000\n"}},
     GIB,
     2},
    {"version 1, unlimited",
     {{GROUPS, "5:memory:/m\n4:cpu:/c\n"},
      {MOUNTS, MOUNT_1("cpu", "/") MOUNT_1("memory", "/")},
      {FS "/memory/m/memory.limit_in_bytes", "9223372036854771712\n"},
      {FS "/memory/memory.limit_in_bytes", "9223372036854710272\n"}, // pages of 64 KiB
      {FS "/cpu/c/cpu.cfs_quota_us", "-1\n"},
      {FS "/cpu/c/cpu.cfs_period_us", "100000\n"}},
     NO_MEMORY_LIMIT,
     0},
    {"version 1, parents are tighter",
     {{GROUPS, "5:memory:/m/n\n4:cpu:/c/d\n"},
      {MOUNTS, MOUNT_1("cpu", "/") MOUNT_1("memory", "/")},
      {FS "/memory/m/n/memory.limit_in_bytes", "2147483648\n"},
      {FS "/memory/m/memory.limit_in_bytes", "1073741824\n"},
      {FS "/cpu/c/d/cpu.cfs_quota_us", "800000\n"},
      {FS "/cpu/c/d/cpu.cfs_period_us", "100000\n"},
      {FS "/cpu/c/cpu.cfs_quota_us", "60000\n"},
      {FS "/cpu/c/cpu.cfs_period_us", "20000\n"}},
     GIB,
     3},
    {"version 1, controllers mounted together",
     {{GROUPS, "4:cpuset:/wrong\n3:cpuacct,cpu:/c\n2:hugetlb,memory:/m\n"},
      {MOUNTS, MOUNT_1("cpuset", "/") MOUNT_1("cpu,cpuacct", "/") MOUNT_1("memory,hugetlb", "/")},
      {FS "/memory,hugetlb/m/memory.limit_in_bytes", "1073741824\n"},
      {FS "/cpu,cpuacct/c/cpu.cfs_quota_us", "150000\n"},
      {FS "/cpu,cpuacct/c/cpu.cfs_period_us", "100000\n"}},
     GIB,
     2},
    {"version 1, hierarchies named like controllers",
     {{GROUPS, "9:name=memory:/x\n8:name=cpu:/x\n7:cpuset:/x\n"},
      {MOUNTS, MOUNT_1("name=memory", "/") MOUNT_1("memory", "/") MOUNT_1("cpu", "/")},
      {FS "/name=memory/x/memory.limit_in_bytes", "1\n"},
      {FS "/memory/x/memory.limit_in_bytes", "1\n"},
      {FS "/cpu/x/cpu.cfs_quota_us", "1\n"},
      {FS "/cpu/x/cpu.cfs_period_us", "1\n"}},
     NO_MEMORY_LIMIT,
     0},
    {"version 1 in a container",
     {{GROUPS, "11:memory:/docker/0123\n3:cpu,cpuacct:/docker/0123\n"},
      {MOUNTS, MOUNT_1("cpu,cpuacct", "/docker/0123") MOUNT_1("memory", "/docker/0123")},
      {FS "/memory/memory.limit_in_bytes", "1073741824\n"},
      {FS "/cpu,cpuacct/cpu.cfs_quota_us", "250000\n"},
      {FS "/cpu,cpuacct/cpu.cfs_period_us", "100000\n"}},
     GIB,
     3},
    {"version 1, a quota without its period",
     {{GROUPS, "4:cpu:/c\n"},
      {MOUNTS, MOUNT_1("cpu", "/")},
      {FS "/cpu/c/cpu.cfs_quota_us", "100000\n"}},
     NO_MEMORY_LIMIT,
     0},

    // Both.
    {"controllers in version 1, an empty version 2",
     {{GROUPS, "4:memory:/m\n3:cpu:/c\n1:name=systemd:/s\n0::/s\n"},
      {MOUNTS, MOUNT_2_AT(FS "/unified", "/") MOUNT_1("memory", "/") MOUNT_1("cpu", "/")},
      {FS "/unified/s/cgroup.procs", "1\n"},
      {FS "/memory/m/memory.limit_in_bytes", "1073741824\n"},
      {FS "/cpu/c/cpu.cfs_quota_us", "150000\n"},
      {FS "/cpu/c/cpu.cfs_period_us", "100000\n"}},
     GIB,
     2},
    {"memory in version 2, cpu in version 1",
     {{GROUPS, "3:cpu:/c\n1:name=systemd:/s\n0::/s\n"},
      {MOUNTS, MOUNT_2_AT(FS "/unified", "/") MOUNT_1("cpu", "/")},
      {FS "/unified/s/memory.max", "1073741824\n"},
      {FS "/cpu/c/cpu.cfs_quota_us", "150000\n"},
      {FS "/cpu/c/cpu.cfs_period_us", "100000\n"}},
     GIB,
     2},

    // Broken.
    {"no files at all", {{NULL, NULL}}, NO_MEMORY_LIMIT, 0},
    {"groups only", {{GROUPS, "0::/a\n"}}, NO_MEMORY_LIMIT, 0},
    {"mounts only",
     {{MOUNTS, MOUNT_2("/")}, {FS "/memory.max", "1\n"}, {FS "/cpu.max", "1 1\n"}},
     NO_MEMORY_LIMIT,
     0},
    {"a hierarchy that is not mounted",
     {{GROUPS, "0::/a\n"}, {MOUNTS, OTHER_MOUNTS}, {FS "/a/memory.max", "1\n"}},
     NO_MEMORY_LIMIT,
     0},
    {"directories where files should be",
     {{GROUPS, "0::/a\n"},
      {MOUNTS, MOUNT_2("/")},
      {FS "/a/memory.max", NULL},
      {FS "/a/cpu.max", NULL},
      {FS "/memory.max", "1073741824\n"}},
     GIB,
     0},
    {"directories where lists should be", {{GROUPS, NULL}, {MOUNTS, NULL}}, NO_MEMORY_LIMIT, 0},
    {"a directory in place of the mounts",
     {{GROUPS, "0::/a\n"}, {MOUNTS, NULL}},
     NO_MEMORY_LIMIT,
     0},
    {"empty files",
     {{GROUPS, "0::/a\n"},
      {MOUNTS, MOUNT_2("/")},
      {FS "/a/memory.max", ""},
      {FS "/a/cpu.max", "\n"}},
     NO_MEMORY_LIMIT,
     0},
    {"empty lists", {{GROUPS, ""}, {MOUNTS, ""}}, NO_MEMORY_LIMIT, 0},
    {"garbage for numbers",
     {{GROUPS, "0::/a/b/c/d\n"},
      {MOUNTS, MOUNT_2("/")},
      {FS "/a/memory.max", "12 apples\n"},
      {FS "/a/b/memory.max", "-5\n"},
      {FS "/a/b/c/memory.max", "0x10\n"},
      {FS "/a/b/c/d/memory.max", " 7\n"},
      {FS "/a/cpu.max", "100000\n"},
      {FS "/a/b/cpu.max", "100000 max\n"},
      {FS "/a/b/c/cpu.max", "0 100000\n"},
      {FS "/a/b/c/d/cpu.max", "100000 0\n"}},
     NO_MEMORY_LIMIT,
     0},
    {"numbers that overflow",
     {{GROUPS, "0::/a/b\n"},
      {MOUNTS, MOUNT_2("/")},
      {FS "/a/memory.max", "18446744073709551617\n"},
      {FS "/a/b/memory.max", "99999999999999999999999999999999999999999999999999999999999999999\n"},
      {FS "/a/cpu.max", "18446744073709551617 18446744073709551617\n"},
      {FS "/a/b/cpu.max", "9999999999999999999999 1\n"}},
     NO_MEMORY_LIMIT,
     1},
    {"more CPUs than an int has room for",
     {{GROUPS, "0::/a\n"}, {MOUNTS, MOUNT_2("/")}, {FS "/a/cpu.max", "18446744073709551614 1\n"}},
     NO_MEMORY_LIMIT,
     INT_MAX},
    {"garbage for lists",
     {{GROUPS, "\n:\n::\n0:\n:::::\n\\\n0::a\n0::\n"},
      {MOUNTS, "\n - \n1 2 3\n- - - - - - - - - -\n35 27 0:30 / " FS " rw - cgroup2\n"
               "35 27 0:30 / " FS " rw cgroup2 cgroup2 rw\n"},
      {FS "/memory.max", "1\n"}},
     NO_MEMORY_LIMIT,
     0},
    {"a group without a slash",
     {{GROUPS, "0::app\n"},
      {MOUNTS, MOUNT_2("/")},
      {FS "/memory.max", "1073741824\n"},
      {FS "app/memory.max", "1\n"}},
     GIB,
     0},
    {"broken lines before good ones",
     {{GROUPS, "garbage\n\n7\n7:memory\n0::/a\n"},
      {MOUNTS, "garbage\n\n1 2 3 4 5 6 7\n" MOUNT_2("/")},
      {FS "/a/memory.max", "1073741824\n"}},
     GIB,
     0},
};

static char root[64];

static void make_root(void) {
  strcpy(root, "/tmp/tidepool-cgroup-XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(root));
}

static void remove_root(void) {
  char command[128];
  snprintf(command, sizeof command, "rm -rf '%s'", root);
  ck_assert_int_eq(system(command), 0);
}

static void make_directories(char *path) {
  for (char *slash = strchr(path + 1, '/'); slash; slash = strchr(slash + 1, '/')) {
    *slash = 0;
    ck_assert_msg(mkdir(path, 0700) == 0 || errno == EEXIST, "mkdir %s", path);
    *slash = '/';
  }
}

static void put(const char *path, const char *text) {
  char whole[512];
  snprintf(whole, sizeof whole, "%s%s%s", root, path, text ? "" : "/");
  make_directories(whole);
  if (!text) return;
  FILE *f = fopen(whole, "w");
  ck_assert_msg(f != NULL, "%s: %s", whole, strerror(errno));
  fputs(text, f);
  fclose(f);
}

START_TEST(trees_are_understood) {
  for (const file *f = trees[_i].files; f->path; f++) put(f->path, f->text);
  uint64_t memory = os_cgroup_memory_bytes(root);
  ck_assert_msg(memory == trees[_i].memory, "%s: %llu bytes, not %llu", trees[_i].what,
                (unsigned long long)memory, (unsigned long long)trees[_i].memory);
  int cpus = os_cgroup_cpus(root);
  ck_assert_msg(cpus == trees[_i].cpus, "%s: %d CPUs, not %d", trees[_i].what, cpus,
                trees[_i].cpus);
}
END_TEST

// ---- Sizes ----------------------------------------------------------------------------------

enum { LONG = 1 << 20 };

// `count` times `part` between two texts.
static char *repeated(const char *before, const char *part, size_t count, const char *behind) {
  size_t n = strlen(part);
  char *text = malloc(strlen(before) + n * count + strlen(behind) + 1);
  ck_assert_ptr_nonnull(text);
  char *to = stpcpy(text, before);
  for (size_t i = 0; i < count; i++, to += n) memcpy(to, part, n);
  strcpy(to, behind);
  return text;
}

START_TEST(lines_may_be_long) {
  char *groups = repeated("5:name=", "x", LONG, ":/\n0::/a\n");
  char *mounts = repeated("1 2 0:3 / /", "overlay,", LONG / 8, " rw - x y z\n" MOUNT_2("/"));
  put(GROUPS, groups);
  put(MOUNTS, mounts);
  put(FS "/a/memory.max", "1073741824\n");
  ck_assert_uint_eq(os_cgroup_memory_bytes(root), GIB);
  free(groups);
  free(mounts);
}
END_TEST

// Too deep to be opened; what is near enough to the top still counts.
START_TEST(groups_may_be_deep) {
  static const char *const parts[] = {"/a", "/", "/abcdefghijklmnopqrstuvwxyz"};
  char *groups = repeated("0::/top", parts[_i], LONG, "\n");
  put(GROUPS, groups);
  put(MOUNTS, MOUNT_2("/"));
  put(FS "/top/memory.max", "1073741824\n");
  put(FS "/cpu.max", "150000 100000\n");
  ck_assert_uint_eq(os_cgroup_memory_bytes(root), GIB);
  ck_assert_int_eq(os_cgroup_cpus(root), 2);
  free(groups);
}
END_TEST

START_TEST(mount_points_may_be_too_long) {
  char *mounts = repeated("1 2 0:3 / ", "/m", LONG, " rw - cgroup2 x rw\n");
  put(GROUPS, "0::/a\n");
  put(MOUNTS, mounts);
  ck_assert_uint_eq(os_cgroup_memory_bytes(root), NO_MEMORY_LIMIT);
  ck_assert_int_eq(os_cgroup_cpus(root), 0);
  free(mounts);
}
END_TEST

START_TEST(roots_may_be_too_long) {
  char *far = repeated("", "/far", PATH_MAX, "");
  ck_assert_uint_eq(os_cgroup_memory_bytes(far), NO_MEMORY_LIMIT);
  ck_assert_int_eq(os_cgroup_cpus(far), 0);
  free(far);
}
END_TEST

// Random changes of good files: any answer will do, but there must be one.
START_TEST(damaged_files_do_no_harm) {
  static const char groups[] = "4:memory,cpu:/docker/a\n1:name=systemd:/s\n0::/../docker/a b\n";
  static const char mounts[] = MOUNT_2("/\\040b") MOUNT_1("cpu,memory", "/docker");
  static const char odd[] = "\n\\: /.,-09m";
  uint64_t state = test_seed();
  put(FS "/memory.max", "1073741824\n");
  for (int i = 0; i < 500; i++) {
    char g[sizeof groups], m[sizeof mounts];
    strcpy(g, groups);
    strcpy(m, mounts);
    for (size_t k = random_below(&state, 8); k > 0; k--) {
      g[random_below(&state, sizeof g - 1)] = odd[random_below(&state, sizeof odd)];
      m[random_below(&state, sizeof m - 1)] = odd[random_below(&state, sizeof odd)];
    }
    put(GROUPS, g);
    put(MOUNTS, m);
    uint64_t memory = os_cgroup_memory_bytes(root);
    MUST(memory == GIB || memory == NO_MEMORY_LIMIT);
    MUST(os_cgroup_cpus(root) == 0);
  }
}
END_TEST

// ---- The real system ------------------------------------------------------------------------

START_TEST(the_real_system_gives_something_sane) {
  uint64_t memory = os_cgroup_memory_bytes("");
  ck_assert_msg(memory == NO_MEMORY_LIMIT || (memory > MIB && memory < (uint64_t)1 << 62),
                "%llu bytes", (unsigned long long)memory);
  int quota = os_cgroup_cpus(""), usable = os_cpus_usable();
  ck_assert_int_ge(quota, 0);
  ck_assert_int_ge(usable, 1);
  ck_assert_int_eq(usable, quota && quota < os_cpus_allowed() ? quota : os_cpus_allowed());
  init_with((tide_options)TIDE_OPTIONS_DEFAULT);
  ck_assert_int_eq(tide_procs(), usable);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("cgroup");
  TCase *files = tcase_create("files");
  tcase_set_timeout(files, 20);
  tcase_add_checked_fixture(files, make_root, remove_root);
  tcase_add_loop_test(files, trees_are_understood, 0, LENGTH(trees));
  tcase_add_test(files, lines_may_be_long);
  tcase_add_loop_test(files, groups_may_be_deep, 0, 3);
  tcase_add_test(files, mount_points_may_be_too_long);
  tcase_add_test(files, roots_may_be_too_long);
  tcase_add_test(files, damaged_files_do_no_harm);
  suite_add_tcase(suite, files);
  TCase *system = tcase_create("system");
  tcase_add_test(system, the_real_system_gives_something_sane);
  suite_add_tcase(suite, system);
  return run_suite(suite);
}
