# Shared by the demos, which source it: hosts (network namespaces) joined by veth pairs, programs that run in them,
# and their reports. Nothing is left behind at the end of the script, on failure and Ctrl-C included.
set -euo pipefail
export LC_ALL=C PATH=$PATH:/usr/sbin:/sbin

work=$(mktemp -d)        # everything written goes here
prefix=hotloop-$$        # the start of every namespace's name
patience_s=20            # the longest wait for anything
hosts=()
declare -A pid           # of each program that was started

# The CPUs of this process in two halves, so that polling programs do not share one.
mapfile -t cpus < <(taskset -cp $$ | sed 's/.*: //; s/,/\n/g' | while IFS=- read -r first last; do
    seq "$first" "${last:-$first}"
done)
half=$((${#cpus[@]} / 2))
lower_cpus=$(IFS=,; echo "${cpus[*]:0:half}")
upper_cpus=$(IFS=,; echo "${cpus[*]:half}")
[ -n "$lower_cpus" ] || lower_cpus=$upper_cpus

heading() { printf '\n== %s\n' "$*"; }
# fail WHY: ends the script. One that has more to show first has its own before_failing.
fail() {
    before_failing
    printf '\ndemo: %s\n' "$*" >&2
    exit 1
}
before_failing() { :; }

# Ends everything that runs, and deletes everything that was made.
clean_up() {
    local jobs host
    trap "" INT TERM HUP
    set +e
    jobs=$(jobs -p)
    # The shell would report each job that is killed.
    {
        [ -z "$jobs" ] || kill -KILL $jobs
        for host in "${hosts[@]}"; do
            # The shell's own kill: not every Debian has the program.
            kill -KILL $(ip netns pids "$prefix-$host")
            # Interfaces are deleted with their namespace.
            ip netns delete "$prefix-$host"
        done
        wait
    } 2>/dev/null
    rm -rf "$work"
}
trap 'status=$?; clean_up; exit "$status"' EXIT
trap 'echo; echo "demo: interrupted" >&2; exit 130' INT TERM HUP

# Exits with 2 if this process may not make networks.
check_privilege() {
    local why=
    [ "$(id -u)" = 0 ] || why='this user is not root'
    [ -n "$why" ] || [ -e /dev/net/tun ] || why='there is no /dev/net/tun'
    [ -n "$why" ] || unshare --net --mount --propagation unchanged true || why='the system refuses a network namespace'
    [ -z "$why" ] || { echo "demo: it makes network namespaces and a TAP interface, as root: $why" >&2; exit 2; }
}

# add_host HOST: a network namespace. Its settings are made before it has interfaces: answers may leave by another
# interface than their questions came by, and addresses are ready at once.
add_host() {
    ip netns add "$prefix-$1"
    hosts+=("$1")
    set_in "$1" ipv4/conf/all/rp_filter=0 ipv4/conf/default/rp_filter=0 ipv6/conf/default/accept_ra=0 \
        ipv6/conf/default/accept_dad=0 ipv6/conf/all/disable_ipv6=0
    in_host "$1" ip link set lo up
}

# in_host HOST COMMAND...: runs a command there. `ip netns exec` would also mount /sys, which fails in some containers.
in_host() { nsenter --net="/run/netns/$prefix-$1" "${@:2}"; }

# set_in HOST SETTING=VALUE...: settings under /proc/sys/net.
set_in() {
    local setting
    for setting in "${@:2}"; do
        in_host "$1" sh -c "echo ${setting#*=} >/proc/sys/net/${setting%=*}"
    done
}

# join NUMBER HOST INTERFACE HOST INTERFACE: a veth pair. The MAC addresses are mac NUMBER 1 and mac NUMBER 2. Offloads
# are off: otherwise the kernel would leave checksums and segmentation to a NIC that does not exist, and join packets that
# it receives.
join() {
    in_host "$2" ip link add "$3" address "$(mac "$1" 1)" type veth \
        peer name "$5" address "$(mac "$1" 2)" netns "$prefix-$4"
    in_host "$2" ethtool -K "$3" tx off tso off gso off gro off >"$work/ethtool"
    in_host "$4" ethtool -K "$5" tx off tso off gso off gro off >"$work/ethtool"
}
mac() { printf '02:00:00:00:%02x:%02x' "$1" "$2"; }

# up HOST INTERFACE ADDRESS...: gives an interface its addresses and brings it up.
up() {
    local address
    for address in "${@:3}"; do
        in_host "$1" ip address add "$address" dev "$2"
    done
    in_host "$1" ip link set "$2" up
}

# link NUMBER HOST INTERFACE V4 V6 [NAME]: joins a host to the router, which is .1 and ::1 on the link; the host is .2
# and ::2. The router's interface is NAME, or linkNUMBER. Packets to other destinations leave by the link made last.
link() {
    local name=${6:-link$1}
    [ -e "/run/netns/$prefix-$2" ] || add_host "$2"
    join "$1" router "$name" "$2" "$3"
    up router "$name" "$4.1/24" "$5::1/64"
    up "$2" "$3" "$4.2/24" "$5::2/64"
    in_host "$2" ip route replace default via "$4.1"
    in_host "$2" ip route replace default via "$5::1"
}

# wait_until WHAT COMMAND...: until the command succeeds.
wait_until() {
    local what=$1 deadline=$((SECONDS + patience_s))
    until "${@:2}"; do
        ((SECONDS < deadline)) || fail "waited $patience_s s for $what"
        sleep 0.02
    done
}

# start NAME HOST COMMAND...: starts a program, with its output in $work/NAME.out and its errors in $work/NAME.err. The
# host - is this machine.
start() {
    local enter=()
    [ "$2" = - ] || enter=(nsenter --net="/run/netns/$prefix-$2")
    "${enter[@]}" "${@:3}" >"$work/$1.out" 2>"$work/$1.err" </dev/null &
    pid[$1]=$!
}
is_alive() { kill -0 "${pid[$1]}" 2>/dev/null; }
is_over() { ! is_alive "$1"; }
last_words() { tail -n 5 "$work/$1.err"; }

# wait_ready NAME COMMAND...: until the command succeeds, which shows that the program is ready.
wait_ready() { wait_until "$1 to be ready" is_ready "$@"; }
is_ready() {
    is_alive "$1" || fail "$1 ended early: $(last_words "$1")"
    "${@:2}" >/dev/null 2>&1
}

# kill_program NAME: ends it at once.
kill_program() {
    kill -KILL "${pid[$1]}"
    wait "${pid[$1]}" 2>/dev/null || true
}

# stop NAME: asks a program to end; it must exit with 0.
stop() {
    local status=0
    is_alive "$1" || fail "$1 ended early: $(last_words "$1")"
    kill -INT "${pid[$1]}"
    wait_until "$1 to end" is_over "$1"
    wait "${pid[$1]}" || status=$?
    ((status == 0)) || fail "$1 ended with exit code $status: $(last_words "$1")"
}

# start_nginx HOST: one process in the foreground, which serves $work/HOST/pages, takes uploads there, and writes only
# under $work/HOST.
start_nginx() {
    local folder=$work/$1
    cat >"$folder/nginx.conf" <<END
daemon off; master_process off; pid $folder/nginx.pid; error_log stderr; events { }
http {
    access_log off;
    client_body_temp_path $folder/body; proxy_temp_path $folder/proxy; fastcgi_temp_path $folder/fastcgi;
    uwsgi_temp_path $folder/uwsgi; scgi_temp_path $folder/scgi;
    server {
        listen 80; listen [::]:80; root $folder/pages; client_max_body_size 8m;
        location = /healthz { return 200; }
        location /upload/ { dav_methods PUT; create_full_put_path on; }
    }
}
END
    start "nginx-$1" "$1" nginx -p "$folder" -c "$folder/nginx.conf"
}

# serve HOST FILE=BYTES...: nginx with files of random bytes, ready for requests.
serve() {
    local file
    mkdir -p "$work/$1/pages"
    for file in "${@:2}"; do
        head -c "${file#*=}" /dev/urandom >"$work/$1/pages/${file%=*}"
    done
    start_nginx "$1"
    wait_ready "nginx-$1" curl_in "$1" --output /dev/null "http://127.0.0.1/${file%=*}"
}

# in_url ADDRESS: as URLs have it.
in_url() { if [[ $1 == *:* ]]; then echo "[$1]"; else echo "$1"; fi; }

# curl_in HOST ARGUMENT...
curl_in() { in_host "$1" curl --silent --show-error --fail --globoff --max-time 10 "${@:2}"; }

# download HOST SERVER ADDRESS FILE [COPY]: a file of the server's pages, whole.
download() {
    local copy=${5:-$work/$4}
    curl_in "$1" --output "$copy" "http://$(in_url "$3")/$4" || fail "the download from $3 failed"
    cmp "$copy" "$work/$2/pages/$4" || fail "$4 came from $3 with other bytes"
}

# upload_random HOST SERVER ADDRESS BYTES: random bytes, which the server has whole.
upload_random() {
    local arrived=$work/$2/pages/upload/random
    rm -f "$arrived"
    head -c "$4" /dev/urandom >"$work/random"
    curl_in "$1" --upload-file "$work/random" "http://$(in_url "$3")/upload/random" || fail "the upload to $3 failed"
    cmp "$work/random" "$arrived" || fail "the upload to $3 arrived with other bytes"
}

# path_mtu HOST ADDRESS: the path MTU that the host has learned, if any.
path_mtu() { in_host "$1" ip route get "$2" | sed -n 's/.* mtu \([0-9]*\).*/\1/p'; }

# three_pings HOST ADDRESS [ARGUMENT...]: each with these arguments of ping, and answered. One at a time, because after a
# first answer ping hardly waits for others.
three_pings() {
    local n
    for n in 1 2 3; do
        in_host "$1" ping -n -q -c 1 -W 5 "${@:3}" "$2" >"$work/ping" || fail "ping $n of $2: $(cat "$work/ping")"
    done
}

# trace HOST ADDRESS: prints each hop on the way there.
trace() {
    in_host "$1" traceroute -n -I -q 1 -w 2 -m 5 "$2" >"$work/trace" 2>&1 || fail "traceroute $2: $(cat "$work/trace")"
    awk '$1 ~ /^[0-9]+$/ { printf "%s%s", separator, $2; separator = " " }' "$work/trace"
}

# socket_error HOST ADDRESS: sends datagrams to port 9, which has no server, and prints the error that their socket gets.
socket_error() {
    in_host "$1" bash -c "exec 3<>/dev/udp/$2/9; for n in {1..50}; do echo >&3 || exit; sleep 0.1; done" 2>&1 |
        sed -n 's/.*write error: //p' || true
}

# judge NAME [idle]: prints the report of a stopped program, which must account for every packet. With idle, it need not
# have received any.
judge() {
    local report=$work/$1.out check sent='.sent > 0'
    [ "${2:-}" != idle ] || sent='.sent > 0 or .received == 0'
    for check in .balanced .pools_whole '.in_flight == 0' "$sent" \
        '.received + .created == .sent + ([.dropped[]] | add // 0)'; do
        jq -e "$check" "$report" >/dev/null || fail "the ledger of $1 is wrong, this does not hold: $check: $(cat "$report")"
    done
    printf '  %-24s received %6d + created %4d = sent %6d + dropped %4d\n' "$1" \
        $(jq '.received, .created, .sent, ([.dropped[]] | add // 0)' "$report")
    printf '  %-24s %s\n' '' "$(jq -r '[.dropped | to_entries[] | select(.value > 0) | "\(.key) \(.value)"] | join(", ")' "$report")"
}
