#!/usr/bin/env python3
"""A peer of a data channel that sends back what it receives.

usage: webrtc_peer.py FOLDER offer|answer

It writes its SDP to FOLDER/own.sdp and reads the other side's from FOLDER/other.sdp. All connections are on loopback.
"""
import asyncio
import os
import sys

import aioice.ice
from aiortc import RTCPeerConnection, RTCSessionDescription

# The library leaves loopback out; the tests use nothing else.
aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]


async def main(folder, role):
    peer = RTCPeerConnection()
    ended = asyncio.Event()

    def use(channel):
        @channel.on("message")
        def received(message):
            channel.send(message)
            if isinstance(message, str):
                print("text", message, flush=True)
                ended.set()

    async def describe(description):
        await peer.setLocalDescription(description)
        path = os.path.join(folder, "own.sdp")
        with open(path + ".new", "w", newline="") as file:
            file.write(peer.localDescription.sdp)
        os.rename(path + ".new", path)

    async def read(kind):
        path = os.path.join(folder, "other.sdp")
        while not os.path.exists(path):
            await asyncio.sleep(0.01)
        with open(path, newline="") as file:
            await peer.setRemoteDescription(RTCSessionDescription(file.read(), kind))

    if role == "offer":
        use(peer.createDataChannel("pawl"))
        await describe(await peer.createOffer())
        await read("answer")
    else:
        peer.on("datachannel", use)
        await read("offer")
        # As the client of DTLS, aiortc offers ciphers for ECDSA alone; the certificate of GStreamer 1.22 is for RSA.
        answer = await peer.createAnswer()
        await describe(RTCSessionDescription(answer.sdp.replace("a=setup:active", "a=setup:passive"), "answer"))
    await ended.wait()
    # The reply has to leave before the connection ends.
    await asyncio.sleep(0.5)
    await peer.close()
    print("done", flush=True)


asyncio.run(main(sys.argv[1], sys.argv[2]))
