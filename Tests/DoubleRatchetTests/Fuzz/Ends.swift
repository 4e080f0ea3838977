@testable import DoubleRatchet

#if !ONE_MODULE
    import TestKit

    @testable import OMEMO
#endif

/// One end of a conversation as a programme sees it, whatever protocol it speaks.
class End {
    /// Bytes on the wire and what goes beside them.
    struct Packet {
        var bytes: [UInt8]
        var isKeyExchange = false
        /// What both ends bind where the protocol can; else nothing.
        var data: [UInt8] = []
    }

    var canSend: Bool { true }
    /// Finished chains whose late messages have to open for as long as the bounds on keys allow.
    var lateChains: Int { 0 }
    /// Whether one message has several forms on the wire.
    var isMalleable: Bool { false }
    /// The state at rest; empty where there is none yet.
    var state: [UInt8] { [] }
    /// The most that ``state`` may be long.
    var stateBound: Int { .max }

    func seal(_ text: [UInt8], random: inout SeededGenerator) throws(RatchetError) -> Packet { throw .malformed }
    func open(_ packet: Packet, into output: inout [UInt8]) throws(RatchetError) { throw .malformed }
    /// Goes on from what is stored.
    func restart() throws(RatchetError) {}
}

/// An end of a native session. One that answers has none before the first message.
final class NativeEnd: End {
    private var session: Session?
    private let device: FuzzDevice?

    init(_ state: [UInt8]) throws(RatchetError) {
        session = try Session(serialized: state.span)
        device = nil
    }

    init(answeringAs device: FuzzDevice) {
        session = nil
        self.device = device
    }

    override var canSend: Bool { session != nil }
    override var lateChains: Int { RatchetLimits.maximumRememberedChains }

    override var state: [UInt8] {
        var output: [UInt8] = []
        session?.serialize(into: &output)
        return output
    }

    override var stateBound: Int {
        // 40 bytes a key, and 36 for the chain that it may wait in; the prekey part only before the peer's first message.
        2472 + 76 * (session?.skippedCount ?? 0)
    }

    override func seal(_ text: [UInt8], random: inout SeededGenerator) throws(RatchetError) -> Packet {
        let data = [UInt8(text.count & 0xFF), 1]
        var bytes: [UInt8] = []
        guard session != nil else { throw .malformed }
        try session?.encrypt(text.span, associatedData: data.span, random: &random, into: &bytes)
        return Packet(bytes: bytes, data: data)
    }

    override func open(_ packet: Packet, into output: inout [UInt8]) throws(RatchetError) {
        if session != nil {
            _ = try session?.decrypt(packet.bytes.span, associatedData: packet.data.span, into: &output)
        } else if let device {
            session = try device.respond(to: packet, into: &output)
        }
    }

    override func restart() throws(RatchetError) {
        guard session != nil else { return }
        let stored = state
        session = try Session(serialized: stored.span)
    }
}

/// An end of an OMEMO session.
final class OMEMOEnd: End {
    private var session: OMEMOSession?
    private let device: FuzzDevice?
    private let profile: OMEMOProfile

    init(_ state: [UInt8], _ profile: OMEMOProfile) throws(RatchetError) {
        session = try OMEMOSession(serialized: state.span)
        device = nil
        self.profile = profile
    }

    init(answeringAs device: FuzzDevice, _ profile: OMEMOProfile) {
        session = nil
        self.device = device
        self.profile = profile
    }

    override var canSend: Bool { session != nil }
    override var lateChains: Int { 4 }
    override var isMalleable: Bool { true }

    override var state: [UInt8] {
        var output: [UInt8] = []
        session?.serialize(into: &output)
        return output
    }

    override var stateBound: Int { 1024 + 80 * (session?.skippedCount ?? 0) }

    override func seal(_ text: [UInt8], random: inout SeededGenerator) throws(RatchetError) -> Packet {
        var packet = Packet(bytes: [])
        guard session != nil else { throw .malformed }
        packet.isKeyExchange =
            try session?.encrypt(text.span, random: &random, into: &packet.bytes) == .keyExchange
        return packet
    }

    override func open(_ packet: Packet, into output: inout [UInt8]) throws(RatchetError) {
        if session != nil {
            _ = try session?.decrypt(packet.bytes.span, isKeyExchange: packet.isKeyExchange, into: &output)
        } else if let device {
            session = try device.respond(to: packet, profile, into: &output)
        }
    }

    override func restart() throws(RatchetError) {
        guard session != nil else { return }
        let stored = state
        session = try OMEMOSession(serialized: stored.span)
    }
}

/// The one who writes to a group.
final class SenderEnd: End {
    private var key: SenderKey

    init(_ state: [UInt8]) throws(RatchetError) { key = try SenderKey(serialized: state.span) }

    override var state: [UInt8] {
        var output: [UInt8] = []
        key.serialize(into: &output)
        return output
    }

    override var stateBound: Int { 105 }

    override func seal(_ text: [UInt8], random: inout SeededGenerator) throws(RatchetError) -> Packet {
        let data: [UInt8] = [7]
        var bytes: [UInt8] = []
        try key.encrypt(text.span, associatedData: data.span, into: &bytes)
        return Packet(bytes: bytes, data: data)
    }

    override func restart() throws(RatchetError) {
        let stored = state
        key = try SenderKey(serialized: stored.span)
    }
}

/// One who reads in a group.
final class ReaderEnd: End {
    private var receiver: SenderKeyReceiver

    init(_ distribution: [UInt8]) throws(RatchetError) {
        receiver = SenderKeyReceiver(try SenderKeyDistribution(serialized: distribution.span))
    }

    override var canSend: Bool { false }

    override var state: [UInt8] {
        var output: [UInt8] = []
        receiver.serialize(into: &output)
        return output
    }

    override var stateBound: Int { 128 + 68 * receiver.skippedCount }

    override func open(_ packet: Packet, into output: inout [UInt8]) throws(RatchetError) {
        _ = try receiver.decrypt(packet.bytes.span, associatedData: packet.data.span, into: &output)
    }

    override func restart() throws(RatchetError) {
        let stored = state
        receiver = try SenderKeyReceiver(serialized: stored.span)
    }
}
