#!/usr/bin/env bash
# udp-source into udp-sink: two processes that share memory (net_memif). Needs no privilege.
#
#   demo/datagrams.sh PROGRAMS REPORTS    leaves the reports of both in the folder REPORTS, as JSON
source "$(dirname "$0")/lib.sh"
programs=$1 reports=$2

# options ROLE: a peer of net_memif is trusted with this process's memory.
options() { echo "--trust-memif-peer --report json --port net_memif0,role=$1,id=0,socket=$work/socket,socket-abstract=no"; }

# The sink makes the socket, and ends after the source, so that it receives everything.
start udp-sink - taskset -c "$lower_cpus" "$programs/udp-sink" $(options server)
wait_ready udp-sink test -e "$work/socket"
tail -f -n +1 --pid="${pid[udp-sink]}" "$work/udp-sink.err" &
taskset -c "$upper_cpus" "$programs/udp-source" $(options client) --duration 5 >"$reports/udp-source.json"
stop udp-sink
cp "$work/udp-sink.out" "$reports/udp-sink.json"
