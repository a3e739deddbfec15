"""The two ends of the conversation that record.sh records: `serve`, `clients`, `offloads-off DEVICE`."""

import array
import fcntl
import http.server
import random
import socket
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

VIP4 = "203.0.113.%d"
VIP6 = "2001:db8:cafe::%d"
CLIENT4 = "198.51.100.%d"
CLIENT6 = "2001:db8:51::%d"
HOSTS = range(11, 23)

DNS_PORT = 53
CLOSED_PORT = 54
UPLOAD_PORT = 8080

SIOCETHTOOL = 0x8946
# ETHTOOL_S{RXCSUM, TXCSUM, SG, TSO, GSO, GRO} of linux/ethtool.h
OFFLOADS = (0x15, 0x17, 0x19, 0x1F, 0x24, 0x2C)


def family(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def offloads_off(device):
    """What `ethtool -K device rx off tx off sg off tso off gso off gro off` does."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        for command in OFFLOADS:
            value = array.array("B", struct.pack("II", command, 0))
            request = struct.pack("16sP", device.encode(), value.buffer_info()[0])
            try:
                fcntl.ioctl(control, SIOCETHTOOL, request)
            except OSError as error:
                print(f"{device}: offload {command:#x} stays as it is: {error}", file=sys.stderr)


# Servers


class Uploads(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(201)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


class Server6(http.server.ThreadingHTTPServer):
    address_family = socket.AF_INET6


def answer_datagrams(address, port):
    """Answers each request with its first 200 bytes; a request that starts with `late` waits a little."""
    server = socket.socket(family(address), socket.SOCK_DGRAM)
    server.bind((address, port))
    while True:
        request, client = server.recvfrom(65535)
        if request.startswith(b"late"):
            time.sleep(0.05)
        server.sendto(b"re:" + request[:200], client)


def serve():
    threads = []
    for host in (20, 30):
        for vip in (VIP4, VIP6):
            threads.append(threading.Thread(target=answer_datagrams, args=(vip % host, DNS_PORT)))
    for host in (20, 40):
        for vip, server in ((VIP4, http.server.ThreadingHTTPServer), (VIP6, Server6)):
            uploads = server((vip % host, UPLOAD_PORT), Uploads)
            threads.append(threading.Thread(target=uploads.serve_forever))
    for thread in threads:
        thread.start()


# Clients


def curl(client, vip, *arguments, port=80, path="small"):
    host = f"[{vip}]" if ":" in vip else vip
    subprocess.run(
        ["curl", "-sS", "-o", "/dev/null", "--max-time", "5", "--interface", client, *arguments,
         f"http://{host}:{port}/{path}"],
        check=False,
    )


def get_page(client, vip, path):
    curl(client, vip, path=path)


def upload(client, vip, size):
    curl(client, vip, "-H", "Expect:", "--data-binary", "u" * size, port=UPLOAD_PORT, path="up")


def ask(client, vip, sizes, port=DNS_PORT, options=None):
    """One UDP flow: a datagram of each size, each waiting for its answer."""
    with socket.socket(family(client), socket.SOCK_DGRAM) as flow:
        if options:
            flow.setsockopt(socket.IPPROTO_IP, socket.IP_OPTIONS, options)
        flow.settimeout(0.5)
        flow.bind((client, 0))
        flow.connect((vip, port))
        for size in sizes:
            try:
                flow.send(bytes(random.choices(b"abcdefgh", k=size)))
                flow.recv(65535)
            except OSError:
                return  # a closed port answers with an ICMP error


def leave_early(client, vip):
    """Asks and closes before the answer comes: the client's kernel answers it with an ICMP error."""
    with socket.socket(family(client), socket.SOCK_DGRAM) as flow:
        flow.bind((client, 0))
        flow.sendto(b"late" * 8, (vip, DNS_PORT))


def icmp_checksum(message):
    total = sum(struct.unpack("!%dH" % (len(message) // 2), message))
    total = (total >> 16) + (total & 0xFFFF)
    return ~(total + (total >> 16)) & 0xFFFF


def ping(client, vip, count):
    protocol = socket.IPPROTO_ICMPV6 if ":" in vip else socket.IPPROTO_ICMP
    kind = 128 if ":" in vip else 8
    identifier = random.randrange(65536)
    with socket.socket(family(client), socket.SOCK_RAW, protocol) as flow:
        flow.bind((client, 0))
        for sequence in range(count):
            body = bytes(range(56))
            message = struct.pack("!BBHHH", kind, 0, 0, identifier, sequence) + body
            if kind == 8:  # the kernel computes ICMPv6's
                message = message[:2] + struct.pack("!H", icmp_checksum(message)) + message[4:]
            flow.sendto(message, (vip, 0))
            time.sleep(0.01)


def refused(client, vip):
    curl(client, vip, port=81)


def plan():
    """Every conversation as (function, arguments)."""
    for host in HOSTS:
        four, six = CLIENT4 % host, CLIENT6 % host
        for _ in range(3):
            yield curl, (four, VIP4 % 10)
            yield ask, (four, VIP4 % 20, [random.randrange(20, 120) for _ in range(3)])
        for _ in range(2):
            yield curl, (six, VIP6 % 10)
            yield ask, (six, VIP6 % 20, [random.randrange(20, 120) for _ in range(2)])
        yield ask, (four, VIP4 % 30, [40])
        yield ping, (four, VIP4 % 10, 2)
    for host in (11, 14, 17):
        four, six = CLIENT4 % host, CLIENT6 % host
        yield get_page, (four, VIP4 % 10, "page")
        yield get_page, (six, VIP6 % 10, "page")
        yield upload, (four, VIP4 % 20, 5000)
        yield upload, (six, VIP6 % 20, 4000)
        yield ask, (four, VIP4 % 20, [3000, 60])
        yield ask, (six, VIP6 % 20, [3000, 60])
        yield ask, (four, VIP4 % 20, [40], CLOSED_PORT)
        yield ask, (six, VIP6 % 20, [40], CLOSED_PORT)
        yield leave_early, (four, VIP4 % 20)
        yield leave_early, (six, VIP6 % 20)
        yield refused, (four, VIP4 % 10)
        yield ping, (six, VIP6 % 10, 2)
    yield get_page, (CLIENT4 % 12, VIP4 % 10, "image")
    yield get_page, (CLIENT6 % 12, VIP6 % 10, "image")
    yield upload, (CLIENT4 % 13, VIP4 % 40, 7500)
    yield upload, (CLIENT6 % 13, VIP6 % 40, 4500)
    # Record route (RFC 791): 7 options bytes and one of padding
    yield ask, (CLIENT4 % 15, VIP4 % 20, [50, 50], DNS_PORT, b"\x07\x07\x04\x00\x00\x00\x00\x00")


def clients():
    random.seed(7)
    conversations = list(plan())
    random.shuffle(conversations)
    with ThreadPoolExecutor(max_workers=12) as pool:
        for future in [pool.submit(function, *arguments) for function, arguments in conversations]:
            future.result()


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["serve"]:
            serve()
        case ["clients"]:
            clients()
        case ["offloads-off", device]:
            offloads_off(device)
        case _:
            sys.exit(__doc__)
