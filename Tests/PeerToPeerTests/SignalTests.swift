import PawlMessenger
import PeerConnection
import TestKit
import Testing

/// Magic packets as signals carry them.
@Suite struct P2PSignalTests {
    private func signals() throws -> [P2PSignal] {
        let id = try #require(PeerConnectionID((0..<16).map { UInt8($0) }))
        let longest = String(repeating: "\u{1}", count: P2PSettings.magicPacketLimit)
        return [
            P2PSignal(connection: id, transport: "_ipv6-tcp", kind: .refused),
            P2PSignal(
                connection: id, transport: "A-1",
                kind: .packet(text: "v=0\r\n\"", metadata: try P2PMetadata(["a": 1]), secret: nil)),
            P2PSignal(
                connection: id, transport: String(repeating: "a", count: 32),
                kind: .packet(text: "", metadata: P2PMetadata(), secret: [UInt8](repeating: 255, count: 32))),
            P2PSignal(
                connection: id, transport: "t",
                kind: .packet(
                    text: longest, metadata: P2PMetadata(), secret: [UInt8](repeating: 1, count: 32)), instead: id),
        ]
    }

    @Test func signalsAreReadBack() throws {
        for signal in try signals() { #expect(P2PSignal(signal.text) == signal) }
        #expect(
            try signals()[0].text
                == #"{"connection":"AAECAwQFBgcICQoLDA0ODw","kind":"refused","transport":"_ipv6-tcp","version":1}"#)
    }

    @Test func cutSignalsAreRefused() throws {
        for signal in try signals().prefix(3) {
            let text = signal.text
            for length in 0..<text.count { #expect(P2PSignal(String(text.prefix(length))) == nil) }
            #expect(P2PSignal(text + "}") == nil)
        }
    }

    @Test func signalsOfOtherFormsAreRefused() throws {
        let good = try signals()[2].text
        #expect(P2PSignal(good) != nil)
        for (part, other) in [
            (#""version":1"#, #""version":2"#), (#""kind":"packet""#, #""kind":"call""#),
            (#""transport":"a"#, #""transport":"a b"#), (#""transport":"a"#, #""transport":"aa"#),
            (#""connection":"A"#, #""connection":"*"#), (#""connection":"AAEC"#, #""connection":""#),
            (#""secret":"__"#, #""secret":""#), (#""secret":"//"#, #""secret":""#), (#""text":"""#, #""text":1"#),
            (#""metadata":"{}""#, #""metadata":{}"#),
        ] where good.contains(part) {
            #expect(P2PSignal(good.replacing(part, with: other)) == nil, "\(other)")
        }
        let instead = try signals()[3].text
        #expect(P2PSignal(instead)?.instead == P2PSignal(instead)?.connection)
        for other in [#""instead":"""#, #""instead":"AAEC""#, #""instead":"*""#, #""instead":1"#] {
            let text = instead.replacing(#""instead":"AAECAwQFBgcICQoLDA0ODw""#, with: other)
            #expect(text != instead && P2PSignal(text) == nil, "\(other)")
        }
        let long = String(repeating: "a", count: P2PSettings.magicPacketLimit + 1)
        #expect(P2PSignal(good.replacing(#""text":"""#, with: #""text":"\#(long)""#)) == nil)
        #expect(P2PSignal(good.replacing(#""metadata":"{}""#, with: #""metadata":"\#(long)""#)) == nil)
    }

    @Test func theLongestPacketFitsASignal() throws {
        let lines = String(repeating: "\n", count: P2PSettings.magicPacketLimit)
        let quotes = String(repeating: "\"", count: P2PSettings.magicPacketLimit)
        let signal = P2PSignal(
            connection: try signals()[0].connection, transport: "t",
            kind: .packet(
                text: lines, metadata: P2PMetadata(json: quotes), secret: [UInt8](repeating: 1, count: 32)))
        #expect(signal.text.utf8.count < 60_000)
    }

    @Test func randomTextsAreReadOrRefused() throws {
        var generator = SeededGenerator(seed: 154)
        let good = try signals().prefix(3).map { Array($0.text.utf8) }
        var accepted = 0
        for round in 0..<10_000 {
            var bytes = round.isMultiple(of: 3) ? generator.bytes(generator.below(80)) : good[round % 3]
            for _ in 0..<generator.below(3) where !bytes.isEmpty {
                bytes[generator.below(bytes.count)] = UInt8(generator.below(256))
            }
            if let signal = P2PSignal(String(decoding: bytes, as: UTF8.self)) {
                accepted += 1
                #expect(P2PSignal(signal.text) == signal)
            }
        }
        #expect(accepted > 0)
    }

    @Test func metadataIsCodable() throws {
        struct Place: Codable, Equatable {
            var host: String
            var port: Int
        }
        let metadata = try P2PMetadata(Place(host: "::1", port: 1))
        #expect(try metadata.decode(Place.self) == Place(host: "::1", port: 1))
        #expect(throws: (any Error).self) { try metadata.decode([Int].self) }
        #expect(try P2PMetadata().decode([String: String].self) == [:])
    }
}
