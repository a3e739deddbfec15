#!/usr/bin/env bash
# Operators' commands at single nodes of a cluster, and then another way for connections: they must stay on their
# backends, those that talk, those that are silent, and flows of UDP.
#
#   drain      a backend is drained at one node, and then the router sends all connections to that node
#   weight     ... is drained at both; one node undoes it, and is killed
#   reload     the same by files
#   begin      a backend is drained at one node, connections begin there, and the node is killed
#   add        a backend is added at one node, connections begin there, it is added at the other, and the first is killed
#   replace    both programs are replaced; a backend is drained until it is empty, and does not count as empty
#   answers    a backend is drained at one node, then at the other; the same with weights, and back. Backends answer in
#              tunnels to an address of both nodes: about half of the answers come by another node than their requests
#
#   demo/sequences.sh PROGRAM [NAME...]    with the path of ipip-lb; all sequences if none is named
#   demo/sequences.sh --check              only finds out whether it could run here: exit code 2 if not
source "$(dirname "$0")/cluster-lib.sh"
client_count=60                          # of each kind
silent_s=10                              # how long silent connections are silent
anycast=192.0.2.99                       # both nodes unwrap tunnels to this address

# configure NAME N [MORE]: the Nth balancer; MORE belongs to the third backend, or is `without` it.
configure() {
    local backends=('{ address = "10.1.1.2" }' '{ address = "10.1.2.2" }')
    [ "${3:-}" = without ] || backends+=("{ address = \"10.1.3.2\"${3:-} }")
    {
        node_conf "$2" | sed "/^\[announce\]/,/^$/d; s/^decapsulate = .*/decapsulate = [\"$anycast\"]/"
        printf 'mtu = 1500\nhash_key = "%s"\n\n' "$hash_key"
        peers_conf "$1"
        services_conf "${backends[@]}"
        services_conf "${backends[@]}" | sed 's/"upload-/"flows-/; s/"tcp"/"udp"/'
    } >"$work/lb-$1.toml"
}

# send_to BALANCER...: the router sends the VIP's packets to these.
send_to() {
    local name hops=()
    for name in "$@"; do
        hops+=(nexthop via "10.0.$([ "$name" = a ] && echo 1 || echo 2).2")
    done
    in_host router ip route replace "${vips[0]}" "${hops[@]}"
}

in_sync() {
    local name
    for name in a b; do
        ctl "$name" cluster --json | jq -e '.is_ready and (.peers | all(.state == "in-sync" and .is_caught_up))' >/dev/null || return
    done
}
flow_count() { jq -r ".$1" "$work/flows.json"; }
are_answered() { [ -e "$work/flows.json" ] && [ "$(flow_count open)" = "$client_count" ]; }

# begin PAUSE_S: the connections, and the flows.
begin_all() {
    pause_s=$1
    start_crowd "${vips[0]}"
    start flows client python3 "$here/crowd.py" flows "${vips[0]}" 7 "$client_count" "$1" "$work"
    wait_until 'all flows to be answered' are_answered
}

drain_sequence() {
    send_to a
    begin_all "$1"
    ctl b drain 10.1.3.2
    sleep 1
    send_to b
}

weight_sequence() {
    send_to a b
    begin_all "$1"
    both drain 10.1.3.2
    sleep 1
    ctl b weight 10.1.3.2 1
    sleep 1
    kill_program lb-b
    send_to a
}

reload_sequence() {
    send_to a b
    begin_all "$1"
    configure a 1 ', weight = 0'
    configure b 2 ', weight = 0'
    both reload
    sleep 1
    configure b 2
    ctl b reload
    sleep 1
    kill_program lb-b
    send_to a
}

begin_sequence() {
    send_to a b
    ctl b drain 10.1.3.2
    begin_all "$1"
    # All nodes have entered what began.
    wait_until 'both nodes to be in sync' in_sync
    kill_program lb-b
    send_to a
}

add_sequence() {
    send_to b
    configure b 2
    ctl b reload
    begin_all "$1"
    configure a 1
    ctl a reload
    sleep 1
    wait_until 'both nodes to be in sync' in_sync
    kill_program lb-b
    send_to a
}

