#!/usr/bin/env python3
"""Stands between ranks and rank 0: delays what they tell each other, and after SIGUSR1 drops it.

    relay.py LISTEN_HOST:PORT TO_HOST:PORT SECONDS
"""

import signal
import socket
import sys
import threading
import time

dropping = False


def drop(_signal, _frame):
    global dropping
    dropping = True


def address(text):
    host, port = text.rsplit(":", 1)
    return host, int(port)


def forward(source, target, seconds):
    """Sends each piece so many seconds after it came; a thread waits for each direction."""
    try:
        while data := source.recv(1 << 16):
            time.sleep(seconds)
            if not dropping:
                target.sendall(data)
        if not dropping:
            target.shutdown(socket.SHUT_WR)
    except OSError:
        target.close()


def connected(to):
    for _ in range(600):  # rank 0 may come later than others
        try:
            return socket.create_connection(to)
        except OSError:
            time.sleep(0.1)
    sys.exit("relay: rank 0 does not come")


def main():
    signal.signal(signal.SIGUSR1, drop)
    listener = socket.create_server(address(sys.argv[1]))
    seconds = float(sys.argv[3])
    while True:
        rank, _ = listener.accept()
        hub = connected(address(sys.argv[2]))
        for pair in ((rank, hub), (hub, rank)):
            threading.Thread(target=forward, args=(*pair, seconds), daemon=True).start()


main()
