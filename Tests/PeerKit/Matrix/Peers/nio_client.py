"""A Matrix client made of matrix-nio as it is, driven by lines of JSON. It has no encryption of its own.

usage: nio_client.py URL

A line {"n": 1, "do": "send", ...} is answered, once it is done, by {"n": 1, "status": 200, "body": {...}, "made":
"RoomSendResponse"}: the server's status and body, and what the library made of them. {"n": 1, "failure": "words"} says
that the library gave up. Several may be under way at once. Lines without a number come by themselves:

  {"room": ID, "event": {...}, "made": "RoomMessageText"}     while `follow` runs
  {"invited": ROOM}                                           likewise
  {"trouble": "words"}     a request got no answer, or one that the library tries again after; it tries until it is told not to

What can be done: see `Verbs`. The end of the input ends the program.
"""

import asyncio
import dataclasses
import io
import json
import os
import sys
import threading
import traceback

import nio


def say(line):
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


class Client(nio.AsyncClient):
    """The library's client, which says what it would try again in silence."""

    async def send(self, method, path, *arguments, **named):
        where = f"{method} {path.split('?')[0]}"
        try:
            answer = await super().send(method, path, *arguments, **named)
        except Exception as error:
            say({"trouble": f"{where}: {type(error).__name__}: {error}"})
            raise
        if answer.status == 429:
            say({"trouble": f"{where}: 429"})
        return answer


def text_content(command):
    content = {"msgtype": command.get("msgtype", "m.text"), "body": command["text"]}
    if "html" in command:
        content |= {"format": "org.matrix.custom.html", "formatted_body": command["html"]}
    return content


class Verbs:
    """One method for each word behind `do`. Each answers the library's response."""

    def __init__(self, client):
        self.client = client
        self.following = None

    async def login(self, command):
        self.client.user = command["user"]
        return await self.client.login(command["password"], device_name=command.get("device", ""))

    async def resume(self, command):
        """A login that was made before, perhaps elsewhere: no request."""
        self.client.restore_login(command["user"], command["device"], command["token"])

    async def patience(self, command):
        """How often a request that got no answer is tried again; null is for ever."""
        self.client.config = dataclasses.replace(self.client.config, max_timeouts=command["retries"])

    async def whoami(self, command):
        return await self.client.whoami()

    async def create(self, command):
        preset = nio.RoomPreset.public_chat if command.get("public") else None
        return await self.client.room_create(
            name=command.get("name"), topic=command.get("topic"), invite=command.get("invite", []), preset=preset,
            is_direct=command.get("direct", False))

    async def invite(self, command):
        return await self.client.room_invite(command["room"], command["user"])

    async def join(self, command):
        return await self.client.join(command["room"])

    async def leave(self, command):
        return await self.client.room_leave(command["room"])

    async def members(self, command):
        return await self.client.joined_members(command["room"])

    async def send(self, command):
        return await self.client.room_send(
            command["room"], "m.room.message", text_content(command), tx_id=command.get("txn"))

    async def put(self, command):
        """Any content under any type."""
        return await self.client.room_send(
            command["room"], command["type"], command["content"], tx_id=command.get("txn"))

    async def edit(self, command):
        new = text_content(command)
        content = new | {
            "body": "* " + command["text"], "m.new_content": new,
            "m.relates_to": {"rel_type": "m.replace", "event_id": command["event"]},
        }
        if "html" in command:
            content["formatted_body"] = "* " + command["html"]
        return await self.client.room_send(command["room"], "m.room.message", content, tx_id=command.get("txn"))

    async def redact(self, command):
        return await self.client.room_redact(
            command["room"], command["event"], command.get("reason"), tx_id=command.get("txn"))

    async def typing(self, command):
        return await self.client.room_typing(command["room"])

    async def read(self, command):
        return await self.client.room_read_markers(command["room"], command["event"], command["event"])

    async def event(self, command):
        return await self.client.room_get_event(command["room"], command["event"])

    async def context(self, command):
        return await self.client.room_context(command["room"], command["event"], limit=command.get("limit", 10))

    async def messages(self, command):
        return await self.client.room_messages(
            command["room"], command.get("from"), limit=command.get("limit", 10),
            direction=nio.MessageDirection.back)

    async def sync(self, command):
        # The library goes on from where it was, unless it is to begin anew.
        if command.get("anew"):
            self.client.next_batch = None
        return await self.client.sync(
            timeout=command.get("timeout", 0), since=command.get("since"), full_state=command.get("full", False))

    async def upload(self, command):
        data = command["data"].encode()
        answer, _ = await self.client.upload(
            io.BytesIO(data), content_type=command.get("type", "text/plain"), filename=command.get("name"),
            filesize=len(data))
        return answer

    async def follow(self, command):
        """Syncs for ever; answers at once."""
        self.following = asyncio.create_task(self.sync_for_ever(command.get("timeout", 10_000)))

    async def unfollow(self, command):
        self.following.cancel()

    async def sync_for_ever(self, timeout):
        while True:
            answer = await self.client.sync(timeout=timeout)
            if not isinstance(answer, nio.SyncResponse):
                say({"trouble": f"sync: {answer}"})
                await asyncio.sleep(0.1)
                continue
            for room in answer.rooms.invite:
                say({"invited": room})
            for room, info in answer.rooms.join.items():
                for event in info.timeline.events:
                    say({"room": room, "event": event.source, "made": type(event).__name__})


async def perform(verbs, command):
    number = command["n"]
    try:
        answer = await getattr(verbs, command["do"])(command)
        line = {"n": number, "made": type(answer).__name__}
        if answer is not None:
            transport = answer.transport_response
            try:
                body = await transport.json()
            except ValueError:
                body = await transport.text()
            line |= {"status": transport.status, "body": body}
        say(line)
    except Exception as error:
        say({"n": number, "failure": f"{type(error).__name__}: {error}", "trace": traceback.format_exc()})


async def main(url):
    loop = asyncio.get_running_loop()
    commands = asyncio.Queue()

    def read():
        try:
            for line in sys.stdin:
                loop.call_soon_threadsafe(commands.put_nowait, json.loads(line))
        finally:
            # Whatever is under way: nobody hears of it any more. Who leaves with something unread resets the connection.
            os._exit(0)

    threading.Thread(target=read, daemon=True).start()
    configuration = nio.AsyncClientConfig(
        max_timeouts=None, backoff_factor=0.05, max_timeout_retry_wait_time=0.2, request_timeout=20,
        encryption_enabled=False)
    verbs = Verbs(Client(url, config=configuration))
    tasks = set()
    while True:
        task = asyncio.create_task(perform(verbs, await commands.get()))
        tasks.add(task)
        task.add_done_callback(tasks.discard)


if __name__ == "__main__":
    try:
        asyncio.run(main(sys.argv[1]))
    except BrokenPipeError:
        os._exit(0)
