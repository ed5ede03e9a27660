# The tasks of developers and CI. `make` without a target lists them.

CARGO  ?= cargo
TARGET := $(or $(CARGO_TARGET_DIR),target)
FUZZ_SECONDS ?= 60
# The seed of random choices in `make test`; `make soak` chooses new seeds.
SEED ?= 1
SOAK_MINUTES ?= 10
SOAK_TURNS ?= 10
NPM_CI := npm ci --silent --no-audit --no-fund

# Targets that the crates must also compile for, in addition to Linux on x86_64 and Windows.
ELSEWHERE := aarch64-apple-darwin aarch64-unknown-linux-musl
PORTABLE  := -p encke-wire -p encke-io -p encke-stats -p encke-hub -p encke-settings -p encke-session -p encke-server -p encke-site -p encke-rights -p encke-push -p encke-apps -p encke-gateway -p encke-console -p encke-assembly -p encke-load

.PHONY: help run cluster build quick test test-all verify browser build-windows test-windows check-elsewhere bench bench-load lint lint-texts lint-all fmt fuzz soak dist dist-all dist-windows

help:
	@echo 'make run     build without optimisation and serve the chat of examples/chat (three minutes on two cores)'
	@echo 'make build   build the fast program, $(TARGET)/release/encke (ten minutes)'
	@echo 'make cluster three NATS servers, three nodes and a balancer on this machine, with the chat on two of them'
	@echo 'make quick   format, tidy, clippy and unit tests of the changed crates, and of the crates above them'
	@echo 'make test    unit and integration tests, attacks, lint (eight minutes on two cores, with the build)'
	@echo 'make verify  everything before a release: back ends, real applications, players, packages, Windows (an hour)'
	@echo 'make browser the client, its pages and the chat in a browser'
	@echo 'make build-windows  build the program and these tests for Windows, without running them'
	@echo 'make test-windows  unit tests and the program, built for Windows, in wine; WINDOWS_TESTS=--all: every crate'
	@echo 'make lint    format, clippy, tidy, links, spelling; make lint-all: also licences, other systems, documentation'
	@echo 'make bench   measure against the floor and the peers; writes bench/RESULTS*.md (an hour and a half)'
	@echo 'make bench-load  the load generator against wrk, ab and h2load; writes bench/RESULTS-load.md (eleven minutes)'
	@echo 'make fuzz    each fuzz target for $(FUZZ_SECONDS) s'
	@echo 'make soak    what takes an hour and more, $(SOAK_MINUTES) minutes of it on each back end; tests/SOAK.md is its last result'
	@echo 'make dist    a static binary for x86_64, as tar.gz and deb, in dist/out (eight minutes)'
	@echo 'make dist-all    the same for x86_64 and aarch64, and the zip for Windows'
	@echo 'make dist-windows  the zip for Windows, in dist/out (eight minutes)'

run:
	$(CARGO) build --profile quick --locked
	$(TARGET)/quick/encke demo

cluster: build
	.ci/need python3 nats-server haproxy
	examples/cluster/cluster --encke $(TARGET)/release/encke

build:
	$(CARGO) build --release --locked

quick:
	CARGO=$(CARGO) tests/quick

# Most tests wait for a peer, a timer or the kernel. On two cores, six threads take half the time of two (175 s became 80 s for
# the tests of the server), and programs run side by side.
test test-all: export RUST_TEST_THREADS ?= 6
test test-all: export PROPTEST_RNG_SEED ?= $(SEED)
test test-all browser: program = $(abspath $(TARGET))/debug/encke
test:
	.ci/need python3 cc curl go openssl ab wrk h2load strace script node npm php nginx pebble pebble-challtestsrv nats-server lint-venv
	CARGO=$(CARGO) tests/abreast --lint \
	    --also lint '$(MAKE) --no-print-directory lint-texts' \
	    --also client 'cd client; $(NPM_CI); npm test' \
	    --also attacks 'tests/attacks/run --encke $(program)' \
	    --also bench 'cd bench; python3 -m unittest -q' \
	    --also failures 'cd tests; python3 -m unittest -q test_failures.py'

# Tests in a browser install the package of client/, so they follow its tests.
test-all: export ENCKE_SEEDS ?= full
test-all:
	.ci/need python3 cc curl go openssl ab wrk h2load strace script node npm php chromium nginx haproxy apache2
	.ci/need pebble pebble-challtestsrv nats-server
	CARGO=$(CARGO) tests/abreast --all \
	    --also client,browser 'cd client; $(NPM_CI); npm test; cd ../tests/browser; $(NPM_CI); BROWSER=all ENCKE=$(program) npm test' \
	    --also attacks 'tests/attacks/run --encke $(program)' \
	    --also cluster 'tests/cluster --encke $(program) --polls 1500 --rounds 20'

