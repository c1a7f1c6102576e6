// Goroutines call a context manager by system calls of Go's own. A goroutine's stack has a few KiB, and the
// runtime's signals (preemption, garbage collection) arrive while a call waits.
package main

// #include <unistd.h>
// static int of_c(void) { return getpid(); }
import "C"

import (
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"unsafe"
)

const (
	writeRead     = 0xc0306201
	setContextMgr = 0x40046207

	bcTransaction = 0x40406300
	bcReply       = 0x40406301
	bcFreeBuffer  = 0x40086303
	bcEnterLooper = 0x0000630c
	bcExitLooper  = 0x0000630d

	brTransaction = 0x80407202
	brReply       = 0x80407203
	brDeadReply   = 0x00007205
	brFailedReply = 0x00007211

	mapBytes = 1 << 20
	// What a thread in the pool is told in place of a number: it leaves.
	leave = ^uint64(0)
)

// One exchange of commands and returns, as the driver has it.
type exchange struct {
	writeSize, writeConsumed uint64
	writeBuffer              uintptr
	readSize, readConsumed   uint64
	readBuffer               uintptr
}

// A transaction, as the driver has it.
type transaction struct {
	target, cookie        uint64
	code, flags           uint32
	pid                   int32
	uid                   uint32
	dataSize, offsetsSize uint64
	buffer, offsets       uintptr
}

func fail(format string, words ...any) {
	fmt.Fprintf(os.Stderr, "go: "+format+"\n", words...)
	os.Exit(1)
}

func openDevice() int {
	fd, err := syscall.Open("/dev/binder", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	if err != nil {
		fail("open /dev/binder: %v", err)
	}
	if _, err := syscall.Mmap(fd, 0, mapBytes, syscall.PROT_READ, syscall.MAP_PRIVATE); err != nil {
		fail("mmap /dev/binder: %v", err)
	}
	return fd
}

// What a thread writes and reads.
type thread struct {
	fd      int
	out, in []byte
	data    *[1]uint64
}

func newThread(fd int) *thread {
	runtime.LockOSThread()
	return &thread{fd: fd, in: make([]byte, 512), data: new([1]uint64)}
}

func (t *thread) command(command uint32, payload []byte) {
	t.out = binary.NativeEndian.AppendUint32(t.out, command)
	t.out = append(t.out, payload...)
}

// Sends a number as a call or a reply.
func (t *thread) send(command uint32, number uint64) {
	t.data[0] = number
	tr := transaction{dataSize: 8, buffer: uintptr(unsafe.Pointer(t.data))}
	t.command(command, unsafe.Slice((*byte)(unsafe.Pointer(&tr)), unsafe.Sizeof(tr)))
}

func (t *thread) free(buffer uintptr) {
	t.command(bcFreeBuffer, binary.NativeEndian.AppendUint64(nil, uint64(buffer)))
}

// Writes what there is to write and reads once.
func (t *thread) exchange(readSize int) []byte {
	for {
		e := exchange{writeSize: uint64(len(t.out)), readSize: uint64(readSize)}
		if len(t.out) > 0 {
			e.writeBuffer = uintptr(unsafe.Pointer(&t.out[0]))
		}
		e.readBuffer = uintptr(unsafe.Pointer(&t.in[0]))
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(t.fd), writeRead, uintptr(unsafe.Pointer(&e)))
		t.out = t.out[:copy(t.out, t.out[e.writeConsumed:])]
		if errno == syscall.EINTR || errno == 0 && readSize > 0 && e.readConsumed == 0 {
			continue
		}
		if errno != 0 {
			fail("ioctl: %v", errno)
		}
		runtime.KeepAlive(t.data)
		return t.in[:e.readConsumed]
	}
}

// The next transaction or reply.
func (t *thread) next() (number uint64, buffer uintptr) {
	for {
		for in := t.exchange(len(t.in)); len(in) > 0; {
			command := binary.NativeEndian.Uint32(in)
			size := int(command >> 16 & 0x3fff)
			payload := in[4 : 4+size]
			in = in[4+size:]
			switch command {
			case brTransaction, brReply:
				tr := (*transaction)(unsafe.Pointer(&payload[0]))
				if tr.dataSize != 8 {
					fail("%d bytes have come", tr.dataSize)
				}
				return *(*uint64)(unsafe.Add(unsafe.Pointer(nil), tr.buffer)), tr.buffer
			case brDeadReply, brFailedReply:
				fail("a call failed: %#x", command)
			}
		}
	}
}

func serve(fd int) {
	t := newThread(fd)
	t.command(bcEnterLooper, nil)
	for {
		number, buffer := t.next()
		t.free(buffer)
		t.send(bcReply, number+1)
		if number == leave {
			t.command(bcExitLooper, nil)
			t.exchange(0)
			return
		}
	}
}

func call(fd int, calls, first uint64) {
	t := newThread(fd)
	for i := range calls {
		t.send(bcTransaction, first+i)
		number, buffer := t.next()
		if number != first+i+1 {
			fail("%d was answered with %d", first+i, number)
		}
		t.free(buffer)
		if i%64 == 0 {
			grow(int(i % 16))
		}
	}
	t.exchange(0)
}

// Uses the goroutine's stack, and leaves something to collect.
func grow(depth int) []byte {
	bytes := make([]byte, 1024)
	if depth > 0 {
		bytes = append(bytes, grow(depth-1)...)
	}
	return bytes
}

func collect(end <-chan struct{}) {
	for {
		select {
		case <-end:
			return
		default:
			runtime.GC()
		}
	}
}

func main() {
	goroutines := flag.Int("goroutines", 8, "how many call")
	calls := flag.Uint64("calls", 10000, "how many calls each makes")
	flag.Parse()
	if int(C.of_c()) != os.Getpid() {
		fail("cgo does not work")
	}
	manager, client := openDevice(), openDevice()
	var zero int32
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(manager), setContextMgr, uintptr(unsafe.Pointer(&zero)))
	if errno != 0 {
		fail("become context manager: %v", errno)
	}
	const servers = 4
	var serving, calling sync.WaitGroup
	for range servers {
		serving.Add(1)
		go func() { defer serving.Done(); serve(manager) }()
	}
	end := make(chan struct{})
	go collect(end)
	for i := range *goroutines {
		calling.Add(1)
		go func() { defer calling.Done(); call(client, *calls, uint64(i)<<32) }()
	}
	calling.Wait()
	close(end)
	for range servers {
		calling.Add(1)
		go func() { defer calling.Done(); call(client, 1, leave) }()
	}
	calling.Wait()
	serving.Wait()
	fmt.Printf("go: %d goroutines, %d calls each\n", *goroutines, *calls)
}
