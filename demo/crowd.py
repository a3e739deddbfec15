"""The ends of demo/cluster.sh and demo/rounds.sh: backends that unwrap tunnels, and clients that upload and have every
byte confirmed.

    crowd.py backend NAME VIP PORT [ADDRESS]
        A server that sends its name, and for each 400 bytes received a digest of everything received on the connection;
        and one by UDP that answers each datagram by its name.
        Packets in tunnels (IPv4 in IPv4, RFC 2003) are unwrapped and handed to this host, which has the VIP: for kernels
        without a device for that. From SIGUSR1 to SIGUSR2 it drops packets of unknown connections, like a firewall with
        connection tracking in front of a server: otherwise the host answers with a RST. With an ADDRESS, packets that the
        host routes to its TUN interface `answers` go to that address in tunnels.

    crowd.py clients VIP PORT COUNT PAUSE_S FOLDER
        COUNT connections, from ports 20000 on. Each sends 400 bytes, waits until they are confirmed and then for PAUSE_S
        seconds, for ever. Their state is written to FOLDER/clients.json, several times a second. Orders are lines in the
        FIFO FOLDER/clients.orders; clients.json immediately has the number of orders followed:
            forget          restarts the reported longest wait, and longest time without a CPU
            renew COUNT     this number of connections, drawn at random, end, and begin again from the same ports
            renew NAME      the same for all connections at this backend

    crowd.py flows VIP PORT COUNT PAUSE_S FOLDER
        COUNT flows of UDP, from ports 30000 on. Each sends a datagram every PAUSE_S seconds. FOLDER/flows.json has the
        number of flows that were answered ("open"), and of those answered by another backend since ("moved").
"""

import asyncio
import contextlib
import fcntl
import hashlib
import json
import os
import random
import signal
import socket
import struct
import sys
import time

SENT_BYTES = 400
DIGEST_BYTES = 16
FIRST_PORT = 20000
FIRST_FLOW_PORT = 30000
# How long opening all connections takes, one after the other, and how often FOLDER/clients.json is written.
OPENING_S = 1.0
WRITING_S = 0.05
# Linux lets a connection follow another with the same ports after a second (net.ipv4.tcp_tw_reuse).
RENEWAL_S = 1.2
# A connection without a confirmation for this long is broken: after 25 s, TCP has retransmitted seven times.
STALLED_S = 30
SYN = 2
# linux/if_tun.h
TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 1, 0x1000
# Fields of struct tcp_info (linux/tcp.h): eight bytes, then 32-bit numbers; the 24th is tcpi_total_retrans.
TCP_INFO_BYTES = 8 + 4 * 24


def new_digest():
    return hashlib.blake2b(digest_size=DIGEST_BYTES)


def now_us():
    return time.time_ns() // 1000


def unwrap(vip, is_wanted):
    """Hands packets from tunnels to this host, if they are wanted."""
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
            packet = packet[(packet[0] & 15) * 4 :]
            if is_wanted(packet):
                inside.sendto(packet, (vip, 0))

    asyncio.get_running_loop().add_reader(tunnels, take)
    return tunnels


def wrap(tunnels, address):
    """Sends what the host routes to the interface `answers` to this address, in tunnels."""
    interface = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(interface, TUNSETIFF, struct.pack("16sH22x", b"answers", IFF_TUN | IFF_NO_PI))

    def take():
        with contextlib.suppress(BlockingIOError):
            while True:
                tunnels.sendto(os.read(interface, 65536), (address, 0))

    asyncio.get_running_loop().add_reader(interface, take)


class Firewall:
    """Filters a backend's packets: lets all in, or, while strict, SYNs and packets of known connections."""

    def __init__(self):
        self.is_strict = False
        # The addresses and ports of clients.
        self.known = set()
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGUSR1, self.be_strict, True)
        loop.add_signal_handler(signal.SIGUSR2, self.be_strict, False)

    def be_strict(self, is_strict):
        self.is_strict = is_strict

    def lets_in(self, packet):
        if not self.is_strict or packet[9] != socket.IPPROTO_TCP:
            return True
        segment = packet[(packet[0] & 15) * 4 :]
        client = socket.inet_ntoa(packet[12:16]), struct.unpack_from("!H", segment)[0]
        return bool(segment[13] & SYN) or client in self.known


