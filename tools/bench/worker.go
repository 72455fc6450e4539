// SPDX-License-Identifier: MIT

// The Go worker of `tidepool bench`: the workloads of the C workers, with the same parameters and
// the same report (see worker.h), on Go's own allocator and collector. The C files say what each
// workload is for; here only what differs is explained.
package main

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
)

var workloads = map[string]func(){
	"alloc":    allocRun,
	"trees":    treesRun,
	"gcbench":  gcbenchRun,
	"bigheap":  bigheapRun,
	"pause":    pauseRun,
	"scale":    scaleRun,
	"fragment": fragmentRun,
	"startup":  startupRun,
	"pool":     poolRun,
	"hooks":    hooksRun,
	"pools":    poolsRun,
}

func fail(format string, arguments ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", arguments...)
	os.Exit(1)
}

// parameterOr returns the whole number given for the key, or another if none is.
func parameterOr(key string, standard uint64) uint64 {
	for _, argument := range os.Args[2:] {
		if !strings.HasPrefix(argument, key+"=") {
			continue
		}
		value, err := strconv.ParseUint(argument[len(key)+1:], 10, 64)
		if err != nil {
			fail("%s: not a whole number", argument)
		}
		return value
	}
	return standard
}

const missing = math.MaxUint64

func parameter(key string) uint64 {
	value := parameterOr(key, missing)
	if value == missing {
		fail("%s=NUMBER is missing", key)
	}
	return value
}

var line []string

// report adds a metric; NaN stands for what Go has not.
func report(metric string, value float64) {
	text := "null"
	if !math.IsNaN(value) && !math.IsInf(value, 0) {
		text = strconv.FormatFloat(value, 'g', 9, 64)
	}
	line = append(line, fmt.Sprintf("%q: %s", metric, text))
}

func main() {
	const setDeathSignal = 1 // PR_SET_PDEATHSIG
	syscall.RawSyscall(syscall.SYS_PRCTL, setDeathSignal, uintptr(syscall.SIGKILL), 0)
	if len(os.Args) < 2 {
		fail("usage: %s WORKLOAD KEY=VALUE...", os.Args[0])
	}
	run := workloads[os.Args[1]]
	if run == nil {
		fail("unknown workload '%s'", os.Args[1])
	}
	if markers := parameterOr("markers", 0); markers > 0 {
		runtime.GOMAXPROCS(int(markers))
	}
	run()
	if _, err := fmt.Printf("{%s}\n", strings.Join(line, ", ")); err != nil {
		fail("cannot write the result")
	}
}

// Go is running before main is: what that takes is seen from outside only.
func startupRun() {
	report("init_us", math.NaN())
	report("added_kib", math.NaN())
	report("peak_mib", peakResidentBytes()/mib)
}
