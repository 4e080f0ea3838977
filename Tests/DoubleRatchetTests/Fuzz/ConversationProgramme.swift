@testable import DoubleRatchet

#if !ONE_MODULE
    import TestKit

    @testable import OMEMO
#endif

/// A whole conversation that bytes direct: who says what, and what the network and the two machines make of it.
///
/// The oracle is a plain list of what was sent. Every message that comes opens exactly once and to its own text; a
/// copy, a changed, a reflected or an invented message is refused and leaves state and output as they were; a restart changes
/// nothing; the state stays below its bound; and whatever was lost, at the end both still understand each other.
struct ConversationProgramme {
    /// Below the bounds on skipped messages, so that no key is dropped for lack of room.
    private static let maximumMessages = 900

    private struct Sent {
        let packet: End.Packet
        let text: [UInt8]
        let toBob: Bool
        /// How often its sender had begun a chain.
        let chain: Int
        var hasOpened = false
    }

    private var programme: Programme
    private var random = SeededGenerator(seed: 99)
    private let alice: End
    private let bob: End
    private var sent: [Sent] = []
    private var network: [Int] = []
    /// Of Alice and of Bob: chains begun, and whether the peer was heard since the last own message.
    private var chains = [0, 0]
    private var hasReceived = [true, true]
    private(set) var openedCount = 0
    private(set) var refusedCount = 0

    private init(_ bytes: [UInt8]) throws {
        programme = Programme(bytes)
        let states = try FuzzStates.shared.get()
        let kind = programme.byte() % 8
        let profile = kind % 2 == 0 ? OMEMOProfile.axolotl : .omemo2
        let index = Int(profile.rawValue) - 1
        switch kind {
        case 0, 1:
            let native = kind == 0 ? states.padded : states.exact
            (alice, bob) = (try NativeEnd(native.initiator), NativeEnd(answeringAs: states.bob))
        case 2, 3:
            (alice, bob) = (try OMEMOEnd(states.omemo[index], profile), OMEMOEnd(answeringAs: states.bob, profile))
        case 4, 5:
            let ends = kind == 4 ? states.padded.established : states.exact.established
            (alice, bob) = (try NativeEnd(ends.alice), try NativeEnd(ends.bob))
        case 6:
            let (one, other) = states.establishedOMEMO[Int(programme.byte() % 2)]
            let profile = OMEMOProfile.allCases[one == states.establishedOMEMO[0].alice ? 0 : 1]
            (alice, bob) = (try OMEMOEnd(one, profile), try OMEMOEnd(other, profile))
        default: (alice, bob) = (try SenderEnd(states.sender), try ReaderEnd(states.distribution))
        }
    }

    /// Runs the programme to its end and says how many messages opened and how many were refused.
    /// - Throws: ``Finding``, or what should not have been thrown.
    @discardableResult
    static func run(_ bytes: [UInt8]) throws -> (opened: Int, refused: Int) {
        var conversation = try ConversationProgramme(bytes)
        while !conversation.programme.isAtEnd { try conversation.step() }
        try conversation.end()
        return (conversation.openedCount, conversation.refusedCount)
    }

    private mutating func step() throws {
        let code = programme.byte()
        switch code & 15 {
        case 0...2: try sendMessage(toBob: true, length: code >> 4)
        case 3...5: try sendMessage(toBob: false, length: code >> 4)
        case 6, 7: try deliver(at: 0)
        case 8: try deliver(at: programme.byte())
        case 9: if !network.isEmpty { network.remove(at: programme.byte() % network.count) }
        case 10: if !network.isEmpty { network.append(network[programme.byte() % network.count]) }
        case 11: try damage(at: programme.byte())
        case 12: try repeated(at: programme.number())
        case 13: try restart(code & 16 != 0 ? alice : bob)
        case 14:
            // Many at once, of which the last may come.
            let count = programme.byte() % 64
            for _ in 0..<count { try sendMessage(toBob: code & 16 != 0, length: 0) }
            network.removeLast(max(0, min(count - 1, network.count)))
        default: try invented(code >> 4)
        }
    }

    private mutating func sendMessage(toBob: Bool, length: Int) throws {
        let (from, side) = toBob ? (alice, 0) : (bob, 1)
        guard from.canSend, sent.count < Self.maximumMessages else { return }
        let text = [UInt8](repeating: UInt8(sent.count & 0xFF), count: length * length)
        let packet = try from.seal(text, random: &random)
        if hasReceived[side] { chains[side] += 1 }
        hasReceived[side] = false
        network.append(sent.count)
        sent.append(Sent(packet: packet, text: text, toBob: toBob, chain: chains[side]))
        try bounded(from)
    }

