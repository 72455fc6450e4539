// SPDX-License-Identifier: MIT
// TIDE_DEBUG=record: what is in the file, line by line; that the file is whole whenever the program
// ends or the disk is full; that children of a fork leave it alone.
//
// Each test records in a process of its own, which leaves by exit, and reads the file after it.
#include "rt_testing.h"

#include "command.h"
#include "rt.h"
#include "trace_file.h"

#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <tidepool/pool.h>

static char directory[] = "/tmp/test_record.XXXXXX";
static char path[64];
static char complaint[1000]; // the reader's

// What the reader says goes here; it is the command's otherwise.
void complain(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(complaint, sizeof complaint, format, arguments);
  va_end(arguments);
}

static void set_up(void) {
  strcpy(directory + sizeof directory - 7, "XXXXXX");
  ck_assert_ptr_nonnull(mkdtemp(directory));
  snprintf(path, sizeof path, "%s/trace", directory);
}
static void tear_down(void) {
  unlink(path);
  rmdir(directory);
}

// ---- Recording ------------------------------------------------------------------------------

typedef struct recorded {
  void (*act)(void);
  tide_options options;
} recorded;

static void record_and_exit(void *arg) {
  recorded *r = arg;
  r->options.record = path;
  if (tide_init(&r->options) != TIDE_OK) _exit(9);
  r->act();
  exit(0);
}

static void record_with(child *c, tide_options options, void (*act)(void)) {
  in_child(c, 30, record_and_exit, &(recorded){act, options});
}
static void record(void (*act)(void)) {
  child c;
  record_with(&c, OPTIONS(), act);
  assert_ended_well(&c);
  ck_assert_str_eq(c.errors, "");
}

// The file but for times, threads and the first lines; in memory of its own.
static char *lines_recorded(void) {
  FILE *file = fopen(path, "re");
  ck_assert_ptr_nonnull(file);
  char *text = NULL, *line = NULL;
  size_t size = 0, room = 0;
  FILE *all = open_memstream(&text, &size);
  for (int number = 1; getline(&line, &room, file) > 0; number++)
    if (number > 5 && *line != 't' && *line != 'h') fputs(line, all);
  free(line);
  fclose(file);
  fclose(all);
  return text;
}

static void assert_lines(const char *expected) {
  char *lines = lines_recorded();
  ck_assert_str_eq(lines, expected);
  free(lines);
}

static int last_byte(void) {
  FILE *file = fopen(path, "re");
  ck_assert_ptr_nonnull(file);
  ck_assert_int_eq(fseek(file, -1, SEEK_END), 0);
  int byte = fgetc(file);
  fclose(file);
  return byte;
}

// By the reader that `tidepool replay` has.
static trace *assert_reads(void) {
  int status;
  trace *t = trace_read(path, &status);
  if (!t) ck_abort_msg("%s", complaint);
  return t;
}

// ---- Lines ----------------------------------------------------------------------------------

static void use_objects(void) {
  void *volatile a = tide_alloc(100), *volatile b = tide_alloc_leaf(20);
  void *volatile c = tide_alloc_uncollectable(30);
  a = tide_realloc(a, 5000);
  a = tide_realloc(a, 4990);
  tide_free(b);
  b = tide_alloc_aligned(64, 0, TIDE_SCANNED);
  tide_external_add(1000);
  tide_external_add(-400);
  tide_gc_percent_set(50);
  tide_memory_limit_set(-1); // only asks
  tide_memory_limit_set(1 << 30);
  tide_min_heap_set(1 << 20);
  tide_free(c);
}

START_TEST(objects) {
  record(use_objects);
  assert_lines("a 100 s\na 20 l\na 30 u\nr 1 5000\nr 1 4990\nf 2\na 0 s\nx 1000\nx -400\n"
               "o gc_percent 50\no memory_limit 1073741824\no min_heap_bytes 1048576\nf 3\ne\n");
}
END_TEST

