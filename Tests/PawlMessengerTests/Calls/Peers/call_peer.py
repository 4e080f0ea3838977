#!/usr/bin/env python3
"""A participant of a call: aiortc for the media, CallVictim for the signalling.

usage: call_peer.py VICTIM PLACE call NAME PEER          calls, plays 440 Hz and sends a text
       call_peer.py VICTIM PLACE answer NAME PEER        answers, plays 880 Hz and sends the text back
       call_peer.py VICTIM PLACE join NAME OTHER OTHER   takes part in a group call of three
       call_peer.py VICTIM PLACE serve NAME A B C        is the server of that group call (SFU)
       call_peer.py VICTIM PLACE ring NAME PEER          calls, and waits for the end
       call_peer.py VICTIM PLACE watch NAME PEER         waits for two kinds of forgeries, or for an offer

PLACE is a directory, or the address of a chat with the generic REST API. What it has seen it prints, a line each. All
connections are on loopback.
"""
import array
import asyncio
import fractions
import json
import math
import os
import sys
import time
import uuid

import aioice.ice
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from aiortc.contrib.media import MediaRelay
from aiortc.mediastreams import MediaStreamTrack
from aiortc.sdp import candidate_from_sdp
from av import AudioFrame

# The library leaves loopback out; the tests use nothing else.
aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]

RATE = 48000
TONES = [440, 880, 1320]
ROOM = "#standup_0a1b2c3d-4e5f-4a6b-8c7d-9e0f1a2b3c4d"


def say(*words):
    print(*words, flush=True)


class Messenger:
    """CallVictim, and what it has reported."""

    async def start(self, victim, spool, name, *options):
        self.name = name
        self.process = await asyncio.create_subprocess_exec(
            victim, spool, name, *options, stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 20)
        self.waiting = []
        await self.event("ready")

    async def read(self):
        line = await self.process.stdout.readline()
        if not line:
            raise EOFError("the messenger has ended")
        event = json.loads(line)
        if event["event"] == "failed":
            raise RuntimeError(event["text"])
        return event

    async def event(self, *kinds):
        """The next event of some kinds; others wait."""
        for event in self.waiting:
            if event["event"] in kinds:
                self.waiting.remove(event)
                return event
        while True:
            event = await self.read()
            if event["event"] in kinds:
                return event
            self.waiting.append(event)

    async def do(self, what, **members):
        self.process.stdin.write(json.dumps({"do": what, **members}).encode() + b"\n")
        await self.process.stdin.drain()
        await self.event("sent")

    async def end(self):
        self.process.stdin.close()
        await self.process.wait()


class Tone(MediaStreamTrack):
    """A sine wave, 20 ms a frame."""

    kind = "audio"

    def __init__(self, frequency):
        super().__init__()
        self.frequency, self.place, self.start = frequency, 0, time.monotonic()

    async def recv(self):
        await asyncio.sleep(max(0, self.start + self.place / RATE - time.monotonic()))
        count = RATE // 50
        samples = array.array("h", (
            int(12000 * math.sin(2 * math.pi * self.frequency * (self.place + n) / RATE)) for n in range(count)))
        frame = AudioFrame(format="s16", layout="mono", samples=count)
        frame.planes[0].update(samples.tobytes())
        frame.sample_rate, frame.pts, frame.time_base = RATE, self.place, fractions.Fraction(1, RATE)
        self.place += count
        return frame


async def heard(track):
    """The tone of a track: the first of the tones that is much louder than the others over half a second."""
    samples = array.array("h")
    while True:
        frame = await track.recv()
        channels = len(frame.layout.channels)
        part = array.array("h")
        part.frombytes(bytes(frame.planes[0])[: frame.samples * channels * 2])
        samples.extend(part[::channels])
        if len(samples) < RATE // 2:
            continue
        powers = []
        for tone in TONES:
            step = 2 * math.pi * tone / RATE
            real = sum(value * math.cos(step * n) for n, value in enumerate(samples))
            imaginary = sum(value * math.sin(step * n) for n, value in enumerate(samples))
            powers.append(math.hypot(real, imaginary) / len(samples))
        loudest = max(range(len(TONES)), key=lambda n: powers[n])
        if powers[loudest] > 500 and all(powers[loudest] > 10 * p for n, p in enumerate(powers) if n != loudest):
            return TONES[loudest]
        samples = array.array("h")


def connection():
    return RTCPeerConnection(RTCConfiguration(iceServers=[]))


