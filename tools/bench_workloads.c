// SPDX-License-Identifier: MIT
// The workloads of `tidepool bench` as tables: options, what the workers are told, what they
// report. What a workload does is in tools/bench/, in the file of its name.
#include "bench.h"

const bench_peer bench_peers[BENCH_PEERS] = {
    [TIDEPOOL] = {"tidepool", "tidepool-bench-tide", NULL, true},
    [BDW] = {"bdw", "tidepool-bench-bdw", "libgc-dev", true},
    [MALLOC] = {"malloc", "tidepool-bench-malloc", NULL, false},
    [MIMALLOC] = {"mimalloc", "tidepool-bench-mimalloc", "libmimalloc-dev", false},
    [GO] = {"go", "tidepool-bench-go", "golang-go", true},
};

bool bench_able(const bench_workload *workload, int peer) {
  return bench_peers[peer].collects || !workload->needs_collector;
}

#define COUNT(rows)   (sizeof(rows) / sizeof(rows)[0])
#define FIELD(member) offsetof(bench_settings, member)

#define SIZES(standard)                                                                            \
  {                                                                                                \
    "sizes", "LIST", OPTION_COUNTS, FIELD(sizes), standard, 8, 1 << 24, NULL,                      \
        "sizes of objects, in bytes"                                                               \
  }
#define BYTES(standard, help)                                                                      \
  { "bytes", "SIZE", OPTION_BYTES, FIELD(bytes), standard, 1, 0x1p40, NULL, help }
#define LIVE                                                                                       \
  {                                                                                                \
    "live", "SIZE", OPTION_BYTES, FIELD(live), "64MiB", 0x1p16, 0x1p36, NULL,                      \
        "memory in use throughout"                                                                 \
  }
#define SEED                                                                                       \
  { "seed", "N", OPTION_COUNT, FIELD(seed), "1", 0, 0x1p48, NULL, "seed of the random numbers" }

static const option_row alloc_options[] = {
    SIZES("16,32,64,256,1024,4096,65536"),
    BYTES("512MiB", "what a run allocates"),
};

static const option_row bigheap_options[] = {
    {"markers", "LIST", OPTION_COUNTS, FIELD(markers), "1", 1, 1024, NULL,
     "numbers of threads that mark"},
    SEED,
};

static const option_row pause_options[] = {
    LIVE,
    {"seconds", "N", OPTION_COUNT, FIELD(seconds), "3", 1, 86400, NULL, "how long a run takes"},
    {"threads", "N", OPTION_COUNT, FIELD(thread_count), "2", 1, 1024, NULL,
     "threads that replace entries"},
    SEED,
};

static const option_row scale_options[] = {
    {"threads", "LIST", OPTION_COUNTS, FIELD(threads), "1,2,4,8,16", 1, 1024, NULL,
     "numbers of threads that allocate"},
    SIZES("32,256,752,2048,4096"),
    BYTES("128MiB", "what each thread allocates"),
};

static const option_row fragment_options[] = {
    LIVE,
    {"ops", "N", OPTION_COUNT, FIELD(operations), "2000000", 100, 0x1p48, NULL,
     "objects made in a run"},
    SEED,
};

static const option_row depth = {NULL, "N", OPTION_COUNT, FIELD(n), NULL, 6, 30, NULL, NULL};
static const option_row mib = {NULL, "MIB", OPTION_COUNT, FIELD(n), NULL, 1, 1 << 16, NULL, NULL};

#define CPU                                                                                        \
  { "cpu_s", "CPU s", 3, false, 0 }
#define COLLECTIONS                                                                                \
  { "collections", "GCs", 0, false, 0 }
#define PEAK                                                                                       \
  { "peak_mib", "peak MiB", 1, false, 0 }

