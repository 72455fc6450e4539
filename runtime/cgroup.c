// SPDX-License-Identifier: MIT
// What the process's control groups allow it: memory, and CPU time as a number of CPUs.
//
// Groups form hierarchies: one of version 2, and any number of version 1, each with some of the
// controllers ("memory", "cpu"). /proc/self/cgroup tells the process's group in each hierarchy,
// /proc/self/mountinfo where a hierarchy, or a part of it, is mounted. A limit holds for all groups
// below, so the tightest on the way up counts. A controller is in one hierarchy only; we look into
// both that it may be in, and find nothing in the other.
//
// Called by initialisation, hence stdio and malloc. Nothing here fails: what is missing, unreadable
// or not understood limits nothing. `root` is put in front of every path: "", or a test's directory
// with a tree of its own.
#define _GNU_SOURCE
#include "rt.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UNLIMITED_BITS = 62 };
#define UNLIMITED UINT64_MAX

static FILE *open_below(const char *directory, const char *separator, const char *name) {
  char path[PATH_MAX];
  int length = snprintf(path, sizeof path, "%s%s%s", directory, separator, name);
  return length > 0 && (size_t)length < sizeof path ? fopen(path, "re") : NULL;
}

// ---- Where the process's group is -----------------------------------------------------------
//
// A controller that is NULL stands for the hierarchy of version 2.

static bool has_controller(const char *list, const char *controller) {
  if (!controller) return !*list;
  size_t length = strlen(controller);
  while (*list) {
    size_t n = strcspn(list, ",");
    if (n == length && !strncmp(list, controller, n)) return true;
    list += n + (list[n] == ',');
  }
  return false;
}

// The process's group, to be freed; NULL: not known. A line is id:controllers:group.
static char *own_group(const char *root, const char *controller) {
  FILE *file = open_below(root, "", "/proc/self/cgroup");
  if (!file) return NULL;
  char *line = NULL, *group = NULL;
  size_t room = 0;
  while (!group && getline(&line, &room, file) > 0) {
    char *rest = line;
    strsep(&rest, ":");
    const char *controllers = strsep(&rest, ":");
    if (!rest || !has_controller(controllers, controller)) continue;
    rest[strcspn(rest, "\n")] = 0;
    group = strdup(rest);
  }
  free(line);
  fclose(file);
  return group;
}

typedef struct mount {
  char *group; // that is mounted, with all below it
  char *point;
  const char *type, *options;
} mount;

static bool is_octal(char c) {
  return c >= '0' && c <= '7';
}

// Blanks and backslashes are written as \ooo.
static void unescape(char *text) {
  char *to = text;
  for (const char *from = text; *from; to++) {
    if (from[0] == '\\' && is_octal(from[1]) && is_octal(from[2]) && is_octal(from[3])) {
      *to = (char)((from[1] - '0') << 6 | (from[2] - '0') << 3 | (from[3] - '0'));
      from += 4;
    } else {
      *to = *from++;
    }
  }
  *to = 0;
}

// id parent device group point options optional... - type source options
static bool parse_mount(char *line, mount *m) {
  for (int i = 0; i < 3; i++) strsep(&line, " ");
  m->group = strsep(&line, " ");
  m->point = strsep(&line, " ");
  const char *field = strsep(&line, " ");
  while (field && strcmp(field, "-")) field = strsep(&line, " ");
  m->type = strsep(&line, " ");
  strsep(&line, " ");
  m->options = strsep(&line, " \n");
  if (!m->options) return false;
  unescape(m->group);
  unescape(m->point);
  return true;
}

static bool has_hierarchy(const mount *m, const char *controller) {
  if (!controller) return !strcmp(m->type, "cgroup2");
  return !strcmp(m->type, "cgroup") && has_controller(m->options, controller);
}

// The way from the mounted group down to the process's: "", or "/" and names. NULL: there is none,
// or it leads through "..": the group is outside the part that the process's namespace shows.
static const char *way_down(const char *mounted, const char *group) {
  size_t n = strcmp(mounted, "/") ? strlen(mounted) : 0;
  if (strncmp(group, mounted, n)) return NULL;
  const char *way = group + n;
  if (*way && *way != '/') return NULL;
  if (!strncmp(way, "/..", 3) && (!way[3] || way[3] == '/')) return NULL;
  return strcmp(way, "/") ? way : "";
}

typedef struct place {
  char *directory;  // of the process's group; to be freed; NULL: none
  size_t top_bytes; // how much of its name is the mount point
} place;

