"""What the server keeps: JSON documents in one SQLite file, as MongoDB keeps them in collections.

Texts are stored as they are, in UTF-8 and without escapes, so that a search of the file finds them. A removed document
moves to the collection `trash`, as on the server. There is no write-ahead log: everything is in the one file.
"""

import json
import sqlite3

from .values import object_id, to_json

COLLECTIONS = {
    "users": ["username"],
    "rooms": ["name", "t"],
    "subscriptions": ["rid", "uid"],
    "messages": ["rid", "ts", "updated", "tmid"],
    "uploads": ["rid"],
    "reports": [],
    "settings": [],
    "trash": ["collection", "rid", "deleted"],
}


def column(document, name):
    if name == "uid":
        return document["u"]["_id"]
    if name == "ts":
        return document["ts"]["$date"]
    if name == "updated":
        return document["_updatedAt"]["$date"]
    if name == "deleted":
        return document["_deletedAt"]["$date"]
    if name == "collection":
        return document["__collection__"]
    return document.get(name)


class Database:
    def __init__(self, path, clock):
        self.clock = clock
        self.connection = sqlite3.connect(path, isolation_level=None)
        # A test looks for texts in the file: freed pages must not keep what the server no longer has.
        for pragma in ("page_size=32768", "secure_delete=ON", "journal_mode=MEMORY", "synchronous=OFF"):
            self.connection.execute(f"PRAGMA {pragma}").fetchall()
        for name, columns in COLLECTIONS.items():
            self.connection.execute(
                f"CREATE TABLE IF NOT EXISTS {name} "
                f"(_id TEXT PRIMARY KEY, {''.join(f'{column}, ' for column in columns)}body TEXT NOT NULL)"
            )
            for part in columns:
                self.connection.execute(f"CREATE INDEX IF NOT EXISTS {name}_{part} ON {name} ({part})")
        self.connection.execute("CREATE TABLE IF NOT EXISTS chunks (_id TEXT PRIMARY KEY, data BLOB NOT NULL)")

    def put(self, collection, document, touch=True):
        """Inserts or replaces a document; it gets `_id` and `_updatedAt`."""
        if not document.get("_id"):
            document["_id"] = object_id()
        if touch:
            document["_updatedAt"] = self.clock.date()
        columns = COLLECTIONS[collection]
        values = [document["_id"], *(column(document, name) for name in columns)]
        values.append(to_json(document))
        names = [*columns, "body"]
        self.connection.execute(
            f"INSERT INTO {collection} VALUES ({', '.join('?' * len(values))}) ON CONFLICT(_id) DO UPDATE SET "
            + ", ".join(f"{name} = excluded.{name}" for name in names), values)
        return document

    def get(self, collection, identifier):
        found = self.find(collection, "_id = ?", identifier, limit=1)
        return found[0] if found else None

    def first(self, collection, where, *values, order=None):
        found = self.find(collection, where, *values, order=order, limit=1)
        return found[0] if found else None

    def each(self, collection, where="1", *values, order=None, limit=-1, offset=0):
        """The documents one by one."""
        rows = self.connection.execute(
            f"SELECT body FROM {collection} WHERE {where} ORDER BY {order or 'rowid'} LIMIT ? OFFSET ?",
            (*values, limit, offset))
        for (body,) in rows:
            yield json.loads(body)

    def find(self, collection, where="1", *values, order=None, limit=-1, offset=0):
        return list(self.each(collection, where, *values, order=order, limit=limit, offset=offset))

    def count(self, collection, where="1", *values):
        return self.connection.execute(f"SELECT count(*) FROM {collection} WHERE {where}", values).fetchone()[0]

    def remove(self, collection, document, trash=True):
        self.connection.execute(f"DELETE FROM {collection} WHERE _id = ?", (document["_id"],))
        if trash:
            self.put(
                "trash", document | {"__collection__": collection, "_deletedAt": self.clock.date()}, touch=False)

    def put_chunks(self, identifier, data):
        self.connection.execute("INSERT INTO chunks VALUES (?, ?)", (identifier, data))

    def get_chunks(self, identifier):
        row = self.connection.execute("SELECT data FROM chunks WHERE _id = ?", (identifier,)).fetchone()
        return row[0] if row else None

    def remove_chunks(self, identifier):
        self.connection.execute("DELETE FROM chunks WHERE _id = ?", (identifier,))
