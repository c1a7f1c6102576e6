"""Reads binder_logs of a mounted binderfs while a client's calls wait for a service that is
stopped, and compares them with the form in which the kernel's driver prints them.

usage: logs.py DIRECTORY SERVICE CLIENT   (pids; the client calls for the second time)
"""

import errno
import fcntl
import os
import re
import struct
import sys

directory, service, client = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
logs = os.path.join(directory, "binder_logs")

HEX = "[0-9a-f]+"
ADDRESS = "[0-9a-f]{16}"
TRANSACTION = (
    rf"transaction (?P<id>\d+): {ADDRESS} from (?P<from>\d+):(?P<thread>\d+) to (?P<to>\d+):\d+ "
    rf"code {HEX} flags {HEX} pri -?\d+ r[01] elapsed \d+ms"
)
HERE = rf"( node \d+)? size \d+:\d+ data {ADDRESS}"
# The lines of one process in state, transactions and proc/PID.
PROCESS = {
    "proc": r"proc (?P<pid>\d+)",
    "context": r"context (?P<name>\S+)",
    "thread": r"  thread (?P<tid>\d+): l [0-9a-f]{2} need_return [01] tr \d+",
    "outgoing": rf"    outgoing {TRANSACTION}",
    "incoming": rf"    incoming {TRANSACTION}{HERE}",
    "pending": rf"(  |    )pending {TRANSACTION}{HERE}",
    "complete": r"(  |    )transaction complete",
    "work": rf"(  |    )node work \d+: u{ADDRESS} c{ADDRESS}",
    "node": rf"  node (?P<id>\d+): u{ADDRESS} c{ADDRESS} hs [01] hw [01] ls \d+ lw \d+ is \d+ "
    r"iw (?P<holders>\d+) tr \d+( proc(?P<procs>( \d+)+))?",
    "ref": rf"  ref \d+: desc (?P<desc>\d+) (dead )?node (?P<node>\d+) s \d+ w \d+ d {ADDRESS}",
    "buffer": rf"  buffer \d+: {HEX} size \d+:\d+:\d+ (active|delivered)",
}
COUNTS = r"(  )?(BC|BR)_[A-Z_]+: [1-9]\d*"
OBJECTS = r"(proc|thread|node|ref|death|transaction|transaction_complete): active \d+ total \d+"
STATS = [
    r"proc \d+",
    r"context \S+",
    r"  threads: \d+",
    r"  requested threads: \d+\+\d+/\d+",
    r"  ready threads \d+",
    r"  free async space \d+",
    r"  nodes: \d+",
    r"  refs: \d+ s \d+ w \d+",
    r"  buffers: \d+",
    r"  pages: \d+:\d+:\d+",
    r"  pages high watermark: \d+",
    r"  pending transactions: \d+",
]
LOG = (
    r"\d+: (?P<kind>call |async|reply) from (?P<from>\d+):\d+ to (?P<to>\d+):0 "
    r"context (?P<context>\S+) node \d+ handle -?\d+ size \d+:\d+ "
    r"ret (?P<failure>\d+)/-?\d+ l=\d+"
)


def check(truth, what):
    if not truth:
        sys.exit(f"logs: not so: {what}")


def read(name):
    with open(os.path.join(logs, name)) as file:
        return file.read().splitlines()


def processes(lines):
    """The processes of a file: of each, its lines by their kind."""
    found = []
    for line in lines:
        for kind, form in PROCESS.items():
            match = re.fullmatch(form, line)
            if match:
                break
        else:
            sys.exit(f"logs: no line of the kernel's: {line!r}")
        if kind == "proc":
            found.append({kind: [] for kind in PROCESS})
        check(found, f"{line!r} belongs to a process")
        found[-1][kind].append(match)
    return found


def of(pid, name, found):
    all = [it for it in found if it["proc"][0]["pid"] == str(pid)]
    check(len(all) == 1, f"{name} has process {pid} once")
    return all[0]


check(
    sorted(os.listdir(logs))
    == ["failed_transaction_log", "proc", "state", "stats", "transaction_log", "transactions"],
    "the files are the kernel's",
)
check(sorted(map(int, os.listdir(f"{logs}/proc"))) == sorted([service, client]), "proc's files")

