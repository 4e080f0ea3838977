import TestKit
import Testing

@testable import DoubleRatchet

/// A device with a store, whose rows are kept the way a database would: a step's changes all at once.
private struct Owner: ~Copyable {
    let identity: IdentityKeyPair
    var store: PreKeyStore
    var rows = PreKeyRows()
    var random: SeededGenerator

    init(seed: UInt64, limits: PreKeyLimits = PreKeyLimits()) {
        random = SeededGenerator(seed: seed)
        identity = IdentityKeyPair(random: &random)
        store = PreKeyStore(limits: limits)
    }

    mutating func bundle(at now: Int64 = 0, withKEM: Bool = false, forOne: Bool = true) -> PreKeyBundle {
        var changes: [PreKeyChange] = []
        let bundle =
            forOne
            ? store.bundleForOne(identity: identity, withKEM: withKEM, at: now, random: &random, &changes)
            : store.bundle(identity: identity, at: now, random: &random, &changes)
        rows.keep(changes)
        return bundle
    }

    func begin(
        _ message: [UInt8], expecting: IdentityKey? = nil, into output: inout [UInt8]
    ) throws(RatchetError) -> PreKeyStore.Beginning {
        let data: [UInt8] = []
        return try store.begin(
            identity: identity, message: message.span, associatedData: data.span, expecting: expecting,
            plaintext: &output)
    }

    /// Opens a first message and commits the session.
    mutating func respond(to message: [UInt8], at now: Int64 = 0) throws(RatchetError) -> Session {
        var output: [UInt8] = []
        let beginning = try begin(message, into: &output)
        var changes: [PreKeyChange] = []
        let session = try beginning.commit(to: &store, at: now, &changes)
        rows.keep(changes)
        return session
    }

    func refusal(of message: [UInt8], expecting: IdentityKey? = nil) -> RatchetError? {
        var output: [UInt8] = [7]
        do {
            _ = try begin(message, expecting: expecting, into: &output)
            return nil
        } catch {
            #expect(output == [7])
            return error
        }
    }

    mutating func restart() throws { store = try rows.store(store.limits) }
}

private func firstMessage(
    _ text: [UInt8] = [1], to bundle: PreKeyBundle, _ random: inout SeededGenerator
) throws -> [UInt8] {
    let identity = IdentityKeyPair(random: &random)
    var session = try Session.initiate(identity: identity, with: bundle, expecting: nil, random: &random)
    return try session.seal(text, random: &random)
}

@Suite("The store of prekeys")
struct PreKeyStoreTests {
    private let day: Int64 = 86_400_000

    @Test("a bundle for one reader begins a session, and its keys are gone with the commit", arguments: [false, true])
    func oneUse(withKEM: Bool) throws {
        var bob = Owner(seed: 1)
        var random = SeededGenerator(seed: 2)
        let bundle = bob.bundle(withKEM: withKEM)
        #expect(bundle.kemPreKey.isLastResort != withKEM)
        let message = try firstMessage([5], to: bundle, &random)
        let before = bob.rows
        var output: [UInt8] = []
        let beginning = try bob.begin(message, into: &output)
        #expect(output == [5] && bob.store.oneTimeCount == 1 && bob.rows == before, "nothing is used by opening")
        var changes: [PreKeyChange] = []
        _ = try beginning.commit(to: &bob.store, at: 0, &changes)
        bob.rows.keep(changes)
        #expect(bob.store.oneTimeCount == 0 && bob.store.oneTimeKEMCount == 0)
        #expect(changes.count == (withKEM ? 2 : 1) && bob.rows.count == before.count - changes.count)
    }

    @Test("a prekey that has exceeded its lifetime starts no session, though no rotation has removed it")
    func expired() throws {
        var bob = Owner(seed: 31)
        var random = SeededGenerator(seed: 32)
        let (first, second) = (
            try firstMessage(to: bob.bundle(), &random), try firstMessage(to: bob.bundle(), &random)
        )
        _ = try bob.respond(to: first, at: bob.store.limits.lifetime - 1)
        let before = bob.rows
        #expect(throws: RatchetError.unknownPreKey) { _ = try bob.respond(to: second, at: bob.store.limits.lifetime) }
        #expect(bob.rows == before)
    }

