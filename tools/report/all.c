// SPDX-License-Identifier: MIT
// `tidepool all`: every experiment, one after the other, and a page about what they found.
//
// Each experiment is a process of its own, the same executable, so that none works in a heap that
// another has left, and none that fails takes the others with it. The record of what has been run
// is written after each, so that an end at any time leaves what was measured until then, and a page
// can be made from it later (--from).
#include "all.h"
#include "child.h"
#include "command.h"
#include "machine.h"
#include "output.h"
#include "progress.h"
#include "report.h"
#include "wait.h"

#include <errno.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

typedef struct settings {
  common_options common;
  uint64_t only;    // parts, a bit each; 0: all
  uint64_t engines; // a bit each
  uint64_t seed;
  const char *from;
  const char *trace; // NULL: none
  bool quick;
  bool full;
} settings;

static char part_names[256]; // separated by commas

static const option_row table_of_options[] = {
    {"only", "LIST", OPTION_SET, offsetof(settings, only), NULL, 0, 0, part_names,
     "the experiments to run; what an earlier run has left of the others stays in the report"},
    {"engine", "LIST", OPTION_SET, offsetof(settings, engines), "native,bdw", 0, 0, "native,bdw",
     "the collectors to run on; one that is not in this build is left out"},
    {"seed", "N", OPTION_COUNT, offsetof(settings, seed), "1", 0, 4294967295, NULL,
     "passed on to the experiments that take one"},
    {"trace", "FILE", OPTION_TEXT, offsetof(settings, trace), NULL, 0, 0, NULL,
     "a recording that is replayed too (TIDE_DEBUG=record=FILE makes one)"},
    {"from", "DIR", OPTION_TEXT, offsetof(settings, from), NULL, 0, 0, NULL,
     "measure nothing: write the report of an earlier run in DIR again"},
    {"quick", NULL, OPTION_FLAG, offsetof(settings, quick), NULL, 0, 0, NULL,
     "less of everything: under five minutes on two CPUs"},
    {"full", NULL, OPTION_FLAG, offsetof(settings, full), NULL, 0, 0, NULL,
     "everything there is: about two hours"},
};

static const options_spec spec = {
    .about =
        "Runs all experiments and writes a report with tables and plots, DIR/report.html.\v"
        "DIR is that of --out, which must be given. The results are in DIR/data, and in "
        "DIR/plots are the numbers of each plot, its gnuplot script, and pictures, if gnuplot "
        "is there. What this build cannot run is left out, and the report says so. Without --quick "
        "and --full it takes about 20 minutes.",
    .table = table_of_options,
    .count = sizeof table_of_options / sizeof table_of_options[0],
};

// What a run needs to know, and how far it is.
typedef struct run {
  const settings *set;
  mode mode;
  results results;
  bool built[ENGINES]; // in this build, among those asked for
  char program[PATH_MAX];
  char label[96];                // of the progress bar
  double planned, done, current; // seconds
  bool failed;
} run;

// ---- What is to be run ----------------------------------------------------------------------

static bool first_of_part(const job *j) {
  for (const job *before = all_jobs; before < j; before++)
    if (strcmp(before->part, j->part) == 0) return false;
  return true;
}

static void list_parts(void) {
  size_t used = 0;
  for (const job *j = all_jobs; j->name; j++)
    if (first_of_part(j))
      used += (size_t)snprintf(part_names + used, sizeof part_names - used, "%s%s", used ? "," : "",
                               j->part);
}

static bool has_part(const settings *set, const job *j) {
  if (!set->only) return true;
  unsigned bit = 0;
  for (const job *before = all_jobs; strcmp(before->part, j->part) != 0; before++)
    bit += first_of_part(before);
  return set->only >> bit & 1;
}

static bool is_chosen(const run *r, const job *j, int engine) {
  return has_part(r->set, j) && r->set->engines >> engine & 1 &&
         (j->takes != TAKES_TRACE || r->set->trace) &&
         job_form_of(j, r->mode, all_engines[engine])->words;
}

static bool is_possible(const run *r, const job *j, int engine) {
  return r->built[engine] && job_exists(j);
}