replace_sequence() {
    local name
    send_to a b
    begin_all "$1"
    for name in a b; do
        before=${pid[lb-$name]}
        start "lb-$name" "lb-$name" "$program" run --replace --report json --config "$work/lb-$name.toml" \
            --control "$work/lb-$name.sock"
        wait_until "another program in place of lb-$name" has_taken_over "$name"
        wait "$before" || fail "lb-$name ended with an error"
    done
    both drain 10.1.3.2 --until-empty
    sleep 1
}
has_taken_over() { ! kill -0 "$before" 2>/dev/null && ctl "$1" status >/dev/null 2>&1; }

# make_return_path: backends can answer in tunnels, and the router spreads these by addresses and ports inside, too.
make_return_path() {
    set_in router ipv4/fib_multipath_hash_policy=3 ipv4/fib_multipath_hash_fields=0xdf7
    in_host router ip route add "$anycast" nexthop via 10.0.1.2 nexthop via 10.0.2.2
    at_backends ip tuntap add dev answers mode tun
    at_backends ip rule add from "${vips[0]}" lookup 100
    echo "  in the sequence answers, they answer in tunnels to $anycast, which the router spreads over lb-a and lb-b"
}
at_backends() {
    local n
    for n in 1 2 3; do
        in_host "backend-$n" "$@"
    done
}

answers_sequence() {
    at_backends ip link set answers mtu 1480 up
    at_backends ip route add default dev answers table 100
    # Both nodes know the connections that this weight brings to that backend.
    both weight 10.1.3.2 3
    send_to a
    begin_all "$1"
    check_answers
    by_turns a drain 10.1.3.2
    sleep "$1"
    by_turns 'a b' weight 10.1.3.2 3
    by_turns 'a b' weight 10.1.2.2 5
    sleep "$1"
    by_turns b weight 10.1.2.2 1
}
# check_answers: all requests went to lb-a, so connections are its own, and stay so.
check_answers() {
    local by_a by_b claimed
    # Answers come by lb-b that belong to connections known there.
    sleep 1
    by_a=$(count a status .balancer.to_clients)
    by_b=$(count b status .balancer.to_clients)
    claimed=$(count b cluster '.peers[0].sent')
    ((by_b * 4 > by_a + by_b)) || fail "of $((by_a + by_b)) answers, only $by_b came by lb-b"
    ((claimed == 0)) || fail "answers that came by lb-b made $claimed connections its own"
}
count() { ctl "$1" "$2" --json | jq "$3"; }

# by_turns BALANCERS COMMAND...: at lb-a, and then at lb-b. In between the router sends to these balancers, and after that
# to each, and to both.
by_turns() {
    ctl a "${@:2}"
    send_to $1
    sleep 1
    ctl b "${@:2}"
    send_to b
    sleep 1
    send_to a
    sleep 1
    send_to a b
}

both() { ctl a "$@" && ctl b "$@"; }

play() {
    local name=$1 pause=$2 kind=$3 begins=
    [ "$name" != add ] || begins=without
    configure a 1 "$begins"
    configure b 2 "$begins"
    start_lb a
    start_lb b
    wait_until 'both nodes to be in sync' in_sync
    "${name}_sequence" "$pause" >/dev/null
    # Each has had its next packet answered, or its connection is broken.
    sleep "$pause"
    sleep 3
    printf '  %-8s %-7s %d of %d connections are broken, %d of %d flows have moved\n' "$name" "$kind" \
        "$(said .broken)" "$client_count" "$(flow_count moved)" "$client_count"
    [ "$(said .broken)" = 0 ] && [ "$(flow_count moved)" = 0 ] || failed+=("$name, $kind")
    at_backends ip link set answers down
    kill_program clients
    kill_program flows
    rm -f "$work"/{clients.orders,clients.json,flows.json}
    for name in a b; do
        ! is_alive "lb-$name" || kill_program "lb-$name"
        rm -f "$work/lb-$name.sock"
    done
    rm -f "$work"/lb-*.operator.json
}

make_network
hash_key=$("$program" keygen)
make_return_path
start_backends "$anycast"
heading "Connections that talk every 0.3 s, and others that are silent for $silent_s s"
failed=() names=("${@:2}")
[ "${#names[@]}" != 0 ] || names=(drain weight reload begin add replace answers)
for name in "${names[@]}"; do
    play "$name" 0.3 talking
    play "$name" "$silent_s" silent
done
[ "${#failed[@]}" = 0 ] || fail "broken by: ${failed[*]}"
