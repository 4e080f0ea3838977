"""Streams of the realtime API: who is subscribed to which event, and what it sends them."""

import collections


class Streams:
    def __init__(self):
        # (stream, event name) -> {(session, subscription id)}, in the order of subscribing.
        self.subscriptions = collections.defaultdict(dict)

    def add(self, stream, event, session, identifier):
        self.subscriptions[stream, event][session, identifier] = True

    def remove(self, stream, event, session, identifier):
        found = self.subscriptions.get((stream, event))
        if found is not None:
            found.pop((session, identifier), None)
            if not found:
                del self.subscriptions[stream, event]

    def sessions(self, stream, event):
        """Each session once for each of its subscriptions to an event."""
        return [session for session, _ in self.subscriptions.get((stream, event), ())]

    def emit(self, stream, event, *arguments, origin=None):
        for session in self.sessions(stream, event):
            if session is not origin:
                session.send_changed(stream, event, arguments)
