# The clients of demo/crowd.py, for scripts that source demo/lib.sh and then this. They set client_count and pause_s, and have a
# host `client`.

order_count=0                            # number of orders given to the clients

# start_crowd VIP: starts all connections.
start_crowd() {
    mkfifo "$work/clients.orders"
    start clients client python3 "$(dirname "${BASH_SOURCE[0]}")/crowd.py" clients "$1" 7 "$client_count" "$pause_s" "$work"
    wait_until "$client_count connections" are_open_or_broken
    ! are_broken || broken
}
are_open_or_broken() { are_broken || are_open; }

# said EXPRESSION: a part of the clients' report.
said() { jq -r "$1" "$work/clients.json"; }
# number NAME: sets number to a number in the clients' report. Without jq, which takes 20 ms of CPU each time.
number() {
    local line=
    read -r line 2>/dev/null <"$work/clients.json" || [ -n "$line" ]
    [[ $line =~ \"$1\":\ ([0-9]+) ]] && number=${BASH_REMATCH[1]}
}
are_open() { number open && ((number == client_count)); }
are_broken() { number broken && ((number > 0)); }
have_confirmed() { are_broken || { number confirmed_us && ((number > $1)); }; }

# order WORD...: gives the clients an order (demo/crowd.py), and waits until they have begun.
order() {
    ((order_count += 1))
    echo "$*" >"$work/clients.orders"
    wait_until 'the clients to follow' have_followed
}
have_followed() { number orders && ((number == order_count)); }

# confirm [SINCE]: waits until every connection has had bytes confirmed that were sent after now, or after that time,
# and none is broken.
confirm() {
    wait_until 'every connection to have bytes confirmed' have_confirmed "${1:-$(now_us)}"
    ! are_broken || broken
    are_open || fail "only $(said .open) of $client_count connections are open"
}
# A script may override this to print more.
broken() { fail "$(said .broken) of $client_count connections are broken: $(said '[.errors[].what] | join("; ")')"; }
