// SPDX-License-Identifier: MIT

package main

import (
	"math"
	"sync"
	"time"
	"unsafe"
)

// allocate makes a zeroed object that may hold references, of a size known at run time only.
// The numbers that the workloads write into such objects are no addresses of Go's heap.
func allocate(size uint64) unsafe.Pointer {
	const word = 8
	words := make([]unsafe.Pointer, (size+word-1)/word)
	return unsafe.Pointer(&words[0])
}

func countOf(size uint64) uint64 {
	if count := parameter("bytes") / size; count > 0 {
		return count
	}
	return 1
}

// ---- alloc ----

var ring [1024]unsafe.Pointer

func allocRun() {
	size := parameter("size")
	count := countOf(size)
	entries := uint64(len(ring))
	for entries > 16 && entries*size > 1<<20 {
		entries /= 2
	}
	start := time.Now()
	for i := uint64(0); i < count; i++ {
		object := allocate(size)
		*(*uint64)(object) = i
		ring[i&(entries-1)] = object
	}
	report("ns", float64(time.Since(start))/float64(count))
	report("cpu_s", cpuSeconds())
	report("collections", collections())
	report("peak_mib", peakResidentBytes()/mib)
}

// ---- scale ----

func scaleRun() {
	threads := int(parameter("threads"))
	size := parameter("size")
	count := countOf(size)
	begin := make(chan bool)
	var ready, done sync.WaitGroup
	ready.Add(threads)
	done.Add(threads)
	for t := 0; t < threads; t++ {
		go func() {
			ring := make([]unsafe.Pointer, 64)
			ready.Done()
			<-begin
			for i := uint64(0); i < count; i++ {
				object := allocate(size)
				*(*uint64)(object) = i
				ring[i%uint64(len(ring))] = object
			}
			done.Done()
		}()
	}
	ready.Wait()
	start := time.Now()
	close(begin)
	done.Wait()
	seconds := secondsSince(start)
	report("wall_s", seconds)
	report("mallocs_s", float64(count*uint64(threads))/seconds*1e-6)
	report("cpu_s", cpuSeconds())
	report("collections", collections())
}

// ---- pause ----

const (
	listLength = 4
	entryLeast = 32
	entryMost  = 256
	batch      = 256
)

type entry struct {
	next *entry
	size uint64
}

func makeEntry(next *entry, r *random) *entry {
	size := entryLeast + r.below(entryMost-entryLeast+1)
	e := (*entry)(allocate(size))
	e.size = size
	e.next = next
	return e
}

func replaceOne(list **entry, r *random) {
	for before := r.below(listLength); before > 0; before-- {
		list = &(*list).next
	}
	*list = makeEntry((*list).next, r)
}

func mutate(lists []*entry, r random, end time.Time) (operations uint64) {
	for time.Now().Before(end) {
		for i := 0; i < batch; i++ {
			replaceOne(&lists[r.below(uint64(len(lists)))], &r)
		}
		operations += batch
	}
	return operations
}

func pauseRun() {
	r := random(parameter("seed"))
	threads := parameter("threads")
	lists := make([]*entry, parameter("live_bytes")/(listLength*(entryLeast+entryMost)/2)+1)
	for i := 0; i < len(lists)*listLength; i++ {
		lists[i/listLength] = makeEntry(lists[i/listLength], &r)
	}
	if uint64(len(lists)) < threads {
		fail("more threads than lists")
	}
	var log pauseLog
	log.look(false)
	before := log.seen
	start := time.Now()
	end := start.Add(time.Duration(parameter("seconds")) * time.Second)
	operations := make(chan uint64)
	for t := uint64(0); t < threads; t++ {
		first, last := uint64(len(lists))*t/threads, uint64(len(lists))*(t+1)/threads
		go func(seed random) { operations <- mutate(lists[first:last], seed, end) }(random(r.next()))
	}
	total := uint64(0)
	for tick := time.NewTicker(100 * time.Millisecond); threads > 0; {
		select {
		case <-tick.C:
			log.look(true)
		case done := <-operations:
			total += done
			threads--
		}
	}
	seconds := secondsSince(start)
	log.look(true)
	pauses := log.sorted()
	report("pause_us", percentile(pauses, 0.5))
	report("pause_p99_us", percentile(pauses, 0.99))
	report("pause_max_us", percentile(pauses, 1))
	report("stop_us", math.NaN())
	report("stop_max_us", math.NaN())
	report("collections", float64(log.seen-before))
	report("kops_s", float64(total)/seconds*1e-3)
}

// ---- fragment ----

type phase struct {
	least, most float64
	share       uint64
}

var phases = []phase{{16, 1024, 45}, {1024, 65536, 5}, {16, 65536, 5}, {16, 1024, 45}}

type object struct{ size uint64 }

type heap struct {
	longLived           []*object
	count               uint64
	shortLived          [64]*object
	oldest              int
	liveBytes, liveMost uint64
	random              random
	contents            [65536]byte
}

func (h *heap) make(p *phase) *object {
	exponent := float64(h.random.next()>>11) * 0x1p-53
	size := uint64(p.least * math.Pow(p.most/p.least, exponent))
	o := (*object)(allocate(size))
	copy(unsafe.Slice((*byte)(unsafe.Pointer(o)), size), h.contents[:])
	o.size = size
	h.liveBytes += size
	return o
}

func (h *heap) addLongLived(o *object) {
	for h.count > 0 && (h.liveBytes > h.liveMost || h.count == uint64(len(h.longLived))) {
		place := h.random.below(h.count)
		h.liveBytes -= h.longLived[place].size
		h.count--
		h.longLived[place] = h.longLived[h.count]
		h.longLived[h.count] = nil
	}
	h.longLived[h.count] = o
	h.count++
}

func (h *heap) addShortLived(o *object) {
	if old := h.shortLived[h.oldest]; old != nil {
		h.liveBytes -= old.size
	}
	h.shortLived[h.oldest] = o
	h.oldest = (h.oldest + 1) % len(h.shortLived)
}

func (h *heap) runPhase(p *phase, operations uint64) float64 {
	for i := uint64(0); i < operations; i++ {
		o := h.make(p)
		if i%4 == 0 {
			h.addLongLived(o)
		} else {
			h.addShortLived(o)
		}
	}
	return residentBytes() / float64(h.liveBytes)
}

func fragmentRun() {
	operations := parameter("ops")
	h := &heap{random: random(parameter("seed")), liveMost: parameter("live_bytes")}
	h.longLived = make([]*object, h.liveMost/128+1)
	for i := range h.contents {
		h.contents[i] = 1
	}
	start := time.Now()
	for h.liveBytes < h.liveMost && h.count < uint64(len(h.longLived)) {
		h.addLongLived(h.make(&phases[0]))
	}
	var overhead []float64
	for i := range phases {
		overhead = append(overhead, h.runPhase(&phases[i], operations*phases[i].share/100))
	}
	report("rss_over_live", overhead[3])
	report("phase_1", overhead[0])
	report("phase_2", overhead[1])
	report("phase_3", overhead[2])
	report("rss_mib", residentBytes()/mib)
	report("peak_mib", peakResidentBytes()/mib)
	report("wall_s", secondsSince(start))
}