// The smallest run of all tells whether an engine is there: if not, that is bad usage.
static bool engine_built(const run *r, const char *engine) {
  char option[64];
  snprintf(option, sizeof option, "--engine=%s", engine);
  char *arguments[] = {(char *)r->program, "forced",      "--procs=1", "--bursts=1",
                       "--max-forced=0",   "--workers=1", option,      NULL};
  child_result result;
  child_run(&(child_spec){.program = r->program, .arguments = arguments}, &result);
  return result.error || result.status != STATUS_USAGE;
}

// ---- One experiment -------------------------------------------------------------------------

static void show_share(double share, void *arg) {
  run *r = arg;
  progress_show((r->done + share * r->current) / r->planned);
}

// The last line that a child has said; it usually begins with the child's own name.
static const char *last_line(char *said) {
  size_t length = strlen(said);
  while (length > 0 && strchr("\r\n ", said[length - 1])) said[--length] = '\0';
  char *line = strrchr(said, '\n');
  return line ? line + 1 : said;
}

static bool same_file(const struct stat *a, const struct stat *b) {
  return a->st_ino == b->st_ino && a->st_size == b->st_size &&
         a->st_mtim.tv_sec == b->st_mtim.tv_sec && a->st_mtim.tv_nsec == b->st_mtim.tv_nsec;
}

static void set_text(char **text, const char *value) {
  free(*text);
  *text = copy_text(value);
}

static void describe(run *r, entry *e, const job_line *line) {
  char text[600], date[32];
  const json_t *facts = r->results.facts;
  date_text(date, sizeof date);
  set_text(&e->when, date);
  set_text(&e->version, text_in(facts, "version"));
  snprintf(text, sizeof text, "%s, %s", text_in(facts, "cpu"), text_in(facts, "kernel"));
  set_text(&e->machine, text);
  snprintf(text, sizeof text, "tidepool");
  for (size_t i = 0; line->words[i]; i++) {
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, " %s", line->words[i]);
  }
  set_text(&e->command, text);
  set_text(&e->message, "");
  e->has_data = false;
}

static void judge(run *r, entry *e, child_result *result) {
  int signal = result->status - STATUS_SIGNAL;
  bool ended =
      result->error == 0 && interrupted() && (signal == interrupted() || signal == SIGKILL);
  if (ended) {
    e->outcome = e->has_data ? OUTCOME_PARTIAL : OUTCOME_NOT_RUN;
    return;
  }
  e->outcome = result->error || result->status ? OUTCOME_FAILED : OUTCOME_DONE;
  if (e->outcome == OUTCOME_DONE) return;
  char text[600];
  const char *said = last_line(result->said);
  if (result->error)
    snprintf(text, sizeof text, "it cannot be started: %s", strerror(result->error));
  else if (signal > 0 && !*said)
    snprintf(text, sizeof text, "it crashed (%s)", strsignal(signal));
  else
    snprintf(text, sizeof text, "exit status %d%s%.500s", result->status, *said ? ", " : "", said);
  set_text(&e->message, text);
  complain("%s failed: %s", e->name, text);
  r->failed = true;
}

static void run_job(run *r, const job *j, const char *engine) {
  char out[PATH_MAX], file[PATH_MAX + 64];
  job_line line;
  job_line_make(&line, j, r->mode, r->set->seed, engine, r->set->trace);
  entry *e = record_entry(&r->results, j->name, engine);
  describe(r, e, &line);
  snprintf(out, sizeof out, "%s/%s", r->results.directory, results_place(engine));
  snprintf(file, sizeof file, "%s/%s.json", out, j->name);
  char *arguments[JOB_WORDS_MAX + 6] = {r->program};
  size_t count = 1;
  for (size_t i = 0; line.words[i]; i++) arguments[count++] = line.words[i];
  arguments[count++] = "--format=json";
  arguments[count++] = "--out";
  arguments[count++] = out;

  struct stat before = {0}, after = {0};
  stat(file, &before);
  uint64_t start_ns = now_ns();
  child_result result;
  child_run(
      &(child_spec){
          .program = r->program, .arguments = arguments, .progress = show_share, .arg = r},
      &result);
  e->seconds = (double)(now_ns() - start_ns) * 1e-9;
  e->has_data = stat(file, &after) == 0 && !same_file(&before, &after);
  judge(r, e, &result);
}

