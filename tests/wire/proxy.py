"""A network that fails when it is told to: between who connects and one address, on loopback."""

import contextlib
import socket
import struct
import threading
import time

WAYS = TO, FROM = ("to", "from")
CHUNK = 1 << 16


class Proxy:
    """Passes bytes on. `delay` holds each piece up for so many seconds; `lose` reads pieces and forgets them, as a network
    that is cut does, without a word to anybody; `hold` reads nothing; `cut` ends connections."""

    def __init__(self, target):
        host, _, port = target.rpartition(":")
        self.target, self.delay = (host, int(port)), 0.0
        self.lost, self.held, self.ended = set(), set(), False
        self.changed, self.pairs = threading.Condition(), []
        self.listens = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self.listens.getsockname()[1]
        self.threads = [threading.Thread(target=self._accept, daemon=True)]
        self.threads[0].start()

    def lose(self, *ways):
        self._change(lost=set(ways))

    def hold(self, *ways):
        self._change(held=set(ways))

    def mend(self):
        """From now on all goes through; what was lost stays so, and so its connections end."""
        had = self.lost
        self._change(lost=set(), held=set())
        if had:
            self.cut()

    def _change(self, **now):
        with self.changed:
            self.__dict__.update(now)
            self.changed.notify_all()

    def cut(self):
        """Ends all connections, both sides hear of it; how many there were."""
        with self.changed:
            pairs, self.pairs = self.pairs, []
        for pair in pairs:
            for one in pair:
                with contextlib.suppress(OSError):
                    one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                # Whoever waits for it in a thread wakes up.
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RD)
                one.close()
        return len(pairs)

    def close(self):
        self._change(ended=True, lost=set(), held=set())
        with contextlib.suppress(OSError):
            self.listens.shutdown(socket.SHUT_RDWR)
        self.listens.close()
        self.cut()

    def _accept(self):
        while not self.ended:
            try:
                near, _ = self.listens.accept()
            except OSError:
                continue
            try:
                far = socket.create_connection(self.target, timeout=5)
            except OSError:
                near.close()
                continue
            far.settimeout(None)
            for one in near, far:
                one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with self.changed:
                self.pairs.append((near, far))
            for source, sink, way in (near, far, TO), (far, near, FROM):
                threading.Thread(target=self._pump, args=(source, sink, way), daemon=True).start()

    def _pump(self, source, sink, way):
        with contextlib.suppress(OSError):
            while data := self._read(source, way):
                if way in self.lost:
                    continue
                if self.delay:
                    time.sleep(self.delay)
                self._may_go_on(way)
                sink.sendall(data)
            if way not in self.lost:
                sink.shutdown(socket.SHUT_WR)

    def _read(self, source, way):
        self._may_go_on(way)
        return source.recv(CHUNK)

    def _may_go_on(self, way):
        with self.changed:
            self.changed.wait_for(lambda: way not in self.held)
