# `make` alone says what there is to make.

CARGO ?= cargo
BATON := target/release/baton
BATON_BENCH := target/release/baton-bench
# The programs that tests run: BUILT=target/release has those of `make build`.
BUILT ?= target/debug
# A build for a named target shares build scripts and macros with any other one, whatever the flags.
TARGET := $(shell uname -m)-unknown-linux-gnu
FOR_TARGET := --target $(TARGET)
# For a release build whose speed is nobody's concern: an emulator runs it.
QUICKLY_BUILT := CARGO_PROFILE_RELEASE_LTO=off CARGO_PROFILE_RELEASE_CODEGEN_UNITS=16
# For tests of a small part of it: a third of the time to compile.
UNOPTIMISED_VM := --config profile.dev.package.baton-vm.opt-level=0
RSBINDER := --manifest-path tests/rsbinder/Cargo.toml
# The programs in tests/rsbinder have a target directory of their own.
LINT_RSBINDER := CARGO_BUILD_BUILD_DIR=$(CURDIR)/target/rsbinder/build \
	$(CARGO) clippy --quiet --locked --workspace $(RSBINDER) --target-dir target/rsbinder/inline
SCRIPTS := .ci/run .github/actions/baton/start debian/baton.postrm debian/baton.prerm \
	bench/peers/log/build bench/vm/build scripts/coverage-conformance scripts/demo scripts/demo-bench \
	scripts/has-32-bit scripts/install scripts/setup scripts/with-binder tests/aarch64/run \
	tests/binderfs/rootless tests/binderfs/run tests/clients/build tests/clients/run \
	tests/containers/run tests/docs/run tests/examples/run tests/host/run tests/package/run \
	tests/programs/run tests/rsbinder/broadcasts tests/rsbinder/build tests/rsbinder/call \
	tests/rsbinder/run tests/vm/compare tests/vm/debian-source tests/vm/run tests/vm/soak \
	tests/vm/suites crates/vm/dex/tests/golden/make scripts/vm-library tools/binder-vm

.PHONY: help
help:
	@sed -n 's/^#: //p' Makefile
#: make demo          build Baton and see it at work: services, a call, a callback, a death
#: make demo-bench    programs of others at work, and a call beside its peers
#: make setup         install what building and testing needs
#: make build         build baton: target/release/baton
#: make install       install it: DESTDIR= PREFIX= (default /usr/local); make uninstall removes it
#: make deb           build the Debian packages: target/debian
#: make test          all tests
#: make test-package  the packages and `cargo install` in a fresh Debian
#: make test-aarch64  for aarch64: all of it compiles, and tests run on an emulated machine
#: make test-musl     the crate baton in static programs with musl
#: make test-vm       some of ART's run-tests and of JUnit suites on `baton dalvikvm`; all:
#:                    tests/vm/run -a, tests/vm/suites -a, tests/vm/soak 1000000000
#: make test-hostile  what strangers may do to others, and whether these survive: HOSTILE=
#: make test-clients  programs of others, fetched over the network
#: make conformance   the same scenarios on Baton and on the kernel, in a guest:
#:                    SEEDS= KERNEL= FAMILY=
#: make coverage-conformance   what of the engine and the broker those scenarios reach
#: make lint          what clippy, rustdoc and shellcheck have to say
#: make fmt           format the sources
#: make fuzz          fuzz every decoder of foreign bytes for a while
#: make histories     a million random histories of the broker and of each of the nucleus's kernels,
#:                    and some under Miri: HISTORIES=
#: make mutants       change the checks of shared memory and of the fast path one by one: does a
#:                    test fail? MUTANTS=
#: make bench         measure calls beside other ways to make them
#: make bench-guest   and beside the kernel's own Binder, in a guest: BENCHES= KERNEL=
#: make bench-guest-objects   times of calls that carry objects and descriptors, there:
#:                    CASES= KERNEL=
#: make bench-guest-instructions   calls there, counted in instructions: KERNEL=
#: make bench-guest-instructions-objects   of them, those that carry objects and descriptors:
#:                    CASES= KERNEL=

.PHONY: demo demo-bench
demo:
	@scripts/demo

demo-bench:
	@scripts/demo-bench

.PHONY: setup
setup:
	@scripts/setup

