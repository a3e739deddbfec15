# A balancer under uploads, for scripts that source demo/lib.sh, demo/crowd.sh and then this:
#
#   client ── router ── lb (ipip-lb) ── router ── backend-1, -2, -3, which answer straight to the client
demo=$(dirname "${BASH_SOURCE[0]}")
vip=203.0.113.10
client_count=1000
pause_s=0.5

now_us() { echo "${EPOCHREALTIME/./}"; }

# require_tools: exits with 2 if the machine lacks a program.
require_tools() {
    local name
    for name in ethtool ip jq python3; do
        command -v "$name" >/dev/null || { echo "there is no $name here" >&2; exit 2; }
    done
}

# make_network: all hosts, with the backends' servers. The host lb may be there.
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
}

# upload_conf HASH_KEY: the balancer's configuration.
upload_conf() {
    # Nothing is watched: a machine that starves a worker for a second has its VIP withdrawn, as it should.
    cat <<END
[engine]
workers = 1
idle = "adaptive"
worker_stall_ms_max = 0

[balancer]
source_v4 = "192.0.2.1"
mtu = 1500
decapsulate = []
hash_key = "$1"

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

is_announced() { ctl status --json 2>/dev/null | jq -e --arg vip "$vip" '.announced == [$vip]' >/dev/null; }
standings() { ctl backends --json | jq -c '[.[] | [.address, .weight]]'; }

# begin_uploads: starts all connections, and then drains a backend and changes the weight of another one. The balancer
# runs, and `ctl` asks it.
begin_uploads() {
    wait_until 'the VIP to be announced' is_announced
    start_crowd "$vip"
    confirm
    echo "$client_count connections: $(said '.backends | to_entries | map("\(.key) \(.value)") | join(", ")')"
    ctl drain 10.1.3.2 >/dev/null
    ctl weight 10.1.1.2 5 >/dev/null
    expected=$(standings)
}

# go_on: waits until all connections go on; none may be broken, and operators' changes have to be in force.
go_on() {
    confirm
    [ "$(standings)" = "$expected" ] || fail "the weights were $expected, and are $(standings)"
}
