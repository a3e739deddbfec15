#!/usr/bin/env bash
# nat44 between real clients (curl, ping, traceroute) and a real server (nginx), on a network of namespaces and veth pairs:
#
#   host ── nat (nat44) ── router ── server
#
# Everything that the script shows is also checked: the first error ends it. `cargo xtask demo --live` builds the
# program and runs it:
#
#   demo/nat.sh PROGRAMS    with nat44 in the folder PROGRAMS
source "$(dirname "$0")/lib.sh"
check_privilege
programs=${1:?the folder of nat44}

host=10.0.0.7
nat_lan=10.0.0.254
nat_wan=203.0.113.1
router=203.0.113.254
server=192.0.2.1
file_bytes=$((8 << 20))
small_bytes=$((256 << 10))
client_count=20              # downloads at the same time
upload_bytes=$((1 << 20))
narrow_mtu=1300              # on the path from the router to the server

ctl() { "$programs/nat44" ctl --control "$work/nat44.sock" "$@"; }

make_network() {
    heading 'A LAN, a NAT, a router and a server'
    local name
    for name in lan nat router server; do add_host "$name"; done
    join 1 lan eth0 nat lan
    join 2 nat wan router eth0
    join 3 router eth1 server eth0
    up lan eth0 "$host/24"
    # The NAT's kernel has no address: only nat44 answers there.
    up nat lan
    up nat wan
    up router eth0 "$router/24"
    up router eth1 192.0.2.254/24
    up server eth0 "$server/24"
    set_in router ipv4/ip_forward=1
    in_host lan ip route add default via "$nat_lan"
    in_host router ip route replace 192.0.2.0/24 dev eth1 mtu "$narrow_mtu"
    # The server has no route to the LAN.
    in_host server ip route add "$nat_wan/32" via 192.0.2.254
    in_host server ip route add "$router/32" via 192.0.2.254
    cat <<END
  host         $host; curl, ping, traceroute
  nat          nat44 on net_af_packet, $nat_lan and $nat_wan
  router       $router, with an MTU of $narrow_mtu to the server
  server       $server; nginx, and no route to the LAN
END
}

# start_nat ARGUMENT...: with these arguments in addition to those of every run.
start_nat() {
    start nat44 nat "$programs/nat44" --lan net_af_packet0,iface=lan,qdisc_bypass=1 --lan-address "$nat_lan" \
        --wan net_af_packet1,iface=wan,qdisc_bypass=1 --wan-address "$nat_wan" --next-hop-mac "$(mac 2 2)" \
        --report json --idle pause --control "$work/nat44.sock" "$@"
    wait_ready nat44 ctl status
}

downloads() {
    local n clients=()
    download lan server "$server" file
    echo "  a file of $file_bytes bytes came whole"
    for ((n = 0; n < client_count; n++)); do
        download lan server "$server" small "$work/small-$n" &
        clients+=($!)
    done
    for n in "${clients[@]}"; do wait "$n" || fail 'one of the downloads at the same time failed'; done
    echo "  $client_count files of $small_bytes bytes came whole at the same time"
}

pings() {
    local to hops
    for to in "$nat_lan" "$nat_wan" "$server"; do
        three_pings lan "$to"
        echo "  ping $to: 3 of 3 answered"
    done
    in_host router ping -n -q -c 1 -W 2 "$nat_wan" >"$work/ping" || fail "the router's ping failed: $(cat "$work/ping")"
    # The path to the server according to traceroute: the NAT is the first hop, the router the second.
    hops=$(trace lan "$server")
    [ "$hops" = "$nat_lan $router $server" ] || fail "traceroute found other hops: $hops"
    echo "  traceroute $server: $hops"
}

# A datagram to a closed port: the error of the server reaches the socket that sent it.
refused() {
    local error
    error=$(socket_error lan "$server")
    [ "$error" = 'Connection refused' ] || fail "a datagram to a closed port was not refused: $error"
    echo '  a datagram to a closed port is refused: port unreachable reached the socket'
}

# Segments are too long for the path to the server until the router has reported that to the host.
upload() {
    local mtu
    in_host lan ip route flush cache
    upload_random lan server "$server" "$upload_bytes"
    mtu=$(path_mtu lan "$server")
    [ "$mtu" = "$narrow_mtu" ] || fail "the host knows a path MTU of ${mtu:-none}, not $narrow_mtu"
    echo "  $upload_bytes bytes were uploaded; fragmentation needed reached the host, which knows a path MTU of $mtu"
}

end() {
    local connections
    stop nat44
    judge nat44
    jq -e '.dropped | [.no_port, .malformed, .unsupported] | (add // 0) == 0' "$work/nat44.out" >/dev/null ||
        fail "packets were dropped that should have passed: $(cat "$work/nat44.out")"
    # Two files one by one and the simultaneous ones, one datagram, three pings and a traceroute.
    connections=$(jq '[.stages[] | select(.name == "Nat").gauges.connections] | add' "$work/nat44.out")
    ((connections == client_count + 7)) || fail "there were $connections connections, not $((client_count + 7))"
    printf '  %-24s %d connections\n' '' "$connections"
}

make_network
serve server file="$file_bytes" small="$small_bytes"
for deployment in '--run-to-completion 1' '--pipeline 1,1'; do
    heading "nat44 $deployment"
    start_nat $deployment
    downloads
    pings
    refused
    upload
    end
done
cat <<END

What you have seen
  A NAT in 600 lines of Rust: files came whole through it, pings and errors found their way back, and in both
  deployments every packet was accounted for.
Next
  examples/nat44/README.md    how it works, and how to run it
The demo took $SECONDS s without building.
END