.PHONY: build
build:
	@echo 'build: baton'
	@$(CARGO) build --release --quiet --no-default-features --workspace --exclude baton-preload
	@$(CARGO) interposer

# Of what is built.
.PHONY: install uninstall
install:
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' scripts/install

uninstall:
	@DESTDIR='$(DESTDIR)' PREFIX='$(PREFIX)' scripts/install --uninstall

.PHONY: deb
deb:
	@scripts/setup package
	@echo 'deb: target/debian'
	@mkdir -p target/debian
	@debian/rules clean >/dev/null
	@debian/rules binary DEBS=$(CURDIR)/target/debian >target/debian.log 2>&1 || \
		{ tail -n 30 target/debian.log; exit 1; }
	@debian/rules clean >/dev/null

SIMULATED_HISTORIES ?= 100

# Tests that run programs. The others are tests of crates.
PROGRAM_TESTS := test-uapi test-binderfs test-programs test-rsbinder test-host test-containers \
	test-examples \
	test-docs test-hostile test-conformance test-vm
TESTS := test-workspace test-instructions test-loom test-simulation $(PROGRAM_TESTS)

.PHONY: test $(TESTS)
test: $(TESTS)

$(TESTS): setup
$(PROGRAM_TESTS): programs
$(PROGRAM_TESTS): export BUILT := $(abspath $(BUILT))

# With the examples, and with what the tests of crates need, so that nothing is built twice.
.PHONY: programs
programs: setup
	@$(CARGO) build --quiet --workspace --all-targets

test-workspace: programs
	@echo 'test: workspace'
	@BATON_LIBRARIES=$(CURDIR)/target/debug KILL_ROUNDS=$${KILL_ROUNDS:-100} \
		$(CARGO) test --workspace --quiet

# As released.
test-instructions:
	@echo 'test: instructions of a call, of an IPC and of a record'
	@$(CARGO) test --quiet --release --package baton-driver --package baton-nucleus \
		--package baton-log --test instructions

test-loom:
	@echo 'test: shared-memory protocols under the model checker'
	@RUSTFLAGS='--cfg loom' LOOM_MAX_PREEMPTIONS=3 $(CARGO) test --quiet $(FOR_TARGET) \
		--package baton-shm --package baton-log --package baton-nucleus \
		--package baton-services --lib
	@RUSTFLAGS='--cfg loom' $(CARGO) test --quiet $(FOR_TARGET) $(UNOPTIMISED_VM) \
		--package baton-vm --lib models::

# SIMULATED_HISTORIES=: how many. SEED=: this one.
test-simulation:
	@echo 'test: whole processes on a simulated machine'
	@RUSTFLAGS='--cfg simulated' SIM_HISTORIES=$(SIMULATED_HISTORIES) $(CARGO) test --quiet \
		$(FOR_TARGET) --package baton-driver --package baton --test simulation

test-uapi:
	@echo 'test: the driver behind its ioctl interface'
	@$(MAKE) --quiet --no-print-directory -C tests/uapi
	@BATON_LOG=off timeout 600 scripts/with-binder $(BUILT)/baton run -- target/uapi-test

test-binderfs:
	@echo 'test: static programs over a mounted binderfs'
	@tests/binderfs/run
	@echo 'test: the same, with stored pages'
	@PAGES=stored tests/binderfs/run

test-programs:
	@echo 'test: goroutines and coroutines'
	@tests/programs/run

test-rsbinder:
	@echo 'test: rsbinder programs, system calls made inline'
	@tests/rsbinder/build
	@tests/rsbinder/run --form inline --manager baton
	@echo 'test: rsbinder services, called by their AIDL'
	@tests/rsbinder/call
	@echo 'test: an rsbinder client of the broadcast service'
	@tests/rsbinder/broadcasts
	@echo 'test: rsbinder programs, system calls made through libc'
	@tests/rsbinder/run --form libc

test-host:
	@echo 'test: a host of services'
	@tests/host/run

test-vm:
	@echo "test: some of ART's run-tests"
	@tests/vm/run -b $(BUILT)/baton
	@echo 'test: some of the JUnit tests of other projects'
	@tests/vm/suites -b $(BUILT)/baton
	@echo 'test: a Java heap that fills again and again'
	@tests/vm/soak -b $(BUILT)/baton

test-containers:
	@echo 'test: processes in containers'
	@tests/containers/run