START_TEST(the_first_lines_are_the_options) {
  child c;
  record_with(&c, OPTIONS(o.gc_percent = 33; o.memory_limit = 1 << 26; o.record_kib = 12),
              use_objects);
  assert_ended_well(&c);
  char text[400] = "";
  FILE *file = fopen(path, "re");
  ck_assert_uint_gt(fread(text, 1, sizeof text - 1, file), 100);
  fclose(file);
  static const char expected[] = "tidepool-trace 1\no gc_percent 33\no memory_limit 67108864\n"
                                 "o min_heap_bytes 0\no record_kib 12\nt ";
  ck_assert_int_eq(strncmp(text, expected, strlen(expected)), 0);
}
END_TEST

static void *volatile kept;

static NOINLINE void drop_objects(void) {
  for (int i = 0; i < 100; i++) keep_in_memory(tide_alloc(48));
}

static void lose_objects(void) {
  kept = tide_alloc(16);
  void *volatile owned = tide_alloc_uncollectable(16);
  drop_objects();
  clear_stack();
  tide_collect();
  clear_stack();
  tide_collect();
  keep_in_memory(owned);
}

// Numbers in the lines of deaths between `from` and `to`.
static int count_dead(const char *lines, int from, int to) {
  int count = 0;
  for (const char *line = lines; line; line = strchr(line, '\n')) {
    line += *line == '\n';
    if (*line != 'd') continue;
    const char *at = line + 1;
    int first, last, used;
    while (sscanf(at, " %d%n", &first, &used) == 1) {
      at += used;
      last = first;
      if (*at == '-' && sscanf(at, "-%d%n", &last, &used) == 1) at += used;
      for (int i = first; i <= last; i++) count += i >= from && i <= to;
      if (*at == '\n') break;
    }
  }
  return count;
}

START_TEST(what_a_collection_has_found_dead) {
  record(lose_objects);
  char *lines = lines_recorded();
  ck_assert_int_eq(count_dead(lines, 1, 2), 0);
  ck_assert_int_ge(count_dead(lines, 3, 102), 100 - GROUP_STRAYS);
  ck_assert_ptr_nonnull(strstr(lines, "c forced "));
  free(lines);
  trace *t = assert_reads();
  ck_assert_uint_eq(t->collection_count, 2);
  ck_assert(t->collections[0].forced);
  ck_assert_uint_ge(t->collections[0].live_bytes, 16);
  ck_assert_uint_gt(t->collections[0].stack_bytes, 0);
  ck_assert(!t->cut_short);
  trace_free(t);
}
END_TEST

static void *make_item(void *arg) {
  return tide_alloc_leaf(64);
}
static size_t measure_item(const void *item, void *arg) {
  return 7;
}
static char outside[2];

static void use_pools(void) {
  tide_pool *plain = tide_pool_create(&(tide_pool_options){.name = "a b\nc", .create = make_item});
  tide_pool *bounded = tide_pool_create(&(tide_pool_options){.name = "bounded",
                                                             .size = measure_item,
                                                             .max_items = 10,
                                                             .max_bytes = 4096,
                                                             .max_item_bytes = 1024,
                                                             .survive = 3,
                                                             .min_idle_ns = 5000000});
  void *item = tide_pool_get(plain);
  tide_pool_put(plain, item);
  if (tide_pool_get(plain) != item) _exit(2);
  tide_pool_put(bounded, item);    // an item of another pool
  tide_pool_put(bounded, outside); // one that is not of the heap
  tide_pool_put(bounded, outside + 1);
  for (int i = 0; i < 4; i++) tide_pool_get(bounded);
  tide_pool_put(bounded, outside);
  tide_pool_destroy(plain);
}

START_TEST(pools) {
  record(use_pools);
  char *lines = lines_recorded();
  static const char begins[] = "P 1 0 0 0 0 a b?c\nP 3 5000000 10 4096 1024 bounded\n"
                               "a 64 l 1\ng 1 m 1\np 1 1 0\ng 1 h 1\n"
                               "p 2 1 7\np 2 0 7\np 2 0 7\n";
  ck_assert_int_eq(strncmp(lines, begins, strlen(begins)), 0);
  ck_assert_ptr_nonnull(strstr(lines, "g 2 h 1\n"));
  ck_assert_ptr_nonnull(strstr(lines, "g 2 n 0\n"));
  const char *last = strstr(lines, "g 2 n 0\n");
  int get;
  ck_assert_int_eq(sscanf(last, "g 2 n 0\np 2 0 7 %d\nQ 1\ne", &get), 1);
  ck_assert_int_ge(get, 3);
  ck_assert_int_le(get, 5);
  free(lines);
  trace *t = assert_reads();
  ck_assert_uint_eq(t->pool_count, 2);
  ck_assert_uint_eq(t->pools[0].gets, 2);
  ck_assert_uint_eq(t->pools[0].hits, 1);
  ck_assert_uint_eq(t->pools[1].hits, 3);
  trace_free(t);
}
END_TEST

