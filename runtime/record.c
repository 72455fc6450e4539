// SPDX-License-Identifier: MIT
// The recorder: lines of text in one order, and the file they go to. See record.h.
//
// Lines are put, under a pinned lock, into pieces of memory that are mapped apart. A piece that is
// full waits for rt_record_write, which writes it under a lock of its own, outside pauses. Pieces
// hold whole lines. So if a write fails, or the program is killed, the file ends with a whole line:
// what a write may have left behind the last one is cut off.
//
// In the child of a fork nothing is recorded and none of this is touched, so no lock has to be
// taken for it.
#define _GNU_SOURCE
#include "out_file.h"
#include "record_table.h"
#include "rt.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

enum {
  PIECE_BYTES = 64 << 10,
  LINE_BYTES = 512,  // the most; free in a piece before each line
  TEXT_BYTES = 200,  // of a text, the most
  WAITING_MOST = 64, // pieces, before whoever records has to wait for the disk
};

typedef struct piece {
  struct piece *next;
  size_t used;
  char text[PIECE_BYTES - 2 * sizeof(size_t)];
} piece;

AO_t rt_recording_now;
static rt_pinned_lock lock = RT_PINNED_LOCK_INIT;

// Under it.
static piece *filling, *spare; // spare: a list
static piece *first_full, *last_full;
static AO_t waiting;         // full pieces; read without the lock too
static uint64_t time_us;     // of the last line
static unsigned last_thread; // whose it is
static unsigned threads;     // that have had one

// Under `writer`.
static pthread_mutex_t writer = PTHREAD_MUTEX_INITIALIZER;
static int fd = -1;
static off_t end;
static out_file *file; // mapped: static data is scanned

static __thread unsigned thread_number __attribute__((tls_model("initial-exec")));
static __thread unsigned works_for __attribute__((tls_model("initial-exec")));

unsigned rt_record_for(unsigned whom) {
  unsigned before = works_for;
  works_for = whom;
  return before;
}
unsigned rt_record_whom(void) {
  return works_for;
}

static void take_lock(void) {
  rt_thread *self = rt_self();
  if (self) rt_pin(self);
  rt_pinned_lock_take(&lock);
}
static void give_lock(void) {
  rt_thread *self = rt_self();
  rt_pinned_lock_give(&lock);
  if (self) rt_unpin(self);
}

// ---- Lines ----------------------------------------------------------------------------------
//
// The lock is held.

RT_COLD void rt_record_out_of_memory(void) {
  if (!AO_load(&rt_recording_now)) return;
  AO_store(&rt_recording_now, 0);
  rt_report("record file '%.250s': no memory; recording ends", file->path);
}

static piece *new_piece(void) {
  piece *p = spare;
  if (p)
    spare = p->next;
  else
    p = record_map(sizeof *p);
  if (p) *p = (piece){.used = 0};
  return p;
}

static void line_is_full(piece *p) {
  p->next = NULL;
  if (last_full)
    last_full->next = p;
  else
    first_full = p;
  last_full = p;
  AO_store(&waiting, AO_load(&waiting) + 1);
}

// Room for a line. False: recording has ended.
static bool make_room(void) {
  if (filling && sizeof filling->text - filling->used >= LINE_BYTES) return true;
  piece *next = new_piece();
  if (!next) {
    rt_record_out_of_memory();
    return false;
  }
  if (filling) line_is_full(filling);
  filling = next;
  return true;
}

static void put_char(char c) {
  filling->text[filling->used++] = c;
}

static void put_digits(uint64_t number) {
  char digits[20];
  size_t count = 0;
  do digits[count++] = (char)('0' + number % 10);
  while (number /= 10);
  while (count) put_char(digits[--count]);
}

void rt_record_number(uint64_t number) {
  put_char(' ');
  put_digits(number);
}
void rt_record_range(uint64_t from, uint64_t to) {
  rt_record_number(from);
  if (to == from) return;
  put_char('-');
  put_digits(to);
}
void rt_record_signed(int64_t number) {
  put_char(' ');
  if (number < 0) put_char('-');
  put_digits(number < 0 ? 0 - (uint64_t)number : (uint64_t)number);
}
void rt_record_letter(char letter) {
  put_char(' ');
  put_char(letter);
}

// A line break would make another line of it.
void rt_record_text(const char *text) {
  put_char(' ');
  for (size_t i = 0; text[i] && i < TEXT_BYTES; i++)
    put_char((unsigned char)text[i] < 0x20 || text[i] == 0x7f ? '?' : text[i]);
}

static void put_moment(void) {
  uint64_t us = (os_now_ns() - rt_started_at_ns()) / 1000;
  if (us > time_us) {
    put_char('t');
    rt_record_number(us - time_us);
    put_char('\n');
    time_us = us;
  }
  if (!thread_number) thread_number = ++threads;
  if (thread_number == last_thread) return;
  last_thread = thread_number;
  put_char('h');
  rt_record_number(thread_number);
  put_char('\n');
}

// Who has forked may have had the lock in another thread: so it is not asked for in vain.
bool rt_record_hold(void) {
  if (!rt_recording()) return false;
  take_lock();
  if (AO_load(&rt_recording_now) && make_room()) return true;
  give_lock();
  return false;
}
void rt_record_let_go(void) {
  give_lock();
}

// What stands before it, time and thread, is short.
bool rt_record_line(char kind) {
  if (!make_room()) return false;
  put_moment();
  put_char(kind);
  return true;
}
void rt_record_line_ends(void) {
  put_char('\n');
}

bool rt_record_begin(char kind) {
  if (!rt_record_hold()) return false;
  if (rt_record_line(kind)) return true;
  give_lock();
  return false;
}
void rt_record_end(void) {
  put_char('\n');
  give_lock();
}