const bench_workload bench_workloads[] = {
    {
        .name = "alloc",
        .summary = "the price of an allocation, for several sizes",
        .about = "Measures what an allocation costs, reclaiming included.\vEach new object is "
                 "touched and takes the place of the oldest of 1024 (of fewer, down to 16, where "
                 "those would be more than 1 MiB).",
        .note = "Each new object takes the place of an older one; who has no collector frees that.",
        .noun = "time",
        .options = alloc_options,
        .option_count = COUNT(alloc_options),
        .quick = "--sizes=32,4096 --bytes=8MiB",
        .parameters = {{"size", "size", true, false, false, FIELD(sizes), 0},
                       {"bytes", "each run allocates", false, false, true, FIELD(bytes), 0x1p29}},
        .metrics = {{"ns", "ns/object", 1, false, 0}, CPU, COLLECTIONS, PEAK},
    },
    {
        .name = "trees",
        .summary = "binary trees, as in the Computer Language Benchmarks Game",
        .about = "Builds binary trees while one of depth N (18 by default) lives on.\vA tree of "
                 "depth N + 1 stretches the heap; then 2^(N-d+4) trees of each depth d = 4, 6, ... "
                 "N are built, counted and dropped.",
        .note = "Nodes are two references. Who has no collector frees every dropped tree.",
        .noun = "time",
        .positional = &depth,
        .n = 18,
        .quick_n = 10,
        .quick = "",
        .parameters = {{"depth", "depth", false, true, false, FIELD(n), 18}},
        .metrics = {{"wall_s", "wall s", 3, false, 0}, CPU, PEAK, COLLECTIONS},
    },
    {
        .name = "gcbench",
        .summary = "GCBench of Ellis, Kovac and Boehm",
        .about = "Runs GCBench with a stretch tree of depth N (18 by default).\vA tree of depth "
                 "N - 2 and an array of 500000 doubles live on, while trees of depth 4, 6, ... N - "
                 "2 are built from the top down and from the bottom up.",
        .note = "Half of the trees are built from the top down. Who has no collector frees them.",
        .noun = "time",
        .positional = &depth,
        .n = 18,
        .quick_n = 10,
        .quick = "",
        .parameters = {{"depth", "depth", false, true, false, FIELD(n), 18}},
        .metrics = {{"wall_s", "wall s", 3, false, 0}, CPU, PEAK, COLLECTIONS},
    },
    {
        .name = "bigheap",
        .summary = "how long a full collection of many scattered objects takes",
        .about = "Times full collections of MIB MiB (256 by default) of objects of 32 bytes.\vThey "
                 "form a complete binary tree whose nodes are in shuffled places, so that marking "
                 "waits for memory. Of three collections the median counts.",
        .note =
            "Median of three full collections a run. The objects are one shuffled binary tree. "
            "alloc: what an object cost while it was built, new memory from the system included.",
        .noun = "time",
        .needs_collector = true,
        .options = bigheap_options,
        .option_count = COUNT(bigheap_options),
        .positional = &mib,
        .n = 256,
        .quick_n = 8,
        .quick = "",
        .parameters = {{"mib", "heap MiB", false, false, false, FIELD(n), 256},
                       {"markers", "markers", true, false, false, FIELD(markers), 0},
                       {"seed", "seed", false, false, false, FIELD(seed), 0}},
        .metrics = {{"collection_s", "collection s", 4, false, 0},
                    {"ns_per_object", "ns/object", 1, false, 0},
                    {"alloc_ns", "alloc ns", 1, false, 0},
                    CPU,
                    PEAK},
    },
    {
        .name = "pause",
        .summary = "how long collections keep threads from running",
        .about = "Measures the pauses while threads replace entries of a live table.\vThe table "
                 "is lists of four entries, 32 to 256 bytes each; random ones are replaced.",
        .note = "A pause is the time in which no thread runs; stop is the part of it that went "
                "into stopping them. Go does not tell that part; a pause of Go is both stops of a "
                "collection. k ops/s: thousand entries replaced a second, by all threads.",
        .noun = "median pause",
        .options = pause_options,
        .option_count = COUNT(pause_options),
        .quick = "--live=4MiB --seconds=1",
        .parameters = {{"live_bytes", "live", false, false, true, FIELD(live), 0x1p26},
                       {"threads", "threads", false, false, false, FIELD(thread_count), 0},
                       {"seconds", "seconds", false, false, false, FIELD(seconds), 3},
                       {"seed", "seed", false, false, false, FIELD(seed), 0}},
        .metrics = {{"pause_us", "pause us", 1, false, 0},
                    {"pause_p99_us", "p99", 1, false, 0},
                    {"pause_max_us", "max", 1, false, 0},
                    {"stop_us", "stop us", 1, false, 0},
                    {"stop_max_us", "max stop", 1, false, 0},
                    COLLECTIONS,
                    {"kops_s", "k ops/s", 0, false, 0}},
    },
    {
        .name = "scale",
        .summary = "whether threads that allocate get in each other's way",
        .about = "Has several threads allocate at a time, the same number of objects each.\vNone "
                 "of them is the first thread of the process. Speed-up is the throughput over that "
                 "of the same peer with one thread, if one is in the list.",
        .note = "Wall time until all threads are done, each with the same work: with as many CPUs "
                "as threads it would not grow. M/s: million objects a second, over all threads.",
        .noun = "time",
        .options = scale_options,
        .option_count = COUNT(scale_options),
        .quick = "--threads=1,2 --sizes=256 --bytes=4MiB",
        .parameters = {{"size", "size", true, false, false, FIELD(sizes), 0},
                       {"threads", "threads", true, false, false, FIELD(threads), 4},
                       {"bytes", "each thread allocates", false, false, true, FIELD(bytes),
                        0x1p27}},
        .metrics = {{"wall_s", "wall s", 3, false, 0},
                    {"mallocs_s", "M/s", 2, false, 0},
                    {"speed_up", "speed-up", 2, false, 1},
                    CPU,
                    COLLECTIONS},
    },
    {
        .name = "fragment",
        .summary = "memory held against memory in use, after sizes have changed",
        .about = "Compares resident with live memory after a long run of mixed sizes.\vSizes are "
                 "log-uniform. One of four objects lives long. The mix changes over four phases: "
                 "16 B to 1 KiB, 1 to 64 KiB, 16 B to 64 KiB, and 16 B to 1 KiB again.",
        .note =
            "Resident memory over live bytes, at the end and after phases 1 to 3 (sizes: small, "
            "large, all, small). A collector holds garbage too, by design.",
        .noun = "memory",
        .options = fragment_options,
        .option_count = COUNT(fragment_options),
        .quick = "--live=4MiB --ops=40000",
        .parameters = {{"live_bytes", "live", false, false, true, FIELD(live), 0x1p26},
                       {"ops", "objects", false, false, false, FIELD(operations), 2e6},
                       {"seed", "seed", false, false, false, FIELD(seed), 0}},
        .metrics = {{"rss_over_live", "end RSS/live", 2, false, 0},
                    {"phase_1", "phase 1", 2, false, 0},
                    {"phase_2", "phase 2", 2, false, 0},
                    {"phase_3", "phase 3", 2, false, 0},
                    {"rss_mib", "end MiB", 1, false, 0},
                    PEAK,
                    {"wall_s", "wall s", 2, false, 0}},
    },
    {
        .name = "startup",
        .summary = "what the first call costs",
        .about = "Measures what initialising takes, and the memory that it adds.\vThe first call "
                 "includes the first object. Go has begun before a program can look, so for Go "
                 "only the whole process is timed.",
        .note = "The first call and the first object. process: from the start of a process that "
                "does no more to its end.",
        .noun = "time",
        .quick = "",
        .metrics = {{"init_us", "first call us", 1, false, 0},
                    {"added_kib", "added KiB", 0, false, 0},
                    PEAK,
                    {"process_ms", "process ms", 2, true, 0}},
    },
    {.name = NULL},
};
