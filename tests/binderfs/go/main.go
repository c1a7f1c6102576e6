// Calls the echo service of client.c without the C library: goroutines call at once while the
// garbage collector interrupts them, and so does a child process of os/exec.
package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"syscall"
	"unsafe"
)

const (
	binderVersion   = 0xc0046209
	binderWriteRead = 0xc0306201
	bcTransaction   = 0x40406300
	bcFreeBuffer    = 0x40086303
	brReply         = 0x80407203
	brDeadReply     = 0x7205
	brFailedReply   = 0x7211

	echo         = 1
	payloadBytes = 64
	mapBytes     = 1 << 20
	goroutines   = 8
	calls        = 50
)

// struct binder_write_read
type writeRead struct {
	writeSize, writeConsumed, writeBuffer uint64
	readSize, readConsumed, readBuffer    uint64
}

// struct binder_transaction_data
type transaction struct {
	target, cookie              uint64
	code, flags                 uint32
	senderPid                   int32
	senderEuid                  uint32
	dataSize, offsetsSize       uint64
	bufferAddress, offsetsPlace uint64
}

type device struct {
	fd   int
	data []byte
}

func check(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "go: %s: %v\n", what, err)
		os.Exit(1)
	}
}

func open(path string) device {
	fd, err := syscall.Open(path, syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	check("open", err)
	var version int32
	check("BINDER_VERSION", ioctl(fd, binderVersion, unsafe.Pointer(&version)))
	if version != 8 {
		check("BINDER_VERSION", fmt.Errorf("%d", version))
	}
	data, err := syscall.Mmap(fd, 0, mapBytes, syscall.PROT_READ, syscall.MAP_PRIVATE)
	check("mmap", err)
	return device{fd, data}
}

func ioctl(fd int, request uintptr, argument unsafe.Pointer) error {
	for {
		_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, uintptr(fd), request, uintptr(argument))
		if errno == 0 {
			return nil
		}
		// The runtime's own signals end waits.
		if errno != syscall.EINTR {
			return errno
		}
	}
}

// exchange gives commands to the driver, and returns what it has to say.
func (d device) exchange(commands, returns []byte) []byte {
	var pinner runtime.Pinner
	defer pinner.Unpin()
	argument := &writeRead{writeSize: uint64(len(commands)), readSize: uint64(len(returns))}
	for _, buffer := range []struct {
		bytes   []byte
		address *uint64
	}{{commands, &argument.writeBuffer}, {returns, &argument.readBuffer}} {
		if len(buffer.bytes) > 0 {
			pinner.Pin(&buffer.bytes[0])
			*buffer.address = uint64(uintptr(unsafe.Pointer(&buffer.bytes[0])))
		}
	}
	check("BINDER_WRITE_READ", ioctl(d.fd, binderWriteRead, unsafe.Pointer(argument)))
	return returns[:argument.readConsumed]
}

// call sends a payload to the service and checks what comes back. The goroutine stays on its
// thread: the reply is for the thread that has called.
func (d device) call(number int) {
	var pinner runtime.Pinner
	defer pinner.Unpin()
	payload := make([]byte, payloadBytes)
	for i := range payload {
		payload[i] = byte(number + i)
	}
	pinner.Pin(&payload[0])
	data := transaction{code: echo, dataSize: payloadBytes}
	data.bufferAddress = uint64(uintptr(unsafe.Pointer(&payload[0])))
	commands := binary.NativeEndian.AppendUint32(nil, bcTransaction)
	commands = append(commands, (*[unsafe.Sizeof(data)]byte)(unsafe.Pointer(&data))[:]...)
	for {
		returns := d.exchange(commands, make([]byte, 512))
		commands = nil
		for len(returns) > 0 {
			command := binary.NativeEndian.Uint32(returns)
			switch command {
			case brReply:
				var reply transaction
				copy((*[unsafe.Sizeof(reply)]byte)(unsafe.Pointer(&reply))[:], returns[4:])
				d.take(reply, payload)
				return
			case brDeadReply, brFailedReply:
				check("a call", fmt.Errorf("%#x", command))
			}
			returns = returns[4+command>>16&0x3fff:]
		}
	}
}

// take checks a reply and gives its buffer back.
func (d device) take(reply transaction, payload []byte) {
	from := reply.bufferAddress - uint64(uintptr(unsafe.Pointer(&d.data[0])))
	got := d.data[from : from+reply.dataSize]
	pid, euid := binary.NativeEndian.Uint32(got), binary.NativeEndian.Uint32(got[4:])
	if int(pid) != os.Getpid() || int(euid) != os.Geteuid() {
		check("a call", fmt.Errorf("the service saw process %d of user %d", pid, euid))
	}
	if string(got[8:8+payloadBytes]) != string(payload) {
		check("a call", fmt.Errorf("another payload came back"))
	}
	free := binary.NativeEndian.AppendUint32(nil, bcFreeBuffer)
	d.exchange(binary.NativeEndian.AppendUint64(free, reply.bufferAddress), nil)
}

func main() {
	path, isChild := os.Args[1], len(os.Args) > 2
	device := open(path)
	if isChild {
		runtime.LockOSThread()
		device.call(0)
		return
	}
	var callers sync.WaitGroup
	for range goroutines {
		callers.Add(1)
		go func() {
			defer callers.Done()
			runtime.LockOSThread()
			for number := range calls {
				device.call(number)
			}
		}()
	}
	for range 3 {
		runtime.GC()
		child := exec.Command(os.Args[0], path, "child")
		child.Stderr = os.Stderr
		check("the child", child.Run())
	}
	callers.Wait()
}
