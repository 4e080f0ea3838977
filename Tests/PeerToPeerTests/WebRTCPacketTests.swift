import TestKit
import Testing

@testable import PawlMessenger
@testable import PawlPeerToPeerWebRTC

/// What is read of the other side's session. Without the trait too: the parsers need no GStreamer.
@Suite struct WebRTCPacketTests {
    private func description(_ setup: WebRTCDescription.Setup = .actpass) throws -> WebRTCDescription {
        try #require(
            WebRTCDescription(
                user: "yfqjwLjV", password: "WC03K33mztMZL0IfNGC4ttDxJ5tnd0yc",
                fingerprint: (0..<32).map { UInt8($0 * 7) }, setup: setup, section: "application0", sctpPort: 5000))
    }

    private func packets() throws -> [WebRTCPacket] {
        let session = (0..<16).map { UInt8($0) }
        let host = try #require(WebRTCCandidate(kind: .host, host: "192.0.2.1", port: 40_000, priority: 2_015_364_095))
        let relay = try #require(WebRTCCandidate(kind: .relay, host: "2001:db8::1", port: 1024, priority: 1))
        return [
            WebRTCPacket(session: session, kind: .offer(try description()), candidates: [host, relay]),
            WebRTCPacket(session: session, kind: .answer(try description(.active)), candidates: []),
            WebRTCPacket(session: session, kind: .candidates, candidates: [relay]),
        ]
    }

    private func coded(_ packet: WebRTCPacket) throws -> String { try packet.metadata().json }

    @Test func packetsAreReadBack() throws {
        for packet in try packets() { #expect(WebRTCPacket(try packet.metadata()) == packet) }
    }

    @Test func theLongestPacketFitsAMagicPacket() throws {
        let longest = try #require(
            WebRTCDescription(
                user: String(repeating: "/", count: 64), password: String(repeating: "/", count: 128),
                fingerprint: [UInt8](repeating: 255, count: 32), setup: .passive,
                section: String(repeating: "a", count: 16), sctpPort: 65_535))
        let candidate = try #require(
            WebRTCCandidate(
                kind: .srflx, host: "2001:db8:1111:1111:1111:1111:1111:1111", port: 65_535, priority: Int(Int32.max)))
        let packet = WebRTCPacket(
            session: [UInt8](repeating: 255, count: 16), kind: .answer(longest),
            candidates: [WebRTCCandidate](repeating: candidate, count: 99))
        #expect(packet.candidates.count == 16)
        #expect(try coded(packet).utf8.count < P2PSettings.magicPacketLimit)
        #expect(WebRTCPacket(try packet.metadata()) == packet)
    }

    @Test func cutPacketsAreRefused() throws {
        for packet in try packets() {
            let text = try coded(packet)
            for length in 0..<text.count {
                #expect(WebRTCPacket(P2PMetadata(json: String(text.prefix(length)))) == nil)
            }
            #expect(WebRTCPacket(P2PMetadata(json: text + "}")) == nil)
        }
    }

    @Test func packetsOfOtherFormsAreRefused() throws {
        let good = try coded(packets()[0])
        for (part, other) in [
            (#""version":1"#, #""version":2"#), (#""kind":"offer""#, #""kind":"answer""#),
            (#""kind":"offer""#, #""kind":"call""#), (#""setup":"actpass""#, #""setup":"active""#),
            (#""setup":"actpass""#, #""setup":"holdconn""#), (#""session":"00"#, #""session":""#),
            (#""session":"00"#, #""session":"zz"#), (#""sctpPort":5000"#, #""sctpPort":0"#),
            (#""sctpPort":5000"#, #""sctpPort":65536"#), (#""sctpPort":5000"#, #""sctpPort":"5000""#),
            (#""fingerprint":"00"#, #""fingerprint":""#), (#""fingerprint":"00"#, #""fingerprint":"0000"#),
            (#""section":"application0""#, #""section":"a\r\na=x:""#), (#""section":"application0""#, #""section":"""#),
            (#""user":"yfqjwLjV""#, #""user":"yfq""#), (#""user":"yfqjwLjV""#, #""user":"yfqj\r\na=b""#),
            (#""password":"WC03"#, #""password":"W C03"#), (#""host":"192.0.2.1""#, #""host":1"#),
        ] {
            #expect(good.contains(part), "\(part)")
            #expect(WebRTCPacket(P2PMetadata(json: good.replacing(part, with: other))) == nil, "\(other)")
        }
        let place = #"{"kind":"host","host":"192.0.2.1","port":4000,"priority":1}"#
        for (count, isRead) in [(16, true), (17, false)] {
            let session = String(repeating: "00", count: 16)
            let places = [String](repeating: place, count: count).joined(separator: ",")
            let text = #"{"version":1,"kind":"candidates","session":"\#(session)","candidates":[\#(places)]}"#
            #expect((WebRTCPacket(P2PMetadata(json: text)) != nil) == isRead)
        }
    }

    /// Names are not resolved, and well-known ports are not reached.
    @Test func candidatesAreNumericAddresses() {
        for host in ["localhost", "a.local", "", "1.2.3", "1.2.3.4.5", "::1%lo", "1.2.3.4\0", " 1.2.3.4", "[::1]"] {
            #expect(WebRTCCandidate(kind: .host, host: host, port: 4000, priority: 1) == nil, "\(host)")
        }
        for port in [-1, 0, 22, 1023, 65_536] {
            #expect(WebRTCCandidate(kind: .host, host: "192.0.2.1", port: port, priority: 1) == nil)
        }
        for priority in [-1, 0, 1 << 31] {
            #expect(WebRTCCandidate(kind: .host, host: "192.0.2.1", port: 4000, priority: priority) == nil)
        }
        for host in [
            "0.0.0.0", "127.0.0.1", "127.1.2.3", "169.254.169.254", "224.0.0.1", "255.255.255.255", "::", "::1",
            "::ffff:127.0.0.1", "64:ff9b::1", "fe80::1", "febf::1", "ff02::1",
        ] {
            #expect(WebRTCAddress(host)?.isForOthers == false, "\(host)")
        }
        for host in ["192.0.2.1", "10.0.0.1", "2001:db8::1", "fd00::1"] {
            #expect(WebRTCAddress(host)?.isForOthers == true, "\(host)")
            #expect(WebRTCAddress(host)?.isLoopback == false)
        }
        #expect(WebRTCAddress("::1")?.isLoopback == true && WebRTCAddress("127.9.9.9")?.isLoopback == true)
    }

    @Test func attributesAreRead() throws {
        let srflx = try #require(
            WebRTCCandidate(
                attribute: "candidate:2 1 udp 1677729535 203.0.113.5 50000 typ srflx raddr 192.168.1.9 rport 40000"))
        #expect(srflx.host.text == "203.0.113.5" && srflx.kind == .srflx && srflx.port == 50_000)
        // The address behind the NAT is not passed on.
        #expect(
            srflx.attribute(foundation: 7)
                == "candidate:7 1 UDP 1677729535 203.0.113.5 50000 typ srflx raddr 0.0.0.0 rport 0")
        #expect(WebRTCCandidate(attribute: srflx.attribute(foundation: 1)) == srflx)
        for attribute in [
            "", "candidate:", "candidate:1 1 TCP 1015022591 192.0.2.1 9 typ host tcptype active",
            "candidate:1 2 UDP 1 192.0.2.1 4000 typ host", "candidate:1 1 UDP 1 192.0.2.1 4000 typ prflx",
            "candidate:1 1 UDP 1 name.local 4000 typ host", "candidate:1 1 UDP 1 192.0.2.1 4000 type host",
            "candidate:1 1 UDP -1 192.0.2.1 4000 typ host", "candidate:1 1 UDP 99999999999 192.0.2.1 4000 typ host",
            "candidate:1 1 UDP 1 192.0.2.1 4000 typ host" + String(repeating: " x", count: 300),
        ] {
            #expect(WebRTCCandidate(attribute: attribute) == nil, "\(attribute)")
        }
    }

    @Test func descriptionsAreReadBack() throws {
        for setup in [WebRTCDescription.Setup.actpass, .active, .passive] {
            let one = try description(setup)
            #expect(WebRTCDescription(sdp: one.sdp) == one)
            for line in ["a=ice-ufrag", "a=ice-pwd", "a=fingerprint", "a=setup", "a=mid", "a=sctp-port", "m="] {
                let lines = one.sdp.split(separator: "\r\n").filter { !$0.hasPrefix(line) }
                #expect(WebRTCDescription(sdp: lines.joined(separator: "\r\n")) == nil, "\(line)")
            }
        }
        let one = try description()
        #expect(WebRTCDescription(sdp: one.sdp + "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\n") == nil)
        #expect(WebRTCDescription(sdp: one.sdp + one.sdp) == nil)
        #expect(WebRTCDescription(sdp: one.sdp + "a=fingerprint:sha-512 00:11\r\n") == one)
        #expect(WebRTCDescription(sdp: one.sdp + String(repeating: "a=x\r\n", count: 4000)) == nil)
    }

    @Test func randomTextsAreReadOrRefused() throws {
        var generator = SeededGenerator(seed: 156)
        let texts = try packets().map { Array(try coded($0).utf8) } + [Array(try description().sdp.utf8)]
        let attribute = Array("candidate:1 1 UDP 2015364095 192.0.2.1 53307 typ host".utf8)
        var accepted = 0
        for round in 0..<10_000 {
            var bytes =
                round.isMultiple(of: 5) ? generator.bytes(generator.below(80)) : (texts + [attribute])[round % 5]
            for _ in 0..<generator.below(3) where !bytes.isEmpty {
                bytes[generator.below(bytes.count)] = UInt8(generator.below(256))
            }
            let text = String(decoding: bytes, as: UTF8.self)
            if let packet = WebRTCPacket(P2PMetadata(json: text)) {
                accepted += 1
                #expect(WebRTCPacket(try packet.metadata()) == packet)
            }
            // What was read makes SDP that is read again, and no other lines.
            if let description = WebRTCDescription(sdp: text) {
                #expect(WebRTCDescription(sdp: description.sdp) == description)
                #expect(description.sdp.split(separator: "\r\n").count == 15)
            }
            if let candidate = WebRTCCandidate(attribute: text) {
                #expect(WebRTCCandidate(attribute: candidate.attribute(foundation: 1)) == candidate)
            }
        }
        #expect(accepted > 0)
    }
}
