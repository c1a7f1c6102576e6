"""without.py SYSTEM_CALLS ERRNO COMMAND...: becomes the command, for which these system calls (names
with commas between) fail with this error, as by a container's seccomp profile."""

import ctypes
import errno
import os
import platform
import struct
import sys

PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2
SECCOMP_RET_ERRNO = 0x00050000
SECCOMP_RET_ALLOW = 0x7FFF0000
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06

NUMBERS = {
    "x86_64": {"ptrace": 101, "process_vm_readv": 310, "process_vm_writev": 311},
    "aarch64": {"ptrace": 117, "process_vm_readv": 270, "process_vm_writev": 271},
}[platform.machine()] | {"pidfd_open": 434, "pidfd_getfd": 438}


def main():
    names, error, command = sys.argv[1], getattr(errno, sys.argv[2]), sys.argv[3:]
    # The number of the system call is the first word.
    code = [(LOAD, 0, 0, 0)]
    for name in names.split(","):
        code += [(JUMP_IF_EQUAL, 0, 1, NUMBERS[name]), (RETURN, 0, 0, SECCOMP_RET_ERRNO | error)]
    code += [(RETURN, 0, 0, SECCOMP_RET_ALLOW)]
    text = b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
    filter_bytes = ctypes.create_string_buffer(text, len(text))
    program = struct.pack("@HP", len(code), ctypes.addressof(filter_bytes))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, program, 0, 0) != 0:
        sys.exit(f"seccomp: {os.strerror(ctypes.get_errno())}")
    os.execvp(command[0], command)


main()
