import TestKit
import Testing

@testable import DoubleRatchet
@testable import OMEMO

@Suite("Memory: the caller's, and what stays in its place")
struct MemoryTests {
    private let data: [UInt8] = [4, 5]

    private func sealed(_ text: [UInt8], _ session: inout Session, _ random: inout SeededGenerator) throws -> [UInt8] {
        let room = text.count + Session.maximumOverhead + (session.isEstablished ? 0 : Session.maximumPreKeyPart)
        return try [UInt8](capacity: room) { (output) throws(RatchetError) in
            try session.encrypt(text.span, associatedData: data.span, random: &random, into: &output)
        }
    }

    private func opened(_ message: [UInt8], _ session: inout Session) throws(RatchetError) -> [UInt8] {
        try [UInt8](capacity: message.count - Session.minimumOverhead) { (output) throws(RatchetError) in
            _ = try session.decrypt(message.span, associatedData: data.span, into: &output)
        }
    }

    @Test("into the caller's memory goes what goes into an array, byte for byte") func callersMemory() throws {
        var pair = try Pair(seed: 950)
        // The same two ends once more, with the same randomness ahead.
        var alice = try restored(pair.alice.state)
        var bob = try restored(pair.bob.state)
        for length in [0, 1, 15, 16, 17, 100, 2000] {
            let text = pair.random.bytes(length)
            var random = pair.random
            let message = try pair.alice.seal(text, data: data, random: &pair.random)
            #expect(try sealed(text, &alice, &random) == message)
            #expect(try opened(message, &bob) == text)
            #expect(try pair.bob.open(message, data: data) == text)
            let answer = try pair.bob.seal(text, data: data, random: &pair.random)
            #expect(try sealed(text, &bob, &random) == answer)
            #expect(try opened(answer, &alice) == text)
            #expect(try pair.alice.open(answer, data: data) == text)
            #expect(pair.alice.state == alice.state)
            #expect(pair.bob.state == bob.state)
        }
    }

    @Test("with a first message too, which has no more room than it needs at most") func firstMessage() throws {
        var random = SeededGenerator(seed: 951)
        let device = Device(&random)
        var alice = try Session.initiate(
            identity: IdentityKeyPair(random: &random), with: device.bundle, expecting: nil, random: &random)
        let message = try sealed([1, 2, 3], &alice, &random)
        var plaintext: [UInt8] = [9]
        _ = try device.respond(to: message, data: data, into: &plaintext)
        #expect(plaintext == [9, 1, 2, 3])
    }

    @Test("room for the plaintext is enough for every message, also for one without a header") func exactRoom() throws {
        var pair = try Pair(seed: 955)
        for size in [0, 16, 48] {
            let forged = [0x20, 0] + [UInt8](repeating: 3, count: 1 + 2 * KeySize.tag + size)
            #expect(forged.count == Session.minimumOverhead + size)
            #expect(throws: RatchetError.authenticationFailed) { _ = try opened(forged, &pair.bob) }
        }
        #expect(throws: RatchetError.malformed) { _ = try opened([UInt8](repeating: 0x20, count: 40), &pair.bob) }
    }

    @Test("a refusal leaves the caller's memory as full as it was") func refusal() throws {
        var pair = try Pair(seed: 952)
        var message = try sealed([1, 2, 3], &pair.alice, &pair.random)
        message[message.count - 1] ^= 1
        let before = pair.bob.state
        let memory = try [UInt8](capacity: 200) { (output) throws(RatchetError) in
            output.append(7)
            #expect(throws: RatchetError.authenticationFailed) {
                _ = try pair.bob.decrypt(message.span, associatedData: data.span, into: &output)
            }
        }
        #expect(memory == [7])
        #expect(pair.bob.state == before)
    }

    /// Without a step nobody but the session holds a chain's key, so the next one is written over it. A copy of a chain that
    /// lives on somewhere, and with it the past key, shows here.
    @Test("chains step in their place: no key of the past stays, and none is allocated") func inPlace() throws {
        var pair = try Pair(seed: 953)
        _ = try pair.bob.open(try pair.alice.seal([], random: &pair.random))
        let sending = pair.alice.ratchet.sending.map { ObjectIdentifier($0.key.secret) }
        let receiving = pair.bob.ratchet.receiving.map { ObjectIdentifier($0.key.secret) }
        let others = [
            ObjectIdentifier(pair.alice.ratchet.postQuantum.sending.key.secret),
            ObjectIdentifier(pair.bob.ratchet.postQuantum.receiving.key.secret),
        ]
        var last: [UInt8] = []
        for _ in 0..<50 {
            let message = try pair.alice.seal([1], random: &pair.random)
            #expect(try pair.bob.open(message) == [1])
            let key = try #require(pair.bob.ratchet.receiving?.key.secret).array
            #expect(key != last)
            last = key
        }
        #expect(pair.alice.ratchet.sending.map { ObjectIdentifier($0.key.secret) } == sending)
        #expect(pair.bob.ratchet.receiving.map { ObjectIdentifier($0.key.secret) } == receiving)
        #expect(ObjectIdentifier(pair.alice.ratchet.postQuantum.sending.key.secret) == others[0])
        #expect(ObjectIdentifier(pair.bob.ratchet.postQuantum.receiving.key.secret) == others[1])
    }

    @Test("secrets are wiped with their last reference, and records with the list that holds them") func wiped() {
        let size = 512
        withUnsafeTemporaryAllocation(byteCount: size, alignment: 16) { memory in
            memory.initializeMemory(as: UInt8.self, repeating: 0xA5)
            SecretBytes.wipe(memory)
            #expect(memory.allSatisfy { $0 == 0 })
        }
        // A block that the allocator gives out again holds its pointers in the first bytes, and behind them what was there. It need
        // not give out the same block, so there are many attempts.
        var found = [0, 0]
        for attempt in 0..<400 where found.contains(0) {
            var place: UnsafeRawPointer?
            if attempt % 2 == 0 {
                let secret = SecretBytes(count: size) { $0.initializeMemory(as: UInt8.self, repeating: 0xA5) }
                place = secret.withUnsafeBytes { $0.baseAddress }
            } else {
                var records = SecretRecords(recordSize: size / 8)
                for _ in 0..<8 { records.append { $0.initializeMemory(as: UInt8.self, repeating: 0xA5) } }
                place = records.bytes.baseAddress
            }
            let block = UnsafeMutableRawBufferPointer.allocate(byteCount: size, alignment: 16)
            if UnsafeRawPointer(block.baseAddress) == place {
                found[attempt % 2] += 1
                #expect(!block.dropFirst(64).contains(0xA5), "attempt \(attempt)")
            }
            block.deallocate()
        }
        #expect(!found.contains(0), "the allocator never gave out the same memory again: \(found)")
    }

    @Test("so do those of the OMEMO profiles", arguments: OMEMOProfile.allCases)
    func inPlace(_ profile: OMEMOProfile) throws {
        var pair = try OMEMOPair(profile, seed: 954)
        _ = try pair.bob.open(try pair.alice.seal([1], random: &pair.random))
        let sending = pair.alice.ratchet.sending.map { ObjectIdentifier($0.key.secret) }
        let receiving = pair.bob.ratchet.receiving.map { ObjectIdentifier($0.key.secret) }
        for _ in 0..<50 { _ = try pair.bob.open(try pair.alice.seal([1], random: &pair.random)) }
        #expect(pair.alice.ratchet.sending.map { ObjectIdentifier($0.key.secret) } == sending)
        #expect(pair.bob.ratchet.receiving.map { ObjectIdentifier($0.key.secret) } == receiving)
    }
}
