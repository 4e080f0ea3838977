import DoubleRatchet
import Envelope
import Foundation
package import PeerConnection

/// A magic packet as the text of a signal: a JSON object.
///
///     {"version":1,"kind":"packet","connection":BASE64 (16 B),"secret":BASE64 (32 B),"transport":NAME,"text":TEXT,
///      "metadata":JSON as a text,"instead":BASE64 (16 B)}
///     {"version":1,"kind":"refused","connection":BASE64,"transport":NAME}
///
/// All packets of the initiator have the secret, so that the first one that arrives is enough. `instead` names a request
/// of the other side that this side has ignored before: the packet belongs to a connection in its place.
package struct P2PSignal: Equatable {
    package enum Kind: Equatable {
        case packet(text: String, metadata: P2PMetadata, secret: [UInt8]?)
        case refused
    }

    package var connection: PeerConnectionID
    package var transport: String
    package var kind: Kind
    /// A request that was ignored; nil if there is none, and for ``Kind/refused``.
    package var instead: PeerConnectionID?

    private struct Form: Codable {
        var version: Int
        var kind: String
        var connection: String
        var secret: String?
        var transport: String
        var text: String?
        var metadata: String?
        var instead: String?
    }

    package init(
        connection: PeerConnectionID, transport: String, kind: Kind, instead: PeerConnectionID? = nil
    ) {
        (self.connection, self.transport, self.kind) = (connection, transport, kind)
        if case .packet = kind { self.instead = instead }
    }

    /// Reads a text; nil if it has another form.
    package init?(_ text: String) {
        guard let form = try? JSONDecoder().decode(Form.self, from: Data(text.utf8)), form.version == 1,
            let connection = Base64.decode(form.connection.utf8).flatMap({ PeerConnectionID($0) }),
            Self.isTransportName(form.transport)
        else { return nil }
        (self.connection, transport) = (connection, form.transport)
        switch form.kind {
        case "refused": kind = .refused
        case "packet":
            guard let text = form.text, let metadata = form.metadata,
                text.utf8.count <= P2PSettings.magicPacketLimit,
                metadata.utf8.count <= P2PSettings.magicPacketLimit
            else { return nil }
            var secret: [UInt8]?
            if let coded = form.secret {
                guard let bytes = Base64.decode(coded.utf8), bytes.count == PeerAgreement.secretSize else { return nil }
                secret = bytes
            }
            if let coded = form.instead {
                guard let other = Base64.decode(coded.utf8).flatMap({ PeerConnectionID($0) }) else { return nil }
                instead = other
            }
            kind = .packet(text: text, metadata: P2PMetadata(json: metadata), secret: secret)
        default: return nil
        }
    }

    package var text: String {
        var form = Form(
            version: 1, kind: "refused", connection: Base64.text(connection.bytes), transport: transport)
        if case .packet(let text, let metadata, let secret) = kind {
            (form.kind, form.text, form.metadata) = ("packet", text, metadata.json)
            (form.secret, form.instead) = (secret.map(Base64.text), instead.map { Base64.text($0.bytes) })
        }
        let encoder = JSONEncoder()
        encoder.outputFormatting = [.sortedKeys, .withoutEscapingSlashes]
        // Texts and numbers always have a coded form.
        return (try? encoder.encode(form)).map { String(decoding: $0, as: UTF8.self) } ?? ""
    }

    static func isTransportName(_ name: String) -> Bool {
        (1...32).contains(name.utf8.count)
            && name.utf8.allSatisfy {
                (0x61...0x7A).contains($0) || (0x41...0x5A).contains($0) || (0x30...0x39).contains($0) || $0 == 0x2D
                    || $0 == 0x5F
            }
    }
}
