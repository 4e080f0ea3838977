"""Event queues: one for each registration of a client, in memory only."""

import asyncio
import collections
import json
import time
import uuid

from .errors import RequestError

QUEUE_LIMIT = 100
# A client that leaves more than this unread loses its queue, as one that was away too long does.
EVENT_LIMIT = 5_000
BYTE_LIMIT = 4 << 20
LIFESPAN_SECONDS = 600
CAPABILITIES = {
    "notification_settings_null", "bulk_message_deletion", "user_avatar_url_field_optional",
    "stream_typing_notifications", "user_settings_object", "linkifier_url_template", "user_list_incomplete",
    "include_deactivated_groups", "archived_channels", "empty_topic_name", "simplified_presence_events",
}


class Queue:
    def __init__(self, user, event_types, narrow, options):
        self.id = str(uuid.uuid4())
        self.user = user
        self.event_types = event_types
        self.narrow = narrow
        self.apply_markdown = options["apply_markdown"]
        self.client_gravatar = options["client_gravatar"]
        self.all_public = options["all_public_streams"]
        self.capabilities = options["capabilities"]
        self.events = collections.deque()
        self.size = 0
        self.next_id = 0
        self.pruned = None
        self.waiter = None
        self.touched = time.monotonic()

    def wants(self, kind):
        return self.event_types is None or kind in self.event_types

    def push(self, event):
        size = len(json.dumps(event))
        self.events.append(({**event, "id": self.next_id}, size))
        self.size += size
        self.next_id += 1
        self.wake()

    def wake(self):
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)

    def acknowledge(self, last):
        while self.events and self.events[0][0]["id"] <= last:
            event, size = self.events.popleft()
            self.pruned = event["id"]
            self.size -= size


class Queues:
    def __init__(self, heartbeat_seconds):
        self.heartbeat_seconds = heartbeat_seconds
        self.queues = {}
        self.held = []

    def register(self, queue):
        self.drop_idle()
        if len(self.queues) >= QUEUE_LIMIT:
            self.drop(min(self.queues.values(), key=lambda each: each.touched))
        self.queues[queue.id] = queue

    def drop_idle(self):
        oldest = time.monotonic() - LIFESPAN_SECONDS
        for queue in [each for each in self.queues.values() if each.waiter is None and each.touched < oldest]:
            self.drop(queue)

    def drop(self, queue):
        del self.queues[queue.id]
        queue.wake()

    def find(self, number, user, purpose):
        queue = self.queues.get(number)
        if queue is None:
            raise RequestError(f"Bad event queue ID: {number}", "BAD_EVENT_QUEUE_ID", queue_id=number)
        if queue.user != user:
            raise RequestError(f"You are not authorized to {purpose} this queue")
        return queue

    def close(self):
        for queue in list(self.queues.values()):
            self.drop(queue)

    def send(self, users, event):
        """Sends the same event to the queues of these people that want its type."""
        for queue in self.of(users, event["type"]):
            self.push(queue, event)

    def of(self, users, kind):
        users = set(users)
        return [each for each in list(self.queues.values()) if each.user in users and each.wants(kind)]

    def push(self, queue, event):
        """Holds an event until the request that causes it is committed."""
        self.held.append((queue, event))

    def release(self, committed=True):
        held, self.held = self.held, []
        for queue, event in held:
            if not committed or queue.id not in self.queues:
                continue
            if len(queue.events) >= EVENT_LIMIT or queue.size >= BYTE_LIMIT:
                self.drop(queue)
            else:
                queue.push(event)

    async def events(self, queue, last, blocks):
        """The events after `last`; waits for one unless the client asked for none of it."""
        queue.touched = time.monotonic()
        queue.acknowledge(last)
        if queue.pruned is not None and queue.pruned != last:
            raise RequestError(f"Event {last} was not in this queue")
        # A second request on a queue ends the first one, which answers with what there is.
        queue.wake()
        if not queue.events and blocks:
            waiter = queue.waiter = asyncio.get_running_loop().create_future()
            try:
                await asyncio.wait_for(waiter, self.heartbeat_seconds)
            except TimeoutError:
                queue.push({"type": "heartbeat"})
            finally:
                queue.touched = time.monotonic()
                if queue.waiter is waiter:
                    queue.waiter = None
        return [event for event, _ in queue.events]
