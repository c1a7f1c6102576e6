// baton-bench-ipc-go BATCHES: a message to and fro between two goroutines on one thread, so many batches of 1000.
// Prints what a message one way took of each, in picoseconds.
package main

import (
	"fmt"
	"os"
	"runtime"
	"strconv"
	"time"
)

const batch = 1000

func main() {
	if len(os.Args) != 2 {
		os.Exit(1)
	}
	batches, err := strconv.Atoi(os.Args[1])
	if err != nil {
		os.Exit(1)
	}
	runtime.GOMAXPROCS(1)
	requests, answers := make(chan [8]uint64), make(chan [8]uint64)
	go func() {
		for message := range requests {
			answers <- message
		}
	}()
	times := make([]int64, 0, batches)
	for range batches {
		start := time.Now()
		for number := range uint64(batch) {
			requests <- [8]uint64{7: number}
			if answer := <-answers; answer[7] != number {
				os.Exit(1)
			}
		}
		times = append(times, time.Since(start).Nanoseconds()*1000/(2*batch))
	}
	for _, time := range times {
		fmt.Println(time)
	}
}
