// The handshake: a signed agreement of ephemeral keys, as in SIGMA. Both sides know before it whose device the other one
// is, and a secret that the initiator has sent inside a message of the ratchet.
//
// The transcript has the version, the connection, the transport, both devices with their identity keys and both ephemeral
// keys. It is signed by each side in a context of its own, and all keys are derived from it. So a packet of another
// connection, version, device or direction is not authentic. The secret alone does not connect, and neither does an
// identity key alone.

package import DoubleRatchet

/// One end of a connection: a device with the key that the person's list has for it.
package struct PeerEndpoint: Sendable, Hashable {
    package var device: UInt64
    package var identity: IdentityKey

    package init(device: UInt64, identity: IdentityKey) { (self.device, self.identity) = (device, identity) }
}

/// Which side has signalled first.
package enum PeerRole: Sendable, Hashable {
    case initiator, responder

    var other: PeerRole { self == .initiator ? .responder : .initiator }

    /// The context of the signature.
    var context: String { self == .initiator ? "pawl p2p initiator" : "pawl p2p responder" }
}

/// What both sides know before they connect.
package struct PeerAgreement: Sendable {
    package let connection: PeerConnectionID
    /// 32 bytes, signalled inside a sealed message.
    package let secret: SecretBytes
    /// The name of the transport, at most 255 bytes.
    package let transport: String
    package let role: PeerRole
    package let own: PeerEndpoint
    package let remote: PeerEndpoint
    /// Signs a message in a context with the own identity key.
    package let sign: @Sendable (_ message: [UInt8], _ context: String) -> [UInt8]

    package static let secretSize = 32

    package init(
        connection: PeerConnectionID, secret: SecretBytes, transport: String, role: PeerRole, own: PeerEndpoint,
        remote: PeerEndpoint, sign: @escaping @Sendable (_ message: [UInt8], _ context: String) -> [UInt8]
    ) {
        precondition(secret.count == Self.secretSize && transport.utf8.count <= 255, "the caller has checked both")
        (self.connection, self.secret, self.transport) = (connection, secret, transport)
        (self.role, self.own, self.remote, self.sign) = (role, own, remote, sign)
    }

    func transcript(initiator: Bytes32, responder: Bytes32) -> [UInt8] {
        var bytes = Array("pawl p2p".utf8) + [PeerPacket.version] + connection.bytes
        bytes.append(UInt8(transport.utf8.count))
        bytes += transport.utf8
        for end in role == .initiator ? [own, remote] : [remote, own] {
            bytes.append(networkOrder: end.device)
            bytes += end.identity.bytes
        }
        initiator.append(to: &bytes)
        responder.append(to: &bytes)
        return bytes
    }
}

/// The keys of one connection.
struct PeerKeys: Sendable {
    private let answer: SecretBytes
    private let finish: SecretBytes
    let fromInitiator: SecretBytes
    let fromResponder: SecretBytes
    private let transcript: [UInt8]

    /// Agrees on keys.
    ///
    /// - Throws: ``PeerEnd/notAuthentic`` for a key that yields no secret.
    init(
        _ agreement: PeerAgreement, own: AgreementKeyPair, remote: Bytes32
    ) throws(PeerEnd) {
        let shared: SecretBytes
        do {
            shared = try own.agree(with: AgreementPublicKey(remote))
        } catch {
            throw .notAuthentic
        }
        let keys = (own.publicKey.bytes, remote)
        transcript =
            agreement.role == .initiator
            ? agreement.transcript(initiator: keys.0, responder: keys.1)
            : agreement.transcript(initiator: keys.1, responder: keys.0)
        let blocks = KeyMaterial.derive(from: [shared, agreement.secret], info: transcript, blocks: 4)
        (answer, finish, fromInitiator, fromResponder) = (blocks[0], blocks[1], blocks[2], blocks[3])
    }

    /// The own signature, sealed.
    func signature(_ agreement: PeerAgreement) -> [UInt8] {
        let signature = agreement.sign(transcript, agreement.role.context)
        var sealed: [UInt8] = []
        signature.withUnsafeBytes { bytes in
            Primitives.seal(bytes, key: key(agreement.role), authenticating: [], into: &sealed)
        }
        return sealed
    }

    /// Checks the other side's signature.
    ///
    /// - Throws: ``PeerEnd/notAuthentic``
    func verify(_ sealed: [UInt8], _ agreement: PeerAgreement) throws(PeerEnd) {
        let role = agreement.role.other
        var signature: [UInt8] = []
        do {
            try sealed.span.withUnsafeBytes { (bytes) throws(RatchetError) in
                try Primitives.open(bytes, key: key(role), authenticating: [], into: &signature)
            }
        } catch {
            throw .notAuthentic
        }
        guard
            agreement.remote.identity.isValidSignature(signature.span, of: transcript.span, context: role.context)
        else { throw .notAuthentic }
    }

    private func key(_ role: PeerRole) -> SecretBytes { role == .responder ? answer : finish }
}
