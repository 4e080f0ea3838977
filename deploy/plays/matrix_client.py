"""A Matrix client driven by files, as ii is for IRC: matrix-nio as it is, without any encryption of its own.

usage: matrix_client.py URL NAME DIRECTORY [--register]

The password is in DIRECTORY/password. What it is told stands, a line each, in the pipe DIRECTORY/in:

  create USER...           makes a room and invites them
  say ROOM TEXT
  edit ROOM EVENT TEXT
  history ROOM             reads the room from its end to its beginning, into DIRECTORY/history, the oldest first

Each of them ends with a line in DIRECTORY/done: the id that it came to, or `refused` and why. Invitations are accepted.
What is heard stands in DIRECTORY/out, a line each: ROOM EVENT <NAME> TEXT.
"""

import asyncio
import sys
from pathlib import Path

import nio


def line(room, event):
    """What people see of an event; nothing where it is no message."""
    if event.get("type") == "m.room.message" and "body" in event.get("content", {}):
        name = event["sender"][1:].split(":")[0]
        return f"{room} {event['event_id']} <{name}> {' '.join(event['content']['body'].split())}"


class Person:
    def __init__(self, url, name, directory):
        self.directory = Path(directory)
        self.name = name
        self.client = nio.AsyncClient(url, name, config=nio.AsyncClientConfig(encryption_enabled=False))

    def note(self, file, text):
        with open(self.directory / file, "a") as output:
            output.write(text + "\n")

    async def enter(self, register):
        password = (self.directory / "password").read_text().strip()
        if register:
            answer = await self.client.register(self.name, password)
        else:
            answer = await self.client.login(password)
        if not self.client.access_token:
            sys.exit(f"refused: {getattr(answer, 'message', answer)}")
        # With it, who stands past the gateway can ask the server itself what it has.
        (self.directory / "token").write_text(self.client.access_token)
        print("here", self.client.user_id, flush=True)

    # What it is told.

    async def create(self, *users):
        return (await self.client.room_create(name="", invite=users)).room_id

    async def say(self, room, text):
        return await self.send(room, {"msgtype": "m.text", "body": text})

    async def edit(self, room, rest):
        event, text = rest.split(" ", 1)
        new = {"msgtype": "m.text", "body": text}
        return await self.send(room, new | {
            "body": f"* {text}", "m.new_content": new, "m.relates_to": {"rel_type": "m.replace", "event_id": event}})

    async def send(self, room, content):
        return (await self.client.room_send(room, "m.room.message", content)).event_id

    async def history(self, room):
        lines, start = [], None
        while True:
            page = await self.client.room_messages(room, start, limit=5, direction=nio.MessageDirection.back)
            lines += [line(room, event.source) for event in page.chunk]
            start = page.end
            if not start:
                break
        (self.directory / "history").write_text("".join(f"{each}\n" for each in reversed(lines) if each))
        return room

    async def obey(self):
        verbs = {"create": (self.create, -1), "say": (self.say, 1), "edit": (self.edit, 1), "history": (self.history, 0)}
        # Open for writing as well: otherwise the first who closes it ends it.
        with open(self.directory / "in", "r+b", buffering=0) as pipe:
            reader = asyncio.StreamReader()
            await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
            while command := (await reader.readline()).decode().rstrip("\n"):
                word, _, rest = command.partition(" ")
                verb, splits = verbs[word]
                try:
                    self.note("done", await verb(*rest.split(" ", splits)))
                except AttributeError as error:  # the library's word for an answer that is an error
                    self.note("done", f"refused: {getattr(error, 'obj', error)}")

    # What it hears.

    async def hear(self):
        while True:
            answer = await self.client.sync(timeout=30000)
            if not isinstance(answer, nio.SyncResponse):
                print("sync:", answer, flush=True)
                await asyncio.sleep(0.2)
                continue
            for room in answer.rooms.invite:
                await self.client.join(room)
                print("joined", room, flush=True)
            for room, news in answer.rooms.join.items():
                for event in news.timeline.events:
                    if text := line(room, event.source):
                        self.note("out", text)


async def main(url, name, directory, *options):
    person = Person(url, name, directory)
    await person.enter("--register" in options)
    await asyncio.gather(person.obey(), person.hear())


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
