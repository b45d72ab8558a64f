# The commands for users and CI. `make` without a target lists them.
# All targets use one build profile, so each reuses what another has built. Only `install` builds a release, which takes minutes.

CARGO ?= cargo
PREFIX ?= /usr/local

# Variables of the command line (`make install DESTDIR=/tmp/package PREFIX=/usr`) are not passed on: libbpf-sys builds and
# installs libbpf with make, where variables of the same names would change the place.
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
	@echo 'make deb      build for size, make a Debian package in target/debian (ARCH=arm64: for arm64, on any machine)'
	@echo 'make install  build for size, install the binary and the systemd unit below PREFIX ($(PREFIX)), make /etc/lanyard'

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

# Debian's name of the architecture to build for: this machine's, or arm64 with Debian's cross compiler and arm64 libraries.
HOST_ARCH = $(patsubst aarch64,arm64,$(patsubst x86_64,amd64,$(shell uname -m)))
ARCH ?= $(HOST_ARCH)
RELEASE = target/release
ifneq ($(ARCH),$(HOST_ARCH))
ifneq ($(ARCH),arm64)
$(error ARCH=$(ARCH): Lanyard is built for $(HOST_ARCH) here, or for arm64)
endif
RELEASE = target/aarch64-unknown-linux-gnu/release
CROSS = CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc \
	PKG_CONFIG_ALLOW_CROSS=1 PKG_CONFIG_LIBDIR=/usr/lib/aarch64-linux-gnu/pkgconfig
CROSS_TARGET = --target aarch64-unknown-linux-gnu
endif

install:
	tools/need build $(if $(CROSS),build-arm64)
	$(CROSS) $(CARGO) build --release --locked $(CROSS_TARGET) --bin lanyard --bin lanyard-sshd
	install -D -m 755 $(RELEASE)/lanyard $(DESTDIR)$(PREFIX)/bin/lanyard
	install -D -m 755 $(RELEASE)/lanyard-sshd $(DESTDIR)$(PREFIX)/lib/lanyard/lanyard-sshd
	install -d -m 755 $(DESTDIR)$(PREFIX)/lib/systemd/system $(DESTDIR)/etc/lanyard
	sed 's|@BINDIR@|$(PREFIX)/bin|' dist/lanyard@.service.in >$(DESTDIR)$(PREFIX)/lib/systemd/system/lanyard@.service
	chmod 644 $(DESTDIR)$(PREFIX)/lib/systemd/system/lanyard@.service

# The version of the workspace.
VERSION = $(shell sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)

deb:
	rm -rf target/debian
	install -d -m 755 target/debian/root
	$(MAKE) install DESTDIR=$(CURDIR)/target/debian/root PREFIX=/usr
	dist/deb.sh target/debian/root $(VERSION) target/debian $(ARCH)
	rm -rf target/debian/root

.PHONY: help demo test test-kernels test-install bench lint fuzz install deb
