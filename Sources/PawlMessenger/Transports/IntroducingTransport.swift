// Transports of chat protocols on which sidecars exchange keys: there is no place where keys are published. A device sends
// them as an introduction, which the transport carries like a message.

import Devices
package import Envelope
import Messenger
import Protection

/// A transport that carries introductions in band, in the form of the protocol's sidecars.
package protocol IntroducingTransportClient: PlaintextTransportClient {
    /// How the protocol carries envelopes; bound to each of them.
    var carrier: Carrier { get }
}

/// What became of an envelope.
package enum EnvelopeReceipt: Sendable, Hashable {
    /// It is stored, or was a key exchange.
    case opened
    /// It was opened before, or is none that this device could ever open.
    case dropped
    /// The sender does not have this device's keys, or has old ones.
    case keysMissing
}

/// The messenger, as a transport with introductions sees it.
package protocol IntroducingDelegate: CypherTransportClientDelegate {
    /// Makes an introduction: an envelope of some 2 KB with this device's keys, one of which is for its reader only.
    ///
    /// - Throws: an error if the prekey could not be stored.
    func makeIntroduction() async throws -> [UInt8]
    /// Takes an envelope. The return is the acknowledgement.
    ///
    /// - Throws: an error if it has to be delivered again later.
    func receiveEnvelope(_ bytes: [UInt8], from username: Username) async throws -> EnvelopeReceipt
    /// Whether keys of a person are known.
    func hasKeys(of username: Username) -> Bool
}

extension CypherMessenger: IntroducingDelegate {
    package func makeIntroduction() async throws -> [UInt8] {
        guard case .introduction(let bytes) = try await perform({ .introduce(ticket: $0) }) else { return [] }
        return bytes
    }

    package func receiveEnvelope(_ bytes: [UInt8], from username: Username) async throws -> EnvelopeReceipt {
        let reply = try await perform { .receive(ticket: $0, bytes, from: username.raw, hasKeys: true) }
        guard case .received(let outcome) = reply else { return .dropped }
        switch outcome {
        case .taken: return .opened
        case .dropped(.unknownSender), .dropped(.notAuthentic), .dropped(.olderVersion), .keysWanted:
            return .keysMissing
        case .copy, .dropped: return .dropped
        }
    }

    package func hasKeys(of username: Username) -> Bool { peers[.services(username.raw)] != nil }
}
