#!/usr/bin/env bash
# test-deb.sh [DEB] : installs the package of dist/deb.sh in a clean Debian, and uses it: files, user, settings, the unit, a
# server under its user, upgrades, removal and purge.
#
# The clean Debian is downloaded once, to debian-root.tar in the target directory. chroot(2) needs root.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "test-deb.sh: $*" >&2; exit 1; }

[ "$(id -u)" = 0 ] || fail "needs root, for chroot(2)"
deb=${1:-$(ls dist/out/encke_*_amd64.deb | tail -n 1)}
[ -f "$deb" ] || fail "there is no $deb; run dist/build.sh"
target_dir=${CARGO_TARGET_DIR:-target}
base=$target_dir/debian-root.tar
here=$(mktemp -d)
root=$here/root
chroot=(env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive chroot "$root")
server=
finish() {
    [ -z "$server" ] || kill "$server" 2>/dev/null || true
    rm -rf "$here"
}
trap finish EXIT

if [ ! -f "$base" ]; then
    mkdir -p "$target_dir"
    mmdebstrap --quiet --variant=essential --include=systemd-standalone-sysusers,init-system-helpers \
        --format=tar "${DEBIAN_SUITE:-bookworm}" "$base.new" || fail "cannot fetch a clean Debian"
    mv "$base.new" "$base"
fi
mkdir "$root"
tar --extract --file "$base" --directory "$root"

# The version of each step differs from the one before only in the given file.
# repack VERSION FILE LINE : prints the path of the package with another version and one more line in FILE.
repack() {
    local tree=$here/tree
    rm -rf "$tree"
    dpkg-deb --raw-extract "$deb" "$tree"
    sed -i "s/^Version: .*/Version: $1/" "$tree/DEBIAN/control"
    [ -z "${2:-}" ] || echo "$3" >>"$tree$2"
    dpkg-deb --root-owner-group -Zgzip -z1 --build "$tree" "$root/$1.deb" >/dev/null
}

# within COMMAND... : runs a command in the clean Debian.
within() {
    "${chroot[@]}" "$@" </dev/null
}

# dpkg's output, which is of interest only after a failure.
packages() {
    within dpkg "$@" >"$here/dpkg.log" 2>&1 || { cat "$here/dpkg.log" >&2; fail "dpkg $*"; }
}

dist_version=$(dpkg-deb --field "$deb" Version)
(cd "$(dirname "$deb")" && sha256sum --check --quiet "$(basename "$deb").sha256") || fail "the checksum of $deb"
cp "$deb" "$root/encke.deb"

# Installation.
packages --install /encke.deb
packages --verify encke
[ ! -s "$here/dpkg.log" ] || fail "dpkg --verify: $(cat "$here/dpkg.log")"
for file in usr/bin/encke usr/share/man/man1/encke.1.gz usr/share/man/man1/encke-sub.1.gz \
    usr/share/bash-completion/completions/encke usr/share/zsh/vendor-completions/_encke \
    usr/share/fish/vendor_completions.d/encke.fish usr/share/encke/encke.schema.json \
    usr/lib/systemd/system/encke.service usr/lib/sysusers.d/encke.conf etc/encke/encke.toml; do
    [ -s "$root/$file" ] || fail "/$file is missing or empty"
done
for text in 'MIT License' 'Apache License' 'BoringSSL' 'zstd'; do
    grep -q "$text" "$root/usr/share/doc/encke/copyright" || fail "the licences do not name $text"
done
logs_to_file=$(grep -Ec '^access = "/' "$root/etc/encke/encke.toml" || true)
[ "$logs_to_file" = "$(find "$root/etc/logrotate.d" -name encke 2>/dev/null | wc -l)" ] ||
    fail "the logrotate file does not match the settings: files are $logs_to_file"
[[ $(within encke --version) == "encke $dist_version "* ]] || fail "another version"
others=$(within dpkg --listfiles encke |
    grep -Ev '^/(\.|etc|etc/encke|etc/logrotate\.d|srv|usr|usr/bin|usr/lib|usr/share)?(/encke.*)?$' |
    grep -Ev '^/usr/(lib/(systemd|sysusers\.d)|share/(man|doc|bash-completion|zsh|fish))' || true)
[ -z "$others" ] || fail "unexpected files: $others"

# The user, and access to the settings.
IFS=: read -r name _ uid _ _ home shell < <(within getent passwd encke) || fail "no user encke"
[ "$name $home" = 'encke /var/lib/encke' ] && [ "$uid" -lt 1000 ] || fail "the user: $name $uid $home"
case $shell in */nologin | */false) ;; *) fail "the user can log in: $shell" ;; esac
mode() { within stat --format '%a %U %G' /etc/encke/encke.toml; }
[ "$(mode)" = '640 root encke' ] || fail "the settings: $(mode)"
as_encke=(setpriv --reuid encke --regid encke --init-groups --bounding-set -all --no-new-privs)
within "${as_encke[@]}" encke check /etc/encke/encke.toml >/dev/null || fail "the settings as installed"

