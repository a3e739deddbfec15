#!/usr/bin/env bash
# Two balancers that announce their VIP by BIRD, a router that spreads connections over them, and clients whose
# connections go on whatever happens to one of the balancers:
#
#                     ┌── lb-a (ipip-lb, BIRD) ──┐
#   client ── router ─┤                          ├── backend-1, -2, -3, which answer straight to clients
#             (BIRD)  └── lb-b (ipip-lb, BIRD) ──┘
#
# BIRD's configuration is that of docs/announcing.md, word for word. Everything that the script shows is also checked: the
# first thing that is wrong ends it. `cargo xtask demo --cluster` builds ipip-lb and runs it, and so does a test:
#
#   demo/cluster.sh PROGRAM    with the path of ipip-lb; exit code 2 where it can't run here
#   demo/cluster.sh PROGRAM --apart    the balancers share nothing, and connections that a drain has moved are broken
#   demo/cluster.sh --check    only finds out whether it could
source "$(dirname "$0")/lib.sh"
check_privilege
for name in bird ethtool ip jq python3; do
    command -v "$name" >/dev/null || { echo "demo: there is no $name here: cargo xtask setup --cluster" >&2; exit 2; }
done
program=${1:?the path of ipip-lb}
[ "$program" != --check ] || exit 0
are_apart=$([ "${2:-}" = --apart ] && echo yes || echo no)
here=$(dirname "$(realpath "$0")")

patience_s=60                            # as a test, it runs beside others
vips=(203.0.113.10 2001:db8:f::10)       # the addresses of the service, of which clients use the first
client_count=300
bfd_bound_ms=1500                        # 5 × 300 ms, as docs/announcing.md has it
leeway_ms=300                            # from there until the route is gone
return_max_ms=30000                      # it takes 2 s, and after errors 50 s with BIRD's own timers
linger_ms=3000                           # how long a balancer that is to end goes on

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
    for n in 1 2 3; do
        link "1$n" "backend-$n" eth0 "10.1.$n" "2001:db8:b$n"
        in_host "backend-$n" ip address add "${vips[0]}/32" dev lo
    done
    # BGP's links come first: packets for elsewhere leave by the others.
    link 21 lb-a mgmt0 10.9.1 2001:db8:91 mgmt-a
    link 22 lb-b mgmt0 10.9.2 2001:db8:92 mgmt-b
    link 31 lb-a front 10.0.1 2001:db8:1
    link 32 lb-b front 10.0.2 2001:db8:2
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

# start_bird NAME HOST: with the configuration that is in the folder.
start_bird() {
    start "bird-$1" "$2" bird -f -c "$work/bird-$1.conf" -s "$work/bird-$1.ctl" -P "$work/bird-$1.pid"
    wait_ready "bird-$1" birdc -s "$work/bird-$1.ctl" show status
}

start_lb() {
    start "lb-$1" "lb-$1" "$program" run --report json --config "$work/lb-$1.toml" --control "$work/lb-$1.sock"
    wait_ready "lb-$1" ctl "$1" status
}

# configure NAME N: what is said in the book is said of the first balancer.
configure() {
    local backend
    bird_conf 1 | sed "s/10\.9\.1\./10.9.$2./g; s/10\.0\.1\./10.0.$2./g; s/2001:db8:1::/2001:db8:$2::/g" >"$work/bird-$1.conf"
    cat >"$work/lb-$1.toml" <<END
[engine]
deployment = "run-to-completion"
workers = 1
idle = "adaptive"

[balancer]
source_v4 = "192.0.2.$2"
mtu = 1500
decapsulate = []
hash_key = "$hash_key"

[announce]
vips = "ready"
linger_ms = $linger_ms

[[port]]
name = "front"
device = "net_af_packet0,iface=front,qdisc_bypass=1"
next_hop = "10.0.$2.1"
address = "10.0.$2.2"
END
    [ "$are_apart" = yes ] || cat >>"$work/lb-$1.toml" <<END

[cluster]
node = "lb-$1"
peers = [{ name = "lb-a", address = "10.9.1.2:4790" }, { name = "lb-b", address = "10.9.2.2:4790" }]
trusted_network = true
END
    for vip in "${vips[@]}"; do
        cat <<END

[[service]]
name = "echo-$vip"
address = "$vip"
protocol = "tcp"
ports = "7"
backend = [{ address = "10.1.1.2" }, { address = "10.1.2.2" }, { address = "10.1.3.2" }]
END
    done >>"$work/lb-$1.toml"
}

