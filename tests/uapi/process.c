// Identity of senders; fork, exec and the device's descriptor.
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/select.h>
#include <sys/wait.h>
#include <unistd.h>

#include "harness.h"

// A call carries its sender's pid and effective user.
TEST(process_sender_of_a_call)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct thread *second = thread_new(client);
	bc_transaction(second, 0, 7, 0, NULL);
	flush(second);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect_eq(txn->sender_pid, process_pid(client));
	expect_eq(txn->sender_euid, geteuid());
	finish_call(second, manager, txn);
}

// The driver ignores the sender's own values of sender_pid and sender_euid.
TEST(process_sender_cannot_be_forged)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct { uint32_t command; struct binder_transaction_data txn; }
		__attribute__((packed)) call = {
			BC_TRANSACTION, {.code = 7, .sender_pid = 1, .sender_euid = 4242}};
	bc_bytes(client, &call, sizeof(call));
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect_eq(txn->sender_pid, process_pid(client));
	expect_eq(txn->sender_euid, geteuid());
}

// A one-way call has pid 0 and the sender's user.
TEST(process_sender_of_a_oneway)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, TF_ONE_WAY, NULL);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect_eq(txn->sender_pid, 0);
	expect_eq(txn->sender_euid, geteuid());
}

// A reply has pid 0 and the replier's user.
TEST(process_sender_of_a_reply)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	bc_free_buffer(manager, expect_txn(manager, 7));
	bc_reply(manager, 0, NULL);
	expect_br(manager, BR_TRANSACTION_COMPLETE);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	const struct binder_transaction_data *reply = expect_reply(client);
	expect_eq(reply->sender_pid, 0);
	expect_eq(reply->sender_euid, geteuid());
}

static long step_seteuid(void *user)
{
	return seteuid((uid_t)(uintptr_t)user) ? -errno : 0;
}

// The user is the sender's at the time of the call, not at that of the open.
TEST(process_sender_after_seteuid)
{
	differs_interposed("uid-at-open");
	if (geteuid())
		skip("needs root to change the user");
	struct thread *manager = manager_new(), *client = process_new("client");
	expect_errno(run(client, step_seteuid, (void *)12345), 0);
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	const struct binder_transaction_data *txn = expect_txn(manager, 7);
	expect_eq(txn->sender_euid, 12345);
	finish_call(client, manager, txn);
}

// A process whose files may not grow serves clients that come later.
static long step_limit_files(void *unused)
{
	struct rlimit none = {0, 0};
	(void)unused;
	return setrlimit(RLIMIT_FSIZE, &none) ? -errno : 0;
}

TEST(process_that_may_write_no_files_serves)
{
	struct thread *manager = manager_new();
	expect_errno(run(manager, step_limit_files, NULL), 0);
	ping(process_new("client"), 0, manager);
	ping(process_new("second"), 0, manager);
}

// ---- fork and exec

struct child {
	int fd;
	pid_t pid;
	int hold; // the child ends when this one's other end does
	long result;
};

static long child_version(struct child *child)
{
	struct binder_version version = {0};
	if (ioctl(child->fd, BINDER_VERSION, &version))
		return -errno;
	return version.protocol_version;
}

// Starts a child that uses the inherited descriptor and lives until the pipe is closed.
static long step_fork(void *argument)
{
	struct child *child = argument;
	int hold[2], ready[2];
	char byte = 0;
	if (pipe2(hold, O_CLOEXEC) || pipe2(ready, O_CLOEXEC))
		return -errno;
	pid_t pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		close(hold[1]);
		child->result = child_version(child);
		if (write(ready[1], &byte, 1) == 1 && read(hold[0], &byte, 1) >= 0)
			_exit(0);
		_exit(1);
	}
	close(hold[0]);
	close(ready[1]);
	child->pid = pid;
	child->hold = hold[1];
	return read(ready[0], &byte, 1) == 1 ? 0 : -EPIPE;
}

