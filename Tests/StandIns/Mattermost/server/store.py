"""What the stand-in keeps: one SQLite file, its tables, ids and times.

The page size is the largest that SQLite has, so that a text of a message is not split between pages and a test finds it
in the file. The rollback journal is in memory: nothing stands beside the file.
"""

import json
import secrets
import sqlite3
import time

ALPHABET = "ybndrfg8ejkmcpqxot1uwisza345h769"

SCHEMA = """
CREATE TABLE IF NOT EXISTS users (
    id TEXT PRIMARY KEY, create_at INTEGER, update_at INTEGER, delete_at INTEGER, username TEXT UNIQUE, password TEXT,
    email TEXT UNIQUE, nickname TEXT, first_name TEXT, last_name TEXT, position TEXT, roles TEXT, locale TEXT,
    props TEXT, notify_props TEXT, last_password_update INTEGER, last_picture_update INTEGER);
CREATE TABLE IF NOT EXISTS sessions (
    id TEXT PRIMARY KEY, token TEXT UNIQUE, create_at INTEGER, expires_at INTEGER, last_activity_at INTEGER,
    user_id TEXT, device_id TEXT, props TEXT);
CREATE TABLE IF NOT EXISTS access_tokens (
    id TEXT PRIMARY KEY, token TEXT UNIQUE, user_id TEXT, description TEXT, is_active INTEGER);
CREATE TABLE IF NOT EXISTS teams (
    id TEXT PRIMARY KEY, create_at INTEGER, update_at INTEGER, delete_at INTEGER, display_name TEXT, name TEXT UNIQUE,
    description TEXT, email TEXT, type TEXT, invite_id TEXT, allow_open_invite INTEGER);
CREATE TABLE IF NOT EXISTS team_members (
    team_id TEXT, user_id TEXT, delete_at INTEGER, scheme_admin INTEGER, PRIMARY KEY (team_id, user_id));
CREATE TABLE IF NOT EXISTS channels (
    id TEXT PRIMARY KEY, create_at INTEGER, update_at INTEGER, delete_at INTEGER, team_id TEXT, type TEXT,
    display_name TEXT, name TEXT, header TEXT, purpose TEXT, last_post_at INTEGER, total_msg_count INTEGER,
    creator_id TEXT, total_msg_count_root INTEGER, last_root_post_at INTEGER, UNIQUE (team_id, name));
CREATE TABLE IF NOT EXISTS channel_members (
    channel_id TEXT, user_id TEXT, last_viewed_at INTEGER, msg_count INTEGER, mention_count INTEGER,
    mention_count_root INTEGER, msg_count_root INTEGER, notify_props TEXT, last_update_at INTEGER,
    scheme_admin INTEGER, PRIMARY KEY (channel_id, user_id));
CREATE TABLE IF NOT EXISTS posts (
    id TEXT PRIMARY KEY, create_at INTEGER, update_at INTEGER, edit_at INTEGER, delete_at INTEGER, is_pinned INTEGER,
    user_id TEXT, channel_id TEXT, root_id TEXT, original_id TEXT, message TEXT, type TEXT, props TEXT, hashtags TEXT,
    file_ids TEXT, has_reactions INTEGER, remote_id TEXT);
CREATE INDEX IF NOT EXISTS posts_of_channel ON posts (channel_id, create_at);
CREATE INDEX IF NOT EXISTS posts_of_thread ON posts (root_id);
CREATE INDEX IF NOT EXISTS posts_of_history ON posts (original_id);
CREATE TABLE IF NOT EXISTS files (
    id TEXT PRIMARY KEY, user_id TEXT, post_id TEXT, channel_id TEXT, create_at INTEGER, update_at INTEGER,
    delete_at INTEGER, name TEXT, extension TEXT, size INTEGER, mime_type TEXT, width INTEGER, height INTEGER,
    content BLOB);
CREATE TABLE IF NOT EXISTS reactions (
    user_id TEXT, post_id TEXT, emoji_name TEXT, create_at INTEGER, update_at INTEGER, channel_id TEXT,
    PRIMARY KEY (post_id, user_id, emoji_name));
CREATE TABLE IF NOT EXISTS emoji (
    id TEXT PRIMARY KEY, create_at INTEGER, update_at INTEGER, creator_id TEXT, name TEXT UNIQUE, image BLOB);
CREATE TABLE IF NOT EXISTS preferences (
    user_id TEXT, category TEXT, name TEXT, value TEXT, PRIMARY KEY (user_id, category, name));
CREATE TABLE IF NOT EXISTS statuses (
    user_id TEXT PRIMARY KEY, status TEXT, manual INTEGER, last_activity_at INTEGER, dnd_end_time INTEGER);
CREATE TABLE IF NOT EXISTS drafts (
    create_at INTEGER, update_at INTEGER, user_id TEXT, channel_id TEXT, root_id TEXT, message TEXT, props TEXT,
    file_ids TEXT, PRIMARY KEY (user_id, channel_id, root_id));
CREATE TABLE IF NOT EXISTS scheduled_posts (
    id TEXT PRIMARY KEY, create_at INTEGER, update_at INTEGER, user_id TEXT, channel_id TEXT, root_id TEXT,
    message TEXT, props TEXT, file_ids TEXT, scheduled_at INTEGER, processed_at INTEGER, error_code TEXT);
CREATE TABLE IF NOT EXISTS thread_memberships (
    post_id TEXT, user_id TEXT, following INTEGER, last_viewed INTEGER, last_updated INTEGER, unread_mentions INTEGER,
    PRIMARY KEY (post_id, user_id));
CREATE TABLE IF NOT EXISTS sidebar_categories (
    id TEXT PRIMARY KEY, user_id TEXT, team_id TEXT, sort_order INTEGER, sorting TEXT, type TEXT, display_name TEXT,
    muted INTEGER, collapsed INTEGER, channel_ids TEXT);
CREATE TABLE IF NOT EXISTS requests (number INTEGER PRIMARY KEY, place TEXT, body BLOB);
"""

