import DoubleRatchet
import TestKit
import TestThreads
import Testing

/// PQXDH and the Triple Ratchet with a program that was written from the page.
@Suite(.blocking) struct WireRatchetTests {
    private static let data = Array("associated".utf8)

    /// Both sides write in turns that a seed decides, and a part of the messages is late or lost, over epochs of the braid.
    ///
    /// With a peer that knows version 2 alone the messages have that version, and several lengths. Else all have one.
    @Test(
        arguments: [
            (true, true, false), (true, false, false), (false, true, false), (false, false, false), (true, true, true),
            (false, true, true),
        ]
    )
    func conversationsOverEpochs(oursInitiates: Bool, hasOneTime: Bool, isOlder: Bool) throws {
        let (peer, ours) = (try WirePeer(), WireDevice(1))
        try peer.ask(isOlder ? "older_device" : "device", "d")
        if oursInitiates {
            try ours.initiate("s", with: try peer.bytes("bundle", "d", hasOneTime ? 1 : 0))
        } else {
            let bundle = ours.bundle(oneTime: hasOneTime, oneTimeKEM: hasOneTime)
            #expect(try peer.bytes("initiate", "s", "d", bundle) == ours.key)
        }
        var random = SeededGenerator(seed: oursInitiates ? 3 : 4)
        var held: [(toOurs: Bool, message: [UInt8], text: [UInt8])] = []
        func deliver(_ message: [UInt8], _ text: [UInt8], toOurs: Bool) throws {
            if toOurs {
                #expect(try ours.decrypt("s", Self.data, message) == text)
            } else {
                #expect(try peer.bytes("decrypt", "s", "d", Self.data, message) == text)
            }
        }
        var kinds: Set<String> = []
        var overheads: Set<Int> = []
        for number in 0..<400 {
            // The first ones establish the session.
            let fromOurs = number < 2 ? oursInitiates == (number == 0) : random.below(2) == 0
            let text = Array("message \(number)".utf8) + random.bytes(random.below(40))
            let message =
                fromOurs
                ? try ours.encrypt("s", Self.data, text) : try peer.bytes("encrypt", "s", Self.data, text)
            if !fromOurs { kinds.insert(try peer.ask("progress", "s")[1]) }
            #expect(message[0] >> 4 == (isOlder ? 2 : 3))
            if number > 1 { overheads.insert(message.count - text.count) }
            if number < 2 || random.below(5) > 0 {
                try deliver(message, text, toOurs: !fromOurs)
                if fromOurs { kinds.insert(try peer.ask("progress", "s")[1]) }
            } else if random.below(4) > 0 {
                held.append((!fromOurs, message, text))
            }
            if held.count > 6 {
                let late = held.remove(at: random.below(held.count))
                try deliver(late.message, late.text, toOurs: late.toOurs)
            }
        }
        #expect(isOlder ? overheads.isSuperset(of: [72, 105]) : overheads == [110])
        #expect(kinds == ["0", "1", "2", "3", "4", "5"])
        #expect(try #require(Int(try peer.ask("progress", "s")[0])) >= 3)
    }

    /// The prekey part comes with every message until the other side has answered.
    @Test(arguments: [true, false])
    func everyMessageBeforeTheFirstAnswerBeginsTheSession(oursInitiates: Bool) throws {
        let (peer, ours) = (try WirePeer(), WireDevice(1))
        try peer.ask("device", "d")
        let sent: [[UInt8]]
        if oursInitiates {
            try ours.initiate("s", with: try peer.bytes("bundle", "d", 1))
            sent = try (0..<3).map { try ours.encrypt("s", Self.data, [UInt8($0)]) }
            for number in [2, 0] {
                #expect(try peer.bytes("decrypt", "s", "d", Self.data, sent[number]) == [UInt8(number)])
            }
            #expect(try ours.decrypt("s", Self.data, try peer.bytes("encrypt", "s", Self.data, [9])) == [9])
            #expect(try ours.encrypt("s", Self.data, [3]).count < 150)
        } else {
            try peer.ask("initiate", "s", "d", ours.bundle(oneTime: true))
            sent = try (0..<3).map { try peer.bytes("encrypt", "s", Self.data, [UInt8($0)]) }
            for number in [2, 0] { #expect(try ours.decrypt("s", Self.data, sent[number]) == [UInt8(number)]) }
            #expect(
                try peer.bytes("decrypt", "s", "d", Self.data, try ours.encrypt("s", Self.data, [9])) == [9])
            #expect(try peer.bytes("encrypt", "s", Self.data, [3]).count < 150)
        }
        #expect(sent.allSatisfy { $0.count > 1700 })
    }

