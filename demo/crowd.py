"""The ends of demo/cluster.sh: backends that unwrap tunnels, and clients that have every byte confirmed.

    crowd.py backend NAME VIP PORT
        A server that says its name, and returns what it is sent. Packets in tunnels (IPv4 in IPv4, RFC 2003) are
        unwrapped and handed to this host, which has the VIP: for kernels without a device for that.

    crowd.py clients VIP PORT COUNT FILE
        So many connections, each of which sends and has every byte returned, for ever. How they are is written
        to FILE as JSON, several times a second; what follows from SIGUSR1 on is the longest wait since.
"""

import asyncio
import json
import os
import signal
import socket
import struct
import sys
import time

SENT_BYTES = 400
PAUSE_S = 0.3
# How long connections take to be opened, one after the other, and how often FILE is written.
OPENING_S = 1.0
WRITING_S = 0.1
# Of struct tcp_info (linux/tcp.h): eight bytes, then 32-bit numbers; the 24th is tcpi_total_retrans.
TCP_INFO_BYTES = 8 + 4 * 24


def now_us():
    return time.time_ns() // 1000


def unwrap(vip):
    """Hands what comes in tunnels to this host."""
    tunnels = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_IPIP)
    tunnels.setblocking(False)
    tunnels.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    inside = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_RAW)

    def take():
        while True:
            try:
                packet = tunnels.recv(65536)
            except BlockingIOError:
                return
            inside.sendto(packet[(packet[0] & 15) * 4 :], (vip, 0))

    asyncio.get_running_loop().add_reader(tunnels, take)


async def backend(name, vip, port):
    async def serve(reader, writer):
        try:
            writer.write(name.encode() + b"\n")
            while sent := await reader.read(65536):
                writer.write(sent)
                await writer.drain()
            writer.close()
        except ConnectionError:
            pass  # A client that was killed.

    unwrap(vip)
    server = await asyncio.start_server(serve, "0.0.0.0", int(port), backlog=1024)
    await server.serve_forever()


class Client:
    """A connection, and what it has seen."""

    def __init__(self, number):
        self.number = number
        self.backend = None
        self.error = None
        self.confirmed_bytes = 0
        self.retransmitted = 0
        # When what was confirmed last was sent, and what is to be confirmed next.
        self.confirmed_us = self.sent_us = now_us()
        self.longest_us = 0

    async def run(self, vip, port):
        try:
            reader, writer = await asyncio.open_connection(vip, port)
            self.backend = (await reader.readline()).decode().strip()
            for turn in range(1 << 30):
                text = f"{self.number}/{turn};".encode()
                data = (text * SENT_BYTES)[:SENT_BYTES]
                self.sent_us = now_us()
                writer.write(data)
                if await reader.readexactly(SENT_BYTES) != data:
                    raise ValueError("other bytes came back")
                self.confirmed_us = self.sent_us
                self.confirmed_bytes += SENT_BYTES
                self.longest_us = max(self.longest_us, now_us() - self.sent_us)
                info = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
                self.retransmitted = struct.unpack_from("I", info, TCP_INFO_BYTES - 4)[0]
                await asyncio.sleep(PAUSE_S)
        except Exception as error:  # Whatever it is, the connection is broken.
            self.error = f"connection {self.number} to {self.backend}: {error!r}"


async def clients(vip, port, count, path):
    everyone = [Client(number) for number in range(int(count))]

    def forget_longest():
        for client in everyone:
            client.longest_us = 0

    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, forget_longest)
    tasks = []
    for client in everyone:
        tasks.append(asyncio.create_task(client.run(vip, int(port))))
        await asyncio.sleep(OPENING_S / len(everyone))
    while True:
        backends = [client.backend for client in everyone]
        errors = [client.error for client in everyone if client.error]
        said = {
            "open": sum(client.confirmed_bytes > 0 and not client.error for client in everyone),
            "broken": len(errors),
            "errors": errors[:5],
            "confirmed_bytes": sum(client.confirmed_bytes for client in everyone),
            # All have since had something confirmed that they sent after this time.
            "confirmed_us": min(client.confirmed_us for client in everyone),
            "longest_ms": max(client.longest_us for client in everyone) // 1000,
            "retransmitted": sum(client.retransmitted for client in everyone),
            "backends": {name: backends.count(name) for name in sorted(set(filter(None, backends)))},
        }
        with open(path + ".new", "w") as file:
            json.dump(said, file)
        os.rename(path + ".new", path)
        await asyncio.sleep(WRITING_S)


def main():
    roles = {"backend": backend, "clients": clients}
    asyncio.run(roles[sys.argv[1]](*sys.argv[2:]))


if __name__ == "__main__":
    main()