verify:
	CARGO=$(CARGO) .ci/verify

browser:
	.ci/need node npm chromium
	cd client && $(NPM_CI)
	cd tests/browser && $(NPM_CI) && ENCKE=$(program) npm test

build-windows:
	.ci/need wine x86_64-pc-windows-gnu
	$(CARGO) build --locked --package encke --target x86_64-pc-windows-gnu
	CARGO=$(CARGO) tests/windows --build

test-windows:
	.ci/need wine x86_64-pc-windows-gnu python3 curl openssl ab
	CARGO=$(CARGO) tests/windows $(WINDOWS_TESTS)
	CARGO=$(CARGO) tests/windows --program
	CARGO=$(CARGO) tests/windows --files

bench:
	$(CARGO) build --profile dist --locked
	python3 bench/run.py --write

bench-load:
	$(CARGO) build --profile dist --locked
	python3 bench/run.py --only load-keepalive,load-connect,load-pipelined,load-held,load-screen,load-verdict --servers nginx --write

lint: lint-texts
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings

# `make test` compiles with clippy, and needs only these.
lint-texts:
	$(CARGO) fmt --all --check
	$(CARGO) xtask tidy
	.ci/need lint-venv
	$(TARGET)/lint-venv/bin/lychee --offline --include-fragments --no-progress --quiet $$(git ls-files '*.md')
	$(TARGET)/lint-venv/bin/typos

lint-all: lint check-elsewhere
	.ci/need cargo-deny
	$(CARGO) deny --log-level error check licenses bans sources
	$(CARGO) clippy --workspace --all-targets --locked --target x86_64-pc-windows-gnu -- -D warnings
	RUSTDOCFLAGS='-D warnings' $(CARGO) doc --workspace --no-deps --locked
	.ci/need node npm
	cd console; $(NPM_CI); npm run check; npm test; npm run reproduce

# The code for other systems compiles; `make verify` lints it, and runs it in wine.
check-elsewhere:
	.ci/need x86_64-w64-mingw32-gcc x86_64-pc-windows-gnu $(ELSEWHERE)
	$(CARGO) check --workspace --locked --target x86_64-pc-windows-gnu
	for target in $(ELSEWHERE); do \
	    RUSTFLAGS=-Aunused $(CARGO) check --locked --target $$target $(PORTABLE) --no-default-features || exit; \
	done

fmt:
	$(CARGO) fmt --all

fuzz:
	.ci/need nightly cargo-fuzz
	for target in $$($(CARGO) +nightly fuzz list); do \
	    mkdir -p fuzz/corpus/$$target; \
	    $(CARGO) +nightly fuzz run $$target fuzz/corpus/$$target fuzz/seeds/$$target -- \
	        -max_total_time=$(FUZZ_SECONDS) -print_final_stats=1 || exit; \
	done

soak: build
	.ci/need python3 cc curl go openssl ab wrk h2load strace script node npm chromium nginx haproxy apache2
	.ci/need pebble pebble-challtestsrv nats-server nats testssl starman plackup perl-fcgi cgi-fcgi php-fpm8.2 puma node-ws ruby-railties gateway-venv
	.ci/need ffmpeg mpv chromium npm wine x86_64-pc-windows-gnu
	CARGO=$(CARGO) .ci/soak $(TARGET)/release/encke $(SOAK_MINUTES) $(SOAK_TURNS)

dist:
	.ci/need python3 python3-yaml cc musl-gcc curl readelf haproxy nats-server mmdebstrap
	dist/build.sh x86_64
	dist/test.sh x86_64
	dist/test-deb.sh
	dist/test-systemd.sh

# Needs twice the time of `make dist`, so `make verify` does not include it: `make check-elsewhere` checks that the crates compile for aarch64.
dist-all:
	.ci/need python3 python3-yaml cc musl-gcc curl readelf haproxy nats-server mmdebstrap
	.ci/need aarch64-linux-gnu-gcc musl-aarch64 qemu-aarch64-static
	dist/build.sh x86_64 aarch64
	dist/test.sh x86_64
	dist/test.sh aarch64
	dist/test-deb.sh
	dist/test-systemd.sh
	$(MAKE) dist-windows

# Needs another release build, so `make dist` and `make verify` leave it out. Installs mingw and wine if they are missing.
dist-windows:
	.ci/need python3 curl openssl wine x86_64-pc-windows-gnu
	dist/windows.sh
	tests/windows --prepare
	dist/test-windows.sh