// What the library allocates for itself is not the program's.
static void fill_a_pool(void) {
  static char items[1000];
  tide_pool *pool = tide_pool_create(&(tide_pool_options){.name = "p"});
  for (size_t i = 0; i < sizeof items; i++) tide_pool_put(pool, items + i);
}

START_TEST(what_a_pool_is_made_of_is_not_recorded) {
  record(fill_a_pool);
  char *lines = lines_recorded();
  ck_assert_ptr_null(strstr(lines, "\na "));
  ck_assert_uint_eq(count_lines(lines), 1002);
  free(lines);
}
END_TEST

static void allocate_a_megabyte(void) {
  for (int i = 0; i < 1024; i++) keep_in_memory(tide_alloc(1024));
}

static jmp_buf before_the_request;

static void *jump_out(size_t size, void *arg) {
  longjmp(before_the_request, 1);
}
static void *make_too_much(void *arg) {
  return tide_alloc((size_t)1 << 60);
}
static void resize_too_much(void) {
  keep_in_memory(tide_realloc(tide_alloc(10), (size_t)1 << 60));
}
static void get_too_much(void) {
  keep_in_memory(tide_pool_get(tide_pool_create(&(tide_pool_options){.create = make_too_much})));
}
static void (*ask_for_too_much)(void);

static void allocate_after_jumping(void) {
  tide_oom_handler_set(jump_out, NULL);
  if (!setjmp(before_the_request)) ask_for_too_much();
  keep_in_memory(tide_alloc(77));
}

// What the program allocates afterwards is its own again.
START_TEST(memory_handlers_that_jump) {
  ask_for_too_much = _i ? get_too_much : resize_too_much;
  record(allocate_after_jumping);
  assert_lines(_i ? "P 1 0 0 0 0 pool\na 77 s\ne\n" : "a 10 s\na 77 s\ne\n");
}
END_TEST

START_TEST(collections_for_the_recording) {
  child c;
  record_with(&c, OPTIONS(o.record_kib = 64), allocate_a_megabyte);
  assert_ended_well(&c);
  trace *t = assert_reads();
  ck_assert_uint_eq(t->collection_count, 16);
  trace_free(t);
}
END_TEST

// ---- Threads, fork, exit --------------------------------------------------------------------

static volatile int stop_now, running;

static void *hammer(void *arg) {
  tide_pool *pool = arg;
  void *item = NULL;
  for (unsigned i = 0; !is_set(&stop_now); i++) {
    keep_in_memory(tide_alloc(i % 3 ? 200 : 3000));
    item = i % 2 ? tide_pool_get(pool) : item;
    if (i % 2 == 0 && item) tide_pool_put(pool, item);
    if (i == 10) __atomic_fetch_add(&running, 1, __ATOMIC_ACQ_REL);
  }
  return NULL;
}

enum { HAMMERS = 4 };
static pthread_t hammers[HAMMERS];

static void start_hammers(void) {
  tide_pool *pool = tide_pool_create(&(tide_pool_options){.name = "shared", .create = make_item});
  for (int i = 0; i < HAMMERS; i++)
    if (tide_thread_create(&hammers[i], NULL, hammer, pool)) _exit(3);
  while (__atomic_load_n(&running, __ATOMIC_ACQUIRE) < HAMMERS) sleep_us(100);
}

static void *join_hammers(void *arg) {
  for (int i = 0; i < HAMMERS; i++) pthread_join(hammers[i], NULL);
  return NULL;
}

