#!/usr/bin/env bash
# ipip-lb between real clients (curl) and real servers (nginx), on a network of namespaces and veth pairs:
#
#   client ── router ── balancer (ipip-lb)
#               └────── backend-1, -2, -3 (ipip-endpoint, nginx)
#
# Everything that the script shows is also checked: the first error ends it. `cargo xtask demo --live` builds the
# programs and runs it:
#
#   demo/live.sh PROGRAMS    with ipip-lb and ipip-endpoint in the folder PROGRAMS
#   demo/live.sh --check     only finds out whether it could run here (exit code 2: no)
source "$(dirname "$0")/lib.sh"
check_privilege
programs=${1:?the folder of ipip-lb and ipip-endpoint}
[ "$programs" != --check ] || exit 0
shopt -s nullglob

vips=(203.0.113.10 2001:db8:f::10)         # the addresses of the services, IPv4 first
tunnel_ends=(192.0.2.1 2001:db8:e::1)      # the balancer's own addresses in tunnels
backends=(backend-1 backend-2 backend-3)
ends=(10.1.1.2 2001:db8:b2::2 10.1.3.2)    # the backends' addresses in tunnels
page_count=40                              # pages in a row, over each family
page_bytes=16384                           # several packets
long_bytes=$((2 << 20))                    # the page that is read slowly
upload_bytes=$((1 << 20))
link_mtu=1500
reload_count=10
client_count=3                             # clients that fetch pages during the reloads

ctl() { "$programs/ipip-lb" ctl --control "$work/ipip-lb.sock" "$@"; }

make_network() {
    heading 'A network of veth pairs and namespaces'
    add_host router
    set_in router ipv4/ip_forward=1 ipv6/conf/all/forwarding=1
    link 1 client eth0 198.51.100 2001:db8:c
    link 2 balancer front 10.0.1 2001:db8:1
    link 3 balancer back 10.0.2 2001:db8:2
    local n
    for n in 1 2 3; do
        link "1$n" "backend-$n" eth0 "10.1.$n" "2001:db8:b$n"
    done
    in_host router ip route add "${vips[0]}/32" via 10.0.1.2
    in_host router ip route add "${vips[1]}/128" via 2001:db8:1::2
    in_host router ip route add "${tunnel_ends[0]}/32" via 10.0.2.2
    in_host router ip route add "${tunnel_ends[1]}/128" via 2001:db8:2::2
    cat <<END
  client       198.51.100.2, 2001:db8:c::2; curl
  router       joins them all
  balancer     ipip-lb on net_af_packet, for ${vips[0]} and ${vips[1]}
  backend-1    nginx and ipip-endpoint, tunnel to ${ends[0]}, answers straight to clients
  backend-2    nginx and ipip-endpoint, tunnel to ${ends[1]}, answers straight to clients
  backend-3    nginx and ipip-endpoint, tunnel to ${ends[2]}, answers through the balancer
END
}

