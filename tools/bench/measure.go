// SPDX-License-Identifier: MIT

package main

import (
	"bytes"
	"math"
	"os"
	"runtime/debug"
	"sort"
	"strconv"
	"syscall"
	"time"
)

const mib = 1048576.0

func secondsSince(start time.Time) float64 { return time.Since(start).Seconds() }

func cpuSeconds() float64 {
	var usage syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &usage)
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) * 1e-9
}

func bytesIn(path, name string) float64 {
	text, _ := os.ReadFile(path)
	for _, line := range bytes.Split(text, []byte("\n")) {
		fields := bytes.Fields(line)
		if len(fields) > 1 && string(fields[0]) == name {
			kib, _ := strconv.ParseFloat(string(fields[1]), 64)
			return kib * 1024
		}
	}
	return math.NaN()
}

func residentBytes() float64     { return bytesIn("/proc/self/smaps_rollup", "Rss:") }
func peakResidentBytes() float64 { return bytesIn("/proc/self/status", "VmHWM:") }

func collections() float64 {
	var stats debug.GCStats
	debug.ReadGCStats(&stats)
	return float64(stats.NumGC)
}

func percentile(sorted []float64, share float64) float64 {
	if len(sorted) == 0 {
		return math.NaN()
	}
	return sorted[int(share*float64(len(sorted)-1)+0.5)]
}

// A pauseLog gathers the pauses of all collections. Go keeps the last 256, so it must look often.
// What Go counts as one pause is both stops of a collection together.
type pauseLog struct {
	seen  int64
	us    []float64
	stats debug.GCStats
}

func (l *pauseLog) look(keep bool) {
	debug.ReadGCStats(&l.stats)
	fresh := l.stats.NumGC - l.seen
	l.seen = l.stats.NumGC
	for i := int64(0); keep && i < fresh && i < int64(len(l.stats.Pause)); i++ {
		l.us = append(l.us, float64(l.stats.Pause[i])*1e-3)
	}
}

func (l *pauseLog) sorted() []float64 {
	sort.Float64s(l.us)
	return l.us
}

// splitmix64, as in worker.h.
type random uint64

func (r *random) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}

func (r *random) below(below uint64) uint64 { return (r.next() >> 32) * below >> 32 }
