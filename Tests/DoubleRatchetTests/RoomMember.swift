import TestKit
import Testing

@testable import DoubleRatchet

/// A device in a room with sender keys, in a test. Between two calls it exists only as what it has stored.
final class RoomMember {
    /// Keys of one sender that are kept, so that what was said before a rotation can be read behind it.
    private static let keysOfSender = 4

    private var own: [UInt8]?
    private(set) var rotations = 0
    /// What each reader has been given of each of our keys.
    private var given: [UInt32: [Int: [UInt8]]] = [:]
    private var received: [Int: [[UInt8]]] = [:]
    private var taken: [Int: Set<UInt32>] = [:]

    private static func key(_ state: [UInt8]) throws -> SenderKey { try SenderKey(serialized: state.span) }

    private func store(_ key: borrowing SenderKey) {
        var state: [UInt8] = []
        key.serialize(into: &state)
        own = state
    }

    /// The distributions that go out before the next message to `readers`: to all of them where somebody has left.
    func distributions(
        to readers: [Int], random: inout SeededGenerator
    ) throws -> [(reader: Int, distribution: [UInt8])] {
        if let own {
            let id = try Self.key(own).id
            if given[id, default: [:]].keys.contains(where: { !readers.contains($0) }) { self.own = nil }
        }
        if own == nil {
            rotations += 1
            store(SenderKey(random: &random))
        }
        let key = try Self.key(try #require(own))
        var distribution: [UInt8] = []
        key.distribution.serialize(into: &distribution)
        let missing = readers.filter { given[key.id]?[$0] == nil }
        for reader in missing { given[key.id, default: [:]][reader] = distribution }
        return missing.map { ($0, distribution) }
    }

    /// What a reader had been given of a key, to be said again.
    func distribution(of id: UInt32, to reader: Int) -> [UInt8]? { given[id]?[reader] }

    func seal(_ text: [UInt8], data: [UInt8]) throws -> [UInt8] {
        var key = try Self.key(try #require(own))
        var message: [UInt8] = []
        try key.encrypt(text.span, associatedData: data.span, into: &message)
        store(key)
        return message
    }

    /// Takes a key. One that was there is not taken again: an older state of it would open messages twice.
    func take(_ distribution: [UInt8], from sender: Int) throws {
        let distribution = try SenderKeyDistribution(serialized: distribution.span)
        guard taken[sender, default: []].insert(distribution.id).inserted else { return }
        var state: [UInt8] = []
        SenderKeyReceiver(distribution).serialize(into: &state)
        received[sender, default: []].insert(state, at: 0)
        if let count = received[sender]?.count, count > Self.keysOfSender { received[sender]?.removeLast() }
    }

    /// - Throws: ``RatchetError/unknownSenderKey`` where the key has not come.
    func open(_ message: [UInt8], from sender: Int, data: [UInt8]) throws(RatchetError) -> [UInt8] {
        for (index, state) in (received[sender] ?? []).enumerated() {
            var receiver = try SenderKeyReceiver(serialized: state.span)
            var text: [UInt8] = []
            do throws(RatchetError) {
                _ = try receiver.decrypt(message.span, associatedData: data.span, into: &text)
            } catch {
                var after: [UInt8] = []
                receiver.serialize(into: &after)
                #expect(after == state, "a refused message left a trace")
                if error == .unknownSenderKey { continue }
                throw error
            }
            var after: [UInt8] = []
            receiver.serialize(into: &after)
            received[sender]?[index] = after
            return text
        }
        throw .unknownSenderKey
    }

    /// The bytes of all keys at rest, without those of messages that have not come.
    var size: Int {
        get throws {
            var size = own?.count ?? 0
            for state in received.values.joined() {
                size +=
                    state.count - SkippedKeys.recordSize * (try SenderKeyReceiver(serialized: state.span).skippedCount)
            }
            return size
        }
    }
}
