#!/usr/bin/env bash
# Runs a command inside a system while its instance `load` carries the connections of demo/uploads-lib.sh. None may break,
# and the service has to have another process afterwards. packaging/try-deb.sh runs this.
#
#   under-load.sh INIT ROOT COMMAND...    with the process of that system's systemd, and the root of its files
here=$(dirname "$0")
source "$here/../demo/lib.sh"
source "$here/../demo/crowd.sh"
source "$here/../demo/uploads-lib.sh"
require_tools
init=$1 root=$2
patience_s=60

inside() { nsenter -t "$init" -m -p -n -u -i -C env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin "$@"; }
ctl() { inside ipip-lb ctl --control /run/hotloop/ipip-lb@load.sock "$@"; }
shown() { inside systemctl show -p "$1" --value ipip-lb@load; }

# The system's network is a host like the others, but it stays when this script ends.
ip netns attach "$prefix-lb" "$init"
trap 'status=$?; ip netns delete "$prefix-lb"; clean_up; exit "$status"' EXIT
make_network
upload_conf "$(inside ipip-lb keygen)" >"$root/etc/ipip-lb/load.toml"
echo ON_RELOAD=replace >"$root/etc/ipip-lb/load.env"
inside systemctl start ipip-lb@load || fail 'the service does not start'
begin_uploads
process=$(shown MainPID)
order forget
inside "${@:3}" >"$work/command" 2>&1 || fail "$3 failed: $(cat "$work/command")"
[ "$(shown MainPID)" != "$process" ] || fail "the service has the process that it had: $(cat "$work/command")"
go_on
# The watchdog has been fed.
sleep 15
[ "$(shown NRestarts)" = 0 ] || fail 'systemd started the service again'
go_on
echo "0 of $client_count connections are broken; longest wait $(said .longest_ms) ms," \
    "$(inside journalctl -t ipip-lb -o cat | grep -o 'for [0-9.]* ms neither received anything' | tail -n 1)"
kill_program clients
inside systemctl stop ipip-lb@load || fail 'the service does not stop'