test-examples:
	@echo 'test: examples'
	@tests/rsbinder/build inline
	@tests/examples/run

test-docs: conformance-programs
	@tests/rsbinder/build inline
	@echo 'test: shell blocks of README and docs'
	@tests/docs/run

# A fresh Debian, and a release build of its own for `cargo install`: minutes, and not part of
# `make test`.
.PHONY: test-package
test-package: deb
	@echo 'test: packages in a fresh Debian'
	@tests/package/run

# A cross compiler, an emulator, and minutes: not part of `make test`.
.PHONY: test-aarch64
test-aarch64:
	@echo 'test: aarch64'
	@tests/aarch64/run

# A target of rustup's, and not part of `make test`.
.PHONY: test-musl
test-musl:
	@echo 'test: the crate baton with musl'
	@$(CARGO) test --quiet --target $(shell uname -m)-unknown-linux-musl \
		--package baton --package baton-shm --package baton-state

# HOSTILE=: which attacks, and --long for as large as the machine's limits allow.
test-hostile:
	@echo 'test: what strangers may do to others'
	@$(BUILT)/hostile run $(HOSTILE)

# Beside the kernel's own drivers, in guests. The first run fetches Debian's kernels.
CONFORMANCE = BATON_LOG=off $(BUILT)/conformance compare --baton $(BUILT)/baton \
	--binder-vm tools/binder-vm --in-guest target/$(TARGET)/release/conformance
# 330 scenarios, 33,000 steps.
FIXED_SEEDS := 22

# What differs comes again: on a busy machine about one scenario in 3,000 does not, and a guest may
# not start.
test-conformance: conformance-programs
	@echo 'test: beside the kernels'
	@$(CONFORMANCE) --seeds $(FIXED_SEEDS) --shrink 30 || \
		{ echo 'test: once more'; $(CONFORMANCE) --seeds $(FIXED_SEEDS); }

# SEEDS=: how many of each family, or FIRST..END. KERNEL=: generic or rt. FAMILY=: one of them.
# MOUNT=1: over a mounted binderfs, too. PAGES=: passthrough or stored.
.PHONY: conformance conformance-programs
conformance: conformance-programs
	@echo 'conformance: the same scenarios on Baton and on the kernel'
	@$(CONFORMANCE) --seeds '$(or $(SEEDS),$(FIXED_SEEDS))' $(KERNEL:%=--kernel %) \
		$(FAMILY:%=--family %) $(if $(MOUNT),--mount) $(PAGES:%=--pages %)

# What of the engine and the broker these scenarios alone reach.
.PHONY: coverage-conformance
coverage-conformance: setup
	@SEEDS='$(or $(SEEDS),$(FIXED_SEEDS))' scripts/coverage-conformance

conformance-programs: programs
	@RUSTFLAGS='-C target-feature=+crt-static' $(QUICKLY_BUILT) $(CARGO) build --quiet --release \
		$(FOR_TARGET) --package baton-conformance

.PHONY: test-clients
test-clients: setup build
	@echo 'test: programs of others'
	@tests/clients/run

.PHONY: lint
lint: setup
	@echo 'lint: clippy'
	@$(CARGO) clippy --quiet --workspace --all-targets -- -D warnings
	@$(LINT_RSBINDER) -- -D warnings
	@echo 'lint: rustdoc'
	@RUSTDOCFLAGS='-D warnings -A rustdoc::private_intra_doc_links' $(CARGO) doc --quiet \
		--workspace --no-deps
	@echo 'lint: shellcheck'
	@shellcheck $(SCRIPTS)

.PHONY: fmt fmt-check
fmt:
	@$(CARGO) fmt --all
	@$(CARGO) fmt --all $(RSBINDER)

fmt-check:
	@echo 'fmt-check'
	@$(CARGO) fmt --all --check
	@$(CARGO) fmt --all $(RSBINDER) --check

# Random histories of the broker's state, and of each of the nucleus's kernels beside the model:
# state by state, and with real threads; then fewer under Miri, which `rustup +nightly component
# add miri rust-src` installs. The assembly is not Miri's.
HISTORIES ?= 1000000
MIRI := MIRIFLAGS=-Zmiri-disable-isolation $(CARGO) +nightly miri test --quiet \
	--package baton-nucleus
