// SPDX-License-Identifier: MIT
// What is known of the machine, the system and the build; see machine.h.
#include "machine.h"
#include "output.h"

#include <gnu/libc-version.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sysinfo.h>
#include <sys/utsname.h>
#include <tidepool.h>
#include <time.h>
#include <unistd.h>

extern char **environ;

enum { TEXT_BYTES = 512 };

void date_text(char *text, size_t size) {
  time_t now = time(NULL);
  struct tm utc;
  gmtime_r(&now, &utc);
  strftime(text, size, "%Y-%m-%d %H:%M UTC", &utc);
}

// The processor's name where the kernel tells it (not on every architecture).
static void cpu_text(char *text, const struct utsname *system) {
  FILE *file = fopen("/proc/cpuinfo", "r");
  char line[TEXT_BYTES];
  snprintf(text, TEXT_BYTES, "%s", system->machine);
  while (file && fgets(line, sizeof line, file)) {
    char *colon = strchr(line, ':');
    if (strncmp(line, "model name", 10) != 0 || !colon) continue;
    colon[strcspn(colon, "\n")] = '\0';
    snprintf(text, TEXT_BYTES, "%s", colon + 1 + strspn(colon + 1, " "));
    break;
  }
  if (file) fclose(file);
}

static void cpus_text(char *text) {
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  cpu_set_t allowed;
  int may = sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 0;
  if (may > 0 && may < online)
    snprintf(text, TEXT_BYTES, "%d of %ld", may, online);
  else
    snprintf(text, TEXT_BYTES, "%ld", online);
}

static void compiler_text(char *text) {
#ifdef __clang__
  snprintf(text, TEXT_BYTES, "clang %s", __clang_version__);
#else
  snprintf(text, TEXT_BYTES, "gcc %s", __VERSION__);
#endif
}

// What is in force, and the variables that say so.
static void options_text(char *text) {
  tide_options o;
  tide_options_read(&o);
  int64_t limit = tide_memory_limit_set(-1);
  size_t used = 0;
  if (o.gc_percent < 0)
    used = (size_t)snprintf(text, TEXT_BYTES, "GC percent off");
  else
    used = (size_t)snprintf(text, TEXT_BYTES, "GC percent %lld", (long long)o.gc_percent);
  used += (size_t)snprintf(text + used, TEXT_BYTES - used, ", %s%s, %d processors",
                           limit == INT64_MAX ? "no memory limit" : "memory limit ",
                           limit == INT64_MAX ? "" : size_text((uint64_t)limit), tide_procs());
  for (char **e = environ; *e; e++)
    if (strncmp(*e, "TIDE_", 5) == 0 && used < TEXT_BYTES)
      used += (size_t)snprintf(text + used, TEXT_BYTES - used, ", %s", *e);
}

static void set(json_t *object, const char *name, const char *text) {
  json_t *value = json_string(text); // NULL if the text is not UTF-8
  json_object_set_new(object, name, value ? value : json_string("?"));
}

json_t *machine_facts(void) {
  json_t *facts = json_object();
  struct utsname system;
  struct sysinfo info;
  char text[TEXT_BYTES];
  uname(&system);
  cpu_text(text, &system);
  set(facts, "cpu", text);
  cpus_text(text);
  set(facts, "cpus", text);
  if (sysinfo(&info) == 0) set(facts, "memory", size_text((uint64_t)info.totalram * info.mem_unit));
  snprintf(text, sizeof text, "%s %s, %s", system.sysname, system.release, system.machine);
  set(facts, "kernel", text);
  snprintf(text, sizeof text, "glibc %s", gnu_get_libc_version());
  set(facts, "libc", text);
  compiler_text(text);
  set(facts, "compiler", text);
  snprintf(text, sizeof text, "%d.%d.%d", TIDE_VERSION_MAJOR, TIDE_VERSION_MINOR,
           TIDE_VERSION_PATCH);
  set(facts, "version", text);
  options_text(text);
  set(facts, "options", text);
  return facts;
}