for name, is_all in [("state", True), ("transactions", False)]:
    head, *lines = read(name)
    check(head == f"binder {name}:", f"{name}'s first line")
    found = processes(lines)
    server, caller = of(service, name, found), of(client, name, found)
    outgoing = {it["id"] for it in caller["outgoing"]}
    check(outgoing, f"the client's calls are in {name}")
    check(all(it["from"] == str(client) for it in caller["outgoing"]), "the calls are the client's")
    check(all(it["to"] == str(service) for it in caller["outgoing"]), "to the service")
    threads = {it["tid"] for it in caller["thread"]}
    tasks = set(os.listdir(f"/proc/{client}/task"))
    check({it["thread"] for it in caller["outgoing"]} <= threads <= tasks, "by its own threads")
    # The server may have read of a call for a thread of the service that is stopped.
    taken = {it["id"] for it in server["incoming"] + server["pending"]}
    check(taken == outgoing, "the calls wait at the service")
    check(len(server["buffer"]) == len(outgoing), "and lie in its buffer")
    check(bool(caller["ref"]) == bool(server["node"]) == is_all, f"references in {name}")
    if is_all:
        node = server["node"][0]
        check(caller["ref"][0]["node"] == node["id"], "a handle and its node have one number")
        check(caller["ref"][0]["desc"] == "0", "it is the context manager's")
        check(str(client) in node["procs"].split(), "the node's holders have the client")
        check(len(node["procs"].split()) == int(node["holders"]), "they are as many as said")

head, *lines = read(f"proc/{service}")
check(head == "binder proc state:", "a process's first line")
alone = processes(lines)
check(len(alone) == 1, "a process's file has that process")
check(alone[0]["node"][0]["id"] == node["id"], "numbers are the same in all files")

head, *lines = read("stats")
check(head == "binder stats:", "the first line of stats")
# What all have done, what there is, and then each process.
while lines and re.fullmatch(COUNTS, lines[0]):
    lines.pop(0)
objects = []
while lines and re.fullmatch(OBJECTS, lines[0]):
    objects.append(lines.pop(0))
check(objects, "counts of objects in stats")
n = 0
while lines:
    for form in STATS:
        check(lines and re.fullmatch(form, lines[0]), f"{form!r} is in stats, not {lines[:1]}")
        lines.pop(0)
    while lines and re.fullmatch(COUNTS, lines[0]):
        lines.pop(0)
    n += 1
check(n == len(found) and n >= 2, "stats has all processes")
check(f"  pending transactions: {len(server['pending'])}" in read("stats"), "transactions wait")

log = [re.fullmatch(LOG, line) for line in read("transaction_log")]
check(0 < len(log) <= 32 and all(log), "transaction_log's form")
ends = {(it["kind"], it["from"], it["to"], it["failure"]) for it in log}
check(("call ", str(client), str(service), "0") in ends, "the calls are in transaction_log")
check({kind for kind, *_ in ends} == {"call ", "reply"}, "and replies to earlier ones")
check(read("failed_transaction_log") == [], "nothing has failed")

# A reader stops in the middle, and goes on later in the text that it has begun. Others go on.
with open(f"{logs}/state") as slow:
    begun = os.read(slow.fileno(), 20).decode()
    check(read("state")[0] == "binder state:", "a reader beside one that has stopped")
    rest = begun + slow.read()
    check(rest.startswith("binder state:\n") and rest.endswith("\n"), "a reader that goes on")

# One user's open files are bounded.
files = []
try:
    for _ in range(1000):
        files.append(os.open(f"{logs}/stats", os.O_RDONLY))
except OSError as error:
    check(error.errno == errno.EMFILE, f"too many open files are EMFILE, not {error}")
check(0 < len(files) < 1000, "a user's open files are bounded")
for file in files:
    os.close(file)
for path in ["proc/1", "nothing"]:
    check(not os.path.exists(f"{logs}/{path}"), f"there is no {path}")

# max=2: one device more, and no second one.
BINDER_CTL_ADD = 0xC1086201
with open(os.path.join(directory, "binder-control"), "rb") as control:
    results = []
    for name in [b"one", b"another"]:
        try:
            fcntl.ioctl(control, BINDER_CTL_ADD, struct.pack("256sII", name, 0, 0))
            results.append(0)
        except OSError as error:
            results.append(error.errno)
    check(results == [0, errno.ENOSPC], f"there may be two devices: {results}")
