#!/usr/bin/env python3
"""Starts the real Synapse, client API only, on one SQLite file. README.md says how it is configured.

usage: standin.py --database FILE [--port PORT] [--keep-requests]

It needs the environment that deploy/install-python makes for Matrix. It listens on 127.0.0.1 only and prints
`ready PORT`. Uploads go to FILE.media, what the server prints to FILE.log, and with `--keep-requests` what it receives to
FILE.requests. SIGTERM and SIGINT end it.
"""

import argparse
import asyncio
import base64
import json
import os
import pathlib
import signal
import socket
import sys
import tempfile

READY_SECONDS = 590
END_SECONDS = 50
CHUNK_BYTES = 65536
NO_LIMIT = {"per_second": 1_000_000, "burst_count": 1_000_000}
LOGGING = {
    "version": 1,
    "formatters": {"plain": {"format": "%(asctime)s %(name)s %(levelname)s %(message)s"}},
    "handlers": {"errors": {"class": "logging.StreamHandler", "formatter": "plain", "stream": "ext://sys.stderr"}},
    "root": {"level": "WARNING", "handlers": ["errors"]},
    "disable_existing_loggers": False,
}


def limits():
    """There is no single switch for the limits of requests a second."""
    single = (
        "message", "registration", "registration_token_validity", "admin_redaction", "joins_per_room",
        "3pid_validation", "third_party_invite", "media_create", "room_creation", "key_requests", "reports")
    groups = {
        "login": ("address", "account", "failed_attempts"), "joins": ("local", "remote"),
        "invites": ("per_room", "per_user", "per_issuer"), "presence": ("per_user",),
    }
    return {f"rc_{name}": NO_LIMIT for name in single} | {
        f"rc_{name}": {member: NO_LIMIT for member in members} for name, members in groups.items()}


def configuration(database, scratch, port, inner_port):
    """The settings of the tests' other Synapse, and all that a client can be allowed to do."""
    return limits() | {
        "server_name": "pawl.test",
        "public_baseurl": f"http://127.0.0.1:{port}/",
        "pid_file": str(scratch / "pid"),
        "signing_key_path": str(scratch / "signing.key"),
        "log_config": str(scratch / "log.yaml"),
        "listeners": [{
            "port": inner_port, "bind_addresses": ["127.0.0.1"], "type": "http", "x_forwarded": True,
            "resources": [{"names": ["client", "media"], "compress": True}],
        }],
        "database": {"name": "sqlite3", "args": {"database": str(database)}},
        "media_store_path": f"{database}.media",
        "max_upload_size": "256K",
        "enable_registration": True,
        "enable_registration_without_verification": True,
        "registration_shared_secret": "shared-secret-of-a-test",
        "macaroon_secret_key": "macaroon-secret-of-a-test",
        "form_secret": "form-secret-of-a-test",
        "bcrypt_rounds": 4,
        "login_via_existing_session": {"enabled": True, "require_ui_auth": False},
        "user_directory": {"search_all_users": True},
        "room_list_publication_rules": [{"action": "allow"}],
        "report_stats": False,
        "trusted_key_servers": [],
        "suppress_key_server_warning": True,
        "federation_domain_whitelist": [],
        "send_federation": False,
        "url_preview_enabled": False,
        "encryption_enabled_by_default_for_room_type": "off",
    }


async def passed_on(reader, writer, record=None):
    """Copies one direction of a connection until it ends."""
    try:
        while data := await reader.read(CHUNK_BYTES):
            if record is not None:
                record.extend(data)
            writer.write(data)
            await writer.drain()
        writer.write_eof()
    except (ConnectionError, OSError):
        writer.close()


class Front:
    """The port of the server: passes connections to it and keeps what clients send."""

    def __init__(self, port, requests):
        self.port = port
        self.requests = requests
        self.tasks = set()

    async def connected(self, reader, writer):
        self.tasks.add(asyncio.current_task())
        record = bytearray()
        try:
            server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self.port)
            await asyncio.gather(
                passed_on(reader, server_writer, record), passed_on(server_reader, writer))
            server_writer.close()
        except OSError as error:
            print(f"the server takes no connection: {error}", file=sys.stderr)
        finally:
            writer.close()
            if self.requests:
                # Whole connections, so that no word is cut by another connection's bytes.
                with open(self.requests, "ab") as file:
                    file.write(record)
            self.tasks.discard(asyncio.current_task())

    async def end(self):
        for task in (tasks := list(self.tasks)):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def is_listening(port, process):
    """Whether the server answers before it ends or the time is over."""
    for _ in range(READY_SECONDS * 10):
        if process.returncode is not None:
            return False
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
            writer.close()
            return True
        except OSError:
            await asyncio.sleep(0.1)
    return False


async def serve(arguments, scratch):
    database = pathlib.Path(arguments.database).resolve()
    listener = socket.create_server(("127.0.0.1", arguments.port))
    port = listener.getsockname()[1]
    # Bound and not listening: no other program gets the port, and the server can listen on it.
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    reserved.bind(("127.0.0.1", 0))
    inner_port = reserved.getsockname()[1]
    seed = base64.b64encode(os.urandom(32)).decode().rstrip("=")
    (scratch / "signing.key").write_text(f"ed25519 a_pawl {seed}\n")
    # JSON is YAML.
    (scratch / "log.yaml").write_text(json.dumps(LOGGING))
    (scratch / "homeserver.yaml").write_text(json.dumps(configuration(database, scratch, port, inner_port)))
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    with open(f"{database}.log", "wb") as log:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "synapse.app.homeserver", "--config-path", str(scratch / "homeserver.yaml"),
            stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log, cwd=scratch,
            # Some of its texts list a set: in the same order each time.
            env={**os.environ, "PYTHONHASHSEED": "0"})
    try:
        if not await is_listening(inner_port, process):
            sys.exit(f"Synapse does not start; see {database}.log")
        front = Front(inner_port, f"{database}.requests" if arguments.keep_requests else None)
        server = await asyncio.start_server(front.connected, sock=listener)
        print("ready", port, flush=True)
        waiting = [asyncio.create_task(ended.wait()), asyncio.create_task(process.wait())]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        server.close()
        await front.end()
    finally:
        if process.returncode is None:
            process.terminate()
            try:
                await asyncio.wait_for(process.wait(), END_SECONDS)
            except asyncio.TimeoutError:
                process.kill()
                await process.wait()
    if not ended.is_set():
        sys.exit(f"Synapse ended with {process.returncode}; see {database}.log")


def main():
    parser = argparse.ArgumentParser(description="Starts the real Synapse.")
    parser.add_argument("--database", required=True, metavar="FILE", help="the SQLite file that it keeps everything in")
    parser.add_argument("--port", type=int, default=0, help="0, the default, takes a free one")
    parser.add_argument("--keep-requests", action="store_true", help="keeps what clients send in FILE.requests")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        asyncio.run(serve(arguments, pathlib.Path(scratch)))


if __name__ == "__main__":
    main()
