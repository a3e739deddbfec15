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
are_open() { [ "$(said .open 2>/dev/null)" = "$client_count" ]; }
have_confirmed() { [ "$(said ".broken > 0 or .confirmed_us > $1")" = true ]; }

# order WORD...: has the clients do something (demo/crowd.py), and waits until they have begun.
order() {
    ((order_count += 1))
    echo "$*" >"$work/clients.orders"
    wait_until 'the clients to follow' have_followed
}
have_followed() { [ "$(said .orders)" = "$order_count" ]; }

# confirm: waits until every connection has had something confirmed that it sent from now on, and none is broken.
confirm() {
    local now
    now=$(now_us)
    wait_until 'every connection to have bytes confirmed' have_confirmed "$now"
    (($(said .broken) == 0)) || broken
    are_open || fail "only $(said .open) of $client_count connections are open"
}
# A script may say more.
broken() { fail "$(said .broken) of $client_count connections are broken: $(said '[.errors[].what] | join("; ")')"; }
