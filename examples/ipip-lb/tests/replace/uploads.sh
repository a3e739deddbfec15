#!/usr/bin/env bash
# A balancer is replaced by the next one, again and again, under the connections of demo/uploads-lib.sh, of which none is
# broken. tests/replace.rs runs it; exit code 2 where it can't run here:
#
#   uploads.sh PROGRAM ROUNDS            each balancer takes over from the one before: `run --replace`
#   uploads.sh PROGRAM ROUNDS --apart    each is stopped, and the next one started: connections are broken
demo=$(dirname "$0")/../../../../demo
source "$demo/lib.sh"
source "$demo/crowd.sh"
source "$demo/uploads-lib.sh"
check_privilege
require_tools
program=${1:?the path of ipip-lb} rounds=${2:?how many times} mode=${3:---replace}
patience_s=60                            # as a test, it runs together with others

ctl() { "$program" ctl --control "$work/lb.sock" "$@"; }

# start_lb NUMBER ARGUMENT...
start_lb() {
    start "lb-$1" lb "$program" run --report json --config "$work/lb.toml" --control "$work/lb.sock" "${@:2}"
}

# has_ended NAME: it must have ended by itself, and well.
has_ended() {
    wait_until "$1 to end" is_over "$1"
    wait "${pid[$1]}" || fail "$1 ended with an error: $(last_words "$1")"
    judge "$1"
}

has_taken_over() {
    is_alive "$1" || fail "$1 ended early: $(last_words "$1")"
    grep -qs 'this program has taken over' "$work/$1.err"
}

# replaced NUMBER: the balancer of this number takes over from the one before.
replaced() {
    local before=lb-$(($1 - 1)) gap stall
    order forget
    start_lb "$1" --replace
    wait_until "lb-$1 to take over" has_taken_over "lb-$1"
    has_ended "$before"
    go_on
    gap=$(sed -n 's/.*taken over; for \([0-9]*\).*/\1/p' "$work/lb-$1.err") stall=$(said .longest_ms)
    printf '  %2d. for %d ms neither received; longest wait of a connection: %d ms\n' "$1" "$gap" "$stall"
    ((gap <= longest_gap)) || longest_gap=$gap
    ((stall <= longest_stall)) || longest_stall=$stall
}

# restarted NUMBER: the same without a takeover.
restarted() {
    # Where the weights are as they were, connections find their backends without being known.
    sed -i 's/"10.1.1.2" }/"10.1.1.2", weight = 5 }/; s/"10.1.3.2" }/"10.1.3.2", weight = 0 }/' "$work/lb.toml"
    stop "lb-$(($1 - 1))"
    start_lb "$1"
    wait_ready "lb-$1" ctl status
}

make_network
in_host lb ip monitor route >>"$work/routes" &
upload_conf "$("$program" keygen)" >"$work/lb.toml"
start_lb 0
wait_ready lb-0 ctl status
begin_uploads
longest_gap=0 longest_stall=0
sleep 0.5
if [ "$mode" = --apart ]; then
    restarted 1
    wait_until 'connections to break' are_broken
    echo "apart: $(said .broken) of $client_count connections are broken"
    exit 0
fi
: >"$work/routes"
for ((round = 1; round <= rounds; round++)); do
    replaced "$round"
done
! grep -q "Deleted $vip" "$work/routes" || fail "the route to the VIP was away: $(cat "$work/routes")"
kill_program clients
stop "lb-$rounds"
judge "lb-$rounds"
grep -q "Deleted $vip" "$work/routes" || fail 'the route to the VIP is still there, or was not watched'
echo "replaced $rounds times: 0 of $client_count connections are broken; longest gap $longest_gap ms, longest wait" \
    "$longest_stall ms; $SECONDS s"