async def backend(name, vip, port, address=None):
    firewall = Firewall()

    async def serve(reader, writer):
        received = new_digest()
        client = writer.get_extra_info("peername")
        firewall.known.add(client)
        try:
            writer.write(name.encode() + b"\n")
            while True:
                received.update(await reader.readexactly(SENT_BYTES))
                writer.write(received.digest())
                await writer.drain()
        except asyncio.IncompleteReadError as error:
            if error.partial:
                raise
            writer.close()
        except ConnectionError:
            pass  # A client that was killed, or has reset its connection to begin another.
        finally:
            firewall.known.discard(client)

    class Answers(asyncio.DatagramProtocol):
        def connection_made(self, transport):
            self.transport = transport

        def datagram_received(self, _, address):
            self.transport.sendto(name.encode(), address)

    await asyncio.get_running_loop().create_datagram_endpoint(Answers, local_addr=(vip, int(port)))
    tunnels = unwrap(vip, firewall.lets_in)
    if address:
        wrap(tunnels, address)
    server = await asyncio.start_server(serve, "0.0.0.0", int(port), backlog=1024)
    await server.serve_forever()


class Client:
    """One port, its connection, and its observations."""

    def __init__(self, number, pause_s):
        self.number = number
        self.pause_s = pause_s
        self.backend = None
        self.error = None
        self.is_open = False
        self.is_to_end = False
        self.pausing = None
        self.confirmed_bytes = 0
        self.connection_count = 0
        self.retransmitted = self.retransmitted_before = 0
        # The sending time of the latest confirmed bytes, and the next bytes to confirm.
        self.confirmed_us = self.sent_us = now_us()
        self.longest_us = 0

    async def run(self, vip, port):
        try:
            while True:
                await self.upload(*await self.connect(vip, port))
                await asyncio.sleep(RENEWAL_S)
        except Exception as error:  # Whatever the error, the connection is broken.
            self.is_open = False
            self.note_broken(repr(error))

    def note_broken(self, why):
        waited_ms = (now_us() - self.sent_us) // 1000
        port = FIRST_PORT + self.number
        self.error = {
            "port": port,
            "backend": self.backend,
            "what": f"connection {self.connection_count} of port {port} to {self.backend}: {why}, {waited_ms} ms after bytes "
            "were sent",
        }

    def note_stall(self, now):
        if not self.error and self.sent_us > self.confirmed_us and now - self.sent_us > STALLED_S * 1_000_000:
            self.note_broken("nothing is confirmed")

    async def connect(self, vip, port):
        end = socket.socket()
        end.setblocking(False)
        end.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        end.bind(("", FIRST_PORT + self.number))
        self.sent_us = now_us()
        self.connection_count += 1
        self.backend = None
        self.retransmitted_before = self.retransmitted
        await asyncio.get_running_loop().sock_connect(end, (vip, port))
        return await asyncio.open_connection(sock=end)

    async def upload(self, reader, writer):
        """Sends until it must end, and ends the connection: with a FIN and a RST in turn."""
        self.backend = (await reader.readline()).decode().strip()
        sent = new_digest()
        turn = 0
        while not self.is_to_end:
            text = f"{self.number}/{self.connection_count}/{turn};".encode()
            data = (text * SENT_BYTES)[:SENT_BYTES]
            sent.update(data)
            self.sent_us = now_us()
            writer.write(data)
            if await reader.readexactly(DIGEST_BYTES) != sent.digest():
                raise ValueError("the backend has received other bytes")
            self.note_confirmed(writer)
            turn += 1
            await self.pause()
        self.is_open = self.is_to_end = False
        if self.connection_count % 2:
            writer.write_eof()
            if await reader.read() != b"":
                raise ValueError("there is more than was confirmed")
            writer.close()
        else:
            linger = struct.pack("ii", 1, 0)
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.transport.abort()

    async def pause(self):
        """Waits for a while, or until it must end."""
        loop = asyncio.get_running_loop()
        self.pausing = loop.create_future()
        timer = loop.call_later(self.pause_s, self.go_on)
        await self.pausing
        timer.cancel()

    def go_on(self):
        if self.pausing and not self.pausing.done():
            self.pausing.set_result(None)

    def note_confirmed(self, writer):
        self.is_open = True
        self.confirmed_us = self.sent_us
        self.confirmed_bytes += SENT_BYTES
        self.longest_us = max(self.longest_us, now_us() - self.sent_us)
        info = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, TCP_INFO_BYTES)
        self.retransmitted = self.retransmitted_before + struct.unpack_from("I", info, TCP_INFO_BYTES - 4)[0]


