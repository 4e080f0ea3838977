#!/usr/bin/env python3
"""A stand-in for a Zulip server. It was written from the documentation of the API; README.md names the version.

usage: standin.py --database FILE [--port PORT] [--account EMAIL,PASSWORD,NAME]... [--keep-requests] [--heartbeat SECONDS]

It listens on 127.0.0.1 only and prints `ready PORT`. The first account owns the organization. SIGTERM and SIGINT end it.
"""

import argparse
import asyncio
import signal

from aiohttp import web

from zulip_standin.application import Server
from zulip_standin.people import MEMBER, OWNER

ACCOUNTS = [
    "anna@standin.test,anna-password,Anna Arden", "ben@standin.test,ben-password,Ben Bishop",
    "oda@standin.test,oda-password,Oda Outside",
]


async def serve(arguments):
    server = Server(arguments.database, arguments.heartbeat)
    for position, account in enumerate(arguments.account or ACCOUNTS):
        email, password, name = account.split(",", 2)
        server.people.add(email, password, name, MEMBER if position else OWNER)
    runner = web.AppRunner(server.application(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", arguments.port)
    await site.start()
    port = runner.addresses[0][1]
    server.address = arguments.external_address or f"http://127.0.0.1:{port}"
    server.records = arguments.keep_requests
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    print("ready", port, flush=True)
    await ended.wait()
    await runner.cleanup()
    server.store.close()


parser = argparse.ArgumentParser(description="A stand-in for a Zulip server.")
parser.add_argument("--database", required=True, metavar="FILE", help="the SQLite file that it keeps everything in")
parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
parser.add_argument("--account", action="append", metavar="EMAIL,PASSWORD,NAME", help="may be given more than once")
parser.add_argument("--keep-requests", action="store_true", help="keeps the parameters of all requests in the table `requests`")
parser.add_argument("--external-address", metavar="URL", help="what the server calls itself (EXTERNAL_HOST)")
parser.add_argument("--heartbeat", type=float, default=50, metavar="SECONDS", help="how long a read of events waits")
if __name__ == "__main__":
    asyncio.run(serve(parser.parse_args()))
