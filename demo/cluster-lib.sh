# Shared by the demos of several balancers, which source it: the network, BIRD, the balancers, and the clients. The
# first argument of these demos is the path of ipip-lb, or --check.
#
#                     ┌── lb-a (ipip-lb, BIRD) ──┐
#   client ── router ─┤                          ├── backend-1, -2, -3, which answer straight to clients
#             (BIRD)  └── lb-b (ipip-lb, BIRD) ──┘
#
# BIRD's configuration is the one in docs/announcing.md, word for word.
source "$(dirname "$0")/lib.sh"
source "$(dirname "$0")/crowd.sh"
check_privilege
for name in bird etcd ethtool ip jq python3 ss; do
    command -v "$name" >/dev/null || { echo "demo: there is no $name here: cargo xtask setup --cluster" >&2; exit 2; }
done
program=${1:?the path of ipip-lb}
[ "$program" != --check ] || exit 0
here=$(dirname "$(realpath "$0")")

patience_s=60                            # as a test, it runs together with others
vips=(203.0.113.10 2001:db8:f::10)       # the addresses of the service; clients use the first
client_count=300
pause_s=0.3                              # a client's pause between a confirmation and the next bytes
linger_ms=3000                           # how long a balancer goes on after the request to end

ctl() { "$program" ctl --control "$work/lb-$1.sock" "${@:2}"; }
now_us() { echo "${EPOCHREALTIME/./}"; }
ms_since() { echo $(((${EPOCHREALTIME/./} - $1) / 1000)); }

make_network() {
    heading 'A network of veth pairs and namespaces'
    local n
    add_host router
    set_in router ipv4/ip_forward=1 ipv6/conf/all/forwarding=1 ipv4/fib_multipath_hash_policy=1 \
        ipv6/fib_multipath_hash_policy=1
    link 1 client eth0 198.51.100 2001:db8:c
    # A connection may follow another with the same ports (demo/crowd.py).
    set_in client ipv4/tcp_tw_reuse=1
    for n in 1 2 3; do
        link "1$n" "backend-$n" eth0 "10.1.$n" "2001:db8:b$n"
        in_host "backend-$n" ip address add "${vips[0]}/32" dev lo
    done
    # BGP's links come first: packets to other destinations leave by the others.
    link 21 lb-a mgmt0 10.9.1 2001:db8:91 mgmt-a
    link 22 lb-b mgmt0 10.9.2 2001:db8:92 mgmt-b
    link 31 lb-a front 10.0.1 2001:db8:1
    link 32 lb-b front 10.0.2 2001:db8:2
    # Except those to other nodes, and to the nodes' shared services.
    in_host lb-a ip route add 10.9.0.0/16 via 10.9.1.1
    in_host lb-b ip route add 10.9.0.0/16 via 10.9.2.1
    cat <<END
  client       198.51.100.2: $client_count TCP connections to ${vips[0]}
  router       BIRD; spreads connections by the hash of addresses and ports (fib_multipath_hash_policy = 1)
  lb-a, lb-b   ipip-lb on net_af_packet, at 10.0.1.2 and 10.0.2.2; BIRD, at 10.9.1.2 and 10.9.2.2
  backend-1…3  unwrap tunnels, and answer straight to clients
END
}

# bird_conf N: the Nth of BIRD's configurations in the book.
bird_conf() {
    awk -v wanted="$1" '/^```bird$/ { count++; inside = count == wanted; next } /^```$/ { inside = 0 } inside' \
        "$here/../docs/announcing.md"
}

# bird_conf_of NAME N: the book's configuration is for the first balancer.
bird_conf_of() {
    bird_conf 1 | sed "s/10\.9\.1\./10.9.$2./g; s/10\.0\.1\./10.0.$2./g; s/2001:db8:1::/2001:db8:$2::/g" >"$work/bird-$1.conf"
}

# start_bird NAME HOST: with the configuration in the folder.
start_bird() {
    start "bird-$1" "$2" bird -f -c "$work/bird-$1.conf" -s "$work/bird-$1.ctl" -P "$work/bird-$1.pid"
    wait_ready "bird-$1" birdc -s "$work/bird-$1.ctl" show status
}

start_birds() {
    bird_conf_of a 1
    bird_conf_of b 2
    bird_conf 2 >"$work/bird-router.conf"
    start_bird router router
    start_bird a lb-a
    start_bird b lb-b
}

