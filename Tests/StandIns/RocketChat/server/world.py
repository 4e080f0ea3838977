"""The parts of the server, which know each other through this."""

import collections

from .commands import Commands
from .database import Database
from .files import Files
from .messages import Messages
from .people import People
from .rooms import Rooms
from .settings import Settings
from .streams import Streams
from .values import Clock


class World:
    def __init__(self, path):
        self.clock = Clock()
        # Connections of the realtime API by account.
        self.sessions = collections.Counter()
        self.connections = 0
        self.db = Database(path, self.clock)
        self.streams = Streams()
        self.settings = Settings(self)
        self.people = People(self)
        self.rooms = Rooms(self)
        self.messages = Messages(self)
        self.files = Files(self)
        self.commands = Commands(self)

    def begin(self, administrator, password):
        """What a first start makes: an administrator, and the channel `general`, whose id is GENERAL."""
        if self.people.named(administrator):
            return
        user = self.people.create(
            administrator, password, f"{administrator}@example.org", "Administrator", ("admin", "user"))
        room = {
            "_id": "GENERAL", "t": "c", "name": "general", "fname": "general", "msgs": 0, "usersCount": 0,
            "default": True, "ro": False, "sysMes": True, "ts": self.clock.date(), "u": self.people.short(user)}
        self.db.put("rooms", room)
        self.rooms.subscribe(room, user, roles=["owner"])

    def end_room_stream(self, rid, user_id):
        """Ends a user's subscriptions to the messages of a room, in silence as the server does."""
        rows = self.streams.subscriptions.get(("stream-room-messages", rid), {})
        for session, identifier in list(rows):
            if session.user and session.user["_id"] == user_id:
                self.streams.remove("stream-room-messages", rid, session, identifier)
