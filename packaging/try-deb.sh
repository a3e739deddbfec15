#!/usr/bin/env bash
# Installs the packages on a bare Debian under its own systemd, in namespaces, and starts, reloads, stops, upgrades (under
# load) and removes the service. Says each step; the first that fails ends it. Needs root and debootstrap.
#
#   packaging/try-deb.sh target/debian/ipip-lb_0.1.0-1_amd64.deb [bookworm|trixie [ROOT]]
#
# The package of hotloop-tools lies beside it. The release is the one that they were built on. ROOT keeps the
# bare system for the next time.
set -euo pipefail
[ $# -ge 1 ] && [ -f "$1" ] || { sed -n '2,9p' "$0" | sed 's/^# \{0,1\}//'; exit 2; }
deb=$(realpath "$1")
tools=$(ls -t "$(dirname "$deb")"/hotloop-tools_*.deb 2>/dev/null | head -n 1)
[ -n "$tools" ] || { echo "try-deb: no hotloop-tools_*.deb beside $deb: cargo xtask package deb" >&2; exit 2; }
release=${2:-$(. /etc/os-release && echo "$VERSION_CODENAME")}
kept=${3:-}
[ "$(id -u)" = 0 ] || { echo "try-deb: needs root to make a system" >&2; exit 2; }
command -v debootstrap >/dev/null || { echo "try-deb: install debootstrap" >&2; exit 2; }

work=$(mktemp -d)
bare=${kept:-$work/bare}
group= init=
clean() {
    # Its namespaces end with it, and everything in them.
    while [ -n "$init" ] && kill -KILL "$init" 2>/dev/null; do sleep 0.1; done
    # What ran there takes a moment to be gone.
    for _ in $(seq 50); do
        [ -n "$group" ] && [ -d "$group" ] || break
        find "$group" -depth -type d -exec rmdir {} \; 2>/dev/null || true
        sleep 0.1
    done
    rm -rf --one-file-system "$work"
}
trap clean EXIT

step() { echo "try-deb: $release: $*"; }
fail() { echo "try-deb: FAILED: $*" >&2; inside journalctl --no-pager -n 30 >&2 || true; exit 1; }

if [ ! -e "$bare/etc/debian_version" ]; then
    step "making a bare system"
    mirror=$(grep -rhoE 'https?://[^ ]*/debian/?( |$)' /etc/apt/sources.list /etc/apt/sources.list.d 2>/dev/null | head -n 1 || true)
    debootstrap --variant=minbase --include=systemd,systemd-sysv,dbus "$release" "$bare" $mirror >"$work/log" ||
        { tail -n 5 "$work/log" >&2; exit 1; }
    cp -r /etc/apt/apt.conf.d "$bare/etc/apt/"
    rm -f "$bare"/etc/apt/apt.conf.d/*docker*
fi
root=$work/root
cp -a --reflink=auto "$bare" "$root"
cp -L /etc/resolv.conf "$root/etc/"
cp "$deb" "$root/ipip-lb.deb"
cp "$tools" "$root/hotloop-tools.deb"

step "fetching what the package depends on"
chroot "$root" apt-get update -qq
chroot "$root" apt-get install -y -qq --no-install-recommends --download-only /ipip-lb.deb >"$work/log" 2>&1 ||
    { tail -n 5 "$work/log" >&2; exit 1; }

# A cgroup of its own, for systemd to be the root of.
hierarchy=$(awk '$3 == "cgroup2" { print $2; exit }' /proc/mounts)
group=$hierarchy/try-deb.$$
mkdir "$group"

cat >"$work/boot" <<'BOOT'
echo $$ >"$2/cgroup.procs"
exec unshare --mount --pid --net --uts --ipc --cgroup --fork --kill-child --propagation private bash -euc '
    cd "$1"
    mount --bind . . && cd "$1"
    mount -t proc proc proc
    mount -t sysfs sysfs sys
    mount -t cgroup2 cgroup2 sys/fs/cgroup
    mount -t tmpfs -o mode=755 tmpfs run
    mount -t tmpfs -o mode=755 tmpfs dev
    for device in "null 1 3" "zero 1 5" "full 1 7" "random 1 8" "urandom 1 9" "tty 5 0"; do
        set -- $device
        mknod -m 666 "dev/$1" c "$2" "$3"
    done
    mkdir dev/net dev/pts dev/shm && mknod -m 666 dev/net/tun c 10 200
    mount -t devpts -o newinstance,ptmxmode=0666 devpts dev/pts && ln -s pts/ptmx dev/ptmx
    ln -s /proc/self/fd dev/fd
    mount -t tmpfs tmpfs dev/shm
    hostname bare
    mkdir -p old && pivot_root . old && umount -l /old
    exec env -i container=namespaces PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --log-target=kmsg
' boot "$1"
BOOT
bash "$work/boot" "$root" "$group" </dev/null >"$work/console" 2>&1 &
init=$!
disown "$init"
child() { cat "/proc/$init/task/$init/children" 2>/dev/null | tr -d ' '; }
inside() { nsenter -t "$(child)" -m -p -n -u -i -C env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin LANG=C.UTF-8 DEBIAN_FRONTEND=noninteractive "$@"; }
until_true() {
    local what=$1 tries=600
    shift
    until "$@" >/dev/null 2>&1; do
        tries=$((tries - 1))
        [ $tries -gt 0 ] || fail "not within a minute: $what"
        sleep 0.1
    done
}

step "starting systemd"
is_up() { case $(inside systemctl is-system-running) in running | degraded) ;; *) false ;; esac; }
until_true "systemd is up" is_up
inside systemctl --version | head -n 1
ip=$(command -v ip)
nsenter -t "$(child)" -n "$ip" link add eth0 type veth peer name eth1
nsenter -t "$(child)" -n "$ip" link set eth0 up
nsenter -t "$(child)" -n "$ip" link set eth1 up

step "installing"
inside apt-get install -y -qq --no-install-recommends /ipip-lb.deb >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; fail "install"; }
inside id ipip-lb
[ "$(inside stat -c '%U:%G %a' /etc/ipip-lb)" = "root:ipip-lb 750" ] || fail "/etc/ipip-lb is open to others"

step "starting"
# A program that does not report when it is ready is started all the same.
if ! grep -q NOTIFY_SOCKET "$root/usr/bin/ipip-lb"; then
    step "the program has no sd_notify: Type=exec, and no watchdog"
    inside mkdir -p /etc/systemd/system/ipip-lb@.service.d
    printf '[Service]\nType=exec\nWatchdogSec=0\n' | inside tee /etc/systemd/system/ipip-lb@.service.d/exec.conf >/dev/null
    inside systemctl daemon-reload
fi
inside cp /etc/ipip-lb/example.toml /etc/ipip-lb/other.toml
inside sed -i 's/iface=eth0/iface=eth1/' /etc/ipip-lb/other.toml
# net_af_packet numbers its fanout group by process XOR interface: two that start at once may have one number (EINVAL).
inside systemctl enable --now ipip-lb@example ipip-lb@other || step "one did not start; systemd starts it again"
ctl() { local name=$1; shift; inside ipip-lb ctl --control "/run/hotloop/ipip-lb@$name.sock" "$@"; }
until_true "the service answers" ctl example status
until_true "the other one answers" ctl other status
process_of() { inside systemctl show -p MainPID --value "ipip-lb@$1"; }
cpu_of() { ctl "$1" status --json | grep -o '"cpu":[0-9]*' | head -n 1; }
[ "$(nproc)" -lt 2 ] || [ "$(cpu_of example)" != "$(cpu_of other)" ] || fail "both instances run on $(cpu_of other)"
step "instances on CPUs $(cpu_of example) and $(cpu_of other)"
pid=$(process_of example)
inside grep -E 'Uid|CapPrm|NoNewPrivs|Seccomp:' "/proc/$pid/status"
inside journalctl --no-pager -o cat -u ipip-lb@example | grep -iE 'warn|error|not permitted' && fail "the log has warnings" || true

step "reloading"
inside sed -i 's/10\.0\.0\.2/10.0.0.9/' /etc/ipip-lb/example.toml
inside systemctl reload ipip-lb@example || fail "reload"
until_true "the new backend is there" sh -c "nsenter -t $(child) -m -p -n ipip-lb ctl --control /run/hotloop/ipip-lb@example.sock backends | grep -q 10.0.0.9"
inside sed -i 's/protocol = "tcp"/protocol = "nothing"/' /etc/ipip-lb/example.toml
! inside systemctl reload ipip-lb@example 2>/dev/null || fail "a wrong configuration was taken"
inside systemctl is-active -q ipip-lb@example || fail "a wrong configuration ended it"
inside sed -i 's/protocol = "nothing"/protocol = "tcp"/' /etc/ipip-lb/example.toml

if grep -q '^XDP ' /proc/net/protocols; then
    step "af_xdp, by the drop-in that the package brings"
    inside mkdir -p /etc/systemd/system/ipip-lb@other.service.d
    inside cp /usr/share/doc/ipip-lb/af-xdp.conf /etc/systemd/system/ipip-lb@other.service.d/
    inside systemctl daemon-reload
    inside sed -i 's/net_af_packet0/net_af_xdp0/' /etc/ipip-lb/other.toml
    inside systemctl restart ipip-lb@other || fail "restart with net_af_xdp"
    until_true "it answers over net_af_xdp" ctl other status
    [ -n "$(ctl other status | grep -i xdp)" ] || fail "the device is not net_af_xdp0"
fi

step "the tools"
inside apt-get install -y -qq --no-install-recommends /hotloop-tools.deb >"$work/log" 2>&1 || { tail -n 20 "$work/log" >&2; fail "install"; }
! inside ldd /usr/bin/hotloop-doctor /usr/bin/hotloop-top | grep -E 'librte|libpcap' || fail "the tools need DPDK"
for name in hotloop-top hotloop-doctor; do
    inside "$name" --version
    for file in "usr/share/man/man1/$name.1" "usr/share/bash-completion/completions/$name" \
        "usr/share/zsh/vendor-completions/_$name" "usr/share/fish/vendor_completions.d/$name.fish"; do
        grep -qEx "/$file(.gz)?" "$root/var/lib/dpkg/info/hotloop-tools.list" || fail "the package has no $file"
    done
done
code=0
inside hotloop-doctor --device net_af_packet0,iface=eth0 >"$work/log" || code=$?
case $code in 0 | 3 | 4) tail -n 1 "$work/log" ;; *) fail "hotloop-doctor ended with $code" ;; esac
inside env TERM=xterm script -qec "stty rows 24 cols 80; timeout --foreground -s TERM 3 hotloop-top" /dev/null </dev/null >"$work/screen" || true
grep -q 'ipip-lb@example' "$work/screen" || fail "hotloop-top does not show the service"

step "after SIGKILL it starts again"
inside systemctl kill -s KILL ipip-lb@example
restarted() { [ "$(process_of example)" != "$pid" ] && ctl example status; }
sleep 1
until_true "it runs again" restarted

step "exposure"
inside systemd-analyze --no-pager security ipip-lb@example | tail -n 1
inside systemd-analyze --man=no verify ipip-lb@example.service || fail "systemd-analyze verify"

step "upgrading, one instance in place"
upgrade() { inside dpkg -i --force-confold /ipip-lb.deb; }
pid=$(process_of example) other_pid=$(process_of other)
echo ON_RELOAD=replace | inside tee /etc/ipip-lb/example.env >/dev/null
upgrade >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "upgrade"; }
[ "$(process_of example)" != "$pid" ] || fail "it goes on with the version before: $(cat "$work/log")"
ctl example status >/dev/null || fail "it does not answer"
[ "$(process_of other)" = "$other_pid" ] || fail "the other one was replaced without ON_RELOAD"
grep 'ipip-lb@other.service goes on with the version before' "$work/log" || fail "apt does not name the other one"
[ -n "$(inside journalctl -q -t ipip-lb "_PID=$(process_of example)")" ] || fail "its messages have another name"
inside grep -q 10.0.0.9 /etc/ipip-lb/example.toml || fail "the upgrade overwrote a configuration"

step "a reload whose program is refused"
pid=$(process_of example)
echo 'OPTIONS=--workers 61' | inside tee -a /etc/ipip-lb/example.env >/dev/null
! inside systemctl reload ipip-lb@example 2>/dev/null || fail "systemctl reload hides the failure"
upgrade >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "upgrade"; }
grep 'ipip-lb@example.service could not be replaced' "$work/log" || fail "apt hides the failure: $(cat "$work/log")"
[ "$(process_of example)" = "$pid" ] || fail "another process is the service"
ctl example status >/dev/null || fail "it does not answer"
inside rm /etc/ipip-lb/example.env

step "upgrading under load"
"$(dirname "$0")/under-load.sh" "$(child)" "$root" dpkg -i --force-confold /ipip-lb.deb || fail "connections through an upgrade"

step "stopping"
inside systemctl stop ipip-lb@example || fail "stop"
result=$(inside systemctl show -p Result --value ipip-lb@example)
[ "$result" = success ] || fail "it ended with $result"
! inside test -e /run/hotloop/ipip-lb@example.sock || fail "its socket is left"

step "removing"
inside apt-get purge -y -qq hotloop-tools >"$work/log" 2>&1 || fail "purge of the tools"
[ ! -e "$root/usr/bin/hotloop-top" ] && [ ! -e "$root/var/lib/dpkg/info/hotloop-tools.list" ] || fail "the tools are left"
inside apt-get remove -y -qq ipip-lb >"$work/log" 2>&1 || fail "remove"
! inside systemctl is-active -q ipip-lb@other || fail "a removed program runs"
[ ! -e "$root/usr/bin/ipip-lb" ] && [ -e "$root/etc/ipip-lb/example.toml" ] || fail "remove takes programs, not configurations"
inside apt-get purge -y -qq ipip-lb >"$work/log" 2>&1 || fail "purge"
[ ! -e "$root/etc/ipip-lb/example.toml" ] || fail "purge leaves the package's configuration"
[ -e "$root/etc/ipip-lb/other.toml" ] || fail "purge took what is the administrator's"
[ -z "$(inside find /usr /var/lib/systemd /etc/systemd/system/multi-user.target.wants -name '*ipip-lb*' -not -path '*/info/*')" ] || fail "something is left"
step "all passed"
