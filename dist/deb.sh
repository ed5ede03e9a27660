#!/usr/bin/env bash
# deb.sh STAGE : packs a directory of dist/build.sh as dist/out/encke_VERSION_ARCHITECTURE.deb.
#
# The package has the program, man pages, completions, the systemd unit with its user, the settings as a conffile, and the
# licences. It has the logrotate file only if these settings write the access log to a file. The same stage and
# SOURCE_DATE_EPOCH give the same bytes.
set -euo pipefail
umask 022
cd "$(dirname "$0")/.."

stage=$1
out=$(dirname "$stage")
[[ $(basename "$stage") =~ ^encke-(.*)-(x86_64|aarch64)-linux-musl$ ]] || {
    echo "deb.sh: $stage is not a directory of dist/build.sh" >&2
    exit 1
}
version=${BASH_REMATCH[1]}
case ${BASH_REMATCH[2]} in
x86_64) architecture=amd64 ;;
aarch64) architecture=arm64 ;;
esac
epoch=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT
chmod 755 "$root"

# put FILE PATH [MODE]
put() {
    install -D -m "${3:-644}" "$1" "$root/$2"
}

put "$stage/encke" usr/bin/encke 755
for page in "$stage"/man/man1/*; do
    put "$page" "usr/share/man/man1/$(basename "$page")"
    gzip -9n "$root/usr/share/man/man1/$(basename "$page")"
done
put "$stage/completions/encke.bash" usr/share/bash-completion/completions/encke
put "$stage/completions/_encke" usr/share/zsh/vendor-completions/_encke
put "$stage/completions/encke.fish" usr/share/fish/vendor_completions.d/encke.fish
put "$stage/encke.schema.json" usr/share/encke/encke.schema.json
put "$stage/systemd/encke.service" usr/lib/systemd/system/encke.service
put "$stage/systemd/encke.sysusers" usr/lib/sysusers.d/encke.conf
put "$stage/encke.toml" etc/encke/encke.toml
conffiles=/etc/encke/encke.toml
if grep -Eq '^access = "/' "$stage/encke.toml"; then
    put "$stage/logrotate/encke" etc/logrotate.d/encke
    conffiles+=$'\n/etc/logrotate.d/encke'
fi

papers=$root/usr/share/doc/encke
mkdir -p "$papers"
install -m 644 "$stage"/doc/*.md "$stage/README.md" "$stage/CHANGELOG.md" "$papers/"
{
    echo 'Encke is licensed under the MIT licence or the Apache License 2.0, at your option. Both follow, and then the'
    echo 'licences of the packages in the program.'
    for text in LICENSE-MIT LICENSE-APACHE THIRD-PARTY.txt; do
        printf '\n%s\n\n' "$(printf '=%.0s' {1..80})"
        cat "$stage/licences/$text"
    done
} >"$papers/copyright"

mkdir "$root/DEBIAN"
echo "$conffiles" >"$root/DEBIAN/conffiles"
for script in postinst prerm postrm; do
    install -m 755 "dist/debian/$script" "$root/DEBIAN/$script"
done
# Kilobytes of the files, without the rounding of this file system.
size=$(find "$root" -path "$root/DEBIAN" -prune -o -type f -printf '%s\n' | awk '{ kb += int(($1 + 1023) / 1024) } END { print kb }')
cat >"$root/DEBIAN/control" <<CONTROL
Package: encke
Version: $version
Architecture: $architecture
Maintainer: The Encke developers
Installed-Size: $size
Depends: systemd | systemd-standalone-sysusers | systemd-sysusers
Section: httpd
Priority: optional
Description: web server for connections that stay open
 Encke serves files over HTTP/1.1 and HTTP/2, with or without TLS, and pushes
 messages to tens of thousands of browsers by event stream, WebSocket, NDJSON
 or long poll. It is one static program, with a load generator and a laboratory.
CONTROL
(cd "$root" && find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0 md5sum >DEBIAN/md5sums)
find "$root" -exec touch --no-dereference --date="@$epoch" {} +

# One thread: the number of threads changes how xz divides its input.
deb=$out/encke_${version}_$architecture.deb
SOURCE_DATE_EPOCH=$epoch dpkg-deb --root-owner-group --threads-max=1 -Zxz --build "$root" "$deb" >/dev/null
(cd "$out" && sha256sum "$(basename "$deb")" >"$(basename "$deb").sha256")
ls -l "$deb"