# The unit, by the verifier of this machine, because the clean Debian has no systemd. That this machine lacks the program and
# its user is no error.
if command -v systemd-analyze >/dev/null; then
    unit=$root/usr/lib/systemd/system/encke.service
    said=$(systemd-analyze verify --man=no "$unit" 2>&1 | grep encke.service | grep -v 'not executable' || true)
    [ -z "$said" ] || fail "the unit: $said"
fi

# The command of the unit, under the user of the unit, with free ports.
setting() { sed -n "s/^$1=//p" "$root/usr/lib/systemd/system/encke.service"; }
[ "$(setting User):$(setting Group)" = encke:encke ] || fail "the unit's user: $(setting User)"
for directory in $(setting StateDirectory); do
    install -d -o "$uid" "$root/var/lib/$directory"
done
for directory in $(setting LogsDirectory); do
    install -d -o "$uid" "$root/var/log/$directory"
done
echo 'hello from the package' >"$root/srv/encke/index.html"
read -ra command < <(setting ExecStart)
mkfifo "$here/said"
# Each program replaces the one before it, so $! is the server.
"${chroot[@]}" "${as_encke[@]}" "${command[@]}" -l 127.0.0.1:0 --admin off >"$here/access.log" 2>"$here/said" &
server=$!
url=
while read -r word rest; do
    [ "$word" != site ] || url=$rest
    [ "$word" != capacity ] || break
done <"$here/said"
[ -n "$url" ] || fail "the command of the unit does not serve: ${command[*]}"
grep -q "^Uid:[[:space:]]$uid[[:space:]]" "/proc/$server/status" || fail "it does not run as encke"
answer=$(curl --silent --show-error --fail "$url")
[ "$answer" = 'hello from the package' ] || fail "it answered: $answer"
kill -TERM "$server"
wait "$server" || fail "it ended with status $?"
server=

# An upgrade keeps changed settings: silently if the package's own did not change, else by dpkg's choice of the administrator.
echo '# mine' >>"$root/etc/encke/encke.toml"
cp "$root/etc/encke/encke.toml" "$here/mine.toml"
kept() {
    cmp --silent "$here/mine.toml" "$root/etc/encke/encke.toml" || fail "$1 changed the settings"
    [ "$(mode)" = '640 root encke' ] || fail "$1: the settings are $(mode)"
}
repack "$dist_version+1"
packages --install "/$dist_version+1.deb"
kept 'an upgrade'
repack "$dist_version+2" /etc/encke/encke.toml '# theirs'
packages --force-confold --install "/$dist_version+2.deb"
kept 'an upgrade with other settings'
grep -q theirs "$root/etc/encke/encke.toml.dpkg-dist" || fail "the new settings are not next to the old ones"
[[ $(within getent passwd encke) == *":$uid:"* ]] || fail "an upgrade changed the user"

# Removal keeps settings and data, purge keeps the user and the site.
mkdir -p "$root"/var/{lib,log}/encke "$root/etc/systemd/system/multi-user.target.wants"
echo data >"$root/var/lib/encke/push.redb"
ln -s /usr/lib/systemd/system/encke.service "$root/etc/systemd/system/multi-user.target.wants/"
packages --remove encke
[ ! -e "$root/usr/bin/encke" ] || fail "removal left the program"
kept removal
[ -s "$root/var/lib/encke/push.redb" ] || fail "removal deleted the state"
packages --purge encke
for path in etc/encke var/lib/encke var/log/encke etc/systemd/system/multi-user.target.wants/encke.service; do
    [ ! -e "$root/$path" ] && [ ! -L "$root/$path" ] || fail "purge left /$path"
done
[ -s "$root/srv/encke/index.html" ] || fail "purge deleted the site"
within getent passwd encke >/dev/null || fail "purge deleted the user"

# A package for another architecture, if there is one, has the same files.
for other in "$(dirname "$deb")"/encke_"$dist_version"_*.deb; do
    diff <(dpkg-deb --contents "$deb" | awk '{ print $1, $2, $6 }') <(dpkg-deb --contents "$other" | awk '{ print $1, $2, $6 }') ||
        fail "$other has other files"
done

# The same stage and time give the same bytes.
stage=dist/out/encke-$dist_version-x86_64-linux-musl
if [ -d "$stage" ] && [ $# -eq 0 ]; then
    mkdir "$here/again"
    ln -s "$PWD/$stage" "$here/again/"
    dist/deb.sh "$here/again/$(basename "$stage")" >/dev/null
    cmp "$deb" "$here/again/$(basename "$deb")" || fail "two builds of the package differ"
fi
echo "test-deb.sh: $(basename "$deb") works"
