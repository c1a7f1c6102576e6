#!/usr/bin/env python3
"""A service and its client in Python, by ctypes on libbaton.

    greeter.py serve [SERVICE]         publishes an object under a name and serves it
    greeter.py call [SERVICE [WHO]]    finds it by this name and calls it
"""

import ctypes
import errno
import os
import sys

GREET = 1

baton = ctypes.CDLL("libbaton.so.0")
pointer, number = ctypes.c_void_p, ctypes.c_int
# int handler(const baton_received *request, baton_parcel *reply, void *user)
HANDLER = ctypes.CFUNCTYPE(number, pointer, pointer, pointer)
# Functions that return an int which is 0 or a negative errno: their arguments.
for name, *arguments in [
    ("baton_open", ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(pointer)),
    ("baton_add_object", pointer, HANDLER, pointer, ctypes.POINTER(pointer)),
    ("baton_publish", pointer, ctypes.c_char_p),
    ("baton_find", pointer, ctypes.c_char_p, ctypes.POINTER(pointer)),
    ("baton_call", pointer, ctypes.c_uint32, pointer, ctypes.POINTER(pointer)),
    ("baton_parcel_write", pointer, ctypes.c_char_p, ctypes.c_size_t),
    ("baton_serve", pointer),
]:
    getattr(baton, name).argtypes = arguments
for name, result, *arguments in [
    ("baton_parcel_new", pointer),
    ("baton_parcel_free", None, pointer),
    ("baton_received_code", ctypes.c_uint32, pointer),
    ("baton_received_data", pointer, pointer),
    ("baton_received_size", ctypes.c_size_t, pointer),
    ("baton_received_free", None, pointer),
]:
    getattr(baton, name).restype = result
    getattr(baton, name).argtypes = arguments


def check(result):
    if result < 0:
        raise OSError(-result, os.strerror(-result))


def data(received):
    size = baton.baton_received_size(received)
    return ctypes.string_at(baton.baton_received_data(received), size)


def opened():
    process = pointer()
    check(baton.baton_open(b"binder", None, ctypes.byref(process)))
    return process


@HANDLER
def greet(request, reply, _user):
    if baton.baton_received_code(request) != GREET:
        return -errno.ENOSYS
    text = b"Hello, " + data(request) + b", from Python"
    return baton.baton_parcel_write(reply, text, len(text))


def serve(service="greeter"):
    process, greeter = opened(), pointer()
    check(baton.baton_add_object(process, greet, None, ctypes.byref(greeter)))
    check(baton.baton_publish(greeter, service.encode()))
    print(f"greeter.py: serving {service}", flush=True)
    check(baton.baton_serve(process))


def call(service="greeter", who="world"):
    process, greeter, reply = opened(), pointer(), pointer()
    found = baton.baton_find(process, service.encode(), ctypes.byref(greeter))
    if found == -errno.ENOENT:
        sys.exit(f"greeter.py: there is no service {service}")
    check(found)
    request = baton.baton_parcel_new()
    baton.baton_parcel_write(request, who.encode(), len(who.encode()))
    check(baton.baton_call(greeter, GREET, request, ctypes.byref(reply)))
    print(data(reply).decode())
    baton.baton_received_free(reply)
    baton.baton_parcel_free(request)


if __name__ == "__main__":
    parts = {"serve": serve, "call": call}
    if len(sys.argv) < 2 or sys.argv[1] not in parts:
        sys.exit(__doc__)
    parts[sys.argv[1]](*sys.argv[2:])