    @Test("what is dropped before the commit has used nothing") func dropped() throws {
        var bob = Owner(seed: 3)
        var random = SeededGenerator(seed: 4)
        let message = try firstMessage(to: bob.bundle(), &random)
        for _ in 0..<3 { #expect(bob.refusal(of: message) == nil) }
        _ = try bob.respond(to: message)
    }

    @Test("attack: the same first message twice, also after a restart", arguments: [true, false])
    func twice(oneTime: Bool) throws {
        var bob = Owner(seed: 5)
        var random = SeededGenerator(seed: 6)
        let identity = IdentityKeyPair(random: &random)
        var alice = try Session.initiate(
            identity: identity, with: bob.bundle(forOne: oneTime), expecting: nil, random: &random)
        let (first, second) = (try alice.seal([1], random: &random), try alice.seal([2], random: &random))
        _ = try bob.respond(to: first)
        for message in [first, second] { #expect(bob.refusal(of: message) == .unknownPreKey) }
        try bob.restart()
        for message in [first, second] { #expect(bob.refusal(of: message) == .unknownPreKey) }
    }

    @Test("attack: one one-time key, given to two initiators") func twoInitiators() throws {
        var bob = Owner(seed: 7)
        var random = SeededGenerator(seed: 8)
        let bundle = bob.bundle()
        let messages = [try firstMessage(to: bundle, &random), try firstMessage(to: bundle, &random)]
        // Both are open at the same time; only one can be committed.
        var output: [UInt8] = []
        let one = try bob.begin(messages[0], into: &output)
        let two = try bob.begin(messages[1], into: &output)
        var changes: [PreKeyChange] = []
        _ = try two.commit(to: &bob.store, at: 0, &changes)
        let committed = changes.count
        do {
            _ = try one.commit(to: &bob.store, at: 0, &changes)
            Issue.record("a prekey was used twice")
        } catch {
            #expect(error == .unknownPreKey && changes.count == committed)
        }
        #expect(bob.refusal(of: messages[0]) == .unknownPreKey)
    }

    @Test("attack: a one-time KEM key alone is used once as well") func kemAlone() throws {
        var bob = Owner(seed: 9)
        var random = SeededGenerator(seed: 10)
        let shared = bob.bundle(forOne: false)
        var changes: [PreKeyChange] = []
        let kem = bob.store.makeOneTimeKEMKeys(1, identity: bob.identity, at: 0, random: &bob.random, &changes)
        bob.rows.keep(changes)
        let bundle = PreKeyBundle(
            identity: shared.identity, signedPreKey: shared.signedPreKey, kemPreKey: kem[0], oneTimePreKey: nil)
        let messages = [try firstMessage(to: bundle, &random), try firstMessage(to: bundle, &random)]
        _ = try bob.respond(to: messages[0])
        for message in messages { #expect(bob.refusal(of: message) == .unknownPreKey) }
        #expect(bob.store.begun.isEmpty, "where a key is gone, nothing needs to be remembered")
    }

    @Test("attack: forged first messages use no prekey") func forged() throws {
        var bob = Owner(seed: 11)
        var random = SeededGenerator(seed: 12)
        let message = try firstMessage(to: bob.bundle(withKEM: true), &random)
        let before = bob.rows
        for place in stride(from: 1, to: message.count, by: 13) {
            var forged = message
            forged[place] ^= UInt8(1 << random.below(8))
            #expect(bob.refusal(of: forged) != nil, "\(place)")
        }
        let stranger = IdentityKeyPair(random: &random).publicKey
        #expect(bob.refusal(of: message, expecting: stranger) == .untrustedIdentity)
        #expect(bob.rows == before && bob.store.oneTimeCount == 1 && bob.store.oneTimeKEMCount == 1)
        _ = try bob.respond(to: message)
    }

    @Test("prekeys that are not there, and those of another device") func unknown() throws {
        var bob = Owner(seed: 13)
        var carol = Owner(seed: 14)
        var random = SeededGenerator(seed: 15)
        let message = try firstMessage(to: bob.bundle(), &random)
        #expect(carol.refusal(of: message) == .unknownPreKey)
        _ = carol.bundle()
        #expect(carol.refusal(of: message) == .authenticationFailed, "the same numbers, other keys")
        #expect(carol.store.oneTimeCount == 1)
        #expect(bob.refusal(of: []) == .malformed)
        #expect(bob.refusal(of: [0x20]) == .malformed)
    }

    @Test("where a one-time prekey is asked for, a message without one begins nothing") func needsOneTime() throws {
        var limits = PreKeyLimits()
        limits.needsOneTimePreKey = true
        var bob = Owner(seed: 16, limits: limits)
        var random = SeededGenerator(seed: 17)
        let without = try firstMessage(to: bob.bundle(forOne: false), &random)
        #expect(bob.refusal(of: without) == .unknownPreKey)
        let with = try firstMessage(to: bob.bundle(), &random)
        #expect(bob.refusal(of: with) == nil)
    }

    @Test("rotation: a week in use, a month of life, and none of it before its time") func rotation() throws {
        var bob = Owner(seed: 18)
        var random = SeededGenerator(seed: 19)
        let first = bob.bundle(at: 0, forOne: false)
        let same = bob.bundle(at: 7 * day - 1, forOne: false)
        #expect(same == first && !bob.store.isRotationDue(at: 7 * day - 1))
        #expect(bob.store.isRotationDue(at: 7 * day))
        let second = bob.bundle(at: 7 * day, forOne: false)
        #expect(second.signedPreKey != first.signedPreKey && second.kemPreKey != first.kemPreKey)
        // Who has read the first one may use it for as long as it lives.
        let late = try firstMessage(to: first, &random)
        #expect(bob.refusal(of: late) == nil)
        var time = 14 * day
        while time < 30 * day {
            _ = bob.bundle(at: time)
            #expect(bob.refusal(of: late) == nil, "\(time)")
            time += 7 * day
        }
        _ = bob.bundle(at: 35 * day)
        #expect(bob.refusal(of: late) == .unknownPreKey)
        #expect(bob.store.signed.count == 5 && bob.store.kem.count == 5)
        // For ever, it stays so.
        for week in 6..<60 { _ = bob.bundle(at: Int64(week) * 7 * day, forOne: false) }
        #expect(
            bob.store.signed.count <= 5 && bob.store.kem.count <= 5 && bob.rows.count <= 10 + bob.store.oneTimeCount)
    }

    @Test("a signed prekey of before the mark starts sessions of version 2, and a marked one is published at once")
    func unmarked() throws {
        var bob = Owner(seed: 34)
        var random = SeededGenerator(seed: 35)
        let last = bob.bundle(at: 0, forOne: false)
        // The store as the earlier version has left it: numbers without the mark.
        let marked = try #require(bob.rows.rows.keys.first { $0.kind == .signed })
        let signed = SignedPreKey(marked: 1, identity: bob.identity, random: &random)
        let unmarked = PreKeyBundle(
            identity: last.identity, signedPreKey: signed.publicKey, kemPreKey: last.kemPreKey, oneTimePreKey: nil)
        let record = PreKeyRecord(
            name: .init(.signed, 1), madeAt: 0, content: .signed(PreKeyStore.Signed(signed, madeAt: 0)))
        bob.rows.keep([.remove(marked), .put(record)])
        try bob.restart()

        #expect(bob.store.isRotationDue(at: 1) == true)
        let bundle = bob.bundle(at: 1, forOne: false)
        #expect(bundle.signedPreKey.id == SignedPreKey.Public.paddedHeaderMark | 3)
        #expect(bundle.kemPreKey == last.kemPreKey)
        #expect(bob.store.isRotationDue(at: 1) == false)
        let first = try firstMessage(to: unmarked, &random)
        #expect(first[0] >> 4 == 2)
        let exact = try bob.respond(to: first, at: 1).version
        #expect(exact == .exactHeader)
        let second = try firstMessage(to: bundle, &random)
        #expect(second[0] >> 4 == 3)
        let padded = try bob.respond(to: second, at: 1).version
        #expect(padded == .paddedHeader)
        let late = try firstMessage(to: unmarked, &random)
        #expect(bob.refusal(of: late) == nil)
        _ = bob.bundle(at: 31 * day, forOne: false)
        #expect(bob.refusal(of: late) == .unknownPreKey)
    }

    @Test("sessions without a one-time key are remembered, bounded, and forgotten with the signed prekey")
    func begunSessions() throws {
        var limits = PreKeyLimits()
        limits.begun = 3
        var bob = Owner(seed: 20, limits: limits)
        var random = SeededGenerator(seed: 21)
        let bundle = bob.bundle(at: 0, forOne: false)
        for _ in 0..<3 { _ = try bob.respond(to: try firstMessage(to: bundle, &random)) }
        let fourth = try firstMessage(to: bundle, &random)
        #expect(bob.refusal(of: fourth) == .unknownPreKey, "full")
        let withKey = try firstMessage(to: bob.bundle(), &random)
        #expect(bob.refusal(of: withKey) == nil, "a one-time key begins one still")
        _ = bob.bundle(at: 31 * day, forOne: false)
        #expect(bob.store.begun.isEmpty)
        _ = try bob.respond(to: try firstMessage(to: bob.bundle(at: 31 * day, forOne: false), &random))
    }

    @Test("one-time keys are bounded, the oldest go") func bounds() throws {
        var limits = PreKeyLimits()
        (limits.oneTime, limits.oneTimeKEM) = (10, 4)
        var bob = Owner(seed: 22, limits: limits)
        var random = SeededGenerator(seed: 23)
        let oldest = try firstMessage(to: bob.bundle(withKEM: true), &random)
        var changes: [PreKeyChange] = []
        let keys = bob.store.makeOneTimeKeys(10, at: 1, random: &bob.random, &changes)
        #expect(keys.count == 10 && Set(keys.map(\.id)).count == 10)
        _ = bob.store.makeOneTimeKEMKeys(4, identity: bob.identity, at: 1, random: &bob.random, &changes)
        bob.rows.keep(changes)
        #expect((bob.store.oneTimeCount, bob.store.oneTimeKEMCount) == (10, 4))
        #expect(bob.rows.count == 10 + 4 + 2, "a signed prekey and a last resort, which do not count")
        #expect(bob.refusal(of: oldest) == .unknownPreKey)
    }

    @Test("a directory gets more below the low watermark, and never more than it may have") func replenishment() {
        let store = PreKeyStore()
        #expect([0, 1, 24, 25, 50, 51].map { store.replenishment(left: $0) } == [50, 49, 26, 0, 0, 0])
    }

    @Test("numbers do not come back after a restart while a later key waits") func numbers() throws {
        var bob = Owner(seed: 24)
        let first = bob.bundle()
        try bob.restart()
        let second = bob.bundle()
        #expect(try #require(second.oneTimePreKey).id > (try #require(first.oneTimePreKey).id))
        #expect(second.signedPreKey == first.signedPreKey)
    }

    @Test("rows, byte for byte, and back") func rows() throws {
        var bob = Owner(seed: 25)
        var random = SeededGenerator(seed: 26)
        let bundle = bob.bundle(at: 0x0102_0304, withKEM: true)
        _ = try bob.respond(to: try firstMessage(to: bob.bundle(at: 0x0102_0304, forOne: false), &random), at: 9)
        let kinds = bob.rows.rows.sorted { $0.key.number < $1.key.number }.map { ($0.key, $0.value) }
        #expect(kinds.map(\.0.kind) == [.signed, .kem, .oneTime, .kem, .begun])
        try #require(kinds.count == 5)
        #expect(kinds.map(\.1.count) == [141, 1710, 77, 1710, 40])
        #expect(
            kinds[0].1.prefix(9) == [0, 0, 0, 0, 1, 2, 3, 4, 1] && kinds[4].1.prefix(8) == [0, 0, 0, 0, 0, 0, 0, 9])
        var expected: [UInt8] = []
        bundle.signedPreKey.serialize(into: &expected)
        #expect(Array(kinds[0].1.suffix(100)) == expected)
        for (name, bytes) in kinds {
            var again: [UInt8] = []
            try PreKeyRecord(name: name, serialized: bytes.span).serialize(into: &again)
            #expect(again == bytes)
            for length in bytes.indices {
                let cut = Array(bytes[..<length])
                #expect(throws: RatchetError.malformed) { _ = try PreKeyRecord(name: name, serialized: cut.span) }
            }
            #expect(throws: RatchetError.malformed) {
                let longer = bytes + [0]
                _ = try PreKeyRecord(name: name, serialized: longer.span)
            }
            // Under another number or as another kind it is refused, so rows cannot be exchanged by mistake.
            for kind in PreKeyRecord.Kind.allCases where kind != .begun || name.kind != .begun {
                #expect(throws: (any Error).self, "\(name.kind) as \(kind)") {
                    _ = try PreKeyRecord(name: .init(kind, name.id &+ 1), serialized: bytes.span)
                }
            }
        }
    }
}
