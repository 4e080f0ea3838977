"""vodozemac through its Python binding, whose calls are part of the figures. Olm without the signature of a bundle."""

import ctypes
import time

from vodozemac import Account, GroupSession, InboundGroupSession

TEXT = bytes(256)
SETUPS, TURNS, MESSAGES = 40, 200, 1000

try:
    allocations = ctypes.CDLL(None).ratchet_allocations
    allocations.restype = ctypes.c_ulong
except AttributeError:
    allocations = lambda: 0


def measure(name, count, run):
    made, begin = allocations(), time.process_time()
    result = run()
    spent, made = time.process_time() - begin, allocations() - made
    print(name, spent * 1e6 / count)
    print(f"{name}-allocations", made / count)
    return result


alice, bob = Account(), Account()


def set_up(keys):
    for key in keys:
        ours = alice.create_outbound_session(bob.curve25519_key, key)
        theirs, _ = bob.create_inbound_session(alice.curve25519_key, ours.encrypt(TEXT).to_pre_key())
    return ours, theirs


bob.generate_one_time_keys(SETUPS)
ours, theirs = measure("setup", SETUPS, lambda keys=list(bob.one_time_keys.values()): set_up(keys))
ours.decrypt(theirs.encrypt(TEXT))


def ping_pong():
    for _ in range(TURNS):
        theirs.decrypt(ours.encrypt(TEXT))
        ours.decrypt(theirs.encrypt(TEXT))


measure("ping-pong", 2 * TURNS, ping_pong)
sealed = measure("encrypt", MESSAGES, lambda: [ours.encrypt(TEXT) for _ in range(MESSAGES)])
print("message-bytes", len(sealed[MESSAGES // 2].to_parts()[1]))
measure("decrypt", MESSAGES, lambda: [theirs.decrypt(message) for message in sealed])
print("state-bytes", len(theirs.pickle(bytes(32))))

group = GroupSession()
member = InboundGroupSession(group.session_key)
sealed = measure("group-encrypt", TURNS, lambda: [group.encrypt(TEXT) for _ in range(TURNS)])
print("group-bytes", len(sealed[0].to_bytes()))
measure("group-decrypt", TURNS, lambda: [member.decrypt(message) for message in sealed])
