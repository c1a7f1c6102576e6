// Opens a device without the C library, and says what came of it.
package main

import (
	"fmt"
	"syscall"
)

func main() {
	_, err := syscall.Open("/dev/binder", syscall.O_RDWR|syscall.O_CLOEXEC, 0)
	fmt.Println("go-alone:", err)
}
