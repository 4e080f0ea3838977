"""Everything the stand-in keeps, in one SQLite file."""

import contextlib
import sqlite3

SCHEMA = """
CREATE TABLE IF NOT EXISTS users (
    id INTEGER PRIMARY KEY, email TEXT NOT NULL UNIQUE COLLATE NOCASE, full_name TEXT NOT NULL, api_key TEXT NOT NULL,
    salt BLOB NOT NULL, password BLOB NOT NULL, role INTEGER NOT NULL, is_bot INTEGER NOT NULL DEFAULT 0,
    realm TEXT NOT NULL DEFAULT '', joined REAL NOT NULL, status_text TEXT NOT NULL DEFAULT '',
    emoji_name TEXT NOT NULL DEFAULT '', emoji_code TEXT NOT NULL DEFAULT '', emoji_type TEXT NOT NULL DEFAULT '',
    active REAL, idle REAL);
CREATE TABLE IF NOT EXISTS recipients (
    id INTEGER PRIMARY KEY, kind TEXT NOT NULL, members TEXT NOT NULL, UNIQUE (kind, members));
CREATE TABLE IF NOT EXISTS streams (
    id INTEGER PRIMARY KEY, recipient INTEGER NOT NULL, name TEXT NOT NULL, description TEXT NOT NULL,
    rendered_description TEXT NOT NULL, creator INTEGER NOT NULL, created REAL NOT NULL, private INTEGER NOT NULL,
    shared_history INTEGER NOT NULL, archived INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS subscriptions (
    user INTEGER NOT NULL, stream INTEGER NOT NULL, color TEXT NOT NULL, muted INTEGER NOT NULL DEFAULT 0,
    pinned INTEGER NOT NULL DEFAULT 0, PRIMARY KEY (user, stream));
CREATE TABLE IF NOT EXISTS messages (
    id INTEGER PRIMARY KEY AUTOINCREMENT, sender INTEGER NOT NULL, recipient INTEGER NOT NULL, topic TEXT NOT NULL,
    content TEXT NOT NULL, rendered TEXT NOT NULL, sent REAL NOT NULL, client TEXT NOT NULL, edited REAL, moved REAL,
    history TEXT NOT NULL DEFAULT '[]', has_link INTEGER NOT NULL, has_image INTEGER NOT NULL,
    has_attachment INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS messages_by_recipient ON messages (recipient, id);
CREATE TABLE IF NOT EXISTS user_messages (
    user INTEGER NOT NULL, message INTEGER NOT NULL, flags INTEGER NOT NULL, PRIMARY KEY (user, message));
CREATE INDEX IF NOT EXISTS user_messages_by_message ON user_messages (message);
CREATE TABLE IF NOT EXISTS reactions (
    id INTEGER PRIMARY KEY, message INTEGER NOT NULL, user INTEGER NOT NULL, name TEXT NOT NULL, code TEXT NOT NULL,
    kind TEXT NOT NULL, UNIQUE (message, user, code, kind));
CREATE TABLE IF NOT EXISTS submessages (
    id INTEGER PRIMARY KEY, message INTEGER NOT NULL, sender INTEGER NOT NULL, kind TEXT NOT NULL,
    content TEXT NOT NULL);
CREATE INDEX IF NOT EXISTS submessages_by_message ON submessages (message);
CREATE TABLE IF NOT EXISTS attachments (
    id INTEGER PRIMARY KEY, owner INTEGER NOT NULL, name TEXT NOT NULL, path TEXT NOT NULL UNIQUE,
    type TEXT NOT NULL, created REAL NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS attachment_messages (
    attachment INTEGER NOT NULL, message INTEGER NOT NULL, PRIMARY KEY (attachment, message));
CREATE TABLE IF NOT EXISTS drafts (
    id INTEGER PRIMARY KEY, user INTEGER NOT NULL, type TEXT NOT NULL, recipients TEXT NOT NULL, topic TEXT NOT NULL,
    content TEXT NOT NULL, edited REAL NOT NULL);
CREATE TABLE IF NOT EXISTS scheduled (
    id INTEGER PRIMARY KEY, user INTEGER NOT NULL, type TEXT NOT NULL, recipients TEXT NOT NULL, topic TEXT NOT NULL,
    content TEXT NOT NULL, rendered TEXT NOT NULL, due INTEGER NOT NULL, client TEXT NOT NULL,
    failed INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS snippets (
    id INTEGER PRIMARY KEY, user INTEGER NOT NULL, title TEXT NOT NULL, content TEXT NOT NULL, created REAL NOT NULL);
CREATE TABLE IF NOT EXISTS alert_words (
    user INTEGER NOT NULL, word TEXT NOT NULL COLLATE NOCASE, PRIMARY KEY (user, word));
CREATE TABLE IF NOT EXISTS user_topics (
    user INTEGER NOT NULL, stream INTEGER NOT NULL, topic TEXT NOT NULL, policy INTEGER NOT NULL,
    updated REAL NOT NULL);
CREATE TABLE IF NOT EXISTS requests (
    id INTEGER PRIMARY KEY, method TEXT NOT NULL, path TEXT NOT NULL, parameters TEXT NOT NULL, files TEXT NOT NULL);
"""


class Store:
    def __init__(self, path):
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.row_factory = sqlite3.Row
        # One file without a log beside it, so that a search of the file finds all; a crash of the machine may break it.
        self.connection.execute("PRAGMA journal_mode = DELETE")
        self.connection.execute("PRAGMA synchronous = OFF")
        self.connection.create_function("folded", 1, lambda text: text.casefold(), deterministic=True)
        self.connection.executescript(SCHEMA)

    def close(self):
        self.connection.close()

    @contextlib.contextmanager
    def transaction(self):
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self.connection.execute("ROLLBACK")
            raise
        self.connection.execute("COMMIT")

    def all(self, query, *values):
        return self.connection.execute(query, values).fetchall()

    def one(self, query, *values):
        return self.connection.execute(query, values).fetchone()

    def value(self, query, *values):
        row = self.one(query, *values)
        return None if row is None else row[0]

    def column(self, query, *values):
        return [row[0] for row in self.all(query, *values)]

    def run(self, query, *values):
        """Returns the id of an inserted row."""
        return self.connection.execute(query, values).lastrowid

    def changed(self, query, *values):
        """Returns the number of rows that the statement changed."""
        return self.connection.execute(query, values).rowcount

    def insert(self, table, **columns):
        names = ", ".join(columns)
        places = ", ".join("?" * len(columns))
        return self.run(f"INSERT INTO {table} ({names}) VALUES ({places})", *columns.values())