static void hammer_for_a_while(void) {
  start_hammers();
  for (int i = 0; i < 30; i++) {
    drop_objects();
    tide_collect();
  }
  set_flag(&stop_now);
  tide_blocking(join_hammers, NULL);
}

START_TEST(threads) {
  record(hammer_for_a_while);
  trace *t = assert_reads();
  ck_assert(!t->cut_short);
  ck_assert_uint_ge(t->threads, 1 + HAMMERS);
  ck_assert_uint_ge(t->collection_count, 30);
  ck_assert_uint_ge(t->gets, 5 * HAMMERS);
  trace_free(t);
}
END_TEST

START_TEST(exit_while_threads_run) {
  record(start_hammers);
  trace *t = assert_reads();
  ck_assert(!t->cut_short);
  ck_assert_uint_ge(t->threads, 1 + HAMMERS);
  trace_free(t);
}
END_TEST

static void be_killed(void) {
  hammer_for_a_while();
  kill(getpid(), SIGKILL);
}

START_TEST(a_program_that_is_killed) {
  child c;
  record_with(&c, OPTIONS(), be_killed);
  ck_assert(WIFSIGNALED(c.status));
  trace *t = assert_reads();
  ck_assert(t->cut_short);
  ck_assert_uint_ge(t->collection_count, 25); // each has written what there was
  trace_free(t);
}
END_TEST

// The lock may be another thread's when the child is made.
static void fork_often(void) {
  tide_pool *pool = tide_pool_create(&(tide_pool_options){.name = "forked", .create = make_item});
  start_hammers();
  for (int i = 0; i < 30; i++) {
    pid_t pid = fork();
    if (pid == 0) {
      for (int k = 0; k < 100; k++) {
        keep_in_memory(tide_alloc(12345));
        tide_pool_put(pool, tide_pool_get(pool));
      }
      tide_collect();
      tide_pool_destroy(pool);
      exit(0);
    }
    int status = child_result(pid, 20);
    if (status) _exit(10 + status);
  }
  set_flag(&stop_now);
  tide_blocking(join_hammers, NULL);
}

START_TEST(children_do_not_record) {
  record(fork_often);
  char *lines = lines_recorded();
  ck_assert_ptr_null(strstr(lines, "a 12345 "));
  ck_assert_ptr_null(strstr(lines, "\nQ "));
  free(lines);
  trace *t = assert_reads();
  ck_assert(!t->cut_short);
  trace_free(t);
}
END_TEST

// ---- Files ----------------------------------------------------------------------------------

typedef struct bad_file {
  const char *path, *message;
} bad_file;

static const bad_file bad_files[] = {
    {"/no/such/directory/trace",
     "option record: record file '/no/such/directory/trace': No such file or directory; nothing is "
     "recorded"},
    {"/dev/full",
     "option record: record file '/dev/full': No space left on device; nothing is recorded"},
    {"/", "option record: record file '/': Is a directory; nothing is recorded"},
};

START_TEST(files_that_cannot_be_written) {
  const bad_file *bad = &bad_files[_i];
  tide_options options = OPTIONS(o.record = bad->path);
  ck_assert_int_eq(tide_init(&options), TIDE_ERR_OPTION);
  ck_assert_str_eq(tide_error_message(), bad->message);
  ck_assert_ptr_nonnull(tide_alloc(10)); // and it goes on
  tide_collect();
}
END_TEST

START_TEST(a_pipe_that_nobody_reads) {
  ck_assert_int_eq(mkfifo(path, 0600), 0);
  tide_options options = OPTIONS(o.record = path);
  ck_assert_int_eq(tide_init(&options), TIDE_ERR_OPTION);
  ck_assert_ptr_nonnull(strstr(tide_error_message(), "No such device or address"));
}
END_TEST

// As when a program that records starts others, with the same environment.
START_TEST(a_file_that_is_recorded_to_already) {
  record(use_objects);
  char *before = lines_recorded();
  int fd = open(path, O_WRONLY);
  ck_assert_int_eq(flock(fd, LOCK_EX), 0);
  tide_options options = OPTIONS(o.record = path);
  ck_assert_int_eq(tide_init(&options), TIDE_ERR_OPTION);
  ck_assert_ptr_nonnull(strstr(tide_error_message(), "Device or resource busy"));
  assert_lines(before);
  free(before);
  close(fd);
}
END_TEST