def split(description):
    """A description without its candidates, and the candidates."""
    lines, candidates, place, mid = [], [], -1, None
    for line in description.sdp.splitlines():
        if line.startswith("m="):
            place, mid = place + 1, None
        if line.startswith("a=mid:"):
            mid = line[6:]
        if line.startswith("a=candidate:"):
            candidates.append((place, line[2:]))
        elif line != "a=end-of-candidates":
            lines.append(line)
    mids = [line[6:] for line in lines if line.startswith("a=mid:")]
    text = "\r\n".join(lines) + "\r\n"
    return {"sdp": text, "type": description.type}, [
        {"id": number, "sdp": line, "sdpMLineIndex": place, "sdpMid": mids[place]}
        for number, (place, line) in enumerate(candidates)]


async def add(pc, event):
    found = event["candidate"]
    candidate = candidate_from_sdp(found["sdp"].split(":", 1)[1])
    candidate.sdpMid, candidate.sdpMLineIndex = found["sdpMid"], found["sdpMLineIndex"]
    await pc.addIceCandidate(candidate)


def participant(name):
    return {"secretName": name, "nickname": name, "deviceId": ""}


def new_call(sender, recipients, room):
    # Swift counts dates from 2001.
    return {
        "id": str(uuid.uuid4()).upper(), "sharedCommunicationId": room, "sender": participant(sender),
        "recipients": [participant(name) for name in recipients], "createdAt": 0, "supportsVideo": False}


async def offer(messenger, pc, call):
    """Offers. The candidates follow one by one."""
    await pc.setLocalDescription(await pc.createOffer())
    sdp, candidates = split(pc.localDescription)
    # The first candidate is there before the offer.
    await messenger.do("candidate", call=call, candidate=candidates[0])
    await messenger.do("offer", call=call, sdp=sdp)
    for candidate in candidates[1:]:
        await messenger.do("candidate", call=call, candidate=candidate)


async def take_answer(messenger, pc):
    """Candidates come before the answer."""
    while True:
        event = await messenger.event("candidate", "answer")
        if event["event"] == "answer":
            return await pc.setRemoteDescription(RTCSessionDescription(event["sdp"]["sdp"], event["sdp"]["type"]))
        await add(pc, event)


async def answer(messenger, pc, event):
    await pc.setLocalDescription(await pc.createAnswer())
    sdp, candidates = split(pc.localDescription)
    call = event["call"]
    for candidate in candidates:
        await messenger.do("candidate", call=call, candidate=candidate)
    await messenger.do("answer", call=call, sdp=sdp, metadata=event["metadata"])


async def exchange_keys(messenger, peer):
    """Over a chat of old, keys go to those who have written."""
    await messenger.do("text", to=peer, text="hello")
    while True:
        await messenger.do("number", to=peer)
        if (await messenger.event("number")).get("text"):
            return
        await asyncio.sleep(0.1)


async def ring(messenger, peer):
    pc = connection()
    pc.addTrack(Tone(TONES[0]))
    await offer(messenger, pc, new_call(messenger.name, [peer], ROOM))
    say("end", (await messenger.event("end", "answer")).get("state", "answered"))
    await pc.close()


async def watch(messenger):
    seen = set()
    while len(seen) < 2:
        event = await messenger.event("unreadable", "offer")
        word = "offered" if event["event"] == "offer" else "unreadable " + event["text"]
        if word not in seen:
            say(word)
        seen.add(word)


async def call_of_two(messenger, peer, calls):
    pc, arrived, tracks = connection(), asyncio.Queue(), asyncio.Queue()
    pc.on("track", lambda track: tracks.put_nowait(track))
    pc.addTrack(Tone(440 if calls else 880))
    if calls:
        channel = pc.createDataChannel("chat")
        channel.on("open", lambda: channel.send("a text over the data channel"))
        channel.on("message", arrived.put_nowait)
        call = new_call(messenger.name, [peer], str(uuid.uuid4()))
        await offer(messenger, pc, call)
        await messenger.do("ciphertext", call=call, to=peer, connectionId="k/1", text="an opaque key")
        await take_answer(messenger, pc)
    else:
        def open_channel(channel):
            def echo(message):
                arrived.put_nowait(message)
                channel.send("back: " + message)
            channel.on("message", echo)
        pc.on("datachannel", open_channel)
        event = await messenger.event("offer")
        say("offered by", event["metadata"]["offerSecretName"])
        await pc.setRemoteDescription(RTCSessionDescription(event["sdp"]["sdp"], "offer"))
        await add(pc, await messenger.event("candidate"))
        await answer(messenger, pc, event)
        key = await messenger.event("ciphertext")
        say("key", key["connectionId"], key["text"])
    say("heard", await heard(await tracks.get()))
    say("data", await arrived.get())
    if calls:
        # The other side has heard it too: it sends a key then.
        await messenger.event("ciphertext")
        await messenger.do("end", call=call, state="userInitiated")
    else:
        await messenger.do("ciphertext", call=event["call"], to=peer, connectionId="k/2", text="done")
        say("end", (await messenger.event("end"))["state"])
    await pc.close()


