#!/usr/bin/env bash
# Builds a static binary and packs it with its papers: dist/out/encke-VERSION-x86_64-linux-musl.tar.gz.
#
# Builds of the same commit give the same archive: times are the commit's, owners are removed, names are sorted.
set -euo pipefail
cd "$(dirname "$0")/.."

target=x86_64-unknown-linux-musl
target_dir=${CARGO_TARGET_DIR:-target}
version=$(cargo metadata --format-version 1 --no-deps --locked |
    python3 -c 'import json, sys; print(next(p["version"] for p in json.load(sys.stdin)["packages"] if p["name"] == "encke"))')
name=encke-$version-x86_64-linux-musl
out=dist/out
stage=$out/$name

rustup target list --installed | grep -qx "$target" || rustup target add "$target"
# libzstd is C: it needs a compiler that knows musl's headers.
export CC_x86_64_unknown_linux_musl=${CC_x86_64_unknown_linux_musl:-musl-gcc}
cargo build --profile dist --locked --package encke --target "$target"

rm -rf "$stage"
mkdir -p "$stage"/{man/man1,completions,systemd,logrotate,licences,doc}
install -m 755 "$target_dir/$target/dist/encke" "$stage/encke"

"$stage/encke" man >"$stage/man/man1/encke.1"
for command in serve check status schema completions man; do
    "$stage/encke" man "$command" >"$stage/man/man1/encke-$command.1"
done
"$stage/encke" completions bash >"$stage/completions/encke.bash"
"$stage/encke" completions zsh >"$stage/completions/_encke"
"$stage/encke" completions fish >"$stage/completions/encke.fish"
"$stage/encke" schema >"$stage/encke.schema.json"

install -m 644 dist/encke.toml "$stage/encke.toml"
install -m 644 dist/systemd/* "$stage/systemd/"
install -m 644 dist/logrotate/* "$stage/logrotate/"
install -m 644 README.md CHANGELOG.md "$stage/"
install -m 644 docs/*.md "$stage/doc/"
install -m 644 LICENSE-MIT LICENSE-APACHE "$stage/licences/"
dist/licences.py "$target" >"$stage/licences/THIRD-PARTY.txt"

(cd "$stage" && find . -type f ! -name SHA256SUMS -print0 | LC_ALL=C sort -z | xargs -0 sha256sum >SHA256SUMS)
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}
tar --create --directory "$out" --sort=name --owner=0 --group=0 --numeric-owner --mode='u=rwX,go=rX' \
    --mtime="@$epoch" --format=ustar "$name" | gzip -9n >"$out/$name.tar.gz"
(cd "$out" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
ls -l "$out/$name.tar.gz"