// ---- The file -------------------------------------------------------------------------------

static piece *next_waiting(bool all) {
  take_lock();
  piece *p = first_full;
  if (p) {
    first_full = p->next;
    if (!first_full) last_full = NULL;
    AO_store(&waiting, AO_load(&waiting) - 1);
  } else if (all) {
    p = filling;
    filling = NULL;
  }
  give_lock();
  return p;
}

static void give_back(piece *p) {
  take_lock();
  p->next = spare;
  spare = p;
  give_lock();
}

// Not all of the piece is in the file: what there is of its last line goes.
static void cut_back(const piece *p) {
  struct stat now;
  if (fstat(fd, &now) != 0 || !S_ISREG(now.st_mode)) return;
  size_t wrote = now.st_size > end ? (size_t)(now.st_size - end) : 0;
  if (wrote > p->used) wrote = p->used;
  while (wrote && p->text[wrote - 1] != '\n') wrote--;
  if (ftruncate(fd, end + (off_t)wrote) != 0) return; // nothing can be done
}

// False: errno says why; what was written of whole lines stays.
static bool write_piece(const piece *p) {
  bool ours = out_file_is_ours(fd, file);
  if (ours && out_file_write(fd, p->text, p->used, end)) {
    end += (off_t)p->used;
    return true;
  }
  int error = errno;
  if (ours) cut_back(p);
  if (ours) close(fd);
  fd = -1;
  errno = error;
  return false;
}

// The writer's lock is held.
static bool write_waiting(bool all) {
  piece *p;
  bool good = fd >= 0;
  while (good && (p = next_waiting(all))) {
    good = write_piece(p);
    int error = errno;
    give_back(p);
    errno = error;
  }
  return good;
}

static RT_COLD void give_up(int error) {
  take_lock();
  bool first = AO_load(&rt_recording_now);
  AO_store(&rt_recording_now, 0);
  give_lock();
  if (first) rt_report("record file '%.250s': %s; recording ends", file->path, strerror(error));
}

void rt_record_write(bool all) {
  if (!all && !AO_load(&waiting)) return;
  int cancellable = rt_cancel_disable();
  bool mine = pthread_mutex_trylock(&writer) == 0;
  if (!mine && AO_load(&waiting) > WAITING_MOST) mine = pthread_mutex_lock(&writer) == 0;
  if (mine && fd >= 0 && !write_waiting(all)) give_up(errno);
  if (mine) pthread_mutex_unlock(&writer);
  rt_cancel_restore(cancellable);
}

// ---- Start and end --------------------------------------------------------------------------

// Values as the program would set them.
static void put_option(const char *name, int64_t value) {
  put_char('o');
  rt_record_text(name);
  rt_record_signed(value);
  put_char('\n');
}

void rt_record_option(const char *name, int64_t value) {
  if (!rt_record_hold()) return;
  put_moment();
  put_option(name, value);
  give_lock();
}

static bool put_header(void) {
  static const char version[] = "tidepool-trace 1\n";
  if (!make_room()) return false;
  for (const char *c = version; *c; c++) put_char(*c);
  put_option("gc_percent", rt_options.gc_percent);
  put_option("memory_limit", rt_options.memory_limit);
  put_option("min_heap_bytes", rt_options.min_heap_bytes);
  put_option("record_kib", rt_options.record_kib);
  return true;
}

static tide_status fail(int error) {
  return rt_error_set(TIDE_ERR_SYSTEM, "record file '%.190s': %s", file->path, strerror(error));
}

// The header is written at once, so that a full disk is found out.
static int open_file(void) {
  fd = out_file_open(file);
  if (fd < 0) return errno;
  take_lock();
  bool good = put_header();
  give_lock();
  if (!good) return ENOMEM;
  return write_waiting(true) ? 0 : errno;
}

tide_status rt_record_start(const char *path) {
  if (!file) file = record_map((sizeof *file + 4095) / 4096 * 4096);
  if (!file) return rt_error_set(TIDE_ERR_MEMORY, "no memory for a recording");
  if (!out_file_name(file, path))
    return rt_error_set(TIDE_ERR_ARGUMENT, "the path of a record file is empty or too long");
  pthread_mutex_lock(&writer);
  int error = open_file();
  if (!error) AO_store(&rt_recording_now, 1);
  pthread_mutex_unlock(&writer);
  return error ? fail(error) : TIDE_OK;
}

static void close_ours(void) {
  if (fd >= 0 && out_file_is_ours(fd, file)) close(fd);
  fd = -1;
}

void rt_record_after_fork(void) {
  AO_store(&rt_recording_now, 0);
  close_ours(); // it is the parent's
}

// Other threads may still run, and one of them may be writing for as long as it likes; the exit may
// come from a hook while it is stopped, or from a signal that has cut this very thread off here.
static bool take_in_time(pthread_mutex_t *mutex) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec++;
  return pthread_mutex_timedlock(mutex, &until) == 0;
}

// False: what is waiting is lost, but for whole pieces in the file.
static bool put_end(void) {
  rt_thread *self = rt_self();
  if (self) rt_pin(self);
  bool held = take_in_time(&lock.mutex);
  if (held && AO_load(&rt_recording_now) && rt_record_line('e')) rt_record_line_ends();
  AO_store(&rt_recording_now, 0);
  if (held) rt_pinned_lock_give(&lock);
  if (self) rt_unpin(self);
  return held;
}

__attribute__((destructor)) static void finish(void) {
  if (!rt_recording() || !put_end() || !take_in_time(&writer)) return;
  if (fd >= 0 && !write_waiting(true))
    rt_report("record file '%.250s': %s; recording ends", file->path, strerror(errno));
  close_ours();
  pthread_mutex_unlock(&writer);
}