// ---- All of them ----------------------------------------------------------------------------

// message "": the user had had enough.
static void note_left_out(run *r, const job *j, const char *engine, const char *message) {
  job_line line;
  job_line_make(&line, j, r->mode, r->set->seed, engine, r->set->trace);
  entry *e = record_entry(&r->results, j->name, engine);
  describe(r, e, &line);
  set_text(&e->when, "");
  set_text(&e->message, message);
  e->outcome = *message ? OUTCOME_SKIPPED : OUTCOME_NOT_RUN;
  e->seconds = NAN;
}

static void skip_job(run *r, const job *j, int engine) {
  char text[96];
  if (job_exists(j))
    snprintf(text, sizeof text, "this build has no engine %s", all_engines[engine]);
  else
    snprintf(text, sizeof text, "this build has no command %s", job_command(j));
  note_left_out(r, j, all_engines[engine], text);
}

// Returns how many are to be run, and plans their time.
static unsigned plan(run *r) {
  unsigned count = 0;
  for (int engine = 0; engine < ENGINES; engine++)
    r->built[engine] = r->set->engines >> engine & 1 && engine_built(r, all_engines[engine]);
  for (const job *j = all_jobs; j->name; j++)
    for (int engine = 0; engine < ENGINES; engine++) {
      if (!is_chosen(r, j, engine) || !is_possible(r, j, engine)) continue;
      r->planned += job_form_of(j, r->mode, all_engines[engine])->seconds;
      count++;
    }
  return count;
}

static void run_one(run *r, const job *j, int engine, unsigned number, unsigned count) {
  const char *name = all_engines[engine];
  snprintf(r->label, sizeof r->label, "all: %s%s%s (%u of %u)", j->name, engine ? " on " : "",
           engine ? name : "", number, count);
  r->current = job_form_of(j, r->mode, name)->seconds;
  show_share(0, r);
  run_job(r, j, name);
  r->done += r->current;
  show_share(0, r);
}

// Returns false when the record cannot be written: the rest would be lost too.
static bool run_all(run *r) {
  unsigned number = 0, count = plan(r);
  progress_start(r->label);
  for (const job *j = all_jobs; j->name; j++)
    for (int engine = 0; engine < ENGINES; engine++) {
      if (!is_chosen(r, j, engine)) continue;
      if (!is_possible(r, j, engine))
        skip_job(r, j, engine);
      else if (interrupted())
        note_left_out(r, j, all_engines[engine], "");
      else
        run_one(r, j, engine, ++number, count);
      if (!record_save(&r->results, NULL)) return false;
    }
  progress_end();
  return true;
}

// The word behind those in text, separated by a comma; what does not fit is dropped.
static void add_word(char *text, size_t size, const char *word) {
  size_t used = strlen(text);
  snprintf(text + used, size - used, "%s%s", used ? "," : "", word);
}

// The command that does the same again.

static void set_command(run *r) {
  char text[512], engines[64] = "", parts[sizeof part_names] = "";
  const settings *set = r->set;
  bool some = false;
  for (int i = 0; i < ENGINES; i++) {
    if (set->engines >> i & 1)
      add_word(engines, sizeof engines, all_engines[i]);
    else
      some = true;
  }
  for (const job *j = all_jobs; set->only && j->name; j++)
    if (has_part(set, j) && first_of_part(j)) add_word(parts, sizeof parts, j->part);
  snprintf(text, sizeof text, "tidepool all --seed %llu%s%s%s%s%s%s%.200s --out DIR",
           (unsigned long long)set->seed,
           set->quick  ? " --quick"
           : set->full ? " --full"
                       : "",
           *parts ? " --only " : "", parts, some ? " --engine " : "", some ? engines : "",
           set->trace ? " --trace " : "", set->trace ? set->trace : "");
  json_object_set_new(r->results.facts, "command", json_string(text));
  json_object_set_new(r->results.facts, "engine", json_string(engines));
}

