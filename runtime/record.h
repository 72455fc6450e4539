// SPDX-License-Identifier: MIT
// TIDE_DEBUG=record=FILE: what the program allocates, when that dies, and what else the rooms above
// have to tell, as lines of text for `tidepool replay`. docs/trace-format.md has the lines.
//
// The recorder has the file, the one order of all lines, their times and threads, and gives numbers
// to addresses (record_names.c). What a line means is for the room that writes it. The order is
// that of a pinned lock: so lines may be written by anybody, pinned or with the world stopped, and
// it takes no malloc and no stdio. They are kept in memory until rt_record_write, which may wait
// for the disk.
//
// In the child of a fork nothing is recorded.
#ifndef TIDEPOOL_RECORD_H
#define TIDEPOOL_RECORD_H

extern AO_t rt_recording_now;
static inline bool rt_recording(void) {
  return RT_UNLIKELY(AO_load(&rt_recording_now));
}

// Starts with the options in force. With init_lock held, so that nothing is missed.
tide_status rt_record_start(const char *path);

// Writes what is waiting, if it is much or all of it is asked for. By a thread that holds nothing,
// with the world running.
void rt_record_write(bool all);
void rt_record_after_fork(void); // in the child

// ---- Lines ----------------------------------------------------------------------------------

// A line of its own: a letter, then numbers and words. False: nothing is recorded, write nothing.
bool rt_record_begin(char kind);
void rt_record_end(void);

void rt_record_number(uint64_t number);
void rt_record_range(uint64_t from, uint64_t to);
void rt_record_signed(int64_t number);
void rt_record_letter(char letter);
void rt_record_text(const char *text); // its first 200 bytes; spaces may be in the last word only

void rt_record_option(const char *name, int64_t value); // a whole line: the program has changed it

// For who has to look first, or has several lines. False: nothing is recorded, nothing is held.
bool rt_record_hold(void);
void rt_record_let_go(void);
bool rt_record_line(char kind); // held, as for all below; false: recording has ended
void rt_record_line_ends(void);
void rt_record_out_of_memory(void); // recording ends

// ---- Numbers of addresses -------------------------------------------------------------------
//
// Held.

// The next number, from 1 on. The address has none.
void rt_record_name(const void *address);
uint64_t rt_record_number_of(const void *address); // 0: it has none
uint64_t rt_record_unname(const void *address);    // the same, and it has none any more
// From here on its number is the other's. Returns it, 0: it has none.
uint64_t rt_record_rename(const void *from, const void *to);
// Takes the numbers of all addresses that do not live, and calls gone for each, in ascending order.
void rt_record_unname_dead(bool (*lives)(const void *address), void (*gone)(uint64_t number));

// ---- Whom for -------------------------------------------------------------------------------

// Whom the calling thread works for; returns who it was before. A number that a room above has
// chosen, or one of these. OWN: for the library, which does the same in a replay: not recorded.
#define RT_RECORD_PROGRAM 0u
#define RT_RECORD_OWN     UINT32_MAX
unsigned rt_record_for(unsigned whom);
unsigned rt_record_whom(void);

#endif
