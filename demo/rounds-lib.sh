# Part of demo/rounds.sh, which sources it: draws and plays rounds, and queries the nodes.

hash_fields=55                           # the router's: the kernel's FIB_MULTIPATH_HASH_FIELD_*, all five of a connection
declare -A configured=([1]=1 [2]=1 [3]=1) # by backend: the weights of the configuration in force
declare -A operator=()                   # the weights that operators have set since then, or none: removed
declare -A kinds_count=() longest_of=()
deck=()
starved_count=0                          # number of rounds in which the machine was too busy to judge waits

other() { if [ "$1" = a ]; then echo b; else echo a; fi; }
peer_address() { if [ "$1" = a ]; then echo 10.9.1.2; else echo 10.9.2.2; fi; }
both() { ctl a "$@" >/dev/null && ctl b "$@" >/dev/null; }
birdc_at() { birdc -s "$work/bird-$1.ctl" "${@:2}" >"$work/birdc"; }

# draw WORD...: sets drawn to one of them. Not in a subshell, which has its own random numbers.
draw() { local words=("$@"); drawn=${words[RANDOM % $#]}; }

# The state in force, according to this script.
weight_of() { echo "${operator[$1]:-${configured[$1]:-none}}"; }
is_there() { [ "$(weight_of "$1")" != none ]; }
has_weight() { is_there "$1" && (($(weight_of "$1") > 0)); }
# others_have_weight BACKEND: whether connections can go elsewhere. There is no backend 0.
others_have_weight() {
    local n
    for n in 1 2 3; do
        ((n == $1)) || ! has_weight "$n" || return 0
    done
    return 1
}
model() {
    local n
    for n in 1 2 3; do
        ! is_there "$n" || printf '10.1.%d.2=%s ' "$n" "$(weight_of "$n")"
    done
}

# draw_backend CONDITION: sets drawn to a backend n that fulfils it; fails if there is none.
draw_backend() {
    local n there_count=0 fitting=()
    for n in 1 2 3; do
        ! is_there "$n" || ((there_count += 1))
    done
    for n in 1 2 3; do
        ! eval "$1" || fitting+=("$n")
    done
    ((${#fitting[@]} > 0)) && draw "${fitting[@]}"
}
# draw_weight BACKEND [WEIGHT]: a weight of 1 to 5 that differs from the current one; may be this one.
draw_weight() {
    local weight
    weight=$(weight_of "$1")
    drawn=$weight
    while [ "$drawn" = "$weight" ]; do
        draw 1 2 3 4 5 ${2:-}
    done
}
# draw_hash: changes hash_fields; spread makes the router use them.
draw_hash() {
    local old=$hash_fields
    while [ "$hash_fields" = "$old" ]; do
        draw 3 16 17 18 19 20 21 22 23 48 49 50 51 52 53 54 55
        hash_fields=$drawn
    done
}
spread() { set_in router "ipv4/fib_multipath_hash_fields=$hash_fields"; }

# begin_change: the next configuration leaves out removed backends, and otherwise keeps the weights. change ends it, with
# the operators' settings.
begin_change() {
    local n
    for n in "${!operator[@]}"; do
        [ "${operator[$n]}" != none ] || unset "configured[$n]"
    done
    operator=()
}
change() {
    apply
    both reload --reset
}

# write_shared: the configuration shared by all nodes. An identical text would change nothing.
write_shared() {
    local n backends=()
    for n in "${!configured[@]}"; do
        backends+=("{ address = \"10.1.$n.2\", weight = ${configured[$n]} }")
    done
    {
        printf '# Round %s.\n[balancer]\nmtu = 1500\nhash_key = "%s"\n' "${round:-0}" "$hash_key"
        # A backend is empty, and the reference table moves, twice as long after the start of a node.
        printf '[balancer.timeouts_s]\ntcp_established = %d\nudp = %d\nother = %d\n' "$idle_s" "$idle_s" "$idle_s"
        services_conf "${backends[@]}"
    } >"$work/shared.toml"
}
# apply_shared [OPTION...]
apply_shared() {
    in_host etcd "$program" cluster apply --config "$work/shared.toml" --node "$work/lb-a.toml" "$@" >"$work/apply" 2>&1
}
# apply: changes the configuration.
apply() {
    write_shared
    apply_shared || fail "cluster apply: $(cat "$work/apply")"
}
# refused_change BALANCER: while it is away, changes must be refused.
refused_change() {
    write_shared
    echo "# Another text, while lb-$1 is away." >>"$work/shared.toml"
    local status=0
    apply_shared --within 3 || status=$?
    # Exit code 2 would be a mistake in the command.
    ((status == 1)) || fail "cluster apply was not refused while lb-$1 was away, but ended with $status: $(cat "$work/apply")"
}

start_etcd() {
    local own=http://10.9.9.2:2379 peers=http://127.0.0.1:2380
    start etcd etcd etcd --data-dir "$work/etcd" --listen-client-urls "$own" --advertise-client-urls "$own" \
        --listen-peer-urls "$peers" --initial-advertise-peer-urls "$peers" --initial-cluster "default=$peers"
    wait_ready etcd in_host etcd python3 -c 'import sys, urllib.request as it; it.urlopen(sys.argv[1], timeout=2)' "$own/health"
}

start_programs() {
    heading 'etcd has the configuration, and both balancers announce their VIPs'
    local name n=0
    hash_key=$("$program" keygen)
    link 41 etcd eth0 10.9.9 2001:db8:99
    set_in router ipv4/fib_multipath_hash_policy=3 "ipv4/fib_multipath_hash_fields=$hash_fields"
    for name in a b; do
        ((n += 1))
        {
            node_conf "$n"
            printf '\n'
            peers_conf "$name"
            printf 'store = "etcd://10.9.9.2:2379"\nstore_copy = "%s"\nsettle_s = 2\n' "$work/lb-$name.copy.toml"
        } >"$work/lb-$name.toml"
    done
    start_etcd
    apply
    start_backends
    start_birds
    start_lb a
    start_lb b
    wait_until 'both balancers to be announced' is_sent_to a b
}

# cut_off BALANCER: drops its packets to the other. reconnect_after SECONDS BALANCER ends that.
cut_off() { in_host "lb-$1" ip route add blackhole "$(peer_address "$(other "$1")")"; }
reconnect_after() {
    sleep "$1"
    in_host "lb-$2" ip route delete blackhole "$(peer_address "$(other "$2")")"
}

# end_session BALANCER: its connection with the other ends at once.
end_session() { in_host "lb-$1" ss -K -t4n dst "$(peer_address "$(other "$1")")" >"$work/ss"; }
# signal_backends SIGNAL: USR1 makes them drop packets of unknown connections, and USR2 ends that.
signal_backends() {
    local n
    for n in 1 2 3; do
        kill "-$1" "${pid[backend-$n]}"
    done
}

# restart BALANCER: until the router sends it connections. The operators' settings survive.
restart() {
    start_lb "$1"
    event_us=$(now_us)
    wait_route a b
}

are_in_sync() { are_caught_up '.state == "in-sync"'; }
# is_settled: whether both nodes have entered the other's exceptions, reach etcd, and have the same state as this
# script.
is_settled() {
    local name of
    for name in a b; do
        for of in cluster status backends; do
            ctl "$name" "$of" --json || return 1
        done
    done | jq -es --arg service "upload-${vips[0]}" --arg model "$(model)" "
        def weights: [.[] | select(.service == \$service and .state != \"removed\") | \"\(.address)=\(.weight) \"] | sort | add;
        def revision: select(.is_loading | not) | .store | select(.failure == null and .newest == .revision) | .revision;
        length == 6 and all(.[0, 3]; ($caught_up) and all(.peers[]; .state == \"in-sync\"))
            and all(.[2, 5]; weights == \$model) and (.[1] | revision) == (.[4] | revision)" >/dev/null
}

# has_moved_on NUMBER: whether both nodes have a later reference table than this one, and no move is under way.
has_moved_on() {
    local name
    for name in a b; do
        ctl "$name" cluster --json || return 1
    done | jq -es --argjson before "$1" 'length == 2 and all(.[].references; length == 1 and .[0] > $before)' >/dev/null
}

# deal: sets kind to the next one in the deck that is possible now.
deal() {
    local index
    while true; do
        ((${#deck[@]} > 0)) || deck=("${deck_of_kinds[@]}")
        local order=() indices=("${!deck[@]}")
        while ((${#indices[@]} > 0)); do
            index=$((RANDOM % ${#indices[@]}))
            order+=("${indices[index]}")
            unset "indices[$index]"
            indices=("${indices[@]}")
        done
        for index in "${order[@]}"; do
            kind=${deck[index]}
            [ "$(type -t "can_$kind")" != function ] || "can_$kind" || continue
            unset "deck[$index]"
            deck=("${deck[@]}")
            return
        done
        deck=()
    done
}

describe() { what=$*; }
play_round() {
    local began_us
    kind= what='nothing yet'
    wait_until 'both balancers to be in sync' are_in_sync
    deal
    order forget
    began_us=$(now_us)
    began_utc=$(date --utc +%FT%T)
    event_us=$began_us
    "${kind}_round"
    wait_until 'both balancers to be in sync again, with one configuration' is_settled
    order renew "$renewed_count"
    # While connections begin again.
    note_known
    confirm_and_renewed
    note_round "$(ms_since "$began_us")"
}
# confirm_and_renewed: after the clients were ordered to renew some.
confirm_and_renewed() {
    local since
    since=$(now_us)
    wait_until 'connections to begin again' are_open_or_broken
    confirm "$since"
}

# note_round MS: prints a round's results on one line.
note_round() {
    number longest_ms
    local longest_ms=$number
    printf '  %5d  %-79s %4d.%d %8d %7d %7d %10s\n' "$round" "$what" $(($1 / 1000)) $(($1 / 100 % 10)) \
        "$longest_ms" $known
    ((kinds_count[$kind] += 1))
    ((longest_ms <= ${longest_of[$kind]:-0})) || longest_of[$kind]=$longest_ms
    if was_starved; then
        echo '         the machine gave programs no CPU meanwhile: waits are not judged'
        ((starved_count += 1))
        return
    fi
    ((longest_ms <= wait_max_ms)) || broken "A connection waited for $longest_ms ms, more than $wait_max_ms ms."
}
# was_starved: whether a balancer reports that, or the clients came much too late, since the round began.
was_starved() {
    number late_ms
    ((number > 500)) || awk -v began="$began_utc" '$1 >= began && / is starved: / { found = 1 } END { exit !found }' \
        "$work/lb-a.err" "$work/lb-b.err"
}
# note_known: sets known to the number of connections that the balancers know, and of claims that each has received
# since its start.
note_known() {
    known=$({ ctl a status --json && ctl b status --json && ctl a cluster --json && ctl b cluster --json; } | jq -rs '
        ([.[0, 1].balancer.connections | add] + [[.[2, 3].peers | map(.received) | add | tostring] | join("+")]) | join(" ")')
}

# broken [WHY]: prints the facts about broken connections.
broken() {
    local port backend
    set +e # A balancer that is away can't be queried.
    said '.errors[] | "\(.port) \(.backend)"' | while read -r port backend; do
        echo "  port $port, on $backend:"
        for name in a b; do
            ctl "$name" lookup tcp "198.51.100.2:$port" "${vips[0]}:7" 2>&1 | sed "s/^/    lb-$name: /"
        done
    done
    fail "${1:-$(said .broken) of $client_count connections are broken: $(said '[.errors[].what] | join("; ")')}"
}

# Prints the round, what the balancers know, and how to repeat it. Keeps what the programs wrote.
before_failing() {
    ((${round:-0} > 0)) || return 0
    set +e # A balancer that is away can't be queried.
    echo
    echo "In round $round: $what."
    for name in a b; do
        ctl "$name" cluster 2>&1 | sed "s/^/  lb-$name: /"
        tail -n 5 "$work/lb-$name.err" | sed "s/^/  lb-$name: /"
    done
    [ -z "$keep" ] || { mkdir -p "$keep" && cp -r "$work"/lb-* "$work"/clients.* "$keep" 2>/dev/null; }
    echo "Again: demo/rounds.sh $program --seed $seed --rounds $round --deck '${deck_of_kinds[*]}'"
}

summary() {
    local kind
    cat <<END

What you have seen
  $round_count rounds by the seed $seed: $(said .connections) connections from $client_count ports, $(said .confirmed_bytes) bytes, of which every one
  was confirmed; none was reset. The longest waits, in milliseconds:
END
    for kind in "${!kinds_count[@]}"; do
        printf '    %-10s %2d rounds  %6d\n' "$kind" "${kinds_count[$kind]}" "${longest_of[$kind]:-0}"
    done | sort
    ((starved_count == 0)) || echo "  In $starved_count rounds the machine gave programs no CPU for a while, and waits were not judged."
    echo "The rounds took $SECONDS s without building."
}
