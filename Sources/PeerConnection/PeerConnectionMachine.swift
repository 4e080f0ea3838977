// The machine of a direct connection between two devices: events in, actions out.
//
// It has no socket and no clock. Its owner reports what the transport does, runs the actions in their order, and calls
// `tick(now:)` from time to time. Times are milliseconds of one clock that never goes back.

package import DoubleRatchet

/// What the owner of a connection has to do.
package enum PeerAction: Hashable, Sendable {
    /// Send a packet.
    case transmit([UInt8])
    /// The other device is authenticated; messages may be sent.
    case opened
    /// Give a message to the app, then call `taken(_:now:)` with its number.
    case deliver(UInt64, [UInt8])
    /// The other side's app has taken this message and all before it.
    case acknowledged(UInt64)
    /// The other side's status has changed.
    case status(flags: UInt8, metadata: [UInt8])
    /// Close the transport after the packets before. The last action of a connection.
    case ended(PeerEnd)
}

/// Why a message was not sent.
package enum PeerRefusal: Error, Sendable, Hashable {
    case notOpen
    case tooLong
    /// ``PeerLimits/window`` messages were not taken yet.
    case windowFull
}

/// A connection over a transport that delivers whole packets in their order.
package struct PeerConnectionMachine: Sendable {
    private enum State: Sendable {
        case unconnected
        case awaitingHello
        case awaitingAnswer(AgreementKeyPair)
        case awaitingFinish(PeerKeys)
        case open
        case ended
    }

    /// One direction of an open connection.
    private struct Direction: Sendable {
        var key: SecretBytes?
        /// Records so far: the nonce of the next one.
        var records: UInt64 = 0
        /// The number of the last message.
        var last: UInt64 = 0
        /// The number of the last message that was taken.
        var taken: UInt64 = 0

        /// The nonce of the next record, which is used up.
        mutating func nonce() -> [UInt8] {
            var nonce: [UInt8] = [0, 0, 0, 0]
            nonce.append(networkOrder: records)
            records += 1
            return nonce
        }
    }

    package let agreement: PeerAgreement
    private let limits: PeerLimits
    private var state = State.unconnected
    private var sending = Direction()
    private var receiving = Direction()
    /// When the handshake has to be finished; nil while the transport is not connected.
    private var handshakeEnd: Int64?
    private var lastUse: Int64
    /// When the oldest message that was not taken has to be.
    private var takenBy: Int64?

    package init(_ agreement: PeerAgreement, limits: PeerLimits = PeerLimits(), now: Int64) {
        (self.agreement, self.limits, lastUse) = (agreement, limits, now)
    }

    package var isOpen: Bool { if case .open = state { true } else { false } }
    package var isEnded: Bool { if case .ended = state { true } else { false } }

    // MARK: The transport

    /// The transport is connected. Later calls do nothing.
    package mutating func connected(random: inout some RandomSource, now: Int64) -> [PeerAction] {
        guard case .unconnected = state else { return [] }
        handshakeEnd = now + limits.handshake
        switch agreement.role {
        case .responder:
            state = .awaitingHello
            return []
        case .initiator:
            let key = AgreementKeyPair(random: &random)
            state = .awaitingAnswer(key)
            let hello = PeerPacket.hello(connection: agreement.connection, key.publicKey.bytes)
            return [.transmit(hello.bytes)]
        }
    }

    /// The transport has ended.
    package mutating func disconnected() -> [PeerAction] { end(.lost) }

    /// A packet has come.
    package mutating func received(
        _ packet: [UInt8], random: inout some RandomSource, now: Int64
    ) -> [PeerAction] {
        do {
            switch (state, try PeerPacket(packet)) {
            case (.ended, _): return []
            case (.awaitingHello, .hello(let connection, let key)):
                guard connection == agreement.connection else { throw PeerEnd.notAuthentic }
                let own = AgreementKeyPair(random: &random)
                let keys = try PeerKeys(agreement, own: own, remote: key)
                state = .awaitingFinish(keys)
                let answer = PeerPacket.answer(own.publicKey.bytes, keys.signature(agreement))
                return [.transmit(answer.bytes)]
            case (.awaitingAnswer(let own), .answer(let key, let signature)):
                let keys = try PeerKeys(agreement, own: own, remote: key)
                try keys.verify(signature, agreement)
                return [.transmit(PeerPacket.finish(keys.signature(agreement)).bytes)] + open(keys, now)
            case (.awaitingFinish(let keys), .finish(let signature)):
                try keys.verify(signature, agreement)
                return open(keys, now)
            case (.open, .record(let sealed)):
                let frame = try open(sealed)
                return try received(frame, now)
            default: throw PeerEnd.malformed
            }
        } catch {
            return end((error as? PeerEnd) ?? .malformed)
        }
    }

    private mutating func open(_ keys: PeerKeys, _ now: Int64) -> [PeerAction] {
        let isInitiator = agreement.role == .initiator
        sending.key = isInitiator ? keys.fromInitiator : keys.fromResponder
        receiving.key = isInitiator ? keys.fromResponder : keys.fromInitiator
        (state, lastUse, handshakeEnd) = (.open, now, nil)
        return [.opened]
    }

    // MARK: Frames

    private static let associated: [UInt8] = [4]

    private mutating func open(_ sealed: [UInt8]) throws(PeerEnd) -> PeerFrame {
        guard receiving.records < PeerLimits.recordLimit, let key = receiving.key else { throw .exhausted }
        var plaintext: [UInt8] = []
        let nonce = receiving.nonce()
        do {
            try sealed.span.withUnsafeBytes { (bytes) throws(RatchetError) in
                try Primitives.open(
                    bytes, key: key, nonce: nonce, authenticating: Self.associated, into: &plaintext)
            }
        } catch {
            throw .notAuthentic
        }
        return try PeerFrame(plaintext)
    }

    private mutating func record(_ frame: PeerFrame) -> PeerAction? {
        guard sending.records < PeerLimits.recordLimit, let key = sending.key else { return nil }
        var sealed: [UInt8] = []
        let nonce = sending.nonce()
        frame.bytes.withUnsafeBytes { bytes in
            Primitives.seal(bytes, key: key, nonce: nonce, authenticating: Self.associated, into: &sealed)
        }
        return .transmit(PeerPacket.record(sealed).bytes)
    }

    private mutating func received(_ frame: PeerFrame, _ now: Int64) throws(PeerEnd) -> [PeerAction] {
        switch frame {
        case .message(let number, let payload):
            guard number == receiving.last + 1 else { throw .malformed }
            guard number - receiving.taken <= UInt64(PeerLimits.window) else { throw .overloaded }
            (receiving.last, lastUse) = (number, now)
            return [.deliver(number, payload)]
        case .taken(let number):
            guard number > sending.taken, number <= sending.last else { throw .malformed }
            sending.taken = number
            takenBy = number == sending.last ? nil : now + limits.acknowledgement
            return [.acknowledged(number)]
        case .status(let flags, let metadata):
            lastUse = now
            return [.status(flags: flags, metadata: metadata)]
        case .end: return end(.closedByPeer)
        }
    }

    // MARK: The app

    /// Sends a message.
    ///
    /// - Returns: its number, by which it is acknowledged, and the actions.
    package mutating func send(
        _ message: [UInt8], now: Int64
    ) throws(PeerRefusal) -> (number: UInt64, actions: [PeerAction]) {
        guard isOpen else { throw .notOpen }
        guard message.count <= PeerLimits.messageLimit else { throw .tooLong }
        guard sending.last - sending.taken < UInt64(PeerLimits.window) else { throw .windowFull }
        let number = sending.last + 1
        guard let action = record(.message(number, message)) else { return (number, end(.exhausted)) }
        (sending.last, lastUse) = (number, now)
        if takenBy == nil { takenBy = now + limits.acknowledgement }
        return (number, [action])
    }

    /// The app has taken a message, and all before it. Numbers that were not delivered do nothing.
    package mutating func taken(_ number: UInt64, now: Int64) -> [PeerAction] {
        guard isOpen, number > receiving.taken, number <= receiving.last else { return [] }
        (receiving.taken, lastUse) = (number, now)
        return record(.taken(number)).map { [$0] } ?? end(.exhausted)
    }

    /// Sends a status, which is not acknowledged.
    package mutating func send(
        status flags: UInt8, metadata: [UInt8], now: Int64
    ) throws(PeerRefusal) -> [PeerAction] {
        guard isOpen else { throw .notOpen }
        guard metadata.count <= PeerLimits.metadataLimit else { throw .tooLong }
        lastUse = now
        return record(.status(flags: flags, metadata: metadata)).map { [$0] } ?? end(.exhausted)
    }

    /// Closes the connection. The other side is notified if it is open.
    package mutating func close(_ reason: PeerEnd = .closed) -> [PeerAction] {
        let notice = isOpen ? record(.end).map { [$0] } ?? [] : []
        return (isEnded ? [] : notice) + end(reason)
    }

    /// Ends what has taken too long.
    package mutating func tick(now: Int64) -> [PeerAction] {
        if let handshakeEnd, now >= handshakeEnd { return end(.handshakeTimeout) }
        guard isOpen else { return [] }
        if let takenBy, now >= takenBy { return close(.notTaken) }
        return now - lastUse >= limits.idle ? close(.idle) : []
    }

    private mutating func end(_ reason: PeerEnd) -> [PeerAction] {
        guard !isEnded else { return [] }
        state = .ended
        (sending.key, receiving.key, handshakeEnd, takenBy) = (nil, nil, nil, nil)
        return [.ended(reason)]
    }
}