    private mutating func deliver(at index: Int) throws {
        guard !network.isEmpty else { return }
        let id = network.remove(at: index % network.count)
        let message = sent[id]
        let (to, side) = message.toBob ? (bob, 1) : (alice, 0)
        if message.hasOpened { return try refused(message.packet, at: to, "a copy of \(id)") }
        let isOld = chains[1 - side] - message.chain >= max(1, to.lateChains - 1) && to.lateChains > 0
        var output: [UInt8] = [5]
        let before = to.state
        do {
            try to.open(message.packet, into: &output)
        } catch {
            try demand(isOld, "message \(id) is refused: \(error)")
            try demand(to.state == before && output == [5], "a refused message left a trace")
            return
        }
        try demand(output == [5] + message.text, "message \(id) opens to another text")
        sent[id].hasOpened = true
        hasReceived[side] = true
        openedCount += 1
        try bounded(to)
    }

    /// What is refused leaves nothing behind.
    private mutating func refused(_ packet: End.Packet, at end: End, _ what: String) throws {
        var output: [UInt8] = [1, 2, 3]
        let before = end.state
        do {
            try end.open(packet, into: &output)
        } catch {
            try demand(end.state == before, "\(what): the refusal (\(error)) changed the state")
            try demand(output == [1, 2, 3], "\(what): the refusal (\(error)) changed the output")
            refusedCount += 1
            return
        }
        throw Finding("\(what) was opened")
    }

    /// A message on its way, changed in one place.
    private mutating func damage(at index: Int) throws {
        guard !network.isEmpty else { return }
        let message = sent[network[index % network.count]]
        var packet = message.packet
        let way = programme.byte()
        let at = programme.number() % packet.bytes.count
        switch way & 7 {
        case 0: packet.bytes.removeLast(packet.bytes.count - at)
        case 1: packet.bytes.append(UInt8(way >> 3))
        case 2: packet.bytes.remove(at: at)
        case 3: packet.bytes.insert(UInt8(way >> 3), at: at)
        case 4: packet.data.append(UInt8(way >> 3))
        default: packet.bytes[at] ^= UInt8(1 << (way >> 3 & 7))
        }
        guard packet.bytes != message.packet.bytes || (way & 7 == 4 && !message.packet.data.isEmpty) else { return }
        let end = message.toBob ? bob : alice
        let id = network[index % network.count]
        if end.isMalleable, !message.hasOpened, let text = try opened(packet, at: end) {
            // Around what is authenticated Protocol Buffers allow other forms; then this was the message.
            try demand(text == message.text, "message \(id) changed (\(way)) opens to another text")
            sent[id].hasOpened = true
            hasReceived[message.toBob ? 1 : 0] = true
            return
        }
        try refused(packet, at: end, "message \(id) changed (\(way))")
    }

    /// What was opened comes again, or what was sent comes back to its sender.
    private mutating func repeated(at index: Int) throws {
        guard !sent.isEmpty else { return }
        let id = index % sent.count
        if sent[id].hasOpened { try refused(sent[id].packet, at: sent[id].toBob ? bob : alice, "a copy of \(id)") }
        try refused(sent[id].packet, at: sent[id].toBob ? alice : bob, "the reflection of \(id)")
    }

    /// Bytes of the programme as a message, some with the beginning of a real one.
    private mutating func invented(_ kind: Int) throws {
        var packet = End.Packet(bytes: programme.take(8 + 8 * kind), isKeyExchange: kind & 2 != 0)
        if kind & 4 != 0, let last = sent.last { packet.bytes = last.packet.bytes.prefix(9 * kind) + packet.bytes }
        guard !sent.contains(where: { $0.packet.bytes == packet.bytes }) else { return }
        let end = kind & 1 == 0 ? alice : bob
        // The beginning of a short message may be all of it, with a field behind it that nobody knows.
        guard !end.isMalleable || kind & 4 == 0 else { return }
        try refused(packet, at: end, "an invented message")
    }

    /// The text, if the message opens.
    private func opened(_ packet: End.Packet, at end: End) throws -> [UInt8]? {
        var output: [UInt8] = []
        let before = end.state
        do {
            try end.open(packet, into: &output)
            return output
        } catch {
            try demand(end.state == before && output.isEmpty, "a changed message left a trace")
            return nil
        }
    }

    private func restart(_ end: End) throws {
        let before = end.state
        try end.restart()
        try demand(end.state == before, "another state after a restart")
    }

    private func bounded(_ end: End) throws {
        let state = end.state
        try demand(state.count <= end.stateBound, "a state of \(state.count) bytes, bound \(end.stateBound)")
    }

    /// Everything that is on its way comes, then each side is heard once more.
    private mutating func end() throws {
        while !network.isEmpty { try deliver(at: network.count - 1) }
        for toBob in [true, false, true] where (toBob ? alice : bob).canSend {
            let count = sent.count
            try sendMessage(toBob: toBob, length: 2)
            guard sent.count > count else { continue }
            try deliver(at: network.count - 1)
            try demand(sent[count].hasOpened, "the conversation does not go on")
        }
        try restart(alice)
        try restart(bob)
    }
}
