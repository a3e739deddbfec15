#!/usr/bin/env bash
# The acceptance test of a cluster: the network of demo/cluster.sh, with etcd for the balancers' shared configuration,
# 1,000 connections that upload, and rounds drawn from a seed. In each, something happens to a balancer, to the
# backends, to etcd or to the routes; then every connection must go on, and some end and begin again from the same
# ports. A round begins once the nodes are ready, have entered the others' exceptions, and have the same configuration.
#
#   demo/rounds.sh PROGRAM [--rounds N] [--seed N] [--deck "KIND..."] [--keep FOLDER]
#       with the path of ipip-lb; exit code 2 where it can't run here. With --deck, rounds are drawn from these kinds, as
#       often as each is named. With --keep, what the programs wrote stays in a folder if a round fails.
#   demo/rounds.sh --check    only finds out whether it could
[ -e /proc/sys/net/ipv4/fib_multipath_hash_fields ] ||
    { echo 'demo: the router of this demo hashes in ways that Linux has since 5.13' >&2; exit 2; }
source "$(dirname "$0")/cluster-lib.sh"
source "$here/rounds-lib.sh"
# How often each kind occurs among the rounds of one deck.
deck_of_kinds=(kill kill kill late stop drain drain undrain weight move add remove apply shuffle shuffle reuse out etcd cut meet)
round_count=50 seed=$(((EPOCHSECONDS ^ $$) & 0x7fff)) keep=
while (($# > 1)); do
    case $2 in
        --rounds) round_count=${3:?how many} ;;
        --seed) seed=${3:?a number} ;;
        --deck) read -ra deck_of_kinds <<<"${3:?kinds of rounds}" ;;
        --keep) keep=${3:?a folder} ;;
        *) echo "demo: $2 is not --rounds N, --seed N, --deck KINDS or --keep FOLDER" >&2; exit 2 ;;
    esac
    set -- "$1" "${@:4}"
done
RANDOM=$seed
export SEED=$seed

client_count=1000
idle_s=20                                # the idle timeout of connections
pause_s=0.5
linger_ms=500
renewed_count=40                         # connections that end after each round, and begin again
reused_count=200                         # in a round of the kind `reuse`
# The longest wait of a connection. Routers know within 0.5 s that a balancer has ended: ten times that, and TCP's pause
# before it retransmits, which starts at 0.2 s and doubles.
wait_max_ms=7000

# The kinds of rounds. `can_KIND` is whether the kind is possible now; both use `draw`, which sets drawn.

pick_balancer() { draw a b; }
kill_round() {
    pick_balancer; name=$drawn
    describe "lb-$name is killed (SIGKILL), and started again"
    kill_program "lb-$name"
    wait_route "$(other "$name")"
    confirm
    restart "$name"
}

# A node must not be announced before it has the other's snapshot, which comes late here.
late_round() {
    pick_balancer; name=$drawn
    describe "lb-$name is killed, and hears of lb-$(other "$name") 2 s late"
    kill_program "lb-$name"
    wait_route "$(other "$name")"
    confirm
    cut_off "$name"
    reconnect_after 2 "$name" &
    local cut=$!
    restart "$name"
    wait "$cut"
}

stop_round() {
    pick_balancer; name=$drawn
    describe "lb-$name is stopped (SIGTERM), and started again"
    kill -TERM "${pid[lb-$name]}"
    wait_route "$(other "$name")"
    wait_until "lb-$name to end" is_over "lb-$name"
    wait "${pid[lb-$name]}" || fail "lb-$name ended with an error: $(last_words "lb-$name")"
    judge "lb-$name" idle >"$work/judged"
    confirm
    refused_change "$name"
    restart "$name"
}

can_drain() { draw_backend 'has_weight $n && others_have_weight $n'; }
drain_round() {
    describe "backend-$drawn is drained"
    operator[$drawn]=0
    both drain "10.1.$drawn.2"
}

can_undrain() { draw_backend '[ "${operator[$n]:-}" = 0 ]'; }
undrain_round() {
    local weight=${configured[$drawn]}
    ((weight > 0)) || weight=1
    describe "backend-$drawn gets connections again: weight $weight"
    operator[$drawn]=$weight
    both weight "10.1.$drawn.2" "$weight"
}

can_weight() { draw_backend 'has_weight $n'; }
weight_round() {
    local backend=$drawn
    draw_weight "$backend"
    describe "backend-$backend gets weight $drawn"
    operator[$backend]=$drawn
    both weight "10.1.$backend.2" "$drawn"
}

# The reference table moves two idle timeouts after the last start of a node, at the earliest.
can_move() { can_weight; }
move_round() {
    local backend=$drawn before
    draw_weight "$backend"
    local weight=$drawn
    draw_hash
    describe "backend-$backend gets weight $weight, the reference table follows, then another hash (fields $hash_fields)"
    operator[$backend]=$weight
    before=$(ctl a cluster --json | jq '.references | max')
    both weight "10.1.$backend.2" "$weight"
    patience_s=$((patience_s + 2 * idle_s)) wait_until 'the reference table to follow' has_moved_on "$before"
    spread
}

