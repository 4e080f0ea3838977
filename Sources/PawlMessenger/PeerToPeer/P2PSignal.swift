import DoubleRatchet
import Envelope
import Foundation
package import PeerConnection

/// A magic packet as the text of a signal: a JSON object.
///
///     {"version":1,"kind":"packet","connection":BASE64 (16 B),"secret":BASE64 (32 B),"transport":NAME,"text":TEXT,
///      "metadata":JSON as a text}
///     {"version":1,"kind":"refused","connection":BASE64,"transport":NAME}
///
/// All packets of the initiator have the secret, so that the first one that arrives is enough.
package struct P2PSignal: Equatable {
    package enum Kind: Equatable {
        case packet(text: String, metadata: P2PMetadata, secret: [UInt8]?)
        case refused
    }

    package var connection: PeerConnectionID
    package var transport: String
    package var kind: Kind

    private struct Form: Codable {
        var version: Int
        var kind: String
        var connection: String
        var secret: String?
        var transport: String
        var text: String?
        var metadata: String?
    }

    private static func base64(_ bytes: [UInt8]) -> String {
        var text: [UInt8] = []
        Base64.encode(bytes[...], into: &text)
        return String(decoding: text, as: UTF8.self)
    }

    package init(connection: PeerConnectionID, transport: String, kind: Kind) {
        (self.connection, self.transport, self.kind) = (connection, transport, kind)
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
            kind = .packet(text: text, metadata: P2PMetadata(json: metadata), secret: secret)
        default: return nil
        }
    }

    package var text: String {
        var form = Form(
            version: 1, kind: "refused", connection: Self.base64(connection.bytes), transport: transport)
        if case .packet(let text, let metadata, let secret) = kind {
            (form.kind, form.text, form.metadata) = ("packet", text, metadata.json)
            form.secret = secret.map(Self.base64)
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
