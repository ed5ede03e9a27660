#!/usr/bin/env bash
# test-windows.sh [ZIP] : unpacks the zip of dist/windows.sh somewhere else, and uses it in wine: checksums, documents, the libraries
# that the program needs, and a server with the sample settings. `tests/windows --prepare` prepares wine.
set -euo pipefail
cd "$(dirname "$0")/.."
repository=$PWD

archives=(dist/out/encke-*-x86_64-windows.zip)
archive=$(realpath "${1:-${archives[-1]}}")
[ -f "$archive" ] || { echo "test-windows.sh: there is no $archive; run dist/windows.sh" >&2; exit 1; }
here=$(mktemp -d)
server=
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$here"
}
trap finish EXIT

fail() { echo "test-windows.sh: $*" >&2; exit 1; }

(cd "$(dirname "$archive")" && sha256sum --check --quiet "$(basename "$archive").sha256") || fail "the archive's checksum"
python3 -m zipfile -e "$archive" "$here"
name=$(basename "$archive" .zip)
cd "$here/$name"
sha256sum --check --quiet SHA256SUMS || fail "the files' checksums"
for document in README.txt CHANGELOG.md encke.toml site/index.html licences/LICENSE-MIT licences/LICENSE-APACHE \
    licences/THIRD-PARTY.txt doc/windows.md doc/settings.md; do
    [ -s "$document" ] || fail "$document is missing or empty"
done

# Every library that it needs is one of Windows: nothing has to be installed beside it.
needed=$(x86_64-w64-mingw32-objdump -p encke.exe | sed -n 's/^\s*DLL Name: //p' | tr 'A-Z' 'a-z')
[ -n "$needed" ] || fail "encke.exe needs no library at all"
own='api-ms-win-.*|advapi32|bcrypt|bcryptprimitives|crypt32|kernel32|mswsock|msvcrt|ncrypt|ntdll'
own="$own|psapi|secur32|shell32|user32|userenv|ws2_32"
if grep -Ev "^($own)\.dll\$" <<<"$needed"; then
    fail "encke.exe needs libraries that Windows does not have"
fi

WINE=${WINE:-/usr/lib/wine/wine64}
export WINEDEBUG=-all WINEPREFIX=${WINEPREFIX:-$(realpath "$repository/${CARGO_TARGET_DIR:-target}")/wine/prefix}
[ -d "$WINEPREFIX" ] || fail "there is no $WINEPREFIX; run tests/windows"
env -u ENCKE_CONFIG "$WINE" ./encke.exe check encke.toml >"$here/checked" 2>&1 || fail "the sample settings: $(cat "$here/checked")"
# The pipe of a program in wine stays open, so its lines are awaited in a file.
env -u ENCKE_CONFIG "$WINE" ./encke.exe serve -c encke.toml -l 127.0.0.1:0 --admin off >"$here/said" 2>&1 &
server=$!
# tail ends with its reader, by a signal.
(set +o pipefail; timeout 240 tail -n +1 -f --pid=$server "$here/said" | grep -q -m 1 capacity) || fail "it did not start: $(cat "$here/said")"
url=$(sed -n 's/^ *site *\(http[^ \r]*\).*/\1/p' "$here/said" | head -n 1)
curl --silent --show-error --fail "$url" | cmp - site/index.html || fail "it served another page"
kill -INT "$server"
wait "$server" && fail "^C ended it with status 0" ||
    [ $? = 130 ] || fail "it ended with another status than 130"
server=
grep -q '"GET / HTTP/1.1" 200' access.log || fail "the request is not in the log"
echo "test-windows.sh: $name works"
