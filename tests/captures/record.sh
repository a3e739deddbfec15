#!/usr/bin/env bash
# Records clients.pcap: real clients talking to real servers between two network namespaces.
#
#   tests/captures/record.sh [OUTPUT.pcap]
#
# Needs root (namespaces, raw sockets) and: iproute2, tcpdump, nginx, curl, python3 (standard library only).
# Makes two namespaces and one veth pair of its own and deletes them at the end, whatever happens.
#
#   hotloop-clients (198.51.100.11.. 2001:db8:51::11..)  c0 ── s0  hotloop-servers (203.0.113.x, 2001:db8:cafe::x)
set -euo pipefail

here=$(cd "$(dirname "$0")" && pwd)
output=$(realpath "${1:-$here/clients.pcap}")
[ "$(id -u)" = 0 ] || { echo "record.sh: needs root to make network namespaces" >&2; exit 2; }
for tool in ip tcpdump nginx curl python3; do
  command -v "$tool" >/dev/null || { echo "record.sh: $tool is not installed" >&2; exit 2; }
done

work=$(mktemp -d)
chmod 755 "$work"
started=()
finish() {
  for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
  ip netns delete hotloop-clients 2>/dev/null || true
  ip netns delete hotloop-servers 2>/dev/null || true
  rm -rf "$work"
}
trap finish EXIT
trap "exit 1" INT TERM

clients() { ip netns exec hotloop-clients "$@"; }
servers() { ip netns exec hotloop-servers "$@"; }
# Like `servers`, in the background; the process id of the program itself goes to `started`.
serve() { ip netns exec hotloop-servers "$@" & started+=($!); }

ip netns add hotloop-clients
ip netns add hotloop-servers
ip link add c0 address 02:00:00:00:00:0c netns hotloop-clients type veth \
  peer name s0 address 02:00:00:00:00:01 netns hotloop-servers

# Packets as on a wire: nothing coalesced, and the kernel computes every checksum before the recording.
clients python3 "$here/traffic.py" offloads-off c0
servers python3 "$here/traffic.py" offloads-off s0

clients ip link set lo up
servers ip link set lo up
clients ip link set c0 up
servers ip link set s0 up
clients ip address add 198.51.100.2/24 dev c0
clients ip address add 2001:db8:51::2/64 dev c0 nodad
servers ip address add 198.51.100.1/24 dev s0
servers ip address add 2001:db8:51::1/64 dev s0 nodad
for host in $(seq 11 22); do
  clients ip address add "198.51.100.$host/24" dev c0
  clients ip address add "2001:db8:51::$host/64" dev c0 nodad
done
for vip in 10 20 30 40; do
  servers ip address add "203.0.113.$vip/32" dev lo
  servers ip address add "2001:db8:cafe::$vip/128" dev lo nodad
done
# Most packets are made for a path that leaves room for the tunnel; uploads to the .40 addresses fill 1,500 bytes.
clients ip route add 203.0.113.0/24 via 198.51.100.1 mtu 1400
clients ip route add 203.0.113.40/32 via 198.51.100.1
clients ip -6 route add 2001:db8:cafe::/64 via 2001:db8:51::1 mtu 1400
clients ip -6 route add 2001:db8:cafe::40/128 via 2001:db8:51::1

mkdir -p "$work/www"
head -c 300 /dev/zero | tr '\0' 'a' >"$work/www/small"
head -c 4000 /dev/zero | tr '\0' 'b' >"$work/www/page"
head -c 9000 /dev/zero | tr '\0' 'c' >"$work/www/image"
cat >"$work/nginx.conf" <<NGINX
daemon off; master_process off; worker_processes 1; pid $work/nginx.pid; error_log $work/error.log;
events { worker_connections 256; }
http {
  access_log off; server_tokens off; keepalive_timeout 2s;
  client_body_temp_path $work/body; proxy_temp_path $work/proxy; fastcgi_temp_path $work/fastcgi;
  uwsgi_temp_path $work/uwsgi; scgi_temp_path $work/scgi;
  server { listen 203.0.113.10:80; listen [2001:db8:cafe::10]:80; root $work/www; }
}
NGINX
serve nginx -c "$work/nginx.conf" -p "$work" 2>/dev/null
serve python3 "$here/traffic.py" serve
sleep 1

serve tcpdump -i s0 -s 0 -B 4096 -U -Z root --time-stamp-precision=micro -w "$output" 2>"$work/tcpdump.log"
capture=$!
sleep 1
clients python3 "$here/traffic.py" clients
sleep 2
kill -TERM "$capture"
wait "$capture" || true
grep -E 'packets (captured|dropped)' "$work/tcpdump.log"
ls -l "$output"
