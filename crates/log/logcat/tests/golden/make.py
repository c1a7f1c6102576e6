#!/usr/bin/env python3
"""Writes liblog.json: what Android's own liblog makes of entries.

Needs Debian's package android-liblog (made with 1:29.0.6-28). For each case: the entry as
struct logger_entry, the words of -v, TZ, and the text of android_log_formatLogLine after
android_log_processLogBuffer or android_log_processBinaryLogBuffer; null where those refuse.
Bytes of a text are written as the letters of Latin-1.
"""
import ctypes
import json
import os
import random
import struct
import sys
import time

LIBRARY = "/usr/lib/x86_64-linux-gnu/android/liblog.so.0"
liblog = ctypes.CDLL(LIBRARY)


class Entry(ctypes.Structure):
    _fields_ = [("tv_sec", ctypes.c_long), ("tv_nsec", ctypes.c_long), ("priority", ctypes.c_int),
                ("uid", ctypes.c_int32), ("pid", ctypes.c_int32), ("tid", ctypes.c_int32),
                ("tag", ctypes.c_char_p), ("tagLen", ctypes.c_size_t),
                ("messageLen", ctypes.c_size_t), ("message", ctypes.c_char_p)]


liblog.android_log_format_new.restype = ctypes.c_void_p
liblog.android_log_formatLogLine.restype = ctypes.c_void_p
liblog.android_log_formatLogLine.argtypes = [
    ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
liblog.android_log_setPrintFormat.argtypes = [ctypes.c_void_p, ctypes.c_int]
EVENTS = 2
WIRE = "<HHiIIIII"


def text(wire, words, zone):
    os.environ["TZ"] = zone
    time.tzset()
    form = liblog.android_log_format_new()
    for word in words:
        number = liblog.android_log_formatFromString(word.encode())
        assert number, word
        liblog.android_log_setPrintFormat(form, number)
    buffer = ctypes.create_string_buffer(wire, 6000)
    entry, scratch = Entry(), ctypes.create_string_buffer(1024)
    if struct.unpack_from(WIRE, wire)[6] == EVENTS:
        bad = liblog.android_log_processBinaryLogBuffer(
            buffer, ctypes.byref(entry), None, scratch, len(scratch))
    else:
        bad = liblog.android_log_processLogBuffer(buffer, ctypes.byref(entry))
    if bad:
        return None
    length, room = ctypes.c_size_t(), ctypes.create_string_buffer(1 << 20)
    line = liblog.android_log_formatLogLine(
        form, room, len(room), ctypes.byref(entry), ctypes.byref(length))
    return ctypes.string_at(line, length.value).decode("latin-1")


def wire(payload, buffer=0, second=1385436097, nanosecond=123456789, uid=1000, pid=123, tid=124):
    return struct.pack(WIRE, len(payload), 28, pid, tid, second, nanosecond, buffer, uid) + payload


def words(tag, message, priority=4, **others):
    return wire(bytes([priority]) + tag + b"\0" + message + b"\0", **others)


def integer(number):
    return b"\0" + struct.pack("<i", number)


def long(number):
    return b"\1" + struct.pack("<q", number)


def string(letters):
    return b"\2" + struct.pack("<I", len(letters)) + letters


def listed(*values):
    return b"\3" + bytes([len(values)]) + b"".join(values)


def floating(number):
    return b"\4" + struct.pack("<f", number)


def event(values, tag=2722, **others):
    return wire(struct.pack("<I", tag) + values, buffer=EVENTS, **others)


VERBS = ["brief", "process", "tag", "thread", "raw", "time", "threadtime", "long"]
ADVERBS = [[], ["usec"], ["nsec"], ["year"], ["zone"], ["epoch"], ["uid"], ["usec", "nsec"],
           ["year", "zone", "uid", "usec"], ["epoch", "nsec", "uid"]]
ZONES = ["UTC0", "EST5EDT,M3.2.0,M11.1.0", "IST-5:30"]
ENTRIES = [
    words(b"ActivityManager", b"Start proc 3822:com.test/u0a0 for activity"),
    words(b"vold", b"/system/bin/sgdisk\n    --zap-all\n    /dev/block/vold/disk:179,64"),
    words(b"vold", b"ends its line\n", 2), words(b"vold", b"\n\n", 3), words(b"vold", b"\n", 5),
    words(b"", b"no tag", 6), words(b"Tag", b"", 7), words(b"exactly8", b"eight", 8),
    words(b"ninechars", b"nine", 0), words(b"T", b"\xff\xfe not UTF-8 \xc3", 9),
    words("größer".encode(), "好 🦀".encode(), 255),
    words(b"T" * 150, b"a tag past the room\nin two lines"), words(b"T" * 118, b"at its edge"),
    words(b"T" * 200, b"", 3), words(b"Tag", b"x" * 600),
    words(b"Tag", b"large numbers", pid=1234567, tid=2147483647, uid=4294967295),
    words(b"Tag", b"negative", pid=-1, tid=4294967295, uid=2147483647),
    words(b"Tag", b"the epoch", second=0, nanosecond=0),
    words(b"Tag", b"the end", second=4294967295, nanosecond=999999999),
    words(b"Tag", b"before summer", second=1710053999), words(b"Tag", b"summer", second=1710054000),
    wire(b"\4Tag\0no end"), wire(b"\4no separator but blanks"), wire(b"\4nothing"),
    wire(b"\4Tag:colon"), wire(b"\4\0\0"), wire(b"\4\0"), wire(b"\4"), wire(b""),
    wire(b"\4Tag\0first\0second\0"), wire(b"\4Tag\0"), wire(b"\4ab"), wire(b"\4a\0b"),
    event(integer(5)), event(integer(-2147483648)), event(long(9223372036854775807)),
    event(string(b"words")), event(string(b"")), event(floating(1.5)), event(floating(-1e30)),
    event(floating(float("inf"))), event(floating(float("nan"))), event(floating(-0.0)),
    event(listed(integer(0), integer(9227), string(b"com.android.browser"), long(1 << 40))),
    event(listed()), event(listed(listed(integer(1), listed()), string(b"x"))),
    event(b"\3\xff" + integer(1)), event(integer(5) + b"\n"), event(integer(5) + b"left over"),
    event(b""), event(string(b"two\nlines")), event(integer(1), tag=4294967295),
    event(string(b"x" * 1014)), event(string(b"x" * 1015)), event(string(b"x" * 1016)),
    event(string(b"x" * 1017)), event(string(b"x" * 2000)),
    event(listed(string(b"x" * 1010), integer(77))),
    event(listed(string(b"x" * 1011), integer(777))),
    event(listed(string(b"x" * 1012), integer(777))), event(b"\0\1"), event(b"\2\xff\0\0\0abc"),
    event(b"\3\2" + integer(1)), event(b"\7"), wire(b"\1\2\3", buffer=EVENTS),
]


def any_wire(dice):
    letters = [0, 0, 32, 58, 65, 97, 10, 127, 200, 255, 1, 2, 3, 4]
    payload = bytes(dice.choice(letters) for _ in range(dice.randrange(60)))
    if dice.random() < 0.3:
        return wire(bytes([1, 0, 0, 0, 3, dice.randrange(4)]) + payload, buffer=EVENTS)
    return wire(payload, buffer=dice.choice([0, EVENTS]), second=dice.randrange(1 << 32))


def cases():
    for entry in ENTRIES:
        for verb in VERBS:
            yield entry, [verb], "UTC0"
        yield entry, ["uid", "brief"], "UTC0"
    for verb in VERBS:
        for adverbs in ADVERBS:
            for zone in ZONES:
                yield ENTRIES[0], adverbs + [verb], zone
    for entry in ENTRIES[16:22]:
        for zone in ZONES:
            yield entry, ["year", "zone", "uid", "threadtime"], zone
            yield entry, ["epoch", "uid", "long"], zone
    dice = random.Random(7)
    for _ in range(400):
        yield any_wire(dice), [dice.choice(VERBS)], "UTC0"


def main():
    with open(os.path.join(sys.path[0], "liblog.json"), "w", encoding="ascii") as out:
        rows = ({"entry": entry.hex(), "words": spec, "zone": zone, "text": text(entry, spec, zone)}
                for entry, spec, zone in cases())
        out.write("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


main()