static void set_facts(run *r) {
  char date[32], seed[32];
  json_t *facts = r->results.facts = machine_facts();
  if (!facts) {
    complain("no memory for the report");
    exit(STATUS_FAILED);
  }
  date_text(date, sizeof date);
  snprintf(seed, sizeof seed, "%llu", (unsigned long long)r->set->seed);
  json_object_set_new(facts, "date", json_string(date));
  json_object_set_new(facts, "seed", json_string(seed));
  set_command(r);
}

// ---- The end --------------------------------------------------------------------------------

// The page, the record with what it says, and the status.
static int report_on(run *r) {
  report_outcome made;
  bool written = report_make(&r->results, &made);
  if (written) written = record_print(&r->results, made.findings, &r->set->common);
  free(made.findings);
  if (!written || !made.complete || r->failed) return STATUS_FAILED;
  return interrupted() ? STATUS_SIGNAL + interrupted() : STATUS_DONE;
}

static int measure(run *r) {
  int status = library_start();
  if (status != STATUS_DONE) return status;
  if (!out_prepare(r->set->common.out)) return STATUS_FAILED;
  ssize_t length = readlink("/proc/self/exe", r->program, sizeof r->program - 1);
  if (length < 0) {
    complain("cannot find the command's own file: is /proc mounted?");
    return STATUS_FAILED;
  }
  r->program[length] = '\0';
  interrupts_catch();
  r->results.directory = copy_text(r->set->common.out);
  r->results.facts = json_object();
  if (!record_read(&r->results)) return STATUS_FAILED;
  json_decref(r->results.facts);
  set_facts(r);
  if (!run_all(r)) return STATUS_FAILED;
  return report_on(r);
}

// Results that single commands have left, where there is no record.
static void find_results(results *r) {
  char path[PATH_MAX];
  for (const job *j = all_jobs; j->name; j++)
    for (int i = 0; i < ENGINES; i++) {
      snprintf(path, sizeof path, "%s/%s/%s.json", r->directory, results_place(all_engines[i]),
               j->name);
      if (access(path, R_OK) != 0) continue;
      entry *e = record_entry(r, j->name, all_engines[i]);
      e->has_data = true;
      e->outcome = OUTCOME_DONE;
    }
}

static int write_again(run *r) {
  interrupts_catch();
  r->results.directory = copy_text(r->set->from);
  r->results.facts = json_object();
  if (!record_read(&r->results)) return STATUS_FAILED;
  if (r->results.count == 0) find_results(&r->results);
  if (r->results.count == 0) {
    complain("--from: there are no results in '%s/data'", r->set->from);
    return STATUS_FAILED;
  }
  return report_on(r);
}

// Whether --only asks for what has nothing to work on.
static bool lacks_trace(const settings *set) {
  for (const job *j = all_jobs; j->name; j++)
    if (j->takes == TAKES_TRACE && set->only && has_part(set, j) && !set->trace) return true;
  return false;
}

static int check(const settings *set) {
  if (set->quick && set->full)
    complain("--quick and --full exclude each other");
  else if (set->from && (set->quick || set->full || set->only || set->trace || set->common.out))
    complain("--from measures nothing and writes into its own directory; --quick, --full, "
             "--only, --trace and --out are not accepted beside it");
  else if (set->trace && access(set->trace, R_OK) != 0)
    complain("--trace: cannot read '%s': %s", set->trace, strerror(errno));
  else if (lacks_trace(set))
    complain("--only: replay is accepted only beside --trace, which names a recording");
  else if (!set->from && !set->common.out)
    complain("--out is missing; accepted: a directory for the results and the report");
  else
    return STATUS_DONE;
  return STATUS_USAGE;
}

int all_run(int argc, char **argv) {
  settings set = {.only = 0};
  list_parts();
  options_parse(&spec, &set, argc, argv);
  if (check(&set) != STATUS_DONE) return STATUS_USAGE;
  static run r; // large
  r.set = &set;
  r.mode = set.quick ? MODE_QUICK : set.full ? MODE_FULL : MODE_STANDARD;
  int status = set.from ? write_again(&r) : measure(&r);
  results_free(&r.results);
  return status;
}