class Orders:
    """Orders that arrive through the FIFO."""

    def __init__(self, everyone, path):
        self.everyone = everyone
        self.count = 0
        self.late_s = 0
        self.followed = asyncio.Event()
        # For writing, too: otherwise it would end with the first writer.
        self.fifo = os.fdopen(os.open(path, os.O_RDWR | os.O_NONBLOCK), "rb", buffering=0)
        self.rest = b""
        asyncio.get_running_loop().add_reader(self.fifo, self.read)

    def read(self):
        *lines, self.rest = (self.rest + self.fifo.read(65536)).split(b"\n")
        for line in lines:
            self.follow(*line.decode().split())
            self.count += 1
        self.followed.set()

    def follow(self, order, what=None):
        if order == "forget":
            self.late_s = 0
            for client in self.everyone:
                client.longest_us = 0
        elif order == "renew":
            if what.isdigit():
                chosen = random.sample(self.everyone, int(what))
            else:
                chosen = [client for client in self.everyone if client.backend == what]
            for client in chosen:
                client.is_to_end = True
                client.go_on()
        else:
            raise ValueError(f"no order {order!r}")


async def clients(vip, port, count, pause_s, folder):
    # The same seed renews the same connections.
    random.seed(os.environ.get("SEED", "0"))
    everyone = [Client(number, float(pause_s)) for number in range(int(count))]
    orders = Orders(everyone, f"{folder}/clients.orders")
    tasks = []
    for client in everyone:
        tasks.append(asyncio.create_task(client.run(vip, int(port))))
        await asyncio.sleep(OPENING_S / len(everyone))
    path = f"{folder}/clients.json"
    while True:
        for client in everyone:
            client.note_stall(now_us())
        with open(path + ".new", "w") as file:
            json.dump(said(everyone, orders), file)
        os.rename(path + ".new", path)
        began_s = time.monotonic()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(orders.followed.wait(), WRITING_S)
        orders.followed.clear()
        orders.late_s = max(orders.late_s, time.monotonic() - began_s - WRITING_S)


class Flow(asyncio.DatagramProtocol):
    """A flow of UDP, and the backends that have answered it."""

    def __init__(self):
        self.backends = set()

    def connection_made(self, transport):
        self.transport = transport

    def datagram_received(self, datagram, _):
        self.backends.add(datagram)

    def error_received(self, _):
        pass  # While no balancer is there.


async def flows(vip, port, count, pause_s, folder):
    loop = asyncio.get_running_loop()
    everyone = []
    for number in range(int(count)):
        local = ("0.0.0.0", FIRST_FLOW_PORT + number)
        _, flow = await loop.create_datagram_endpoint(Flow, local_addr=local, remote_addr=(vip, int(port)))
        everyone.append(flow)
    path, next_s = f"{folder}/flows.json", 0
    while True:
        if time.monotonic() >= next_s:
            for flow in everyone:
                flow.transport.sendto(b"?")
            next_s = time.monotonic() + float(pause_s)
        counts = [len(flow.backends) for flow in everyone]
        with open(path + ".new", "w") as file:
            json.dump({"open": sum(count > 0 for count in counts), "moved": sum(count > 1 for count in counts)}, file)
        os.rename(path + ".new", path)
        await asyncio.sleep(WRITING_S)


def said(everyone, orders):
    backends = [client.backend for client in everyone]
    errors = [client.error for client in everyone if client.error]
    return {
        "open": sum(client.is_open and not client.is_to_end for client in everyone),
        "broken": len(errors),
        "errors": errors[:5],
        "connections": sum(client.connection_count for client in everyone),
        "confirmed_bytes": sum(client.confirmed_bytes for client in everyone),
        # All have since had bytes confirmed that they sent after this time.
        "confirmed_us": min(client.confirmed_us for client in everyone),
        "longest_ms": max(client.longest_us for client in everyone) // 1000,
        "retransmitted": sum(client.retransmitted for client in everyone),
        "backends": {name: backends.count(name) for name in sorted(set(filter(None, backends)))},
        "orders": orders.count,
        # The maximum delay of this program itself.
        "late_ms": int(orders.late_s * 1000),
    }


def main():
    roles = {"backend": backend, "clients": clients, "flows": flows}
    asyncio.run(roles[sys.argv[1]](*sys.argv[2:]))


if __name__ == "__main__":
    main()