// In a container the two files may not fit together. Then the mount point stands for the group.
static place own_place(const char *root, const char *controller) {
  place p = {NULL, 0};
  char *group = own_group(root, controller);
  FILE *file = group ? open_below(root, "", "/proc/self/mountinfo") : NULL;
  char *line = NULL;
  size_t room = 0;
  for (bool found = false; file && !found && getline(&line, &room, file) > 0;) {
    mount m;
    if (!parse_mount(line, &m) || !has_hierarchy(&m, controller)) continue;
    const char *way = way_down(m.group, group);
    found = way != NULL;
    if (!found && p.directory) continue;
    free(p.directory);
    if (asprintf(&p.directory, "%s%s%s", root, m.point, way ? way : "") < 0) p.directory = NULL;
    p.top_bytes = strlen(root) + strlen(m.point);
  }
  if (file) fclose(file);
  free(line);
  free(group);
  return p;
}

// ---- Limits ---------------------------------------------------------------------------------

static bool read_line(const char *directory, const char *name, char *line, size_t bytes) {
  FILE *file = open_below(directory, "/", name);
  if (!file) return false;
  bool read = fgets(line, (int)bytes, file) != NULL;
  fclose(file);
  return read;
}

// A number, and `end` behind it. What overflows becomes UINT64_MAX.
static bool parse_number(const char **text, char end, uint64_t *number) {
  if (!isdigit((unsigned char)**text)) return false; // "max", "-1"
  char *behind;
  *number = strtoull(*text, &behind, 10);
  if (*behind && *behind != end) return false;
  *text = behind + (*behind != 0);
  return true;
}

static bool read_number(const char *directory, const char *name, uint64_t *number) {
  char line[64];
  const char *text = line;
  return read_line(directory, name, line, sizeof line) && parse_number(&text, '\n', number);
}

// Version 1 writes "no limit" as 2^63 less a page, whose size depends on the machine.
static uint64_t memory_limit(const char *directory, const char *name) {
  uint64_t bytes;
  return read_number(directory, name, &bytes) && !(bytes >> UNLIMITED_BITS) ? bytes : UNLIMITED;
}

static uint64_t memory_limit_1(const char *directory) {
  return memory_limit(directory, "memory.limit_in_bytes");
}
static uint64_t memory_limit_2(const char *directory) {
  return memory_limit(directory, "memory.max");
}

static uint64_t cpus_for(uint64_t quota, uint64_t period) {
  if (!quota || !period) return UNLIMITED; // the kernel allows neither
  return quota / period + (quota % period != 0);
}

static uint64_t cpu_limit_1(const char *directory) {
  uint64_t quota, period;
  if (!read_number(directory, "cpu.cfs_quota_us", &quota)) return UNLIMITED;
  if (!read_number(directory, "cpu.cfs_period_us", &period)) return UNLIMITED;
  return cpus_for(quota, period);
}
static uint64_t cpu_limit_2(const char *directory) {
  char line[64];
  const char *text = line;
  uint64_t quota, period;
  if (!read_line(directory, "cpu.max", line, sizeof line)) return UNLIMITED;
  if (!parse_number(&text, ' ', &quota) || !parse_number(&text, '\n', &period)) return UNLIMITED;
  return cpus_for(quota, period);
}

// Of the process's group and all above it, as far up as is mounted.
static uint64_t tightest(const char *root, const char *controller,
                         uint64_t (*limit_in)(const char *directory)) {
  uint64_t least = UNLIMITED;
  place p = own_place(root, controller);
  if (!p.directory) return least;
  for (size_t length = strlen(p.directory);;) {
    uint64_t limit = length < PATH_MAX ? limit_in(p.directory) : UNLIMITED;
    if (limit < least) least = limit;
    if (length <= p.top_bytes) break;
    while (p.directory[--length] != '/') continue; // the way down begins with one
    p.directory[length] = 0;
  }
  free(p.directory);
  return least;
}

uint64_t os_cgroup_memory_bytes(const char *root) {
  uint64_t one = tightest(root, "memory", memory_limit_1);
  uint64_t two = tightest(root, NULL, memory_limit_2);
  return one < two ? one : two;
}

int os_cgroup_cpus(const char *root) {
  uint64_t one = tightest(root, "cpu", cpu_limit_1);
  uint64_t two = tightest(root, NULL, cpu_limit_2);
  uint64_t cpus = one < two ? one : two;
  return cpus == UNLIMITED ? 0 : cpus < INT_MAX ? (int)cpus : INT_MAX;
}

int os_cpus_usable(void) {
  static int usable; // set by initialisation, before there are other threads of ours to ask
  if (usable) return usable;
  int allowed = os_cpus_allowed(), quota = os_cgroup_cpus("");
  return usable = quota && quota < allowed ? quota : allowed;
}
