#!/usr/bin/env bash
# Two balancers that announce their VIP with BIRD, a router that spreads connections over them, and clients with
# connections that go on whatever happens to one of the balancers:
#
#                     ┌── lb-a (ipip-lb, BIRD) ──┐
#   client ── router ─┤                          ├── backend-1, -2, -3, which answer straight to clients
#             (BIRD)  └── lb-b (ipip-lb, BIRD) ──┘
#
# BIRD's configuration is the one in docs/announcing.md, word for word. Everything that the script shows is also
# checked: the first error ends it. `cargo xtask demo --cluster` builds ipip-lb and runs it, and so does a test:
#
#   demo/cluster.sh PROGRAM    with the path of ipip-lb; exit code 2 where it can't run here
#   demo/cluster.sh PROGRAM --apart    the balancers share nothing, and connections that a drain has moved are broken
#   demo/cluster.sh --check    only finds out whether it could
source "$(dirname "$0")/cluster-lib.sh"
are_apart=$([ "${2:-}" = --apart ] && echo yes || echo no)

bfd_bound_ms=1500                        # 5 × 300 ms, as in docs/announcing.md
leeway_ms=300                            # from then until the route is gone
return_max_ms=30000                      # takes 2 s, and after errors 50 s with BIRD's own timers

# configure NAME N: the Nth balancer's file.
configure() {
    {
        node_conf "$2"
        printf 'mtu = 1500\nhash_key = "%s"\n\n' "$hash_key"
        [ "$are_apart" = yes ] || peers_conf "$1"
        services_conf '{ address = "10.1.1.2" }' '{ address = "10.1.2.2" }' '{ address = "10.1.3.2" }'
    } >"$work/lb-$1.toml"
}

start_programs() {
    heading 'Both balancers announce their VIPs'
    local hash_key began
    hash_key=$("$program" keygen)
    start_backends
    configure a 1
    configure b 2
    start_birds
    start_lb a
    start_lb b
    began=$(now_us)
    wait_until 'both balancers to be announced' is_sent_to a b
    echo "  at the router $(ms_since "$began") ms after the start of the last program:"
    in_host router ip route show "${vips[0]}" | sed 's/^/    /; s/[[:space:]]*$//'
}

received() { ctl "$1" status --json | jq .engine.received; }

# step TEXT: begins the next step; waits are counted from here.
step() {
    heading "$*"
    order forget
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
    # No backend is drained any more.
    ctl a reload --reset >/dev/null
    ctl b reload --reset >/dev/null
}

# returned BALANCER: it starts with empty tables, and the router sends it half of the connections.
returned() {
    step "lb-$1 is started again, with empty tables"
    start_lb "$1"
    announced
}
announced() {
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
    # As if the machine had been rebooted.
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
    start_lb a
    sleep 2
    [[ $(next_hops "${vips[0]}") != *a* ]] || fail 'lb-a is announced, although it was withdrawn'
    step 'lb-a was started again, with empty tables: it stays withdrawn until ctl announce'
    ctl a announce | sed 's/^/  ipip-lb: /'
    announced
}
# is_quiet BALANCER: whether only neighbour discovery arrives.
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

# drained_backend: connections are on another backend than the configured one, and come to a balancer that has never
# seen them.
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
    # The drain survives, and the exceptions come from the snapshot that lb-a sends.
    returned b
    wait_until 'both balancers to know all exceptions' share_all
}
# share_all: whether each balancer has found its exceptions, and the other has entered them.
share_all() { are_caught_up; }

make_network
start_programs
start_clients
if [ "$are_apart" = yes ]; then
    drained_backend
    # They are reset, which only happens if balancers share nothing.
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
judge_ends
cat <<END

What you have seen
  Two balancers with one hash_key, which know of each other which connections are elsewhere than the configuration says.
  A backend was drained and a balancer killed; one was killed, one fell silent, one was taken out of service and one
  was stopped, and each came back with empty tables: none of $client_count connections was broken.
Next
  docs/announcing.md    BIRD's configuration and FRR's, and what decides how long it takes
The demo took $SECONDS s without building.
END
