#!/usr/bin/env bash
# Shows that each fuzz target can fail: plants the fault of faults/TARGET.patch in a copy of the code and expects the target to
# find it within 60 seconds. Usage: fuzz/planted.sh [TARGET…]
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-$root/fuzz/target}/planted

targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
    for fault in "$root"/fuzz/faults/*.patch; do targets+=("$(basename "$fault" .patch)"); done
fi
missed=0
for target in "${targets[@]}"; do
    rm -rf "${copy:?}/tree"
    mkdir -p "$copy/tree/crates" "$copy/corpus-$target"
    cp "$root/Cargo.toml" "$copy/tree/"
    cp -r "$root/xtask" "$copy/tree/"
    cp -r "$root/crates/." "$copy/tree/crates/"
    (cd "$root/fuzz" && tar --exclude=./target --exclude=./corpus --exclude=./artifacts -cf - .) |
        (mkdir "$copy/tree/fuzz" && tar -xf - -C "$copy/tree/fuzz")
    patch --quiet -p1 -d "$copy/tree" <"$root/fuzz/faults/$target.patch"
    (cd "$copy/tree" && cargo +nightly fuzz build "$target" >"$copy/build.log" 2>&1) ||
        { cat "$copy/build.log"; exit 1; }
    if "$CARGO_TARGET_DIR/x86_64-unknown-linux-gnu/release/$target" "$copy/corpus-$target" \
        "$root/fuzz/seeds/$target" -max_total_time=60 -artifact_prefix="$copy/" >"$copy/run.log" 2>&1; then
        echo "$target: the planted fault was NOT found"
        missed=1
    else
        echo "$target: found ($(grep -m1 -o 'panicked at [^ ]*' "$copy/run.log" || echo crash))"
    fi
done
exit $missed
