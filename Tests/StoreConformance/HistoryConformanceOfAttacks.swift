// What a backend may try with envelopes that it keeps.

import Devices
import Envelope
import Protection
import StorePort
import Testing
import Vault

extension HistoryConformance {
    private static func isText(_ outcome: OpenOutcome) -> Bool { if case .text = outcome { true } else { false } }

    @Sendable static func flippedBits(_ open: @escaping Open) throws {
        let world = try HistoryWorld(open)
        let written = try world.write("pay Bob 10")
        _ = try world.write("the next one")
        for isWarm in [true, false] {
            if isWarm { #expect(try world.read([written]) == [written.outcome]) } else { try world.restart() }
            let altered = written.envelope.indices.map { index in
                var item = written.item
                item.envelope[index] ^= 1 << UInt8(index % 8)
                return item
            }
            let outcomes = try world.read(altered)
            #expect(!outcomes.contains(where: isText))
            // Behind the header all of it is known to be another.
            #expect(outcomes.dropFirst(Envelope.headerLength).allSatisfy { $0 == .failed(.notAuthentic) })
            #expect(outcomes[0] != .failed(.forgotten))
            for length in [0, 1, 16, 17, 18, 40, written.envelope.count - 1] {
                var cut = written.item
                cut.envelope.removeLast(cut.envelope.count - length)
                #expect(try !isText(world.read([cut])[0]))
            }
            var longer = written.item
            longer.envelope.append(0)
            #expect(try world.read([longer]) == [.failed(.notAuthentic)])
            // A message of tomorrow.
            var future = written.item
            future.envelope[9] = 0x7F
            #expect(try world.read([future]) == [.failed(.notAuthentic)])
        }
        #expect(try world.read([written]) == [written.outcome])
    }

    @Sendable static func places(_ open: @escaping Open) throws {
        let world = try HistoryWorld(open)
        let first = try world.write("in this room", in: "!one")
        let second = try world.write("in the other one", by: "bob", in: "!two")
        let both = [first, second]
        for isWarm in [true, false] {
            if isWarm { #expect(try world.read(both) == both.map(\.outcome)) } else { try world.restart() }
            let moved = both.map { message in
                var item = message.item
                item.conversation = message == first ? second.conversation : first.conversation
                return item
            }
            #expect(try world.read(moved) == [.failed(.notAuthentic), .failed(.notAuthentic)])
            let part = OpenMessagesJob.Item(
                envelope: first.envelope, sender: first.sender, conversation: .room("!one", status: "@"))
            #expect(try world.read([part]) == [.failed(.notAuthentic)])
            let renamed = both.map { message in
                var item = message.item
                item.sender = message == first ? second.sender : first.sender
                return item
            }
            #expect(try world.read(renamed) == [.failed(.wrongSource), .failed(.wrongSource)])
            // The device of the one before what the other has said.
            var forged = first.item
            forged.envelope.replaceSubrange(1..<9, with: second.envelope[1..<9])
            forged.sender = second.sender
            #expect(try world.read([forged]) == [.failed(.notAuthentic)])
            var stranger = first.item
            stranger.envelope.replaceSubrange(1..<9, with: [0, 0, 0, 0, 0, 0, 0, 2])
            #expect(try world.read([stranger]) == [.failed(.unknownSender)])
        }
        #expect(try world.read(both) == both.map(\.outcome))
    }

    @Sendable static func protocols(_ open: @escaping Open) throws {
        let world = try HistoryWorld(open)
        let written = try world.write("one")
        try world.restart(carrier: .irc)
        #expect(try world.read([written]) == [.failed(.notAuthentic)])
        try world.restart()
        #expect(try world.read([written]) == [written.outcome])
    }

    @Sendable static func movedRows(_ open: @escaping Open) throws {
        let world = try HistoryWorld(open)
        let written = [try world.write("one"), try world.write("two")]
        let rows = try world.store.contentKeys(of: written.map(\.id)).sorted { $0.message < $1.message }
        try #require(rows.count == 2)
        // The key of the one in the place of the other, and one that is to be kept for longer.
        var swapped = rows[0]
        swapped.sealedKey = rows[1].sealedKey
        var longer = rows[1]
        longer.expiresAt += 1
        try StoreConformance.commit(world.store, [.putContentKey(swapped), .putContentKey(longer)])
        try world.restart()
        #expect(try world.read(written) == [.failed(.notAuthentic), .failed(.notAuthentic)])
        try StoreConformance.commit(world.store, rows.map { .putContentKey($0) })
        #expect(try world.read(written) == written.map(\.outcome))
    }
}
