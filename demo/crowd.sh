# The clients of demo/crowd.py, for scripts that source demo/lib.sh and then this. They set client_count and pause_s, and have a
# host `client`.

order_count=0                            # of those that the clients were given

# start_crowd VIP: as many connections as there are to be.
start_crowd() {
    mkfifo "$work/clients.orders"
    start clients client python3 "$(dirname "${BASH_SOURCE[0]}")/crowd.py" clients "$1" 7 "$client_count" "$pause_s" "$work"
    wait_until "$client_count connections" are_open
}

# said EXPRESSION: a part of what the clients say of themselves.
said() { jq -r "$1" "$work/clients.json"; }
# number NAME: sets number to one of the numbers that they say. Without jq, which takes 20 ms of a CPU each time that it is polled.
number() {
    local line=
    read -r line 2>/dev/null <"$work/clients.json" || [ -n "$line" ]
    [[ $line =~ \"$1\":\ ([0-9]+) ]] && number=${BASH_REMATCH[1]}
}
are_open() { number open && ((number == client_count)); }
are_broken() { number broken && ((number > 0)); }
have_confirmed() { are_broken || { number confirmed_us && ((number > $1)); }; }

# order WORD...: has the clients do something (demo/crowd.py), and waits until they have begun.
order() {
    ((order_count += 1))
    echo "$*" >"$work/clients.orders"
    wait_until 'the clients to follow' have_followed
}
have_followed() { number orders && ((number == order_count)); }

# confirm [SINCE]: waits until every connection has had something confirmed that it sent from now on, or from that time, and
# none is broken.
confirm() {
    wait_until 'every connection to have bytes confirmed' have_confirmed "${1:-$(now_us)}"
    ! are_broken || broken
    are_open || fail "only $(said .open) of $client_count connections are open"
}
# A script may say more.
broken() { fail "$(said .broken) of $client_count connections are broken: $(said '[.errors[].what] | join("; ")')"; }