# Ours: what `keep` stores at most. More is an error: a search that finds nothing must not be one of a part.
KEPT_REQUESTS = 100_000

# Columns that hold JSON. They are stored without escapes, so that a search of the file finds every letter.
JSON_COLUMNS = {"props", "notify_props", "file_ids", "channel_ids"}


def new_id():
    """26 characters: 16 random bytes in the server's variant of base 32."""
    number = int.from_bytes(secrets.token_bytes(16), "big") << 2
    return "".join(ALPHABET[(number >> (5 * place)) & 31] for place in range(25, -1, -1))


def is_id(value):
    return isinstance(value, str) and len(value) == 26 and value.isascii() and value.isalnum()


class Store:
    """Rows as dictionaries. Everything is synchronous: the server runs one request at a time between awaits."""

    def __init__(self, path, keeps_requests=False):
        self.keeps_requests = keeps_requests
        self.kept = 0
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.row_factory = self._row
        for pragma in ("page_size=65536", "journal_mode=MEMORY", "synchronous=OFF"):
            self.connection.execute(f"PRAGMA {pragma}")
        self.connection.executescript(SCHEMA)
        self.last_time = 0

    def close(self):
        self.connection.close()

    @staticmethod
    def _row(cursor, values):
        names = (column[0] for column in cursor.description)
        return {
            name: json.loads(value) if name in JSON_COLUMNS and value is not None else value
            for name, value in zip(names, values)
        }

    def now(self):
        """Milliseconds, never the same twice: posts of one channel have one order."""
        self.last_time = max(self.last_time + 1, time.time_ns() // 1_000_000)
        return self.last_time

    def all(self, statement, *values):
        return self.connection.execute(statement, values).fetchall()

    def each(self, statement, *values):
        """The rows one after the other, without all of them in memory."""
        return iter(self.connection.execute(statement, values))

    def one(self, statement, *values):
        return self.connection.execute(statement, values).fetchone()

    def value(self, statement, *values):
        row = self.one(statement, *values)
        return next(iter(row.values())) if row else None

    def run(self, statement, *values):
        return self.connection.execute(statement, values).rowcount

    def keep(self, place, body):
        """Stores what a client has sent, as it came, if that is asked for."""
        if self.keeps_requests:
            self.kept += 1
            if self.kept > KEPT_REQUESTS:
                raise RuntimeError("too many requests to keep them all")
            self.connection.execute("INSERT INTO requests (place, body) VALUES (?, ?)", (place, body))

    def transaction(self):
        return Transaction(self.connection)

    def insert(self, table, row, or_replace=False):
        stored = {name: self._stored(name, value) for name, value in row.items()}
        verb = "INSERT OR REPLACE" if or_replace else "INSERT"
        self.connection.execute(
            f"{verb} INTO {table} ({', '.join(stored)}) VALUES ({', '.join('?' * len(stored))})", list(stored.values()))

    def update(self, table, key, changes):
        stored = {name: self._stored(name, value) for name, value in changes.items()}
        self.connection.execute(
            f"UPDATE {table} SET {', '.join(f'{name} = ?' for name in stored)}"
            f" WHERE {' AND '.join(f'{name} = ?' for name in key)}",
            [*stored.values(), *key.values()])

    @staticmethod
    def _stored(name, value):
        if name in JSON_COLUMNS and value is not None:
            return json.dumps(value, ensure_ascii=False, sort_keys=isinstance(value, dict))
        return value


class Transaction:
    """All or nothing, for what runs inside `with`."""

    def __init__(self, connection):
        self.connection = connection

    def __enter__(self):
        self.connection.execute("BEGIN")

    def __exit__(self, kind, error, trace):
        self.connection.execute("COMMIT" if kind is None else "ROLLBACK")
