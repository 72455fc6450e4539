// SPDX-License-Identifier: MIT

package main

import (
	"runtime"
	"runtime/debug"
	"sort"
	"time"
	"unsafe"
)

func reportRun(start time.Time) {
	report("wall_s", secondsSince(start))
	report("cpu_s", cpuSeconds())
	report("peak_mib", peakResidentBytes()/mib)
	report("collections", collections())
}

// ---- trees ----

type treeNode struct{ left, right *treeNode }

func buildTree(depth uint64) *treeNode {
	n := &treeNode{}
	if depth == 0 {
		return n
	}
	n.left = buildTree(depth - 1)
	n.right = buildTree(depth - 1)
	return n
}

func (n *treeNode) count() uint64 {
	if n.left == nil {
		return 1
	}
	return 1 + n.left.count() + n.right.count()
}

func buildAndDrop(depth uint64) {
	if nodes := buildTree(depth).count(); nodes != 2<<depth-1 {
		fail("a tree of depth %d has %d nodes", depth, nodes)
	}
}

func treesRun() {
	deepest := parameter("depth")
	start := time.Now()
	buildAndDrop(deepest + 1)
	longLived := buildTree(deepest)
	for depth := uint64(4); depth <= deepest; depth += 2 {
		for left := 1 << (deepest - depth + 4); left > 0; left-- {
			buildAndDrop(depth)
		}
	}
	if longLived.count() != 2<<deepest-1 {
		fail("the long-lived tree is damaged")
	}
	reportRun(start)
}

// ---- gcbench ----

type benchNode struct {
	left, right *benchNode
	i, j        int32
}

var escaped *benchNode

func populate(depth uint64, n *benchNode) {
	if depth == 0 {
		return
	}
	n.left = &benchNode{}
	n.right = &benchNode{}
	populate(depth-1, n.left)
	populate(depth-1, n.right)
}

func buildBench(depth uint64) *benchNode {
	if depth == 0 {
		return &benchNode{}
	}
	left, right := buildBench(depth-1), buildBench(depth-1)
	return &benchNode{left: left, right: right}
}

func timeConstruction(stretch, depth uint64) {
	count := 2 * (2<<stretch - 1) / (2<<depth - 1)
	for i := 0; i < count; i++ {
		tree := &benchNode{}
		populate(depth, tree)
		escaped = tree
		escaped = nil
	}
	for i := 0; i < count; i++ {
		escaped = buildBench(depth)
		escaped = nil
	}
}

func gcbenchRun() {
	stretch := parameter("depth")
	deepest := stretch - 2
	start := time.Now()
	escaped = buildBench(stretch)
	escaped = nil

	longLived := &benchNode{}
	populate(deepest, longLived)
	array := make([]float64, 500000)
	for i := range array {
		array[i] = 1 / float64(i)
	}
	for depth := uint64(4); depth <= deepest; depth += 2 {
		timeConstruction(stretch, depth)
	}
	if longLived.left == nil || array[1000] != 1.0/1000 {
		fail("the long-lived data are damaged")
	}
	reportRun(start)
}

// ---- bigheap ----

type bigNode struct {
	left, right *bigNode
	data        [2]uint64
}

var bigRoot *bigNode

// The addresses lie in numbers, which Go does not follow; no collection runs, and nothing moves.
func buildBig(count uint64, seed random) {
	percent := debug.SetGCPercent(-1)
	nodes := make([]uintptr, count)
	node := func(i uint64) *bigNode { return *(**bigNode)(unsafe.Pointer(&nodes[i])) }
	start := time.Now()
	for i := range nodes {
		bigRoot = new(bigNode) // where others see it; else it would stay on the stack
		nodes[i] = uintptr(unsafe.Pointer(bigRoot))
	}
	report("alloc_ns", secondsSince(start)*1e9/float64(count))
	for left := count; left > 1; left-- {
		other := seed.below(left)
		nodes[left-1], nodes[other] = nodes[other], nodes[left-1]
	}
	for i := uint64(0); i < count; i++ {
		if 2*i+1 < count {
			node(i).left = node(2*i + 1)
		}
		if 2*i+2 < count {
			node(i).right = node(2*i + 2)
		}
		node(i).data[0] = i
	}
	bigRoot = node(0)
	debug.SetGCPercent(percent)
}

func (n *bigNode) soundNodes(place uint64) uint64 {
	if n == nil || n.data[0] != place {
		return 0
	}
	return 1 + n.left.soundNodes(2*place+1) + n.right.soundNodes(2*place+2)
}

func bigheapRun() {
	count := parameter("mib") * mib / 32
	buildBig(count, random(parameter("seed")))
	runtime.GC() // frees the array of addresses
	var seconds []float64
	for i := 0; i < 3; i++ {
		start := time.Now()
		runtime.GC()
		seconds = append(seconds, secondsSince(start))
	}
	if bigRoot.soundNodes(0) != count {
		fail("objects that are in use were lost")
	}
	sort.Float64s(seconds)
	report("collection_s", seconds[1])
	report("ns_per_object", seconds[1]*1e9/float64(count))
	report("cpu_s", cpuSeconds())
	report("peak_mib", peakResidentBytes()/mib)
}