.PHONY: histories
histories:
	@$(CARGO) test --quiet --release --package baton-broker --test histories -- $(HISTORIES)
	@$(CARGO) test --quiet --release --package baton-nucleus --test histories -- $(HISTORIES)
	@$(CARGO) test --quiet --release --package baton-nucleus --test between -- $(HISTORIES)
	@$(CARGO) test --quiet --release --package baton-nucleus --test lockstep -- $(HISTORIES)
	@$(MIRI) --lib
	@$(MIRI) --test histories -- 3

.PHONY: fuzz
fuzz: setup
	@fuzz/run

# Needs `cargo install cargo-mutants --locked`. MUTANTS=: further words, such as `--shard 0/50`. It
# ends with 2 or 3 where no test fails or a test does not end: the report names these mutants.
.PHONY: mutants
mutants:
	@CARGO_PROFILE_DEV_OPT_LEVEL=0 CARGO_PROFILE_DEV_DEBUG=false CARGO_INCREMENTAL=1 \
		$(CARGO) mutants --output target --package baton-shm --package baton-state \
		--package baton-driver $(MUTANTS); \
		case $$? in 0 | 2 | 3) ;; *) exit 1 ;; esac

.PHONY: bench
bench: build
	@$(BATON) bench rpc
	@$(BATON) bench tester
	@$(BATON) bench add-ints

# Beside the kernel's own Binder, in a guest: an emulator, of which only ratios tell something.
# KERNEL= generic or rt; BENCHES= which of them, one guest after the other. An emulator takes
# minutes to start 64 clients of each system.
IN_GUEST := tools/binder-vm --timeout 900 \
	--file target/release/libbaton_preload.so:/prog/libbaton_preload.so
GUEST_PEERS := kernel-binder,futex,futex-spin,pipe,unix
.PHONY: bench-guest bench-guest-instructions
BENCHES := rpc tester add-ints rt
GUEST_WORDS_rpc := --quick --calls 500 --clients 1,2,8 --peers $(GUEST_PEERS)
GUEST_WORDS_tester := --quick --peers kernel-binder
GUEST_WORDS_add-ints := --quick --peers kernel-binder
GUEST_WORDS_rt := --parts calls,one-way --callers 0,20 --priorities 80 --bound caller --calls 1000 \
	--rounds 2 --peers kernel-binder
# One processor, on which an instruction takes a nanosecond: who waits for whom is then the same on
# any machine.
GUEST_OPTIONS_tester := --instructions
GUEST_OPTIONS_add-ints := --instructions
GUEST_OPTIONS_rt := --instructions
bench-guest: build $(BENCHES:%=bench-guest-%)

.PHONY: $(BENCHES:%=bench-guest-%)
$(BENCHES:%=bench-guest-%): bench-guest-%: build
	@$(IN_GUEST) --kernel $(or $(KERNEL),generic) $(GUEST_OPTIONS_$*) $(BATON_BENCH) $* \
		$(GUEST_WORDS_$*)

# Calls that carry objects and descriptors, by the clock of --instructions. CASES=: some of them.
.PHONY: bench-guest-objects
bench-guest-objects: build
	@$(IN_GUEST) --kernel $(or $(KERNEL),generic) --instructions $(BATON_BENCH) rpc \
		--cases $(or $(CASES),objects) --quick --calls 200 --rounds 3 --peers kernel-binder,unix

.PHONY: bench-guest-instructions-plain bench-guest-instructions-objects
bench-guest-instructions: bench-guest-instructions-plain bench-guest-instructions-objects

# At a real-time priority nobody is asked whose turn it is: a call costs the same each time.
bench-guest-instructions-plain: build
	@$(IN_GUEST) --kernel $(or $(KERNEL),rt) --instructions \
		--file $(BATON_BENCH):/prog/baton-bench /usr/bin/chrt -f 50 /prog/baton-bench rpc --quick \
		--instructions --check --peers $(GUEST_PEERS)

# At ordinary priorities: what a call leaves to threads of ordinary priority is done among calls,
# and counts.
bench-guest-instructions-objects: build
	@$(IN_GUEST) --kernel $(or $(KERNEL),rt) --instructions $(BATON_BENCH) rpc \
		--cases $(or $(CASES),objects) --quick --instructions --check --peers kernel-binder,unix
