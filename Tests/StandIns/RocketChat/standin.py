"""Runs the stand-in for a Rocket.Chat server on 127.0.0.1 and prints `ready PORT`.

usage: standin.py --database FILE [--port N] [--admin NAME] [--admin-password WORD] [--rate-limit CALLS]
"""

import argparse
import asyncio
import logging
import signal
import sys

from aiohttp import web

from server import VERSION, rest_chat, rest_people, rest_rooms  # noqa: F401 (their import registers the routes)
from server.realtime import websocket
from server.rest import RestServer
from server.world import World

# A file of the largest size that is allowed, and the fields beside it.
MOST_BODY_BYTES = 16 * 1024 * 1024
# What Node allows a request line and its headers.
MOST_LINE_BYTES = 16 * 1024
# Connections of the realtime API that are still open are cut off after this.
SHUTDOWN_SECONDS = 0.5


def application(world):
    app = web.Application(client_max_size=MOST_BODY_BYTES)
    rest = RestServer(world)

    async def realtime(request):
        return await websocket(world, request)

    async def download(request):
        return await rest_rooms.download(world, request)

    async def information(request):
        return web.json_response({"version": ".".join(VERSION.split(".")[:2]), "success": True})

    for path in ("/api/v1/{name}", "/api/v1/{name}/{rest:.+}"):
        app.router.add_route("*", path, rest.handle)
    app.router.add_get("/api/info", information)
    app.router.add_get("/websocket", realtime)
    app.router.add_get("/file-upload/{id}/{name:.*}", download)
    app.router.add_get("/avatar/{name}", rest_rooms.avatar)
    return app


async def serve(arguments):
    world = World(arguments.database)
    world.begin(arguments.admin, arguments.admin_password)
    if arguments.rate_limit is not None:
        world.settings.set("API_Enable_Rate_Limiter_Limit_Calls_Default", arguments.rate_limit)
    runner = web.AppRunner(
        application(world), access_log=None, handle_signals=False, shutdown_timeout=SHUTDOWN_SECONDS,
        max_line_size=MOST_LINE_BYTES)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", arguments.port)
    await site.start()
    port = runner.addresses[0][1]
    world.settings.set("Site_Url", f"http://127.0.0.1:{port}")
    print(f"ready {port}", flush=True)
    stopped = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopped.set)
    await stopped.wait()
    await runner.cleanup()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--database", required=True, help="the SQLite file with everything that it keeps")
    parser.add_argument("--port", type=int, default=0, help="0 takes a free one")
    parser.add_argument("--admin", default="admin")
    parser.add_argument("--admin-password", default="correct-horse-battery")
    parser.add_argument("--rate-limit", type=int, help="calls of one address to one route within a minute (default 10)")
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    asyncio.run(serve(parser.parse_args()))


if __name__ == "__main__":
    main()