async def join(messenger, others, directory):
    name, server = messenger.name, "conference"
    await messenger.do("text", to=server, text="hello")
    number = os.path.join(directory, "number-" + name)
    while not os.path.exists(number):
        await asyncio.sleep(0.05)
    with open(number) as file:
        await messenger.do("pin", to=server, text=file.read())
    pc, arrived, tracks = connection(), asyncio.Queue(), asyncio.Queue()
    pc.on("track", lambda track: tracks.put_nowait(track))
    place = sorted([name] + others).index(name)
    pc.addTransceiver(Tone(TONES[place]), direction="sendonly")
    for _ in others:
        pc.addTransceiver("audio", direction="recvonly")
    channel = pc.createDataChannel("chat")
    channel.on("message", arrived.put_nowait)
    call = new_call(name, ["sfu"] + others, ROOM)
    await offer(messenger, pc, call)
    for other in others:
        await messenger.do("ciphertext", call=call, to=other, connectionId="pair", text="key of " + name)
    await take_answer(messenger, pc)
    tones = await asyncio.gather(*[heard(await tracks.get()) for _ in others])
    say("heard", *sorted(tones))
    keys = [await messenger.event("ciphertext") for _ in others]
    say("keys", *sorted(key["to"] + "=" + key["text"].split()[-1] for key in keys))
    roster = await messenger.event("roster")
    say("roster", *[member["secretName"] for member in roster["participants"]])
    while channel.readyState != "open":
        await asyncio.sleep(0.02)
    channel.send("from " + name)
    say("data", *sorted([await arrived.get() for _ in others]))
    await messenger.do("end", call=call, state="userInitiated")
    await pc.close()


async def serve(messenger, names, directory):
    for name in names:
        text = None
        while text is None:
            await messenger.do("number", to=name)
            text = (await messenger.event("number")).get("text")
            await asyncio.sleep(0.05)
        # The numbers are compared by other means than the chat's server.
        path = os.path.join(directory, "number-" + name)
        with open(path + ".part", "w") as file:
            file.write(text)
        os.rename(path + ".part", path)
    relay, sides, channels, waiting = MediaRelay(), {}, [], []
    ready = asyncio.Event()

    def open_channel(channel):
        channels.append(channel)
        if len(channels) == len(names):
            ready.set()

        def forward(message):
            waiting.append((channel, message))
            if ready.is_set():
                for sender, text in waiting:
                    for other in channels:
                        if other is not sender:
                            other.send(text)
                waiting.clear()
        channel.on("message", forward)

    # A connection needs a candidate before it begins.
    candidates = set()
    while len(sides) < len(names) or len(candidates) < len(names):
        event = await messenger.event("offer", "candidate")
        name = event["call"]["sender"]["secretName"]
        if event["event"] == "candidate":
            await add(sides[name][0], event)
            candidates.add(name)
            continue
        pc, tracks = connection(), []
        pc.on("track", tracks.append)
        pc.on("datachannel", open_channel)
        sides[name] = (pc, tracks, event)
        await pc.setRemoteDescription(RTCSessionDescription(event["sdp"]["sdp"], "offer"))
    for name, (pc, _, event) in sides.items():
        audio = [t for t in pc.getTransceivers() if t.kind == "audio"]
        others = [sides[other][1][0] for other in names if other != name]
        audio[0].direction = "recvonly"
        for transceiver, track in zip(audio[1:], others):
            transceiver.sender.replaceTrack(relay.subscribe(track))
            transceiver.direction = "sendonly"
        await answer(messenger, pc, event)
    for name, (_, _, event) in sides.items():
        await messenger.do(
            "roster", call=event["call"], to=name, participants=[participant(other) for other in names])
    for _ in names:
        event = await messenger.event("end")
        say("left", event["call"]["sender"]["secretName"], event["state"])
    for pc, _, _ in sides.values():
        await pc.close()


async def main():
    victim, place, mode, name, *others = sys.argv[1:]
    messenger, is_chat = Messenger(), place.startswith(("http:", "irc:"))
    spool = place if is_chat else os.path.join(place, "spool")
    await messenger.start(victim, spool, name, *(["server"] if mode == "serve" else []))
    say("ready")
    if mode in ("call", "answer"):
        if mode == "call" and is_chat:
            await exchange_keys(messenger, others[0])
        await call_of_two(messenger, others[0], mode == "call")
    elif mode == "ring":
        await ring(messenger, others[0])
    elif mode == "watch":
        await watch(messenger)
    elif mode == "join":
        await join(messenger, others, place)
    else:
        await serve(messenger, others, place)
    await messenger.end()
    say("done")


asyncio.run(main())