start_programs() {
    heading 'Both balancers announce their VIPs'
    local n hash_key began
    hash_key=$("$program" keygen)
    for n in 1 2 3; do
        start "backend-$n" "backend-$n" python3 "$here/crowd.py" backend "backend-$n" "${vips[0]}" 7
    done
    configure a 1
    configure b 2
    bird_conf 2 >"$work/bird-router.conf"
    start_bird router router
    start_bird a lb-a
    start_bird b lb-b
    start_lb a
    start_lb b
    began=$(now_us)
    wait_until 'both balancers to be announced' is_sent_to a b
    echo "  at the router $(ms_since "$began") ms after the start of the last program:"
    in_host router ip route show "${vips[0]}" | sed 's/^/    /; s/[[:space:]]*$//'
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

# wait_route BALANCER...: until VIPs are sent to these alone. Sets took_ms.
wait_route() {
    local began=${event_us:-$(now_us)}
    wait_until "the router to send to $*" is_sent_to "$@"
    took_ms=$(ms_since "$began")
}

# said EXPRESSION: a part of what the clients say of themselves.
said() { jq -r "$1" "$work/clients.json"; }
are_open() { [ "$(said .open 2>/dev/null)" = "$client_count" ]; }
have_confirmed() { [ "$(said '.broken > 0')" = true ] || (($(said .confirmed_us) > $1)); }
start_clients() {
    heading "$client_count connections, each of which sends 400 bytes every 0.3 s and has them returned"
    start clients client python3 "$here/crowd.py" clients "${vips[0]}" 7 "$client_count" "$work/clients.json"
    wait_until "$client_count connections" are_open
    printf '  at the backends:   %s\n' "$(said '.backends | to_entries | map("\(.key) \(.value)") | join(", ")')"
    local a b
    a=$(remembered a) b=$(remembered b)
    printf '  at the balancers:  lb-a %d, lb-b %d\n' "$a" "$b"
    ((a > 0 && b > 0 && a + b >= client_count)) || fail "of $client_count connections, lb-a knows $a, and lb-b $b"
    check_clients
}
remembered() { ctl "$1" status --json | jq '.balancer.connections | add'; }
received() { ctl "$1" status --json | jq .engine.received; }

# check_clients: waits until every connection has had something confirmed that it sent from now on, and none is broken.
check_clients() {
    local now
    now=$(now_us)
    wait_until 'every connection to have bytes confirmed' have_confirmed "$now"
    (($(said .broken) == 0)) || fail "$(said .broken) of $client_count connections are broken: $(said '.errors | join("; ")')"
    are_open || fail "only $(said .open) of $client_count connections are open"
    printf '  all %d connections go on: %d bytes confirmed so far; longest wait %d ms; %d segments sent again\n' \
        "$client_count" "$(said .confirmed_bytes)" "$(said .longest_ms)" "$(said .retransmitted)"
}

# step TEXT: what comes next; waits are those since.
step() {
    heading "$*"
    kill -USR1 "${pid[clients]}"
    event_us=$(now_us)
}

killed_balancer() {
    step 'lb-a is killed (SIGKILL), and BIRD beside it is not'
    kill_program lb-a
    wait_route b
    echo "  the kernel has removed its interface and the routes by it; gone at the router after $took_ms ms"
    ((took_ms <= bfd_bound_ms + leeway_ms)) || fail "that is more than BFD's bound of $bfd_bound_ms ms and $leeway_ms ms"
    check_clients
    returned a
    ctl b reload >/dev/null # Nothing is drained any more.
}

# returned BALANCER: it starts with empty tables, and the router sends it half of the connections.
returned() {
    step "lb-$1 is started again, and remembers nothing"
    start_lb "$1"
    wait_route a b
    echo "  announced at the router after $took_ms ms"
    ((took_ms <= return_max_ms)) || fail "that is more than $return_max_ms ms: look at BIRD's timers"
    check_clients
}

silent_machine() {
    step 'The machine of lb-b falls silent: ipip-lb and BIRD say nothing more to anybody'
    kill -STOP "${pid[bird-b]}"
    kill_program lb-b
    wait_route a
    echo "  gone at the router after $took_ms ms, by BFD, whose bound is $bfd_bound_ms ms"
    # BGP would wait for 240 s. The router's BIRD itself waits for its turn on a busy machine.
    ((took_ms <= bfd_bound_ms + 10 * leeway_ms)) || fail "that is not BFD's doing"
    check_clients
    # As if the machine had been started again.
    kill_program bird-b
    start_bird b lb-b
    returned b
}

withdrawn_balancer() {
    step 'lb-a is taken out of service: ctl withdraw'
    ctl a withdraw | sed 's/^/  ipip-lb: /'
    wait_route b
    echo "  gone at the router after $took_ms ms; lb-a runs, and balances what still comes"
    wait_until 'no packets to come to lb-a' is_quiet a
    check_clients
    is_alive lb-a || fail 'lb-a has ended'
    [[ $(next_hops "${vips[0]}") != *a* ]] || fail 'lb-a is announced again'
    step 'lb-a is stopped, and started again'
    stop lb-a
    echo "  it had nothing left to wait for, and ended after $(ms_since "$event_us") ms"
    judge lb-a
    returned a
}
# is_quiet BALANCER: whether nothing but neighbour discovery comes.
is_quiet() {
    local before
    before=$(received "$1")
    sleep 0.5
    (($(received "$1") - before < 10))
}

stopped_balancer() {
    step "lb-b is stopped (SIGTERM): it withdraws its VIPs first, and goes on for $linger_ms ms"
    kill -TERM "${pid[lb-b]}"
    wait_route a
    is_alive lb-b || fail 'lb-b ended before the route was gone'
    echo "  gone at the router after $took_ms ms, while lb-b still balances what comes"
    wait_until 'lb-b to end' is_over lb-b
    wait "${pid[lb-b]}" || fail "lb-b ended with an error: $(last_words lb-b)"
    echo "  it ended after $(ms_since "$event_us") ms"
    judge lb-b
    check_clients
    returned b
}

# drained_backend: connections are on another backend than the configuration says, and come to a balancer that
# has never seen them.
drained_backend() {
    step 'backend-3 is drained on both balancers, and its connections stay; then lb-b is killed'
    local name
    for name in a b; do
        ctl "$name" drain 10.1.3.2 >/dev/null
    done
    if [ "$are_apart" = no ]; then
        wait_until 'both balancers to know all exceptions' share_all
        echo "  each balancer has what the other knows of its connections after $(ms_since "$event_us") ms"
        ctl a cluster | sed 's/^/  lb-a: /'
    else
        sleep 2
    fi
    kill_program lb-b
    wait_route a
    echo "  gone at the router after $took_ms ms"
    [ "$are_apart" = no ] || return 0
    check_clients
    returned b
    # What lb-b knows of exceptions now comes from the snapshot that lb-a sent it.
    ctl b drain 10.1.3.2 >/dev/null
    wait_until 'both balancers to know all exceptions' share_all
}
# share_all: whether each balancer has found its exceptions, and the other has entered them.
share_all() {
    local name
    for name in a b; do
        ctl "$name" cluster --json | jq -e '.is_marked and .waiting == 0 and (.peers | length == 1 and
            all(.is_caught_up and .lag_records == 0 and .to_enter == 0 and .sent > 0))' >/dev/null || return 1
    done
}
# are_broken: whether connections were reset, which is only so where balancers share nothing.
are_broken() { (($(said .broken) > 0)); }

ledgers() {
    heading 'The end: clients first, then the balancers'
    kill_program clients
    for name in a b; do
        ctl "$name" withdraw >/dev/null
        stop "lb-$name"
        judge "lb-$name"
    done
}

make_network
start_programs
start_clients
if [ "$are_apart" = yes ]; then
    drained_backend
    wait_until 'connections to break' are_broken
    sleep 1
    echo "  $(said .broken) of $client_count connections are broken"
    exit 0
fi
drained_backend
killed_balancer
silent_machine
withdrawn_balancer
stopped_balancer
ledgers
cat <<END

What you have seen
  Two balancers with one hash_key, which know of each other which connections are elsewhere than the configuration says.
  A backend was drained and a balancer killed; one was killed, one fell silent, one was taken out of service and one
  was stopped, and each came back with empty tables: none of $client_count connections was broken.
Next
  docs/announcing.md    BIRD's configuration and FRR's, and what decides how long it takes
The demo took $SECONDS s without building.
END
