"""terminal.py DIRECTORY foreground|background COMMAND...: the command mounts a binderfs at the
directory as a job of a shell, and the terminal hangs up. Tells whether the mount has ended; with
--restart the shell sends SIGHUP before that, after which the mount is there."""

import fcntl
import os
import pty
import signal
import sys
import termios
import time


def await_that(what, is_so):
    for _ in range(400):
        if is_so():
            return
        time.sleep(0.05)
    sys.exit(f"terminal.py: {what} within 20 s")


def be_the_shell(is_foreground, command):
    """As bash: a job has a process group, and SIGHUP goes on to it."""
    job = os.fork()
    if job == 0:
        os.setpgid(0, 0)
        if is_foreground:
            signal.signal(signal.SIGTTOU, signal.SIG_IGN)
            fcntl.ioctl(0, termios.TIOCSPGRP, os.getpgrp().to_bytes(4, sys.byteorder))
            signal.signal(signal.SIGTTOU, signal.SIG_DFL)
        os.execvp(command[0], command)

    def pass_on(_signal, _frame):
        if not is_foreground:
            os.killpg(job, signal.SIGHUP)
        os._exit(0)

    signal.signal(signal.SIGHUP, pass_on)
    # As `kill -HUP %1`.
    signal.signal(signal.SIGUSR1, lambda _signal, _frame: os.killpg(job, signal.SIGHUP))
    os.waitpid(job, 0)
    os._exit(1)


def server_of(directory):
    """The process with a server's arguments, if there is one."""
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/cmdline", "rb") as file:
                words = file.read().split(b"\0")
        except OSError:
            continue
        if directory.encode() in words and b"--kept" in words:
            return name
    return None


def is_mounted(directory):
    try:
        return os.path.ismount(directory) and "hwbinder" in os.listdir(directory)
    except OSError:
        return False


def is_left(directory):
    with open("/proc/self/mountinfo", encoding="utf-8", errors="replace") as mounts:
        return any(line.split()[4] == directory for line in mounts)


def main():
    directory, place, command = sys.argv[1], sys.argv[2], sys.argv[3:]
    shell, terminal = pty.fork()
    if shell == 0:
        be_the_shell(place == "foreground", command)
    await_that("no mount", lambda: is_mounted(directory))
    if "--restart" in command:
        first = server_of(directory)
        os.kill(shell, signal.SIGUSR1)
        await_that("no other server", lambda: server_of(directory) not in (first, None))
        await_that("no mount after SIGHUP", lambda: is_mounted(directory))
    os.close(terminal)
    os.waitpid(shell, 0)
    await_that("the mount did not end", lambda: not is_left(directory))
    await_that("the server did not end", lambda: server_of(directory) is None)


main()
