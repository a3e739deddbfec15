#!/usr/bin/env bash
# firewall between real clients and servers (curl, nginx, ping, iperf3), on a network of namespaces and veth pairs:
#
#   inside ── firewall ── router ── outside
#
# The firewall is transparent: it has no address, and is no hop. Everything that the script shows is also checked, over
# IPv4 and IPv6: the first error ends it. `cargo xtask demo --live` builds the program and runs it:
#
#   demo/firewall.sh PROGRAMS    with firewall in the folder PROGRAMS
source "$(dirname "$0")/lib.sh"
check_privilege
programs=${1:?the folder of firewall}

# Addresses, IPv4 first. A server inside answers at three, which the rules distinguish.
web=(192.0.2.10 2001:db8:1::10)            # outside may open connections to its port 80
closed=(192.0.2.11 2001:db8:1::11)         # packets from outside are rejected
silent=(192.0.2.12 2001:db8:1::12)         # packets from outside are dropped
gateway=(192.0.2.1 2001:db8:1::1)
server=(198.51.100.2 2001:db8:2::2)        # outside

page_bytes=$((1 << 20))
upload_bytes=$((1 << 20))
iperf_bytes=$((8 << 20))
narrow_mtu=1300                            # on the path from the router to the outside
ping_bytes=4000
fragment_count=3                           # of such a ping over an MTU of 1500, in both families
# The error of a socket for "communication administratively prohibited".
prohibited=('No route to host' 'Permission denied')

