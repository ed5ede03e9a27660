# The stages of .ci/run and .ci/verify: how a stage runs and is counted, and the servers that the external probes need. Both scripts
# source this file in the root of the repository.

suites=../shared/suites
h1probe='^H1PROBE pass=[1-9][0-9]* fail=0 skip=0 '
h2spec='^H2SPEC pass=145 fail=0 total=145'
# One seed for every change, so that a failure is the change's; make soak chooses new ones.
seed=1
target=${CARGO_TARGET_DIR:-target}
scratch=$(mktemp -d)
running=()
builder=
address=
passed=0
failed=0
times=

stop_all() {
    [ ${#running[@]} -eq 0 ] || kill "${running[@]}" 2>/dev/null || true
    [ ${#running[@]} -eq 0 ] || wait "${running[@]}" 2>/dev/null || true
    running=()
}

trap 'stop_all; [ -z "$builder" ] || kill -- "-$builder" 2>/dev/null || true; rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

# stage NAME COMMAND... : runs a stage, counts its result, and keeps the output and the names of its failures.
stage() {
    local name=$1 since=$SECONDS outcome
    shift
    printf '\n=== %s ===\n' "$name"
    if "$@" > >(tee "$scratch/said") 2>&1; then
        passed=$((passed + 1)) outcome=passed
    else
        failed=$((failed + 1)) outcome=FAILED
        # Until `tee` has written the end.
        sleep 1
        tests/failures.py "$scratch/said" >>"$scratch/failures" || tail -n 80 "$scratch/said" >>"$scratch/failures" || true
        printf '=== %s ===\n' "$name" >>"$scratch/names"
        tests/failures.py --names "$scratch/said" >>"$scratch/names" || true
    fi
    printf '=== %s: %s in %d s ===\n' "$name" "$outcome" $((SECONDS - since))
    times+=$(printf '%6d s  %-6s  %s' $((SECONDS - since)) "$outcome" "$name")$'\n'
}

# Prints the time of each stage, the failures, and the totals. The status is 0 if no stage failed.
total() {
    printf '\n%s' "$times"
    # Once more, because only the end of a long log is read.
    [ "$failed" -eq 0 ] || { printf '\n'; cat "$scratch/failures"; printf '\nFAILED:\n'; cat "$scratch/names"; }
    printf '\n%d passed, %d failed\n' "$passed" "$failed"
    [ "$failed" -eq 0 ]
}

# Prepares the programs for the probes, a certificate, and the directories that they expect. The programs are built with all
# features of the workspace, for which libraries exist already. An HTTP/2 stream must still be open when the second frame of a
# case arrives, so its file is larger than any window.
prepare_probe() {
    .ci/need python3 cc openssl h2spec &&
        cargo build --locked --workspace --example probe_target --example tls_relay &&
        mkdir -p "$scratch/site/root" "$scratch/streams" &&
        "$suites/mkfixture.sh" "$scratch/site/root" &&
        head -c 2000000 /dev/zero >"$scratch/streams/file.txt" &&
        openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost \
            -addext subjectAltName=DNS:localhost -addext basicConstraints=critical,CA:FALSE \
            -keyout "$scratch/key.pem" -out "$scratch/cert.pem" 2>/dev/null
}

# start PROGRAM ARGUMENT... : starts a program whose first line is its address, and sets `address`.
start() {
    local words="$scratch/words"
    rm -f "$words"
    mkfifo "$words"
    "$target/debug/examples/$1" "${@:2}" >"$words" &
    running+=($!)
    # If the program ends without a line, the pipe ends, too.
    address=
    read -r -t 120 address <"$words" || true
    if [ -z "$address" ]; then
        echo "$1 did not start: ${*:2}"
        stop_all
        return 1
    fi
}

# start_server BACKEND DIRECTORY [ARGUMENT...] : starts the server for the probes.
start_server() {
    start probe_target "$scratch/$2" --listen 127.0.0.1:0 --backend "$1" "${@:3}"
}

# score PATTERN COMMAND... : requires a probe's last line to match. The probes wait for 1 to 3 s in real time, which a pause of the
# machine can take; a defect comes again each time.
score() {
    local pattern=$1
    shift
    for _ in 1 2 3; do
        "$@" | tee "$scratch/verdict" || true
        if tail -n 1 "$scratch/verdict" | grep -Eq "$pattern"; then
            return
        fi
    done
    return 1
}

# probe_http1 BACKEND : requires every case of the HTTP/1.1 probe to pass.
probe_http1() {
    local outcome=0
    start_server "$1" site/root || return 1
    score "$h1probe" python3 "$suites/h1probe.py" "${address%:*}" "${address##*:}" --echo /echo || outcome=1
    stop_all
    return "$outcome"
}

# probe_http2 BACKEND [tls] : requires every case of h2spec to pass, in the clear or over TLS.
probe_http2() {
    local outcome=0 tls=()
    [ "${2:-}" != tls ] || tls=(--tls-cert "$scratch/cert.pem" --tls-key "$scratch/key.pem")
    start_server "$1" streams "${tls[@]}" || return 1
    score "$h2spec" sh "$suites/h2spec.sh" "${address%:*}" "${address##*:}" ${2:+"$2"} || outcome=1
    stop_all
    return "$outcome"
}