# page HOST BYTES: a page with the host's name as its first line.
page() {
    echo "$1"
    head -c $(($2 - ${#1} - 1)) /dev/zero | tr '\0' .
}

# start_server HOST: nginx with two pages.
start_server() {
    local folder=$work/$1
    mkdir -p "$folder/pages"
    page "$1" "$page_bytes" >"$folder/pages/index.html"
    page "$1" "$long_bytes" >"$folder/pages/long"
    start_nginx "$1"
}

# start_endpoint N: the end of backend N's tunnel. Its server's answers are routed into the TAP interface.
start_endpoint() {
    local host=backend-$1 family=0 length return_path=()
    # The last of three backends answers through the balancer.
    [ "$1" != 3 ] || return_path=(--return-path "${tunnel_ends[0]}")
    start "ipip-endpoint-$1" "$host" taskset -c "$upper_cpus" "$programs/ipip-endpoint" \
        --port net_af_packet0,iface=eth0,qdisc_bypass=1 --tap tap0 --report json --control "$work/$host.sock" \
        --address "10.1.$1.2" --address "2001:db8:b$1::2" \
        --balancer "${tunnel_ends[0]}" --balancer "${tunnel_ends[1]}" "${return_path[@]}"
    wait_ready "ipip-endpoint-$1" tap_is_up "$host"
    in_host "$host" ip link set tap0 arp off
    for length in 32 128; do
        in_host "$host" ip address add "${vips[family]}/$length" dev lo
        in_host "$host" ip "-$((4 + 2 * family))" route add default dev tap0 table 100
        in_host "$host" ip "-$((4 + 2 * family))" rule add from "${vips[family]}/$length" lookup 100
        family=1
    done
}
tap_is_up() { in_host "$1" ip link show dev tap0 up | grep -q tap0; }

# configure WEIGHT WEIGHT WEIGHT: writes the balancer's configuration with these weights of the backends.
configure() {
    local weights=("$@") family n
    {
        cat <<END
[engine]
deployment = "run-to-completion"
workers = 1

[balancer]
source_v4 = "${tunnel_ends[0]}"
source_v6 = "${tunnel_ends[1]}"
mtu = $link_mtu
decapsulate = ["${tunnel_ends[0]}", "${tunnel_ends[1]}"]

[[port]]
name = "front"
device = "net_af_packet0,iface=front,qdisc_bypass=1"
next_hop = "10.0.1.1"
address = "10.0.1.2"
side = "client"

[[port]]
name = "back"
device = "net_af_packet1,iface=back,qdisc_bypass=1"
next_hop_mac = "$(mac 3 1)"
side = "backend"
END
        for family in 0 1; do
            cat <<END

[[service]]
name = "web-$family"
address = "${vips[family]}"
protocol = "tcp"
ports = "80"
health = { kind = "http", path = "/healthz", interval_ms = 200, timeout_ms = 150, rise = 2, fall = 2 }
END
            for n in 0 1 2; do
                printf '[[service.backend]]\naddress = "%s"\nweight = %d\n' "${ends[n]}" "${weights[n]}"
            done
        done
    } >"$work/lb.toml"
}

start_programs() {
    local n
    for n in 1 2 3; do
        start_server "backend-$n"
        start_endpoint "$n"
    done
    configure 1 1 1
    start ipip-lb balancer taskset -c "$lower_cpus" "$programs/ipip-lb" run --report json --config "$work/lb.toml" \
        --control "$work/ipip-lb.sock"
    wait_ready ipip-lb ctl status
}

# url FAMILY PATH
url() { echo "http://$(in_url "${vips[$1]}")/$2"; }
client() { in_host client curl --silent --show-error --fail --globoff "$@"; }

# fetch FAMILY COUNT: pages, each over a connection of its own. Each must be whole. Prints the backend of each.
fetch() {
    local n page
    for ((n = 1; n <= $2; n++)); do
        page=$(client --max-time 5 "$(url "$1" '')") || fail "request $n of $2 to ${vips[$1]} failed"
        ((${#page} == page_bytes)) || fail "${vips[$1]} sent a page of ${#page} bytes, not $page_bytes"
        [[ " ${backends[*]} " == *" ${page%%$'\n'*} "* ]] || fail "${vips[$1]} sent a page of no backend"
        echo "${page%%$'\n'*}"
    done
}

# show_tally WHAT FILE: how many lines of the file name each backend; also sets tally.
declare -A tally
show_tally() {
    local backend line=''
    for backend in "${backends[@]}"; do
        tally[$backend]=$(grep -cx "$backend" "$2" || true)
        line+=$(printf ', %4d from %s' "${tally[$backend]}" "$backend")
    done
    printf '  %-10s %s\n' "$1" "${line#, }"
}

# fetch_both none|some BACKEND...: pages over both families. In each, none or some must come from these backends.
fetch_both() {
    local family backend
    for family in 0 1; do
        fetch "$family" "$page_count" >"$work/pages"
        show_tally "IPv$((4 + 2 * family))" "$work/pages"
        for backend in "${@:2}"; do
            if [ "$1" = none ]; then
                ((tally[$backend] == 0)) || fail "$backend got ${tally[$backend]} new connections to ${vips[family]}"
            else
                ((tally[$backend] > 0)) || fail "$backend got no new connection to ${vips[family]}"
            fi
        done
    done
}

# Every backend serves both services.
pages() {
    heading "$page_count pages over each family, each over a connection of its own"
    fetch_both some "${backends[@]}"
}

# A backend with a dead server gets no connections once its health check fails, and some again once the server is back.
killed_backend() {
    heading 'The server of backend-1 is killed'
    kill_program nginx-backend-1
    local started=${EPOCHREALTIME/./}
    wait_until "the health check of backend-1 to fail" is_down "${ends[0]}"
    echo "  down by its health check after $(((${EPOCHREALTIME/./} - started) / 1000)) ms"
    ctl backends | sed 's/^/    /; s/ *$//'
    fetch_both none backend-1
    start_server backend-1
    started=${EPOCHREALTIME/./}
    wait_until "the health check of backend-1 to pass" is_up "${ends[0]}"
    echo "  started again, and up after $(((${EPOCHREALTIME/./} - started) / 1000)) ms"
    fetch_both some backend-1
}
states() { ctl backends --json | jq -e --arg address "$1" "map(select(.address == \$address).state) | $2" >/dev/null; }
is_down() { states "$1" 'any(. == "down")'; }
is_up() { states "$1" 'length > 0 and all(. != "down")'; }

# A drained backend gets no new connections, until a reset returns to the configuration.
drained_backend() {
    heading 'ctl drain: no new connections for backend-2'
    ctl drain "${ends[1]}" >/dev/null
    fetch_both none backend-2
    ctl reload --reset >/dev/null
    echo '  ctl reload --reset returns to what the file says'
    fetch_both some backend-2
}

# Reloads with other weights, through ctl and SIGHUP in turn, while pages are fetched: no request fails, and a
# connection that lasts through all of them stays at its backend.
reload_under_load() {
    heading "$reload_count reloads with other weights while pages are fetched, and one is read slowly"
    local before after failure count n turn weights clients=() long
    before=$(ctl status --json | jq .reloads)
    touch "$work/load"
    for ((n = 0; n < client_count; n++)); do
        while [ -e "$work/load" ]; do fetch 0 1; fetch 1 1; done >"$work/client-$n" &
        clients+=($!)
    done
    client --max-time 60 --limit-rate 512K --output "$work/long" "$(url 0 long)" &
    long=$!
    for ((turn = 1; turn < reload_count; turn++)); do
        weights=(1 2 3)
        weights[turn % 3]=0
        configure "${weights[@]}"
        if ((turn % 2 == 0)); then ctl reload >/dev/null; else kill -HUP "${pid[ipip-lb]}"; fi
        sleep 0.3
    done
    configure 1 1 1
    ctl reload >/dev/null
    after=$(ctl status --json | jq .reloads)
    failure=$(ctl status --json | jq -r '.reload_failure // empty')
    ((after - before == reload_count)) || fail "$((after - before)) of $reload_count reloads succeeded: $failure"
    [ -z "$failure" ] || fail "the last reload failed: $failure"
    rm "$work/load"
    for n in "${clients[@]}"; do wait "$n" || fail 'a request failed during the reloads'; done
    wait "$long" || fail 'the long page failed during the reloads'
    n=$(stat -c %s "$work/long")
    ((n == long_bytes)) || fail "$n bytes of the long page came, not $long_bytes"
    cat "$work"/client-* >"$work/pages"
    show_tally meanwhile "$work/pages"
    count=$(wc -l <"$work/pages")
    ((count >= reload_count)) || fail "only $count pages were fetched meanwhile"
    echo "  no request of $count failed; the long page came whole, $long_bytes bytes"
}

# A megabyte over each family, in segments too long for the tunnel until the balancer has sent the client the right
# size.
uploads() {
    heading "$upload_bytes bytes are uploaded over each family"
    seq -f %015.0f 0 $((upload_bytes / 16 - 1)) >"$work/upload"
    # A backend that answers through a tunnel may learn its MTU from large pages, and would report it to the client.
    ctl drain "${ends[2]}" >/dev/null
    upload 0
    upload 1
    ctl reload --reset >/dev/null
}

# upload FAMILY: must arrive whole at one backend, and the client learns a smaller path MTU.
upload() {
    local vip=${vips[$1]} before dropped mtu arrived
    mtu=$(path_mtu client "$vip")
    [ -z "$mtu" ] || fail "$vip: the client knows a path MTU of $mtu before the upload"
    before=$(too_big)
    client --max-time 20 --upload-file "$work/upload" "$(url "$1" "upload/$1")" || fail "the upload to $vip failed"
    dropped=$(($(too_big) - before))
    mtu=$(path_mtu client "$vip")
    arrived=("$work"/*/pages/upload/"$1")
    ((${#arrived[@]} == 1)) || fail "the upload to $vip is at ${#arrived[@]} backends"
    cmp "$work/upload" "${arrived[0]}" || fail "the upload to $vip arrived with other bytes"
    ((dropped > 0)) || fail "no packet of the upload to $vip was dropped as too_big"
    ((${mtu:-link_mtu} < link_mtu)) || fail "$vip: the client has learned no path MTU below $link_mtu"
    arrived=${arrived[0]#"$work/"}
    printf '  %-16s came whole to %s; %d packets too_big, and the client knows a path MTU of %d\n' \
        "$vip" "${arrived%%/*}" "$dropped" "$mtu"
}
too_big() { ctl counters --json | jq '.dropped.too_big // 0'; }

# Every program ends, and accounts for every packet.
ledgers() {
    heading 'The ledgers'
    echo '  punt, not_for_us, not_ours and on_link are packets for the kernel of the host, such as health checks:'
    echo '  net_af_packet shows them to the program too, and the kernel still gets them.'
    local n too_big created endpoint_too_big=0
    stop ipip-lb
    judge ipip-lb
    for n in 1 2 3; do
        stop "ipip-endpoint-$n"
        judge "ipip-endpoint-$n"
        endpoint_too_big=$((endpoint_too_big + $(jq '.dropped.too_big // 0' "$work/ipip-endpoint-$n.out")))
    done
    too_big=$(jq '.dropped.too_big // 0' "$work/ipip-lb.out")
    created=$(jq .created "$work/ipip-lb.out")
    ((too_big > 0)) || fail 'ipip-lb dropped no packet as too_big'
    ((created >= too_big)) || fail "ipip-lb answered $created times about $too_big packets that were too_big"
    ((endpoint_too_big > 0)) || fail 'no endpoint dropped an answer as too_big'
}

make_network
start_programs
pages
killed_backend
drained_backend
reload_under_load
uploads
ledgers
cat <<END

What you have seen
  A balancer that no client notices: a backend died, another was drained, and the configuration was reloaded
  $reload_count times, without one failed request. Packets too big for a tunnel were answered, so that the
  clients sent smaller ones. At the end every program accounted for every packet.
Next
  examples/ipip-lb/README.md                         how to set up a balancer of your own
  cargo doc -p hotloop --all-features --open         the guide
The demo took $SECONDS s without building.
END
