#!/usr/bin/env bash
# A balancer is replaced by the next one, again and again, under connections of which none is broken:
#
#   client ── router ── lb (ipip-lb) ── router ── backend-1, -2, -3, which answer straight to the client
#
# tests/replace.rs runs it; exit code 2 where it can't run here:
#
#   uploads.sh PROGRAM ROUNDS            each balancer takes over from the one before: `run --replace`
#   uploads.sh PROGRAM ROUNDS --apart    each is stopped, and the next one started: connections are broken
demo=$(dirname "$0")/../../../../demo
source "$demo/lib.sh"
source "$demo/crowd.sh"
check_privilege
for name in ethtool ip jq python3; do
    command -v "$name" >/dev/null || { echo "there is no $name here" >&2; exit 2; }
done
program=${1:?the path of ipip-lb} rounds=${2:?how many times} mode=${3:---replace}

patience_s=60                            # as a test, it runs together with others
vip=203.0.113.10
client_count=1000
pause_s=0.5

ctl() { "$program" ctl --control "$work/lb.sock" "$@"; }
now_us() { echo "${EPOCHREALTIME/./}"; }

make_network() {
    local n
    add_host router
    set_in router ipv4/ip_forward=1
    link 1 client eth0 198.51.100 2001:db8:c
    for n in 1 2 3; do
        link "1$n" "backend-$n" eth0 "10.1.$n" "2001:db8:b$n"
        in_host "backend-$n" ip address add "$vip/32" dev lo
        start "backend-$n" "backend-$n" python3 "$demo/crowd.py" backend "backend-$n" "$vip" 7
    done
    link 31 lb front 10.0.1 2001:db8:1
    in_host router ip route add "$vip/32" via 10.0.1.2
    in_host lb ip monitor route >>"$work/routes" &
}

configure() {
    # Nothing is watched: a machine that starves a worker for a second has its VIP withdrawn, as it should.
    cat >"$work/lb.toml" <<END
[engine]
workers = 1
idle = "adaptive"
worker_stall_ms_max = 0

[balancer]
source_v4 = "192.0.2.1"
mtu = 1500
decapsulate = []
hash_key = "$("$program" keygen)"

[announce]
vips = "ready"
linger_ms = 0

[[port]]
name = "front"
device = "net_af_packet0,iface=front,qdisc_bypass=1"
next_hop = "10.0.1.1"
address = "10.0.1.2"

[[service]]
name = "echo"
address = "$vip"
protocol = "tcp"
ports = "7"
backend = [{ address = "10.1.1.2" }, { address = "10.1.2.2" }, { address = "10.1.3.2" }]
END
}

# start_lb NUMBER ARGUMENT...
start_lb() {
    start "lb-$1" lb "$program" run --report json --config "$work/lb.toml" --control "$work/lb.sock" "${@:2}"
}
is_announced() { ctl status --json 2>/dev/null | jq -e --arg vip "$vip" '.announced == [$vip]' >/dev/null; }
standings() { ctl backends --json | jq -c '[.[] | [.address, .weight]]'; }

# has_ended NAME: it must have ended by itself, and well.
has_ended() {
    wait_until "$1 to end" is_over "$1"
    wait "${pid[$1]}" || fail "$1 ended with an error: $(last_words "$1")"
    judge "$1"
}

has_taken_over() {
    is_alive "$1" || fail "$1 ended early: $(last_words "$1")"
    grep -qs 'this program has taken over' "$work/$1.err"
}

# replaced NUMBER: the balancer of this number takes over from the one before.
replaced() {
    local before=lb-$(($1 - 1)) gap stall
    order forget
    start_lb "$1" --replace
    wait_until "lb-$1 to take over" has_taken_over "lb-$1"
    has_ended "$before"
    confirm
    [ "$(standings)" = "$expected" ] || fail "the weights were $expected, and are $(standings)"
    gap=$(sed -n 's/.*taken over; for \([0-9]*\).*/\1/p' "$work/lb-$1.err") stall=$(said .longest_ms)
    printf '  %2d. for %d ms neither received; longest wait of a connection: %d ms\n' "$1" "$gap" "$stall"
    ((gap <= longest_gap)) || longest_gap=$gap
    ((stall <= longest_stall)) || longest_stall=$stall
}

# restarted NUMBER: the same without a takeover.
restarted() {
    # Where the weights are as they were, connections find their backends without being known.
    sed -i 's/"10.1.1.2" }/"10.1.1.2", weight = 5 }/; s/"10.1.3.2" }/"10.1.3.2", weight = 0 }/' "$work/lb.toml"
    stop "lb-$(($1 - 1))"
    start_lb "$1"
    wait_ready "lb-$1" ctl status
}

make_network
configure
start_lb 0
wait_ready lb-0 ctl status
wait_until 'the VIP to be announced' is_announced
start_crowd "$vip"
confirm
echo "$client_count connections: $(said '.backends | to_entries | map("\(.key) \(.value)") | join(", ")')"
ctl drain 10.1.3.2 >/dev/null
ctl weight 10.1.1.2 5 >/dev/null
expected=$(standings) longest_gap=0 longest_stall=0
sleep 0.5
if [ "$mode" = --apart ]; then
    restarted 1
    wait_until 'connections to break' are_broken
    echo "apart: $(said .broken) of $client_count connections are broken"
    exit 0
fi
: >"$work/routes"
for ((round = 1; round <= rounds; round++)); do
    replaced "$round"
done
! grep -q "Deleted $vip" "$work/routes" || fail "the route to the VIP was away: $(cat "$work/routes")"
kill_program clients
stop "lb-$rounds"
judge "lb-$rounds"
grep -q "Deleted $vip" "$work/routes" || fail 'the route to the VIP is still there, or was not watched'
echo "replaced $rounds times: 0 of $client_count connections are broken; longest gap $longest_gap ms, longest wait" \
    "$longest_stall ms; $SECONDS s"