static long step_reap(void *argument)
{
	struct child *child = argument;
	close(child->hold);
	return waitpid(child->pid, NULL, 0) < 0 ? -errno : 0;
}

static struct child *fork_child(struct thread *t)
{
	struct child child = {.fd = process_fd(t)}, *shared = arena_copy(&child, sizeof(child));
	expect_errno(run(t, step_fork, shared), 0);
	return shared;
}

// A child that inherits the descriptor harms its parent neither by living nor by ending.
TEST(process_forked_child_is_harmless)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct child *of_manager = fork_child(manager), *of_client = fork_child(client);
	ping(client, 0, manager);
	expect_errno(run(manager, step_reap, of_manager), 0);
	ping(client, 0, manager);
	expect_errno(run(client, step_reap, of_client), 0);
	ping(client, 0, manager);
}

// A child ends while its parent's looper is blocked in a read: the looper may wake with
// BR_NOOP alone, and serves on.
TEST(process_forked_child_ends_during_a_read)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct thread *second = thread_new(manager);
	struct child *child = fork_child(second);
	read_begin(manager);
	await_asleep(manager);
	expect_errno(run(second, step_reap, child), 0);
	bc_transaction(client, 0, 7, 0, NULL);
	flush(client);
	finish_call(client, manager, expect_txn(manager, 7));
}

// A child waits for the inherited descriptor in every way. What it hears is its own affair.
static long step_fork_and_wait(void *argument)
{
	int fd = (int)(intptr_t)argument, status;
	pid_t pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		struct pollfd p = {.fd = fd, .events = POLLIN};
		struct epoll_event event = {.events = EPOLLIN};
		struct timeval none = {0};
		fd_set read;
		int set = epoll_create1(EPOLL_CLOEXEC);
		poll(&p, 1, 0);
		FD_ZERO(&read);
		FD_SET(fd, &read);
		select(fd + 1, &read, NULL, NULL, &none);
		epoll_ctl(set, EPOLL_CTL_ADD, fd, &event);
		epoll_ctl(set, EPOLL_CTL_MOD, fd, &event);
		epoll_ctl(set, EPOLL_CTL_DEL, fd, NULL);
		_exit(0);
	}
	return waitpid(pid, &status, 0) < 0 ? -errno : status;
}

TEST(process_forked_child_may_poll)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	void *fd = (void *)(intptr_t)process_fd(client);
	expect_eq(run(client, step_fork_and_wait, fd), 0);
	sys_poll(client, POLLIN, 0);
	expect_eq(run(client, step_fork_and_wait, fd), 0);
	ping(client, 0, manager);
}

// A child opens the device anew and is a process of its own.
static long step_fork_and_call(void *argument)
{
	struct binder_write_read *bwr = argument;
	int status;
	pid_t pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		int fd = open(device_path(), O_RDWR | O_CLOEXEC);
		_exit(fd < 0 || ioctl(fd, BINDER_WRITE_READ, bwr) ? 1 : 0);
	}
	return waitpid(pid, &status, 0) < 0 ? -errno : status;
}

TEST(process_forked_child_opens_anew)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	struct { uint32_t command; struct binder_transaction_data txn; }
		__attribute__((packed)) call = {BC_TRANSACTION, {.code = 7, .flags = TF_ONE_WAY}};
	expect_eq(run(client, step_fork_and_call, write_read_new(&call, sizeof(call), 0)), 0);
	expect_txn(manager, 7);
	ping(client, 0, manager);
}

// exec closes the device: the program's nodes die, though the process lives.
static long step_exec(void *argument)
{
	int fd = (int)(intptr_t)argument;
	dup2(fd, 0);
	execl("/proc/self/exe", "uapi-test", "--hold", NULL);
	return -errno;
}

