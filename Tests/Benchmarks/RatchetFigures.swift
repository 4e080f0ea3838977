import DoubleRatchet
import Glibc

/// The figures of the ratchet library. `Tests/portable --measure` compiles this file without all others.
enum RatchetFigures {
    private static let setups = 40
    private static let turns = 200
    private static let messages = 1000
    /// Room for any message and any state of a run.
    private static let capacity = 16_384

    static func measure() throws {
        let text = [UInt8](repeating: 0, count: 256)
        try measureSessions(text)
        try measureGroup(text)
    }

    private static func measureSessions(_ text: [UInt8]) throws {
        var random = SystemRandomSource()
        let alice = IdentityKeyPair(random: &random)
        let owner = RatchetKeys(random: &random)
        var sealed = buffer()
        var opened = buffer()
        try Figure.measure("setup", Self.setups) {
            for _ in 0..<Self.setups { _ = try RatchetPair(alice, owner, text, &sealed, &opened) }
        }
        var pair = try RatchetPair(alice, owner, text, &sealed, &opened)
        try pair.answer(text, &sealed, &opened)
        try Figure.measure("ping-pong", 2 * Self.turns) {
            for _ in 0..<Self.turns {
                try pair.ask(text, &sealed, &opened)
                try pair.answer(text, &sealed, &opened)
            }
        }
        try pair.ask(text, &sealed, &opened)
        // One after the other in one array of the caller's, as in memory that a message is sent from.
        var all: [UInt8] = []
        all.reserveCapacity(Self.messages * 1024)
        var ends: [Int] = []
        ends.reserveCapacity(Self.messages)
        try Figure.measure("encrypt", Self.messages) {
            for _ in 0..<Self.messages {
                try pair.ours.seal(text, &random, &all)
                ends.append(all.count)
            }
        }
        let middle = Self.messages / 2
        Figure.print("message-bytes", Double(ends[middle] - ends[middle - 1]))
        try Figure.measure("decrypt", Self.messages) {
            var start = 0
            for end in ends {
                opened.removeAll(keepingCapacity: true)
                try pair.theirs.open(all, start..<end, &opened)
                start = end
            }
        }
        sealed.removeAll()
        pair.theirs.serialize(into: &sealed)
        Figure.print("state-bytes", Double(sealed.count))
    }

    private static func measureGroup(_ text: [UInt8]) throws {
        var random = SystemRandomSource()
        var sender = SenderKey(random: &random)
        var receiver = SenderKeyReceiver(sender.distribution)
        let none: [UInt8] = []
        var all: [UInt8] = []
        all.reserveCapacity(Self.turns * 1024)
        try Figure.measure("group-encrypt", Self.turns) {
            for _ in 0..<Self.turns {
                try sender.encrypt(text.span, associatedData: none.span, into: &all)
            }
        }
        let size = all.count / Self.turns
        Figure.print("group-bytes", Double(size))
        var opened = Self.buffer()
        try Figure.measure("group-decrypt", Self.turns) {
            for index in 0..<Self.turns {
                opened.removeAll(keepingCapacity: true)
                _ = try receiver.decrypt(
                    all.span.extracting(index * size..<(index + 1) * size), associatedData: none.span, into: &opened)
            }
        }
    }

    private static func buffer() -> [UInt8] {
        var bytes: [UInt8] = []
        bytes.reserveCapacity(Self.capacity)
        return bytes
    }
}

/// What a responder has published.
private struct RatchetKeys: ~Copyable {
    let identity: IdentityKeyPair
    let signed: SignedPreKey
    let once: OneTimePreKey?
    let kem: KEMPreKey
    let bundle: PreKeyBundle

    init(random: inout SystemRandomSource) {
        identity = IdentityKeyPair(random: &random)
        signed = SignedPreKey(id: 1, identity: identity, random: &random)
        kem = KEMPreKey(id: 1, isLastResort: false, identity: identity, random: &random)
        let once = OneTimePreKey(id: 1, random: &random)
        bundle = PreKeyBundle(
            identity: identity.publicKey, signedPreKey: signed.publicKey, kemPreKey: kem.publicKey,
            oneTimePreKey: once.publicKey)
        self.once = .some(consume once)
    }
}

/// Two ends of a session that the first message has reached.
private struct RatchetPair: ~Copyable {
    var ours: Session
    var theirs: Session
    private var random = SystemRandomSource()

    init(
        _ identity: borrowing IdentityKeyPair, _ owner: borrowing RatchetKeys, _ text: [UInt8],
        _ sealed: inout [UInt8], _ opened: inout [UInt8]
    ) throws {
        let none: [UInt8] = []
        var ours = try Session.initiate(identity: identity, with: owner.bundle, expecting: nil, random: &self.random)
        sealed.removeAll(keepingCapacity: true)
        opened.removeAll(keepingCapacity: true)
        try ours.seal(text, &self.random, &sealed)
        theirs = try Session.respond(
            identity: owner.identity, signedPreKey: owner.signed, oneTimePreKey: owner.once, kemPreKey: owner.kem,
            message: sealed.span, associatedData: none.span, expecting: nil, plaintext: &opened)
        self.ours = ours
    }

    mutating func ask(_ text: [UInt8], _ sealed: inout [UInt8], _ opened: inout [UInt8]) throws {
        sealed.removeAll(keepingCapacity: true)
        opened.removeAll(keepingCapacity: true)
        try self.ours.seal(text, &self.random, &sealed)
        try self.theirs.open(sealed, sealed.indices, &opened)
    }

    mutating func answer(_ text: [UInt8], _ sealed: inout [UInt8], _ opened: inout [UInt8]) throws {
        sealed.removeAll(keepingCapacity: true)
        opened.removeAll(keepingCapacity: true)
        try self.theirs.seal(text, &self.random, &sealed)
        try self.ours.open(sealed, sealed.indices, &opened)
    }
}

extension Session {
    fileprivate mutating func seal(
        _ text: [UInt8], _ random: inout SystemRandomSource, _ output: inout [UInt8]
    ) throws {
        let none: [UInt8] = []
        try encrypt(text.span, associatedData: none.span, random: &random, into: &output)
    }

    fileprivate mutating func open(_ messages: [UInt8], _ range: Range<Int>, _ output: inout [UInt8]) throws {
        let none: [UInt8] = []
        _ = try decrypt(messages.span.extracting(range), associatedData: none.span, into: &output)
    }
}

/// A figure as all peers print it: a name and a number.
enum Figure {
    static func measure(_ name: String, _ count: Int, _ body: () throws -> Void) rethrows {
        let allocations = Self.allocations()
        let begin = Self.microseconds()
        try body()
        let time = Self.microseconds() - begin
        let made = Self.allocations() - allocations
        Self.print(name, time / Double(count))
        Self.print("\(name)-allocations", Double(made) / Double(count))
    }

    static func print(_ name: String, _ number: Double) {
        Swift.print(name, number)
    }

    /// Counted by what was preloaded, if it was.
    private static func allocations() -> UInt {
        typealias Count = @convention(c) () -> UInt
        guard let symbol = dlsym(nil, "ratchet_allocations") else { return 0 }
        return unsafeBitCast(symbol, to: Count.self)()
    }

    private static func microseconds() -> Double {
        var now = timespec()
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now)
        return Double(now.tv_sec) * 1e6 + Double(now.tv_nsec) / 1e3
    }
}
