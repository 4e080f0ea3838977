import Envelope
import Protection
import StoreConformance
import StorePort
import Testing
import Vault

@Suite struct ContentKeyTests {
    private func key(_ number: Int) -> ContentKey {
        ContentKey(
            message: MessageID(UInt64(number)), digest: EnvelopeDigest(of: [UInt8(number & 0xFF)]), expiresAt: 1,
            bytes: [1])
    }

    @Test func memoryIsBoundedAndKeepsWhatIsUsed() {
        var keys = RememberedKeys()
        let limit = RememberedKeys.limit
        for number in 0..<3 * limit {
            keys.remember(key(number))
            // One that is asked for all the time.
            let used = keys.key(of: MessageID(7))
            guard (used != nil) == (number >= 7), keys.count <= limit else {
                Issue.record("after \(number)")
                return
            }
        }
        #expect(keys.count <= limit && keys.count > limit / 2)
        #expect(keys.key(of: MessageID(8)) == nil)
        #expect(keys.key(of: MessageID(UInt64(3 * limit - limit / 2))) != nil)
        for _ in 0..<limit { keys.remember(key(5)) }
        #expect(keys.key(of: MessageID(UInt64(3 * limit - 1))) != nil)
    }

    /// Each of them is in it: a sealed key opens in its own place alone.
    @Test func aPlaceIsOneMessages() {
        func place(_ id: UInt64, _ envelope: UInt8, _ room: String, _ expiry: Int64) -> String {
            Vault.label(
                ofKey: MessageID(id), EnvelopeDigest(of: [envelope]), .room(room), expiry)
        }
        let places = [
            place(1, 1, "r", 1), place(2, 1, "r", 1), place(1, 2, "r", 1), place(1, 1, "s", 1), place(1, 1, "r", 2),
        ]
        #expect(Set(places).count == 5)
        #expect(place(1, 1, "r", 1) == places[0])
    }

    /// Under another name of the network nothing opens, unless the earlier name is listed.
    @Test func earlierNamesOfTheNetworkOpenTheirHistory() throws {
        let store = InMemoryStore()
        let world = try HistoryWorld { store }
        let first = try world.write("under lab")
        func texts(_ messages: [WrittenMessage]) throws -> [String?] {
            try world.read(messages).map { outcome in
                if case .text(let text, _, _, _) = outcome { String(decoding: text, as: UTF8.self) } else { nil }
            }
        }
        try world.restart(network: "matrix")
        #expect(try texts([first]) == [nil])
        let second = try world.write("under matrix")
        try world.restart(network: "matrix", earlier: ["other", "lab"])
        #expect(try texts([first, second]) == ["under lab", "under matrix"])
        try world.restart(network: "lab", earlier: ["matrix"])
        #expect(try texts([first, second]) == ["under lab", "under matrix"])
    }

    @Test func aDigestIsTheFirstHalf() {
        // SHA-256 of "abc" (FIPS 180-4).
        let digest = EnvelopeDigest(of: Array("abc".utf8))
        #expect(
            digest.bytes == [
                0xba, 0x78, 0x16, 0xbf, 0x8f, 0x01, 0xcf, 0xea, 0x41, 0x41, 0x40, 0xde, 0x5d, 0xae, 0x22, 0x23,
            ])
        #expect(EnvelopeDigest(digest.bytes) == digest)
        #expect(EnvelopeDigest([1]) == nil)
        #expect(EnvelopeDigest(digest.bytes + [0]) == nil)
    }
}