    /// Both sides begin a session at once, and their first messages cross in every order.
    @Test(arguments: [true, false], 0..<4) func twoSessionsBecomeOne(weLead: Bool, order: Int) throws {
        let peer = try WirePeer()
        let ours = WireDevice(1)
        var key = try peer.bytes("device", "d")
        while ours.key.lexicographicallyPrecedes(key) != weLead { key = try peer.bytes("device", "d") }
        let (theirBundle, ourBundle) = (try peer.bytes("bundle", "d", 1), ours.bundle(oneTime: true))
        try ours.initiate("s", with: theirBundle)
        try peer.ask("initiate", "s", "d", ourBundle)
        let theirs = try peer.bytes("session_id", "s")
        let lower = try weLead ? ours.with("s") { $0.id } : theirs
        /// Both send in the session that the device with the lower identity has begun.
        func expectOneSession() throws {
            #expect(try ours.with("s") { $0.id } == lower)
            #expect(try peer.bytes("session_id", "s") == lower)
        }
        func fromOurs() throws -> [UInt8] { try ours.encrypt("s", Self.data, [1]) }
        func fromTheirs() throws -> [UInt8] { try peer.bytes("encrypt", "s", Self.data, [2]) }
        func toTheirs(_ message: [UInt8]) throws {
            #expect(try peer.bytes("decrypt", "s", "d", Self.data, message) == [1])
        }
        func toOurs(_ message: [UInt8]) throws { #expect(try ours.decrypt("s", Self.data, message) == [2]) }
        let first = (ours: [try fromOurs(), try fromOurs()], theirs: [try fromTheirs(), try fromTheirs()])
        switch order {
        case 0:
            try toTheirs(first.ours[0])
            try toOurs(first.theirs[0])
        case 1:
            try toOurs(first.theirs[0])
            try toTheirs(first.ours[0])
        case 2:
            // An answer before the crossing message.
            try toOurs(first.theirs[0])
            try toTheirs(try fromOurs())
        default:
            try toTheirs(first.ours[0])
            try toOurs(try fromTheirs())
        }
        try expectOneSession()
        for _ in 0..<2 {
            try toTheirs(try fromOurs())
            try toOurs(try fromTheirs())
        }
        // Messages of the other session are late and still read.
        try toTheirs(first.ours[1])
        try toOurs(first.theirs[1])
        for _ in 0..<2 {
            try toTheirs(try fromOurs())
            try toOurs(try fromTheirs())
        }
        #expect(try peer.bytes("session_id", "s") == ours.with("s") { $0.id })
    }

    @Test func alteredMessagesAreRejectedByBoth() throws {
        let (peer, ours) = (try WirePeer(), WireDevice(1))
        try peer.ask("device", "d")
        try ours.initiate("s", with: try peer.bytes("bundle", "d", 1))
        // With and without a prekey part.
        for _ in 0..<2 {
            let message = try ours.encrypt("s", Self.data, [1, 2, 3])
            for other in message.altered { #expect(try peer.refuses("decrypt", "s", "d", Self.data, other)) }
            #expect(try peer.refuses("decrypt", "s", "d", Self.data + [0], message))
            #expect(try peer.bytes("decrypt", "s", "d", Self.data, message) == [1, 2, 3])
            #expect(try peer.refuses("decrypt", "s", "d", Self.data, message))
            let answer = try peer.bytes("encrypt", "s", Self.data, [4])
            for other in answer.altered { #expect(ours.refuses("s", Self.data, other)) }
            #expect(ours.refuses("s", Self.data + [0], answer))
            #expect(try ours.decrypt("s", Self.data, answer) == [4])
            #expect(ours.refuses("s", Self.data, answer))
        }
        // A first message to our side.
        try peer.ask("initiate", "other", "d", ours.bundle(oneTime: true))
        let first = try peer.bytes("encrypt", "other", Self.data, [5])
        for other in first.altered { #expect(ours.refuses("other", Self.data, other)) }
        #expect(try ours.decrypt("other", Self.data, first) == [5])
    }

    /// Each side takes the version from the other's signed prekey, or from the first message.
    @Test(arguments: [true, false]) func theSignedPrekeyDecidesTheVersion(oursInitiates: Bool) throws {
        let (peer, ours) = (try WirePeer(), WireDevice(1))
        for (command, version) in [("device", 3), ("older_device", 2)] as [(String, UInt8)] {
            try peer.ask(command, command)
            if oursInitiates {
                try ours.initiate(command, with: try peer.bytes("bundle", command, 1))
            } else {
                try peer.ask("initiate", command, command, ours.bundle(oneTime: true))
            }
            for _ in 0..<2 {
                func fromOurs() throws {
                    let message = try ours.encrypt(command, Self.data, [1])
                    #expect(message[0] >> 4 == version)
                    // Neither side reads it under the other version's number.
                    let other = [message[0] ^ 0x10] + message.dropFirst()
                    #expect(try peer.refuses("decrypt", command, command, Self.data, other))
                    #expect(try peer.bytes("decrypt", command, command, Self.data, message) == [1])
                }
                func fromTheirs() throws {
                    let message = try peer.bytes("encrypt", command, Self.data, [2])
                    #expect(message[0] >> 4 == version)
                    #expect(ours.refuses(command, Self.data, [message[0] ^ 0x10] + message.dropFirst()))
                    #expect(try ours.decrypt(command, Self.data, message) == [2])
                }
                if oursInitiates {
                    try fromOurs()
                    try fromTheirs()
                } else {
                    try fromTheirs()
                    try fromOurs()
                }
            }
        }
    }

    @Test func bundlesAreSignedByTheIdentity() throws {
        let (peer, ours) = (try WirePeer(), WireDevice(1))
        let key = try peer.bytes("device", "d")
        for oneTime in [true, false] {
            let (own, other) = (ours.bundle(oneTime: oneTime), try peer.bytes("bundle", "d", oneTime ? 1 : 0))
            #expect(own.count == (oneTime ? 1807 : 1771) && other.count == own.count)
            #expect(try peer.bytes("bundle_read", own) == ours.key)
            let read = try PreKeyBundle(serialized: other.span)
            try read.verify()
            #expect(read.identity.bytes == key && (read.oneTimePreKey != nil) == oneTime)
            // The one-time prekey is not signed.
            for place in stride(from: 0, to: 1771, by: 29) {
                var (altered, theirs) = (own, other)
                altered[place] ^= 4
                theirs[place] ^= 4
                #expect(try peer.refuses("bundle_read", altered))
                #expect(refuses { try PreKeyBundle(serialized: theirs.span).verify() })
            }
        }
    }
}
