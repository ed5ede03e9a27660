#!/usr/bin/env bash
# windows.sh : builds the program for Windows with mingw, and packs it with its documents as dist/out/encke-VERSION-x86_64-windows.zip.
#
# Builds of the same commit give the same bytes, as in dist/build.sh: the linker inserts no time.
set -euo pipefail
cd "$(dirname "$0")/.."

target=x86_64-pc-windows-gnu
target_dir=${CARGO_TARGET_DIR:-target}
version=$(cargo metadata --format-version 1 --no-deps --locked |
    python3 -c 'import json, sys; print(next(p["version"] for p in json.load(sys.stdin)["packages"] if p["name"] == "encke"))')
out=dist/out
name=encke-$version-x86_64-windows
stage=$out/$name
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH

CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUSTFLAGS='-Clink-arg=-Wl,--no-insert-timestamp' \
    cargo build --profile dist --locked --package encke --target "$target"

# text FILE... DIRECTORY : copies texts with the line ends of Windows.
text() {
    local folder=${!#} file
    for file in "${@:1:$#-1}"; do
        sed 's/$/\r/' "$file" >"$folder/$(basename "$file")"
    done
}

rm -rf "$stage"
mkdir -p "$stage"/{site,licences,doc}
install -m 755 "$target_dir/$target/dist/encke.exe" "$stage/encke.exe"
text dist/windows/README.txt dist/windows/encke.toml CHANGELOG.md "$stage"
text dist/windows/site/index.html "$stage/site"
text docs/*.md "$stage/doc"
dist/licences.py "$target" >"$stage/licences/THIRD-PARTY"
text LICENSE-MIT LICENSE-APACHE "$stage/licences"
sed 's/$/\r/' "$stage/licences/THIRD-PARTY" >"$stage/licences/THIRD-PARTY.txt"
rm "$stage/licences/THIRD-PARTY"

(cd "$stage" && find . -type f ! -name SHA256SUMS -print0 | LC_ALL=C sort -z | xargs -0 sha256sum >SHA256SUMS)
dist/zip.py "$stage" "$out/$name.zip"
(cd "$out" && sha256sum "$name.zip" >"$name.zip.sha256")
ls -l "$out/$name.zip"
