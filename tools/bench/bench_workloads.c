// SPDX-License-Identifier: MIT
// The workloads of `tidepool bench` as tables: options, what the workers are told, what they
// report. What a workload does is in tools/bench/, in the file of its name.
#include "bench.h"

const bench_peer bench_peers[BENCH_PEERS] = {
    [TIDEPOOL] = {"tidepool", "tidepool-bench-tide", NULL, COLLECTOR | POOLS},
    [BDW] = {"bdw", "tidepool-bench-bdw", "libgc-dev", COLLECTOR},
    [MALLOC] = {"malloc", "tidepool-bench-malloc", NULL, 0},
    [MIMALLOC] = {"mimalloc", "tidepool-bench-mimalloc", "libmimalloc-dev", 0},
    [GO] = {"go", "tidepool-bench-go", "golang-go", COLLECTOR | POOLS},
};

bool bench_able(const bench_workload *workload, int peer) {
  return (workload->needs & ~bench_peers[peer].has) == 0;
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

#define POOL_PATTERNS "pair,burst,empty,costly"

static const option_row pool_options[] = {
    {"sizes", "LIST", OPTION_COUNTS, FIELD(sizes), "64,4096,65536,struct", 8, 1 << 24, "struct",
     "sizes of items, in bytes; struct is one of 32 bytes, known when compiling"},
    {"patterns", "LIST", OPTION_SET, FIELD(patterns), "pair", 0, 0, POOL_PATTERNS,
     "what a loop does, of " POOL_PATTERNS},
    {"threads", "LIST", OPTION_COUNTS, FIELD(threads), "1,2,16", 1, 1024, NULL,
     "numbers of threads that use the pool"},
    {"least-ms", "N", OPTION_COUNT, FIELD(least_ms), "300", 1, 60000, NULL,
     "milliseconds that a loop runs at least"},
};

static const option_row hooks_options[] = {
    {"pools", "LIST", OPTION_COUNTS, FIELD(pools), "1,100,10000", 1, 1e7, NULL, "numbers of pools"},
    {"items", "LIST", OPTION_COUNTS, FIELD(items), "10,1000000,10000000", 1, 1e9, NULL,
     "items in all of them together, but at least 10 in each"},
};

static const option_row pools_options[] = {
    {"threads", "LIST", OPTION_COUNTS, FIELD(threads), "1,2,8", 1, 1024, NULL,
     "numbers of threads that make pools"},
};

static const option_row pool_count = {NULL, "N", OPTION_COUNT, FIELD(n), NULL, 64, 1e9, NULL, NULL};
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
        .parameters = {{"size", "size", .offset = FIELD(sizes), .list = true},
                       {"bytes", "each run allocates", .offset = FIELD(bytes), .bytes = true,
                        .typical = 0x1p29}},
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
        .parameters = {{"depth", "depth", .offset = FIELD(n), .power = true, .typical = 18}},
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
        .parameters = {{"depth", "depth", .offset = FIELD(n), .power = true, .typical = 18}},
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
        .needs = COLLECTOR,
        .options = bigheap_options,
        .option_count = COUNT(bigheap_options),
        .positional = &mib,
        .n = 256,
        .quick_n = 8,
        .quick = "",
        .parameters = {{"mib", "heap MiB", .offset = FIELD(n), .typical = 256},
                       {"markers", "markers", .offset = FIELD(markers), .list = true},
                       {"seed", "seed", .offset = FIELD(seed)}},
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
        .parameters = {{"live_bytes", "live", .offset = FIELD(live), .bytes = true,
                        .typical = 0x1p26},
                       {"threads", "threads", .offset = FIELD(thread_count)},
                       {"seconds", "seconds", .offset = FIELD(seconds), .typical = 3},
                       {"seed", "seed", .offset = FIELD(seed)}},
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
        .parameters = {{"size", "size", .offset = FIELD(sizes), .list = true},
                       {"threads", "threads", .offset = FIELD(threads), .list = true, .typical = 4},
                       {"bytes", "each thread allocates", .offset = FIELD(bytes), .bytes = true,
                        .typical = 0x1p27}},
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
        .parameters = {{"live_bytes", "live", .offset = FIELD(live), .bytes = true,
                        .typical = 0x1p26},
                       {"ops", "objects", .offset = FIELD(operations), .typical = 2e6},
                       {"seed", "seed", .offset = FIELD(seed)}},
        .metrics = {{"rss_over_live", "end RSS/live", 2, false, 0},
                    {"phase_1", "phase 1", 2, false, 0},
                    {"phase_2", "phase 2", 2, false, 0},
                    {"phase_3", "phase 3", 2, false, 0},
                    {"rss_mib", "end MiB", 1, false, 0},
                    PEAK,
                    {"wall_s", "wall s", 2, false, 0}},
    },
    {
        .name = "pool",
        .summary = "an item from a pool against one that is made each time",
        .about =
            "Measures a get and a put against making an item and dropping it.\vPatterns: pair is a "
            "get, then a put of the same item; burst 100 puts, then 100 gets; empty gets on a pool "
            "that is empty and makes nothing; costly as pair, where making an item takes a "
            "microsecond more, with a full collection after each 1000 items. All threads use the "
            "same pool. A first word is written into each item.",
        .note = "Wall time over all threads' pairs of get and put (pool) and items made (make). "
                "make/pool: how many times cheaper the pool is. Who has no pools is compared by "
                "what making takes; who has no collector frees.",
        .noun = "time",
        .options = pool_options,
        .option_count = COUNT(pool_options),
        .quick = "--sizes=4096,struct --threads=1,2 --least-ms=2",
        .parameters = {{"size", "size", .offset = FIELD(sizes), .list = true, .words = "struct"},
                       {"pattern", "pattern", .offset = FIELD(patterns), .set = true,
                        .words = POOL_PATTERNS},
                       {"threads", "threads", .offset = FIELD(threads), .list = true},
                       {"least_ms", "least ms", .offset = FIELD(least_ms), .typical = 300}},
        .metrics = {{"ns_pool", "pool ns", 2, false, 0},
                    {"ns_make", "make ns", 2, false, 0},
                    {"make_over_pool", "make/pool", 1, false, 0},
                    {"hit_rate", "hit rate", 4, false, 0},
                    CPU,
                    COLLECTIONS},
        .otherwise = 1,
    },
    {
        .name = "hooks",
        .summary = "what pools add to the pause of a collection",
        .about = "Times the clean-up of pools at the start of 20 collections.\vBefore each one "
                 "every item is put, so that all pools have something that becomes the victim, and "
                 "a victim that is forgotten. Two collections more come first.",
        .note = "hooks: the part of the pause that pools take. pause: all of it, marking included. "
                "Go tells both stops of a collection as one pause, and not its parts; its marking "
                "is not in it.",
        .noun = "time",
        .needs = POOLS,
        .options = hooks_options,
        .option_count = COUNT(hooks_options),
        .quick = "--pools=1,20 --items=10,1000",
        .parameters = {{"pools", "pools", .offset = FIELD(pools), .list = true, .typical = 10000},
                       {"items", "items", .offset = FIELD(items), .list = true, .typical = 1e7}},
        .metrics = {{"hooks_us", "hooks us", 2, false, 0},
                    {"hooks_max_us", "max", 2, false, 0},
                    {"pause_us", "pause us", 1, false, 0},
                    {"pause_max_us", "max pause", 1, false, 0},
                    {"items_each", "items each", 0, false, 0},
                    PEAK},
    },
    {
        .name = "pools",
        .summary = "making, using and dropping many pools",
        .about =
            "Has threads make N pools (1000000 by default) altogether, each in the place of an "
            "older one.\vA thread has 64 pools at a time. Each gets one item put, which is "
            "taken out again, before it is destroyed, or dropped where that is the "
            "collector's work. left: resident memory after six collections, less what it was "
            "before the first pool.",
        .note = "A pool is made, used once and dropped; wall time over the pools of all threads. "
                "left: memory that is still resident after six collections.",
        .noun = "time",
        .needs = POOLS,
        .options = pools_options,
        .option_count = COUNT(pools_options),
        .positional = &pool_count,
        .n = 1000000,
        .quick_n = 2000,
        .quick = "--threads=1,2",
        .parameters = {{"pools", "pools", .offset = FIELD(n), .typical = 1e6},
                       {"threads", "threads", .offset = FIELD(threads), .list = true}},
        .metrics = {{"ns_per_pool", "ns/pool", 0, false, 0},
                    {"left_mib", "left MiB", 2, false, 0},
                    CPU,
                    COLLECTIONS,
                    PEAK},
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
