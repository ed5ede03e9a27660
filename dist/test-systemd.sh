#!/usr/bin/env bash
# test-systemd.sh [DEB] : boots a clean Debian in namespaces of its own, and installs, starts, reloads, upgrades and purges the
# package of dist/deb.sh there: the unit with its sandbox, and the scripts of the package.
#
# The clean Debian is downloaded once, to debian-systemd.tar in the target directory. Needs root, and a kernel that lets it mount
# cgroup2; without that the test says so and is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "test-systemd.sh: $*" >&2; exit 1; }

[ "$(id -u)" = 0 ] || fail "needs root, for namespaces"
deb=${1:-$(ls dist/out/encke_*_amd64.deb | tail -n 1)}
[ -f "$deb" ] || fail "there is no $deb; run dist/build.sh"
target_dir=${CARGO_TARGET_DIR:-target}
base=$target_dir/debian-systemd.tar
root=$(mktemp -d)
trap 'rm -rf "$root"' EXIT

unshare --mount --cgroup sh -c "mount -t cgroup2 cgroup2 '$root'" 2>/dev/null || {
    echo "test-systemd.sh: skipped: this machine does not let root mount cgroup2"
    exit 0
}
if [ ! -f "$base" ]; then
    mkdir -p "$target_dir"
    mmdebstrap --quiet --variant=essential --include=systemd,systemd-sysv,init-system-helpers,curl --format=tar \
        "${DEBIAN_SUITE:-bookworm}" "$base.new" || fail "cannot fetch a clean Debian"
    mv "$base.new" "$base"
fi
tar --extract --file "$base" --directory "$root"
cp "$deb" "$root/encke.deb"

# Runs in the clean Debian, as root, once it has booted. Its last line is `works` or the first failure.
cat >"$root/steps" <<'STEPS'
#!/bin/sh
exec >/result 2>&1
set -eux
wrong() { journalctl --no-pager --unit encke | tail -n 40; echo "$*"; systemctl poweroff --force; exit 1; }
pid() { systemctl show --property MainPID --value encke; }

dpkg --install /encke.deb || wrong "dpkg --install"
! systemctl is-active --quiet encke || wrong "the installation starts the server"
echo hello >/srv/encke/index.html
systemctl enable --now encke || wrong "systemctl enable --now"
[ "$(curl --silent --fail http://127.0.0.1:8080/)" = hello ] || wrong "the server does not serve /srv/encke"
first=$(pid)
[ "$(stat --format %U "/proc/$first")" = encke ] || wrong "the server does not run as encke"

# A reload applies changed settings, and the process stays.
sed --in-place 's/^#list = false/list = true/' /etc/encke/encke.toml
rm /srv/encke/index.html
echo more >/srv/encke/more.txt
systemctl reload encke || wrong "systemctl reload"
deadline=$(($(date +%s) + 120))
until curl --silent http://127.0.0.1:8080/ | grep --quiet more.txt; do
    [ "$(date +%s)" -lt "$deadline" ] || wrong "the reload changed nothing"
done
[ "$(pid)" = "$first" ] || wrong "the reload restarted the server"

# Rejected settings fail the reload, and the server keeps the old ones.
cp /etc/encke/encke.toml /good.toml
echo 'unknown = 1' >>/etc/encke/encke.toml
! systemctl reload encke || wrong "systemctl reload succeeds with rejected settings"
[ "$(pid)" = "$first" ] || wrong "a rejected reload ended the server"
curl --silent --fail http://127.0.0.1:8080/ | grep --quiet more.txt || wrong "a rejected reload changed the settings"
cp /good.toml /etc/encke/encke.toml

# An upgrade restarts a running server, with the changed settings.
dpkg-deb --raw-extract /encke.deb /tree
sed --in-place 's/^Version: .*/&+1/' /tree/DEBIAN/control
dpkg-deb --root-owner-group -Zgzip --build /tree /next.deb
dpkg --install /next.deb || wrong "the upgrade"
systemctl is-active --quiet encke || wrong "the upgrade stopped the server"
[ "$(pid)" != "$first" ] || wrong "the upgrade did not restart the server"
curl --silent --fail http://127.0.0.1:8080/ | grep more.txt || wrong "the upgrade lost the settings"

dpkg --remove encke || wrong "dpkg --remove"
! systemctl is-active --quiet encke || wrong "the removal left the server running"
dpkg --purge encke || wrong "dpkg --purge"
[ ! -e /var/lib/encke ] && [ ! -e /etc/encke ] || wrong "the purge left files"
echo works
systemctl poweroff --force
STEPS
chmod +x "$root/steps"
cat >"$root/etc/systemd/system/steps.service" <<'UNIT'
[Unit]
After=multi-user.target
[Service]
Type=oneshot
ExecStart=/steps
UNIT
mkdir -p "$root/etc/systemd/system/graphical.target.wants"
ln -s ../steps.service "$root/etc/systemd/system/graphical.target.wants/"

# The first process of the namespaces is systemd. If it does not end by itself, all of them are killed.
boot() {
    timeout --signal KILL 600 unshare --mount --pid --fork --kill-child --cgroup --net --uts --ipc sh -euc "
        mount --make-rprivate /
        mount --bind '$root' '$root'
        cd '$root'
        mount -t proc proc proc
        mount -t tmpfs tmpfs run
        mount -t tmpfs tmpfs tmp
        mount -t sysfs -o ro sysfs sys
        mount -t cgroup2 cgroup2 sys/fs/cgroup
        ip link set lo up
        exec env -i container=unshare PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot . /lib/systemd/systemd --log-target=console --log-level=warning
    "
}
boot >"$root/boot.log" 2>&1 </dev/null || true
[ "$(tail -n 1 "$root/result" 2>/dev/null)" = '+ systemctl poweroff --force' ] && grep -qx works "$root/result" || {
    tail -n 60 "$root/boot.log" "$root/result" >&2 || true
    fail "$(basename "$deb") does not work under systemd"
}
echo "test-systemd.sh: $(basename "$deb") works"
