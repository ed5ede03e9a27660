#!/usr/bin/env bash
# build.sh [ARCHITECTURE]... : builds static binaries and packs each with its papers. In dist/out:
#
#   encke-VERSION-ARCHITECTURE-linux-musl.tar.gz    for any Linux
#   encke_VERSION_DEBIAN-ARCHITECTURE.deb           for Debian and Ubuntu (dist/deb.sh)
#
# ARCHITECTURE is x86_64 (the default) or aarch64. The first one must run on this machine: its binary prints the papers.
#
# Builds of the same commit give the same bytes: times are the commit's, owners are removed, names are sorted.
set -euo pipefail
cd "$(dirname "$0")/.."

target_dir=${CARGO_TARGET_DIR:-target}
version=$(cargo metadata --format-version 1 --no-deps --locked |
    python3 -c 'import json, sys; print(next(p["version"] for p in json.load(sys.stdin)["packages"] if p["name"] == "encke"))')
out=dist/out
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
export SOURCE_DATE_EPOCH
# The program that prints man pages, completions and the schema.
printer=

# compile ARCHITECTURE : the C libraries in the program (AWS-LC, zstd) need a compiler that knows musl's headers.
compile() {
    local target=$1-unknown-linux-musl
    rustup target list --installed | grep -qx "$target" || rustup target add "$target"
    if [ "$1" = "$(uname -m)" ]; then
        local cc=CC_$1_unknown_linux_musl
        local -x "$cc=${!cc:-musl-gcc}"
    else
        # Debian's cross compiler is for glibc: it gets musl's headers instead, and Rust's linker has musl itself.
        local gcc=$1-linux-gnu-gcc upper=${1^^}
        local -x "CC_$1_unknown_linux_musl=$gcc" "AR_$1_unknown_linux_musl=$1-linux-gnu-ar"
        local -x "CFLAGS_$1_unknown_linux_musl=-nostdinc -isystem /usr/local/include/$1-linux-musl \
-isystem $("$gcc" -print-file-name=include)"
        local -x "CARGO_TARGET_${upper}_UNKNOWN_LINUX_MUSL_LINKER=rust-lld"
    fi
    cargo build --profile dist --locked --package encke --target "$target"
}

# pack ARCHITECTURE
pack() {
    local target=$1-unknown-linux-musl name=encke-$version-$1-linux-musl
    local stage=$out/$name command
    rm -rf "$stage"
    mkdir -p "$stage"/{man/man1,completions,systemd,logrotate,licences,doc}
    install -m 755 "$target_dir/$target/dist/encke" "$stage/encke"
    printer=${printer:-$stage/encke}

    "$printer" man >"$stage/man/man1/encke.1"
    for command in $(subcommands); do
        "$printer" man "$command" >"$stage/man/man1/encke-$command.1"
    done
    "$printer" completions bash >"$stage/completions/encke.bash"
    "$printer" completions zsh >"$stage/completions/_encke"
    "$printer" completions fish >"$stage/completions/encke.fish"
    "$printer" schema >"$stage/encke.schema.json"

    install -m 644 dist/encke.toml "$stage/encke.toml"
    install -m 644 dist/systemd/* "$stage/systemd/"
    install -m 644 dist/logrotate/* "$stage/logrotate/"
    install -m 644 README.md CHANGELOG.md "$stage/"
    install -m 644 docs/*.md "$stage/doc/"
    install -m 644 LICENSE-MIT LICENSE-APACHE "$stage/licences/"
    dist/licences.py "$target" >"$stage/licences/THIRD-PARTY.txt"

    (cd "$stage" && find . -type f ! -name SHA256SUMS -print0 | LC_ALL=C sort -z | xargs -0 sha256sum >SHA256SUMS)
    tar --create --directory "$out" --sort=name --owner=0 --group=0 --numeric-owner --mode='u=rwX,go=rX' \
        --mtime="@$SOURCE_DATE_EPOCH" --format=ustar "$name" | gzip -9n >"$out/$name.tar.gz"
    (cd "$out" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
    dist/deb.sh "$stage"
    ls -l "$out/$name.tar.gz"
}

# Prints the names of the commands, from the program's own help.
subcommands() {
    "$printer" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p'
}

[ $# -gt 0 ] || set -- x86_64
for architecture in "$@"; do
    compile "$architecture"
    pack "$architecture"
done
