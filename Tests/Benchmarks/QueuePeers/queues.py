"""Queues from PyPI that keep their requests in SQLite: rows a second with a sync for each, as they work by themselves.

usage: queues.py litequeue|persist-queue append|cycle PRODUCERS SECONDS FILE
Prints the operations a second. A cycle is a put, a get and an acknowledgement.
"""

import sys
import threading
import time

name, mode, producers, seconds, path = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4]), sys.argv[5]
body = "x" * 200

if name == "litequeue":
    from litequeue import LiteQueue

    queue = LiteQueue(path)
    # Its connection is one for all threads, so that they take turns; it sets NORMAL, which may lose what was acknowledged.
    queue.conn.execute("PRAGMA synchronous = FULL")
    lock = threading.Lock()

    def append():
        with lock:
            queue.put(body)

    def cycle():
        with lock:
            queue.put(body)
            queue.done(queue.pop().message_id)

else:
    from persistqueue import SQLiteAckQueue

    # WAL without a word on synchronous, which is FULL then.
    queue = SQLiteAckQueue(path, multithreading=True)

    def append():
        queue.put(body)

    def cycle():
        queue.put(body)
        queue.ack(queue.get())


work = append if mode == "append" else cycle
counts = [0] * producers
end = time.monotonic() + seconds


def produce(number):
    while time.monotonic() < end:
        work()
        counts[number] += 1


begin = time.monotonic()
threads = [threading.Thread(target=produce, args=(number,)) for number in range(producers)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
print(sum(counts) / (time.monotonic() - begin))
