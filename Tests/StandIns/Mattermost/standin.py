#!/usr/bin/env python3
"""A stand-in for a Mattermost server on a port of 127.0.0.1, written from the documentation of its API: see README.md.

usage: standin.py --database FILE [--port PORT] [--site-url URL] [--public-links] [--keep-requests]

Prints `ready PORT` when it listens; port 0 takes a free one. SIGTERM and SIGINT end it. The file holds everything that
it stores and, with --keep-requests, everything that clients send. The first account is the administrator's.
"""

import argparse
import asyncio
import signal
import sys

sys.dont_write_bytecode = True

from aiohttp import web  # noqa: E402

from server.application import Server  # noqa: E402

HOST = "127.0.0.1"


async def serve(arguments):
    server = Server(arguments.database, arguments.site_url.rstrip("/"), arguments.public_links, arguments.keep_requests)
    runner = web.AppRunner(server.application(), access_log=None, handle_signals=False, shutdown_timeout=1)
    await runner.setup()
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    try:
        site = web.TCPSite(runner, HOST, arguments.port)
        await site.start()
        print("ready", site._server.sockets[0].getsockname()[1], flush=True)
        await ended.wait()
    except OSError as error:
        sys.exit(f"standin.py: cannot listen on {HOST}:{arguments.port}: {error.strerror}")
    finally:
        await runner.cleanup()
        server.store.close()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--database", required=True, help="the SQLite file; made if there is none")
    parser.add_argument("--port", type=int, default=0, help="0, the default, is a free one")
    parser.add_argument("--site-url", default="http://chat.example", help="the address that links to posts begin with")
    parser.add_argument("--public-links", action="store_true", help="the server's setting EnablePublicLink")
    parser.add_argument(
        "--keep-requests", action="store_true", help="store what clients send, also what is refused or deleted later")
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
