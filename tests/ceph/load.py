#!/usr/bin/env python3
"""A load like LINE's images on a pool of a Ceph cluster, by way of librados, in one process that lives on.

Objects of 60 KB; the newest 8 % draw 99.8 % of the requests (Serviceable cold storage, section IV). Requests come at
random moments, so many a second on average, whether or not those before are done, and 32 are under way at most; a
request's latency counts from the moment at which it came. Every byte that is read is compared.

usage: load.py CONF POOL fill OBJECTS                          writes the objects image-0 and so on
       load.py CONF POOL run SECONDS RATE WRITES OBJECTS      WRITES of 1,000 requests store a new object
`run` prints one line of JSON: requests, failed, rate, mean, p50, p99, p99.9 and max in milliseconds, and objects."""

import ctypes
import ctypes.util
import json
import random
import sys
import threading
import time

BYTES = 60_000
CLIENTS = 32
NEWEST, DRAW = 0.08, 0.998


def body(index):
    return bytes([index % 251]) * BYTES


class Rados:
    """The few calls of librados that are needed; each blocks, and lets other threads go on."""

    def __init__(self, conf, pool):
        self.library = ctypes.CDLL("librados.so.2")
        self.cluster, self.io = ctypes.c_void_p(), ctypes.c_void_p()
        self.check("create", self.library.rados_create(ctypes.byref(self.cluster), b"admin"))
        self.check(conf, self.library.rados_conf_read_file(self.cluster, conf.encode()))
        # A request that a failed OSD holds up is waited for so long.
        self.check("timeout", self.library.rados_conf_set(self.cluster, b"rados_osd_op_timeout", b"120"))
        self.check("connect", self.library.rados_connect(self.cluster))
        self.check(pool, self.library.rados_ioctx_create(self.cluster, pool.encode(), ctypes.byref(self.io)))

    @staticmethod
    def check(what, code):
        if code < 0:
            raise OSError(-code, what)
        return code

    def write(self, name, data):
        self.check(name, self.library.rados_write_full(self.io, name.encode(), data, ctypes.c_size_t(len(data))))

    def read(self, name):
        room = ctypes.create_string_buffer(BYTES + 1)
        size = ctypes.c_size_t(BYTES + 1)
        count = self.check(name, self.library.rados_read(self.io, name.encode(), room, size, ctypes.c_uint64(0)))
        return room.raw[:count]

    def end(self):
        self.library.rados_ioctx_destroy(self.io)
        self.library.rados_shutdown(self.cluster)


class Load:
    def __init__(self, rados, rate, writes, objects, seed=1):
        self.rados, self.writes, self.objects, self.rate = rados, writes, objects, rate
        self.random, self.lock = random.Random(seed), threading.Lock()
        self.began = self.comes = time.monotonic()
        self.latencies, self.failures, self.next_object = [], [], objects

    def request(self, until):
        """The next request: when it comes, and the object that it reads, or None if it writes."""
        with self.lock:
            self.comes += self.random.expovariate(self.rate)
            if self.comes >= until:
                return None
            if self.random.randrange(1000) < self.writes:
                self.next_object += 1
                return self.comes, None, self.next_object - 1
            newest = max(1, int(self.objects * NEWEST))
            is_new = self.random.random() < DRAW
            count = newest if is_new else max(1, self.objects - newest)
            index = self.random.randrange(count) + (self.objects - newest if is_new else 0)
            return self.comes, index, None

    def client(self, until):
        while (request := self.request(until)) is not None:
            comes, reads, stores = request
            time.sleep(max(0.0, comes - time.monotonic()))
            try:
                if stores is not None:
                    self.rados.write(f"image-{stores}", body(stores))
                elif self.rados.read(f"image-{reads}") != body(reads):
                    raise OSError(0, f"image-{reads} is not what was stored")
            except OSError as error:
                self.failures.append(str(error))
            if stores is not None:
                with self.lock:
                    # Older ones that are not there yet are among the newest as well: wait until all before are.
                    self.stored(stores)
            self.latencies.append((time.monotonic() - comes) * 1000)

    def stored(self, index):
        self.done = getattr(self, "done", set()) | {index}
        while self.objects in self.done:
            self.done.remove(self.objects)
            self.objects += 1

    def run(self, seconds):
        until = self.began + seconds
        clients = [threading.Thread(target=self.client, args=(until,)) for _ in range(CLIENTS)]
        for client in clients:
            client.start()
        for client in clients:
            client.join()
        return self.result(time.monotonic() - self.began)

    def result(self, took_s):
        ordered = sorted(self.latencies)

        def at(share):
            return round(ordered[min(len(ordered) - 1, int(len(ordered) * share))], 1)
        return {"requests": len(ordered), "failed": len(self.failures), "rate": round(len(ordered) / took_s, 1),
                "mean": round(sum(ordered) / len(ordered), 1), "p50": at(0.5), "p99": at(0.99), "p99.9": at(0.999),
                "max": round(ordered[-1], 1), "objects": self.objects, "failures": self.failures[:3]}


def fill(rados, objects):
    indices, lock = iter(range(objects)), threading.Lock()

    def client():
        while True:
            with lock:
                index = next(indices, None)
            if index is None:
                return
            rados.write(f"image-{index}", body(index))
    clients = [threading.Thread(target=client) for _ in range(CLIENTS)]
    for thread in clients:
        thread.start()
    for thread in clients:
        thread.join()


def main():
    conf, pool, action, *numbers = sys.argv[1:]
    rados, numbers = Rados(conf, pool), [int(number) for number in numbers]
    if action == "fill":
        fill(rados, *numbers)
    elif action == "run":
        seconds, rate, writes, objects = numbers
        print(json.dumps(Load(rados, rate, writes, objects).run(seconds)), flush=True)
    else:
        sys.exit(__doc__)
    rados.end()


if __name__ == "__main__":
    main()