static void fill_the_disk(void) {
  struct rlimit limit = {30000, 30000};
  if (setrlimit(RLIMIT_FSIZE, &limit)) _exit(4);
  for (int i = 0; i < 10; i++) {
    for (int k = 0; k < 1000; k++) keep_in_memory(tide_alloc(1000));
    tide_collect();
  }
}

START_TEST(the_disk_becomes_full) {
  child c;
  record_with(&c, OPTIONS(), fill_the_disk);
  assert_ended_well(&c);
  ck_assert_uint_eq(count_lines(c.errors), 1);
  ck_assert_ptr_nonnull(strstr(c.errors, "File too large; recording ends"));
  ck_assert_ptr_nonnull(strstr(c.errors, path));
  struct stat status;
  ck_assert_int_eq(stat(path, &status), 0);
  ck_assert_int_gt(status.st_size, 30000 - 512); // up to the last whole line
  ck_assert_int_le(status.st_size, 30000);
  ck_assert_int_eq(last_byte(), '\n');
  trace *t = assert_reads();
  ck_assert(t->cut_short);
  ck_assert_uint_ge(t->objects, 1000);
  trace_free(t);
}
END_TEST

// As daemons do: the number becomes another file's, which must stay as it is.
static void close_all_files(void) {
  for (int fd = 3; fd < 100; fd++) close(fd);
  for (int i = 0; i < 5; i++)
    if (open("/dev/null", O_WRONLY) < 0) _exit(5);
  allocate_a_megabyte();
  tide_collect();
  allocate_a_megabyte();
  tide_collect();
}

START_TEST(a_file_that_the_program_closed) {
  child c;
  record_with(&c, OPTIONS(), close_all_files);
  assert_ended_well(&c);
  ck_assert_uint_eq(count_lines(c.errors), 1);
  ck_assert_ptr_nonnull(strstr(c.errors, "Bad file descriptor; recording ends"));
  trace_free(assert_reads());
}
END_TEST

static void use_a_pool(void) {
  tide_pool *pool = tide_pool_create(&(tide_pool_options){.name = "p", .create = make_item});
  tide_pool_put(pool, tide_pool_get(pool));
}

START_TEST(without_the_option_nothing_is_recorded) {
  init_with(OPTIONS());
  ck_assert(!rt_recording());
  use_a_pool();
  tide_collect();
  ck_assert_int_ne(access(path, F_OK), 0);
}
END_TEST

// ---------------------------------------------------------------------------------------------

static void add_case(Suite *suite, TCase *t) {
  tcase_add_checked_fixture(t, set_up, tear_down);
  tcase_set_timeout(t, 60);
  suite_add_tcase(suite, t);
}

int main(void) {
  Suite *suite = suite_create("record");
  TCase *t = tcase_create("lines");
  add_case(suite, t);
  tcase_add_test(t, objects);
  tcase_add_test(t, the_first_lines_are_the_options);
  tcase_add_test(t, what_a_collection_has_found_dead);
  tcase_add_test(t, pools);
  tcase_add_test(t, what_a_pool_is_made_of_is_not_recorded);
  tcase_add_loop_test(t, memory_handlers_that_jump, 0, 2);
  tcase_add_test(t, collections_for_the_recording);
  t = tcase_create("processes");
  add_case(suite, t);
  tcase_add_test(t, threads);
  tcase_add_test(t, exit_while_threads_run);
  tcase_add_test(t, a_program_that_is_killed);
  tcase_add_test(t, children_do_not_record);
  t = tcase_create("files");
  add_case(suite, t);
  tcase_add_loop_test(t, files_that_cannot_be_written, 0, LENGTH(bad_files));
  tcase_add_test(t, a_pipe_that_nobody_reads);
  tcase_add_test(t, a_file_that_is_recorded_to_already);
  tcase_add_test(t, the_disk_becomes_full);
  tcase_add_test(t, a_file_that_the_program_closed);
  tcase_add_test(t, without_the_option_nothing_is_recorded);
  return run_suite(suite);
}
