# The commands for users and CI. `make` without a target lists them.
# All targets use one build profile, so each reuses what another has built. Only `install` builds with optimization.

CARGO ?= cargo
PREFIX ?= /usr/local

# Variables of the command line (`make install DESTDIR=/tmp/package PREFIX=/usr`) are not passed on: libbpf-sys builds libbpf
# with make, and installs it by variables of the same names.
MAKEOVERRIDES =
unexport DESTDIR PREFIX

help:
	@echo 'make demo     bring up the four-port example with real hosts, send real traffic, show it'
	@echo 'make test     install what the tests need, run every test'
	@echo 'make test-kernels   boot Debian kernels in QEMU and test on each (KERNELS="6.1 6.12 5.10" NICS="igb virtio")'
	@echo 'make test-install   the Debian package on a Debian with systemd: install, upgrade under traffic, remove (root)'
	@echo 'make bench    measure forwarding against the kernel bridge and others (root; half an hour)'
	@echo 'make lint     formatting and lints'
	@echo 'make fuzz     fuzz the parsers for FUZZ_SECONDS each (default 60)'
	@echo 'make deb      build for speed, make a Debian package in target/debian'
	@echo 'make install  build for speed, install the binary and the systemd unit below PREFIX ($(PREFIX)), make /etc/lanyard'

demo:
	tests/demo

# A test that lacks a right or a package is skipped and prints `skipped: reason`.
test:
	tools/need build test
	CARGO=$(CARGO) tools/run-tests

# Kernels are downloaded once. tests/kernels/run describes where they are stored, and the values of KERNELS, NICS and HOOKS.
test-kernels:
	tools/need build
	$(CARGO) build --locked --bin lanyard
	tests/kernels/run

test-install:
	tools/need build
	$(CARGO) build --locked --bin lanyard --bin lanyard-sshd
	tests/install/run

bench:
	tools/need build bench
	$(CARGO) build --locked
	target/debug/lanyard bench forward

lint:
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

fuzz:
	tools/need build
	tools/fuzz

install:
	tools/need build
	$(CARGO) build --release --locked --bin lanyard --bin lanyard-sshd
	install -D -m 755 target/release/lanyard $(DESTDIR)$(PREFIX)/bin/lanyard
	install -D -m 755 target/release/lanyard-sshd $(DESTDIR)$(PREFIX)/lib/lanyard/lanyard-sshd
	install -d -m 755 $(DESTDIR)$(PREFIX)/lib/systemd/system $(DESTDIR)/etc/lanyard
	sed 's|@BINDIR@|$(PREFIX)/bin|' dist/lanyard@.service.in >$(DESTDIR)$(PREFIX)/lib/systemd/system/lanyard@.service
	chmod 644 $(DESTDIR)$(PREFIX)/lib/systemd/system/lanyard@.service

# The version of the workspace.
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

deb:
	rm -rf target/debian
	install -d -m 755 target/debian/root
	$(MAKE) install DESTDIR=$(CURDIR)/target/debian/root PREFIX=/usr
	dist/deb.sh target/debian/root $(VERSION) target/debian
	rm -rf target/debian/root

.PHONY: help demo test test-kernels test-install bench lint fuzz install deb