can_add() { draw_backend '[ "$(weight_of $n)" = none ]'; }
add_round() {
    local backend=$drawn
    draw 1 2 3
    describe "backend-$backend is added with weight $drawn (cluster apply)"
    begin_change
    configured[$backend]=$drawn
    change
}

can_remove() { draw_backend 'is_there $n && others_have_weight $n && ((there_count > 2))'; }
remove_round() {
    describe "backend-$drawn is drained until it is empty, and removed"
    operator[$drawn]=none
    both drain "10.1.$drawn.2" --until-empty
    # A round begins with everything at rest, including ends of connections.
    wait_until 'both balancers to know all exceptions' are_in_sync
    order renew "backend-$drawn"
    wait_until 'connections to begin again' are_open_or_broken
    ! are_broken || broken
}

can_apply() { true; }
apply_round() {
    local n
    begin_change
    for n in "${!configured[@]}"; do
        draw 0 1 2 3 4
        configured[$n]=$drawn
    done
    others_have_weight 0 || configured[$n]=1
    describe "a new configuration (cluster apply): $(model)"
    change
}

# Half of the connections move to the other balancer; sometimes all to one, by a hash of only the addresses.
shuffle_round() {
    draw_hash
    describe "the router spreads connections by another hash (fields $hash_fields)"
    spread
}

# Ports are reused through the other balancer, and return while the first one still remembers how the connection ended.
reuse_round() {
    local old=$hash_fields
    describe 'connections end, begin again by the other balancer, and come back'
    order renew "$reused_count"
    # Each begins again after 1.2 s.
    sleep 0.5
    set_in router "ipv4/fib_multipath_hash_fields=$((old == 19 ? 20 : 19))"
    confirm_and_renewed
    wait_until 'both balancers to be in sync' are_in_sync
    set_in router "ipv4/fib_multipath_hash_fields=$old"
    confirm
}

out_round() {
    local how
    pick_balancer; name=$drawn
    draw router balancer; how=$drawn
    if [ "$how" = router ]; then
        describe "the router drops its session with lb-$name, and takes it up again"
        birdc_at router disable "lb_$name"
    else
        describe "lb-$name is withdrawn, and announced again"
        ctl "$name" withdraw >/dev/null
    fi
    wait_route "$(other "$name")"
    confirm
    if [ "$how" = router ]; then
        birdc_at router enable "lb_$name"
    else
        ctl "$name" announce >/dev/null
    fi
    wait_route a b
}

etcd_round() {
    describe 'etcd is killed, and started again after 1 s'
    kill_program etcd
    sleep 1
    start_etcd
}

# Meanwhile weights may change.
cut_round() {
    local how
    pick_balancer; name=$drawn
    draw reset silent; how=$drawn
    draw_backend 'has_weight $n' || fail 'there is no backend with a weight'
    local backend=$drawn
    draw_weight "$backend"
    describe "nothing goes from lb-$name to lb-$(other "$name") for 1 s ($how); weight $drawn for backend-$backend"
    [ "$how" = silent ] || end_session "$name"
    cut_off "$name"
    reconnect_after 1 "$name" &
    operator[$backend]=$drawn
    both weight "10.1.$backend.2" "$drawn"
    wait $!
}

# While neither node hears of the other's exceptions, their connections come to the other node, which puts them on
# another backend. That one is silent: if it answered with a RST, nothing could save the connection. The earlier of the
# two claims must win, and the connection goes on when TCP retransmits.
can_meet() { draw_backend 'is_there $n && others_have_weight $n'; }
meet_round() {
    local backend=$drawn
    draw_weight "$backend" 0
    operator[$backend]=$drawn
    draw_hash
    describe "lb-a and lb-b apart, weight ${operator[$backend]} for backend-$backend; then another hash (fields $hash_fields)"
    signal_backends USR1
    cut_off a
    cut_off b
    end_session a
    end_session b
    both weight "10.1.$backend.2" "${operator[$backend]}"
    spread
    # All connections send meanwhile.
    sleep 0.6
    reconnect_after 0 a
    reconnect_after 0 b
    wait_until 'both balancers to be in sync' are_in_sync
    confirm
    signal_backends USR2
}

# A function, so that bash reads the whole file first.
main() {
    make_network
    start_programs
    start_clients
    heading "$round_count rounds, drawn by the seed $seed"
    printf '  %5s  %-79s %6s %8s %7s %7s %10s\n' '' '' took longest lb-a lb-b claims \
        round 'what happens' s 'wait, ms' knows knows received
    for ((round = 1; round <= round_count; round++)); do
        play_round
    done
    judge_ends idle
    summary
}
main
exit