ctl() { "$programs/firewall" ctl --control "$work/firewall.sock" "$@"; }
packets() { ctl rules --json | jq --arg rule "$1" '.[] | select(.rule == $rule).packets'; }
has_rule() { [ -n "$(packets "$1")" ]; }
received() { ctl counters --json | jq .received; }
has_received() { (($(received) >= $1)); }
dropped() { ctl counters --json | jq ".dropped.$1 // 0"; }
has_dropped() { (($(dropped "$1") >= $2)); }
metric() { curl_in firewall http://127.0.0.1:9100/metrics | sed -n "s/^$1 //p"; }

make_network() {
    heading 'A network with a transparent firewall'
    local host family
    for host in inside firewall router; do add_host "$host"; done
    # The kernel of the firewall has no address.
    set_in firewall ipv6/conf/all/disable_ipv6=1
    set_in router ipv4/ip_forward=1 ipv6/conf/all/forwarding=1
    join 1 inside eth0 firewall inside
    join 2 firewall outside router eth0
    up firewall inside
    up firewall outside
    up router eth0 "${gateway[0]}/24" "${gateway[1]}/64"
    up inside eth0 "${web[0]}/24" "${closed[0]}/24" "${silent[0]}/24" "${web[1]}/64" "${closed[1]}/64" "${silent[1]}/64"
    for family in 0 1; do in_host inside ip route add default via "${gateway[family]}"; done
    link 3 outside eth0 198.51.100 2001:db8:2
    for family in 0 1; do in_host router ip route add "${server[family]}" dev link3 mtu "$narrow_mtu"; done
    cat <<END
  inside       nginx, at three addresses of each family; curl, ping, traceroute
  firewall     firewall, between two veth pairs
  router       ${gateway[*]}; with an MTU of $narrow_mtu to the outside
  outside      ${server[*]}; nginx, curl, iperf3
END
}

# write_rules NAME ACTION: the rule of this name decides about connections to the web server.
write_rules() {
    cat >"$work/rules.toml" <<END
[[rule]]
name = "out"
from = "inside"
action = "allow"

[[rule]]
name = "$1"
from = "outside"
action = "$2"
destination = ["${web[0]}/32", "${web[1]}/128"]
protocol = "tcp"
destination-ports = ["80"]

[[rule]]
name = "closed"
from = "outside"
action = "reject"
destination = ["${closed[0]}/32", "${closed[1]}/128"]

[[rule]]
name = "silent"
from = "outside"
action = "drop"
destination = ["${silent[0]}/32", "${silent[1]}/128"]
END
}

# start_firewall DEVICE ARGUMENT...: over this kind of device, with these arguments in addition to those of every run.
start_firewall() {
    write_rules web allow
    start firewall firewall "$programs/firewall" --inside "${1}0,iface=inside" --outside "${1}1,iface=outside" \
        --rules "$work/rules.toml" --connections 1000 --report json --idle adaptive --control "$work/firewall.sock" \
        --metrics 9100 "${@:2}"
    wait_ready firewall ctl status
}

# knock ADDRESS SECONDS: a request from outside to a server inside. Prints its result within that time: an answer, a
# refusal (a reset of TCP), or silence.
knock() {
    local status=0
    curl_in outside --verbose --output /dev/null --connect-timeout "$2" "http://$(in_url "$1")/page" \
        2>"$work/knock" || status=$?
    if ((status == 0)); then
        echo answered
    elif ((status == 7)) && grep -q 'Connection refused' "$work/knock"; then
        echo refused
    elif ((status == 28)); then
        echo silence
    else
        echo "exit code $status of curl, $(tail -n 1 "$work/knock")"
    fi
}

# expect RESULT ADDRESS SECONDS: of a knock.
expect() {
    local result started=${EPOCHREALTIME/./}
    result=$(knock "$2" "$3")
    [ "$result" = "$1" ] || fail "a request from outside to $2 got another result than $1: $result"
    printf '  outside -> %s: %s after %d ms\n' "$2" "$result" $(((${EPOCHREALTIME/./} - started) / 1000))
}

# Pages in both directions if the rules allow them.
pages() {
    local rejected silenced
    rejected=$(packets closed)
    silenced=$(packets silent)
    download inside outside "${server[$1]}" page
    echo "  inside -> ${server[$1]}: a page of $page_bytes bytes came whole"
    download outside inside "${web[$1]}" page
    echo "  outside -> ${web[$1]}: a page of $page_bytes bytes came whole"
    expect refused "${closed[$1]}" 5
    expect silence "${silent[$1]}" 1
    (($(packets closed) > rejected)) || fail 'the rule "closed" counted no packet'
    (($(packets silent) > silenced)) || fail 'the rule "silent" counted no packet'
}

# ICMP errors about connections reach their senders: from the server, from the router, and from the firewall.
errors() {
    local error hops mtu
    error=$(socket_error inside "${server[$1]}")
    [ "$error" = 'Connection refused' ] || fail "a datagram to a closed port of ${server[$1]} got this error: $error"
    echo "  a datagram to a closed port of ${server[$1]}: port unreachable reached the socket ($error)"
    error=$(socket_error outside "${closed[$1]}")
    [ "$error" = "${prohibited[$1]}" ] || fail "a datagram to ${closed[$1]} got this error: $error"
    echo "  a datagram from outside to ${closed[$1]}: prohibited reached the socket ($error)"
    hops=$(trace inside "${server[$1]}")
    [ "$hops" = "${gateway[$1]} ${server[$1]}" ] || fail "traceroute found other hops: $hops"
    echo "  traceroute ${server[$1]}: $hops"
    in_host inside ip "-$((4 + 2 * $1))" route flush cache
    mtu=$(path_mtu inside "${server[$1]}")
    [ -z "$mtu" ] || fail "inside knows a path MTU of $mtu to ${server[$1]} before the upload"
    upload_random inside outside "${server[$1]}" "$upload_bytes"
    mtu=$(path_mtu inside "${server[$1]}")
    [ "$mtu" = "$narrow_mtu" ] || fail "inside knows a path MTU of ${mtu:-none} to ${server[$1]}, not $narrow_mtu"
    echo "  $upload_bytes bytes were uploaded to ${server[$1]}; too big reached inside, which knows a path MTU of $mtu"
}

# Pings too long for the link: only their receivers put them together.
fragments() {
    if [ "$device" = net_af_packet ] && (($1 == 0)); then
        echo '  fragments of IPv4: skipped, the kernel may join them for net_af_packet (docs/devices.md)'
        return
    fi
    local inside router count drops expected=$((3 * fragment_count))
    inside=$(fragments_of inside)
    router=$(fragments_of router)
    count=$(received)
    drops=$(dropped_fragments)
    three_pings inside "${gateway[$1]}" -s "$ping_bytes"
    inside=$(($(fragments_of inside) - inside))
    router=$(($(fragments_of router) - router))
    ((inside == expected && router == expected)) ||
        fail "$router fragments reached the router, and $inside came back, not $expected each"
    wait_until 'the firewall to count fragments' has_received $((count + 2 * expected))
    [ "$(dropped_fragments)" = "$drops" ] || fail "fragments were dropped: $drops before, and now $(dropped_fragments)"
    echo "  3 pings of $ping_bytes bytes to ${gateway[$1]}: $router fragments reached the router, and $inside came back"
    fragments_from_outside "$1"
}
dropped_fragments() { ctl counters --json | jq -c '.dropped | {malformed, truncated, bad_fragment, no_first_fragment}'; }
fragments_of() { in_host "$1" nstat -asz | awk '/^Ip6?ReasmReqds / { sum += $2 } END { print sum }'; }

# Later fragments do not pass without the first.
fragments_from_outside() {
    local by_rule no_first_fragment later=$((fragment_count - 1))
    by_rule=$(dropped by_rule)
    no_first_fragment=$(dropped no_first_fragment)
    ! in_host outside ping -n -q -c 1 -W 1 -s "$ping_bytes" "${silent[$1]}" >"$work/ping" ||
        fail "a ping from outside to ${silent[$1]} was answered"
    wait_until 'the first fragment to be dropped' has_dropped by_rule $((by_rule + 1))
    wait_until 'later fragments to be dropped' has_dropped no_first_fragment $((no_first_fragment + later))
    echo "  a ping of $ping_bytes bytes from outside to ${silent[$1]}: no answer; dropped by_rule, and as no_first_fragment"
}

# Throughput in both directions of connections that the inside opens.
rates() {
    local direction
    for direction in up down; do
        start iperf3 outside iperf3 --server --one-off
        wait_ready iperf3 listens outside 5201
        measure "${server[$1]}" "$direction"
        wait_until 'the server of iperf3 to end' is_over iperf3
    done
}
listens() { [ -n "$(in_host "$1" ss -Htln "sport = $2")" ]; }

# measure ADDRESS up|down
measure() {
    local reverse=() report=$work/iperf3.json
    [ "$2" = up ] || reverse=(--reverse)
    in_host inside timeout "$patience_s" iperf3 --client "$1" --bytes "$iperf_bytes" --json "${reverse[@]}" \
        >"$report" || fail "iperf3 $2 to $1: $(jq -r .error "$report")"
    # The last bytes may be on their way when the receiver is asked.
    jq -e ".end.sum_received.bytes >= $((iperf_bytes / 2))" "$report" >/dev/null ||
        fail "iperf3 $2 to $1 received too little: $(jq -c .end.sum_received "$report")"
    printf '  iperf3 from inside to %s, %s: %.0f Mbit/s\n' "$1" "$2" "$(jq '.end.sum_received.bits_per_second / 1e6' "$report")"
}

# New rules while uploads from outside are half done: these end well, and no other one begins.
reload() {
    local family fd feeds=()
    head -c 48K /dev/urandom >"$work/upload"
    rm -rf "$work/inside/pages/upload"
    for family in 0 1; do
        rm -f "$work/feed-$family"
        mkfifo "$work/feed-$family"
        start "upload-$family" outside curl --silent --show-error --fail --globoff --max-time 60 \
            --upload-file "$work/feed-$family" "http://$(in_url "${web[family]}")/upload/$family"
    done
    for family in 0 1; do
        # For reading as well, since an end that only writes would wait for the reader.
        exec {fd}<>"$work/feed-$family"
        feeds+=("$fd")
        head -c 24K "$work/upload" >&"$fd"
        wait_until "the upload to ${web[family]} to begin" is_established "${web[family]}"
    done
    show_connections

    write_rules no-web reject
    kill -HUP "${pid[firewall]}"
    wait_until 'the rule "no-web"' has_rule no-web
    echo '  SIGHUP: the rule "no-web" replaces the rule "web"'
    for family in 0 1; do expect refused "${web[family]}" 5; done
    for family in 0 1; do
        fd=${feeds[family]}
        tail -c 24K "$work/upload" >&"$fd"
        exec {fd}>&-
        wait_until "the upload to ${web[family]} to end" is_over "upload-$family"
        wait "${pid[upload-$family]}" || fail "the upload to ${web[family]} failed: $(last_words "upload-$family")"
        cmp "$work/upload" "$work/inside/pages/upload/$family" || fail 'the upload arrived with other bytes'
        echo "  the upload to ${web[family]}, half sent before, arrived whole"
    done
    wrong_rules

    write_rules web allow
    ctl reload >/dev/null || fail 'the last reload failed'
    echo '  ctl reload: the rule "web" is back'
    for family in 0 1; do expect answered "${web[family]}" 5; done
    [ "$(metric firewall_reload_failed)" = 0 ] || fail 'the metric firewall_reload_failed is not 0 again'
    show_rules
}
is_established() {
    ctl connections --json | jq -e --arg to " > $(in_url "$1"):80 " \
        'any(.connections[]; .state == "Established" and (.flow | contains($to)))' >/dev/null
}

# A file with an error is refused, and the rules stay.
wrong_rules() {
    local names error
    names=$(ctl rules --json | jq -c 'map(.rule)')
    sed -i 's/"reject"/"forbid"/' "$work/rules.toml"
    ! error=$(ctl reload 2>&1) || fail 'ctl reload accepted a file with a wrong action'
    grep -q 'line [0-9]*, .*forbid' <<<"$error" || fail "ctl reload does not name the error: $error"
    echo "  ctl reload of a wrong file: ${error//"$work/"/}"
    kill -HUP "${pid[firewall]}"
    wait_until 'a message about the wrong file' grep -q 'the rules stay as they were' "$work/firewall.err"
    [ "$(metric firewall_reload_failed)" = 1 ] || fail 'the metric firewall_reload_failed is not 1'
    [ "$(ctl rules --json | jq -c 'map(.rule)')" = "$names" ] || fail 'the wrong file changed the rules'
    echo '  SIGHUP with it: a message, the metric firewall_reload_failed is 1, and the rules stay'
    expect refused "${web[0]}" 5
}

# ctl connections, which must have each of these states.
show_connections() {
    local state list=$work/connections
    ctl connections --json >"$list"
    for state in Closing Datagrams Echoes Established; do
        jq -e --arg state "$state" 'any(.connections[]; .state == $state)' "$list" >/dev/null ||
            fail "ctl connections has no connection in the state $state: $(cat "$list")"
    done
    echo "  ctl connections: $(jq -r '.connections | group_by(.state) | map("\(length) \(.[0].state)") | join(", ")' "$list")"
    jq -r '.connections[] | select(.state == "Established") | "    \(.flow), opened by \(.opener)"' "$list"
}

# ctl rules, and the same counts as metrics.
show_rules() {
    local rule count
    echo '  ctl rules: packets that each rule decided about'
    for rule in out web closed silent; do
        count=$(packets "$rule")
        echo "    $rule $count"
        ((count > 0)) || fail "the rule \"$rule\" counted no packet"
        (($(metric "firewall_rule_packets_total{rule=\"$rule\"}") >= count)) || fail "the metric of \"$rule\" has another count"
    done
}

# Ctrl-C ends the program, which accounts for every packet.
ledger() {
    local reason report=$work/firewall.out
    stop firewall
    judge firewall
    for reason in malformed truncated not_ip bad_flags bad_fragment table_full; do
        jq -e ".dropped.$reason // 0 | . == 0" "$report" >/dev/null || fail "packets were dropped as $reason"
    done
    for reason in by_rule rejected no_first_fragment; do
        jq -e ".dropped.$reason > 0" "$report" >/dev/null || fail "no packet was dropped as $reason"
    done
    jq -e '.created == .dropped.rejected' "$report" >/dev/null || fail 'not every rejected packet was answered'
}

# show DEVICE ARGUMENT...: everything over this kind of device, with these arguments.
show() {
    local device=$1 title="firewall ${*:2} over $1" family part
    start_firewall "$@"
    for part in pages errors fragments rates; do
        heading "$title: $part"
        if [ "$part" = rates ] && ! command -v iperf3 >/dev/null; then
            echo '  skipped: there is no iperf3'
            continue
        fi
        for family in 0 1; do "$part" "$family"; done
    done
    heading "$title: rules change under connections"
    reload
    heading "$title: Ctrl-C, and the ledger"
    ledger
}

make_network
for host in inside outside; do serve "$host" page="$page_bytes"; done
show net_pcap --run-to-completion 1
show net_af_packet --pipeline 1,1
cat <<END

What you have seen
  A transparent firewall, for IPv4 and IPv6, in both deployments: connections that the rules allow, their fragments and
  the errors about them passed, and everything else was dropped or rejected. New rules left open connections alone. At
  the end every packet was accounted for.
Next
  examples/firewall/README.md    how it works, and how to run it
The demo took $SECONDS s without building.
END
