# The jobs of this repository. Each does its own set-up: Debian packages (apt, with sudo if not
# root), the CMake build, the job. V=1 shows all output.
.PHONY: help demo build test test-long fuzz bench format lint install clean
.DEFAULT_GOAL := help

BUILD ?= build
TEXT ?=
TESTS ?= .
SECONDS ?= 600
PREFIX ?= /usr/local

help:
	@echo "make demo            train a small GPT on real text on 4 ranks (TEXT=file-or-folder: on yours)"
	@echo "make build           build everything: $(BUILD)/bin/zero3d, the examples, the tests"
	@echo "make test            build and run all tests (TESTS=regex: some of them)"
	@echo "make test-long       the long ones: 200 kills, 10000 bit flips, every pair of topologies (ten minutes)"
	@echo "make fuzz            fuzz the parsers, each for SECONDS=$(SECONDS)"
	@echo "make bench           measure; writes docs/results/"
	@echo "make format          format the sources in place"
	@echo "make install         install program, library and headers under PREFIX=$(PREFIX)"
	@echo "make clean           remove build folders (runs/ and data/ stay)"

demo:
	@scripts/demo $(BUILD) "$(TEXT)"

build:
	@scripts/stage "packages" scripts/setup
	@scripts/stage "build" scripts/build $(BUILD)

test:
	@scripts/stage "packages" scripts/setup
	@scripts/stage "build" scripts/build $(BUILD)
	@scripts/test $(BUILD) -R "$(TESTS)"

test-long:
	@scripts/stage "packages" scripts/setup --long
	@scripts/stage "build" scripts/build $(BUILD)
	@ZERO3D_LONG=1 scripts/test $(BUILD) -C long -L long

fuzz:
	@scripts/stage "packages" scripts/setup --ci
	@scripts/fuzz $(SECONDS)

bench:
	@scripts/stage "packages" scripts/setup
	@scripts/bench $(BUILD)

format:
	@scripts/stage "packages" scripts/setup --ci
	@scripts/format

install:
	@scripts/stage "packages" scripts/setup
	@scripts/stage "build" scripts/build $(BUILD)
	@cmake --install $(BUILD) --prefix "$(PREFIX)"

clean:
	@rm -rf build build-*
