#!/usr/bin/env bash
# test.sh [ARCHITECTURE] : unpacks what dist/build.sh has packed somewhere else, and uses it: checksums, papers, a server that
# answers, and the files for Compose and Kubernetes. ARCHITECTURE is x86_64 (the default) or aarch64. A program that this
# machine cannot run itself runs in qemu.
set -euo pipefail
cd "$(dirname "$0")/.."
repository=$PWD

architecture=${1:-x86_64}
archives=(dist/out/encke-*-"$architecture"-linux-musl.tar.gz)
archive=${archives[-1]}
emulator=()
[ "$architecture" = "$(uname -m)" ] || emulator=("qemu-$architecture-static")
[ -f "$archive" ] || { echo "test.sh: there is no $archive; run dist/build.sh" >&2; exit 1; }
here=$(mktemp -d)
server=
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$here"
}
trap finish EXIT

fail() { echo "test.sh: $*" >&2; exit 1; }

(cd "$(dirname "$archive")" && sha256sum --check --quiet "$(basename "$archive").sha256") || fail "the archive's checksum"
tar --extract --gzip --file "$archive" --directory "$here"
name=$(basename "$archive" .tar.gz)
cd "$here/$name"
sha256sum --check --quiet SHA256SUMS || fail "the files' checksums"

# A static program asks for no interpreter.
if readelf --program-headers encke | grep -q INTERP; then fail "encke is not static"; fi
[[ $("${emulator[@]}" ./encke --version) == *"$architecture-unknown-linux-musl)" ]] || fail "the version does not name the target"

for paper in README.md CHANGELOG.md encke.toml encke.schema.json licences/LICENSE-MIT licences/LICENSE-APACHE \
    licences/THIRD-PARTY.txt man/man1/encke.1 man/man1/encke-serve.1 man/man1/encke-sub.1 \
    completions/encke.bash completions/_encke completions/encke.fish systemd/encke.service systemd/encke.sysusers logrotate/encke doc/settings.md; do
    [ -s "$paper" ] || fail "$paper is missing or empty"
done
bash -n completions/encke.bash
if command -v systemd-analyze >/dev/null; then
    # Checks the unit file only, not whether this machine has the program and its user.
    said=$(systemd-analyze verify --man=no ./systemd/encke.service 2>&1 | grep encke.service | grep -v 'not executable' || true)
    [ -z "$said" ] || fail "the unit: $said"
fi

# These files name no architecture: a program that this machine runs itself checks them.
if [ ${#emulator[@]} -eq 0 ]; then
    "$repository/dist/orchestration.py" ./encke || fail "the files for Compose and Kubernetes"
fi

mkdir site
echo 'hello from the archive' >site/index.html
sed 's|^root = .*|root = "site"|; s|^access = .*|access = "access.log"|' encke.toml >mine.toml
"${emulator[@]}" ./encke check mine.toml >/dev/null || fail "the example settings"
# The server says on standard error when it serves, and where.
mkfifo said
env -u ENCKE_CONFIG "${emulator[@]}" ./encke serve -c mine.toml -l 127.0.0.1:0 --admin off 2>said &
server=$!
url=
while read -r word rest; do
    [ "$word" != site ] || url=$rest
    [ "$word" != capacity ] || break
done <said
[ -n "$url" ] || fail "it did not start"
answer=$(curl --silent --show-error --fail "$url")
[ "$answer" = 'hello from the archive' ] || fail "it answered: $answer"
kill -TERM "$server"
wait "$server" || fail "it ended with status $?"
server=
grep -q '"GET / HTTP/1.1" 200' access.log || fail "the request is not in the log"
echo "test.sh: $name works"
