// SPDX-License-Identifier: MIT

package main

import (
	"math"
	"runtime"
	"runtime/debug"
	"sort"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// runTeam runs a function in several goroutines at once and returns the time from the moment when
// all may begin.
func runTeam(threads int, run func(index int)) float64 {
	begin := make(chan bool)
	var ready, done sync.WaitGroup
	ready.Add(threads)
	done.Add(threads)
	for t := 0; t < threads; t++ {
		go func(index int) {
			ready.Done()
			<-begin
			run(index)
			done.Done()
		}(t)
	}
	ready.Wait()
	start := time.Now()
	close(begin)
	done.Wait()
	return secondsSince(start)
}

// ---- pool ----

const (
	pair = iota
	burst
	empty
	costly
)

const (
	burstItems   = 100
	collectEvery = 1000
	costlyTime   = time.Microsecond
)

type smallItem struct {
	next *smallItem
	data [3]uint64
}

type poolTest struct {
	size     uint64 // 0: smallItem
	pattern  uint64
	threads  int
	leastMs  uint64
	rounds   uint64 // each
	created  int64  // by the pool
	itemPool sync.Pool
}

// make does not let the compiler know that the item could be on the stack: keep is on the heap.
func (p *poolTest) make(keep *unsafe.Pointer) {
	if p.size == 0 {
		*keep = unsafe.Pointer(&smallItem{})
	} else {
		*keep = allocate(p.size)
	}
	*(*uint64)(*keep) = 1
}

func spin() {
	for start := time.Now(); time.Since(start) < costlyTime; {
	}
}

func (p *poolTest) collectNowAndThen(index int, round uint64) {
	if round%(collectEvery*uint64(p.threads)) == collectEvery*uint64(index) {
		runtime.GC()
	}
}

func (p *poolTest) makeLoop(index int) {
	held := make([]unsafe.Pointer, burstItems)
	switch p.pattern {
	case pair:
		for i := uint64(0); i < p.rounds; i++ {
			p.make(&held[0])
		}
	case burst:
		for i := uint64(0); i < p.rounds; i += burstItems {
			for j := range held {
				p.make(&held[j])
			}
		}
	case costly:
		for i := uint64(0); i < p.rounds; i++ {
			spin()
			p.make(&held[0])
			p.collectNowAndThen(index, i)
		}
	}
}

func (p *poolTest) create() any {
	atomic.AddInt64(&p.created, 1)
	if p.pattern == costly {
		spin()
	}
	var item unsafe.Pointer
	p.make(&item)
	return item
}

func (p *poolTest) take() unsafe.Pointer {
	item := p.itemPool.Get().(unsafe.Pointer)
	*(*uint64)(item) = 1
	return item
}

func (p *poolTest) useLoop(index int) {
	switch p.pattern {
	case pair:
		for i := uint64(0); i < p.rounds; i++ {
			p.itemPool.Put(p.take())
		}
	case burst:
		held := make([]unsafe.Pointer, burstItems)
		for j := range held {
			p.make(&held[j])
		}
		for i := uint64(0); i < p.rounds; i += burstItems {
			for j := range held {
				p.itemPool.Put(held[j])
			}
			for j := range held {
				held[j] = p.take()
			}
		}
	case empty:
		for i := uint64(0); i < p.rounds; i++ {
			if p.itemPool.Get() != nil {
				fail("an empty pool had an item")
			}
		}
	case costly:
		for i := uint64(0); i < p.rounds; i++ {
			p.itemPool.Put(p.take())
			p.collectNowAndThen(index, i)
		}
	}
}

func (p *poolTest) nsARound(loop func(index int)) float64 {
	least := float64(p.leastMs) * 1e-3
	for p.rounds = 1000; ; {
		atomic.StoreInt64(&p.created, 0)
		seconds := runTeam(p.threads, loop)
		if seconds >= least {
			return seconds * 1e9 / float64(p.rounds*uint64(p.threads))
		}
		p.rounds = uint64(float64(p.rounds)*math.Min(1.2*least/seconds, 10)) + burstItems
		p.rounds -= p.rounds % burstItems
	}
}

func poolRun() {
	p := &poolTest{
		size:    parameter("size"),
		pattern: parameter("pattern"),
		threads: int(parameter("threads")),
		leastMs: parameter("least_ms"),
	}
	making, hits := math.NaN(), math.NaN()
	if p.pattern != empty {
		p.itemPool.New = p.create
		making = p.nsARound(p.makeLoop)
	}
	use := p.nsARound(p.useLoop)
	if p.pattern != empty {
		hits = 1 - float64(p.created)/float64(p.rounds*uint64(p.threads))
	}
	report("ns_make", making)
	report("ns_pool", use)
	report("make_over_pool", making/use)
	report("hit_rate", hits)
	report("cpu_s", cpuSeconds())
	report("collections", collections())
}

// ---- hooks ----

var anItem uint64

func hooksRun() {
	const first, counted = 2, 20
	pools := make([]sync.Pool, parameter("pools"))
	each := parameter("items") / uint64(len(pools))
	if each < 10 {
		each = 10
	}
	debug.SetGCPercent(-1)
	var log pauseLog
	for collection := 0; collection < first+counted; collection++ {
		for i := range pools {
			for left := each; left > 0; left-- {
				pools[i].Put(&anItem)
			}
		}
		log.look(false)
		runtime.GC()
		log.look(collection >= first)
	}
	sort.Float64s(log.us)
	report("hooks_us", math.NaN())
	report("hooks_max_us", math.NaN())
	report("pause_us", percentile(log.us, 0.5))
	report("pause_max_us", percentile(log.us, 1))
	report("items_each", float64(each))
	report("peak_mib", peakResidentBytes()/mib)
}

// ---- pools ----

func poolsRun() {
	threads := int(parameter("threads"))
	count := parameter("pools") / uint64(threads)
	if count == 0 {
		count = 1
	}
	before := residentBytes()
	seconds := runTeam(threads, func(int) {
		pools := make([]*sync.Pool, 64)
		for i := uint64(0); i < count; i++ {
			pool := &sync.Pool{}
			pools[i%uint64(len(pools))] = pool
			pool.Put(&anItem)
			pool.Get()
		}
	})
	report("ns_per_pool", seconds*1e9/float64(count*uint64(threads)))
	report("collections", collections())
	for i := 0; i < 6; i++ {
		runtime.GC()
	}
	report("left_mib", math.Max(residentBytes()-before, 0)/mib)
	report("cpu_s", cpuSeconds())
	report("peak_mib", peakResidentBytes()/mib)
}