TEST(process_exec_ends_its_nodes)
{
	struct thread *manager = manager_new();
	struct thread *server = process_new("server"), *client = process_new("client");
	uint32_t handle = share(manager, server, client, 0x10, 0x20);
	int fds[2];
	bc_handle_cookie(client, BC_REQUEST_DEATH_NOTIFICATION, handle, 1);
	flush(client);
	expect_errno(sys_pipe(server, fds), 0);
	run_begin(server, step_exec, (void *)(intptr_t)fds[0]);
	expect_cookie(client, BR_DEAD_BINDER, 1);
	bc_transaction(client, handle, 7, 0, NULL);
	expect_br(client, BR_DEAD_REPLY);
}

// A process that opens the device twice is two parties, each with its own nodes and handles.
TEST(process_opens_twice)
{
	struct thread *manager = manager_new(), *client = process_new("client");
	long fd = sys_open(client, device_path(), O_RDWR | O_CLOEXEC);
	expect(fd >= 0);
	expect(sys_mmap(client, (int)fd, 65536, PROT_READ, MAP_PRIVATE) > 0);
	struct { uint32_t command; struct binder_transaction_data txn; }
		__attribute__((packed)) call = {BC_TRANSACTION, {.code = 7, .flags = TF_ONE_WAY}};
	struct binder_write_read *bwr = write_read_new(&call, sizeof(call), 0);
	expect_errno(sys_ioctl_fd(client, (int)fd, BINDER_WRITE_READ, bwr), 0);
	bc_free_buffer(manager, expect_txn(manager, 7));
	expect_errno(sys_close(client, (int)fd), 0);
	ping(client, 0, manager);
}

// A child cannot map the descriptor that it inherited: EINVAL; its parent can.
static long step_fork_and_map(void *argument)
{
	int status, fd = (int)(intptr_t)argument;
	pid_t pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		void *p = mmap(NULL, 65536, PROT_READ, MAP_PRIVATE, fd, 0);
		_exit(p == MAP_FAILED ? errno : 0);
	}
	return waitpid(pid, &status, 0) < 0 ? -errno : -WEXITSTATUS(status);
}

TEST(process_forked_child_cannot_map)
{
	struct thread *t = process_with((struct process_options){.name = "process", .unmapped = true});
	int fd = process_fd(t);
	expect_errno(run(t, step_fork_and_map, (void *)(intptr_t)fd), EINVAL);
	expect(sys_mmap(t, fd, 65536, PROT_READ, MAP_PRIVATE) > 0);
}

// The mapping is not inherited: a child that touches it faults.
static long step_fork_and_touch(void *address)
{
	int status;
	pid_t pid = fork();
	if (pid < 0)
		return -errno;
	if (pid == 0) {
		signal(SIGSEGV, SIG_DFL);
		_exit(*(volatile char *)address);
	}
	return waitpid(pid, &status, 0) < 0 ? -errno : WIFSIGNALED(status) ? WTERMSIG(status) : 0;
}

TEST(process_forked_child_has_no_mapping)
{
	struct thread *t = process_new("process");
	expect_eq(run(t, step_fork_and_touch, (void *)(uintptr_t)process_map(t)), SIGSEGV);
}

// A process dies while a child of it holds its descriptor: its nodes live until the child
// has ended too.
TEST(process_forked_child_keeps_its_parents_nodes)
{
	differs("fork");
	struct thread *manager = manager_new();
	struct thread *server = process_new("server"), *client = process_new("client");
	uint32_t handle = share(manager, server, client, 0x10, 0x20);
	bc_handle_cookie(client, BC_REQUEST_DEATH_NOTIFICATION, handle, 1);
	flush(client);
	struct child *child = fork_child(server);
	bc_transaction(client, handle, 7, TF_ONE_WAY, NULL);
	expect_br(client, BR_TRANSACTION_COMPLETE);
	// The child's pipe ends with its parent; stopped, it cannot see that.
	expect_eq(kill(child->pid, SIGSTOP), 0);
	process_kill(server);
	expect_nothing(client);
	expect_eq(kill(child->pid, SIGKILL), 0);
	expect_cookie(client, BR_DEAD_BINDER, 1);
}
