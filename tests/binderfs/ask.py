"""Asks a device's service manager for its interface, by nothing but Python's own ctypes."""

import ctypes
import errno
import mmap
import os
import struct
import sys

BINDER_VERSION = 0xC0046209
BINDER_WRITE_READ = 0xC0306201
BC_TRANSACTION = 0x40406300
BC_FREE_BUFFER = 0x40086303
BR_REPLY = 0x80407203
BR_DEAD_REPLY = 0x7205
BR_FAILED_REPLY = 0x7211
INTERFACE = int.from_bytes(b"_NTF", "big")
INTERFACE_NAME = "android.os.IServiceManager"
MAP_BYTES = 1 << 20


class WriteRead(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "write_size",
            "write_consumed",
            "write_buffer",
            "read_size",
            "read_consumed",
            "read_buffer",
        )
    ]


# target, cookie, code, flags, sender's pid and euid, data's and offsets' sizes and addresses
TRANSACTION = struct.Struct("=QQIIiIQQQQ")

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + 3 * [ctypes.c_int] + [ctypes.c_long]
libc.ioctl.argtypes = [ctypes.c_int, ctypes.c_ulong, ctypes.c_void_p]


def ioctl(device, request, argument):
    while libc.ioctl(device, request, ctypes.addressof(argument)) != 0:
        if ctypes.get_errno() != errno.EINTR:
            sys.exit(f"ioctl {request:#x}: {os.strerror(ctypes.get_errno())}")


def exchange(device, commands, room):
    write = ctypes.create_string_buffer(commands, len(commands))
    read = ctypes.create_string_buffer(room)
    argument = WriteRead(
        write_size=len(commands),
        write_buffer=ctypes.addressof(write),
        read_size=room,
        read_buffer=ctypes.addressof(read),
    )
    ioctl(device, BINDER_WRITE_READ, argument)
    return read.raw[: argument.read_consumed]


def call(device, code):
    """The address and length of the answer of handle 0."""
    commands = struct.pack("=I", BC_TRANSACTION) + TRANSACTION.pack(0, 0, code, 0, 0, 0, 0, 0, 0, 0)
    while True:
        returns = exchange(device, commands, 512)
        commands = b""
        while returns:
            (command,) = struct.unpack_from("=I", returns)
            if command == BR_REPLY:
                reply = TRANSACTION.unpack_from(returns, 4)
                return reply[8], reply[6]
            if command in (BR_DEAD_REPLY, BR_FAILED_REPLY):
                sys.exit(f"the call failed: {command:#x}")
            returns = returns[4 + (command >> 16 & 0x3FFF) :]


def main():
    device = os.open(sys.argv[1], os.O_RDWR)
    version = ctypes.c_int32()
    ioctl(device, BINDER_VERSION, version)
    if version.value != 8:
        sys.exit(f"version {version.value}")
    mapped = libc.mmap(None, MAP_BYTES, mmap.PROT_READ, mmap.MAP_PRIVATE, device, 0)
    if mapped == ctypes.c_void_p(-1).value:
        sys.exit(f"mmap: {os.strerror(ctypes.get_errno())}")
    for _ in range(10):
        address, length = call(device, INTERFACE)
        answer = ctypes.string_at(address, length)
        exchange(device, struct.pack("=IQ", BC_FREE_BUFFER, address), 0)
        (characters,) = struct.unpack_from("=i", answer)
        name = answer[4 : 4 + 2 * characters].decode("utf-16-le")
        if name != INTERFACE_NAME:
            sys.exit(f"the manager is {name!r}")


main()