# start_backends [ADDRESS]: answers that they route to their interface `answers` go to this address, in tunnels.
start_backends() {
    local n
    for n in 1 2 3; do
        start "backend-$n" "backend-$n" python3 "$here/crowd.py" backend "backend-$n" "${vips[0]}" 7 "$@"
    done
}

start_lb() {
    start "lb-$1" "lb-$1" "$program" run --report json --config "$work/lb-$1.toml" --control "$work/lb-$1.sock"
    wait_ready "lb-$1" ctl "$1" status
}

# node_conf N: the part specific to the Nth balancer, except its name in the cluster. More of [balancer] may follow.
node_conf() {
    cat <<END
[engine]
deployment = "run-to-completion"
workers = 1
idle = "adaptive"

[announce]
vips = "ready"
linger_ms = $linger_ms

[[port]]
name = "front"
device = "net_af_packet0,iface=front,qdisc_bypass=1"
next_hop = "10.0.$1.1"
address = "10.0.$1.2"

[balancer]
source_v4 = "192.0.2.$1"
operator_file = "$work/lb-$1.operator.json"
decapsulate = []
END
}

# peers_conf NAME: more of [cluster] may follow.
peers_conf() {
    cat <<END
[cluster]
node = "lb-$1"
peers = [{ name = "lb-a", address = "10.9.1.2:4790" }, { name = "lb-b", address = "10.9.2.2:4790" }]
trusted_network = true
END
}

# services_conf BACKEND...: a service at each VIP, with these backends, as in `{ address = "10.1.1.2" }`.
services_conf() {
    local vip
    for vip in "${vips[@]}"; do
        cat <<END

[[service]]
name = "upload-$vip"
address = "$vip"
protocol = "tcp"
ports = "7"
backend = [$(printf '%s, ' "$@")]
END
    done
}

# next_hops VIP: the balancers that the router sends a VIP's packets to.
next_hops() {
    local family=-4 next_hop='s/.* via \(10\.0\.\|2001:db8:\)'
    [[ $1 != *:* ]] || family=-6
    in_host router ip "$family" route show to exact "$1" | sed -n "${next_hop}1[.:].*/a/p; ${next_hop}2[.:].*/b/p" | sort | xargs
}
# is_sent_to BALANCER...: whether all VIPs are sent to these, and to no other.
is_sent_to() {
    local vip
    for vip in "${vips[@]}"; do
        [ "$(next_hops "$vip")" = "$*" ] || return 1
    done
}

# wait_route BALANCER...: until VIPs are sent to only these. Sets took_ms.
wait_route() {
    local began=${event_us:-$(now_us)}
    wait_until "the router to send to $*" is_sent_to "$@"
    took_ms=$(ms_since "$began")
}

start_clients() {
    heading "$client_count connections, each of which sends 400 bytes every $pause_s s and has all that it sent confirmed"
    start_crowd "${vips[0]}"
    printf '  at the backends:   %s\n' "$(said '.backends | to_entries | map("\(.key) \(.value)") | join(", ")')"
    local a b
    a=$(remembered a) b=$(remembered b)
    printf '  at the balancers:  lb-a %d, lb-b %d\n' "$a" "$b"
    ((a > 0 && b > 0 && a + b >= client_count)) || fail "of $client_count connections, lb-a knows $a, and lb-b $b"
    check_clients
}
remembered() { ctl "$1" status --json | jq '.balancer.connections | add'; }

check_clients() {
    confirm
    printf '  all %d connections go on: %d bytes confirmed so far; longest wait %d ms; %d segments sent again\n' \
        "$client_count" "$(said .confirmed_bytes)" "$(said .longest_ms)" "$(said .retransmitted)"
}

# For `ctl cluster`: whether the node has found its exceptions, and the other has entered them.
caught_up='.is_ready and .is_marked and .waiting == 0 and (.peers | length == 1 and
    all(.is_caught_up and .has_its_snapshot and .lag_records == 0 and .to_enter == 0))'
# are_caught_up [CONDITION]: whether both are, with peers that also fulfil the condition.
are_caught_up() {
    { ctl a cluster --json && ctl b cluster --json; } |
        jq -es "length == 2 and all(($caught_up) and all(.peers[]; ${1:-true}))" >/dev/null
}

# judge_ends [idle]: the clients end, and then the balancers, which account for every packet.
judge_ends() {
    local name
    heading 'The end: clients first, then the balancers'
    kill_program clients
    for name in a b; do
        ctl "$name" withdraw >/dev/null
        stop "lb-$name"
        judge "lb-$name" "${1:-}"
    done
}
