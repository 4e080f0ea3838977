// Logins inside a WebSocket: a frame fills places of credentials, as the head of a request does.

import HTTPCodec
package import JSONCodec

/// Where a WebSocket message has a credential.
package struct FrameLogin: Sendable, Equatable {
    /// A part of a value.
    package enum Part: Sendable, Equatable {
        case text(String)
        case path(JSONPath)
    }

    /// A place of the mapping's credentials, and what fills it.
    package struct Value: Sendable, Equatable {
        package var place: AccountSource.Credential
        package var parts: [Part]

        package init(_ place: AccountSource.Credential, _ parts: [Part]) { (self.place, self.parts) = (place, parts) }
    }

    package enum Reading: Sendable {
        /// The message has no value at one of the paths.
        case absent
        /// Backends could read another credential in it, or the value fits no place.
        case unreadable
        case found(Credential)
    }

    /// Ours: maximum length of a value, in bytes.
    package static let valueLimit = 8 << 10

    package var values: [Value]

    package init(_ values: [Value]) { self.values = values }

    /// Reads the credential of a message.
    ///
    /// - Parameter places: the places of credentials in the mapping.
    package func credential(in document: JSONDocument, at places: [AccountSource.Credential]) -> Reading {
        var head = RequestHead("GET", "/")
        var query: [String] = []
        for value in values {
            var text = ""
            for part in value.parts {
                switch part {
                case .text(let fixed): text += fixed
                case .path(let path):
                    guard let places = try? document.places(path, limit: 2), places.count < 2 else {
                        return .unreadable
                    }
                    guard let place = places.first, document.kind(place) != .null else { return .absent }
                    guard let found = Self.text(of: document, at: place) else { return .unreadable }
                    guard !found.isEmpty else { return .absent }
                    text += found
                }
            }
            guard text.utf8.count <= Self.valueLimit else { return .unreadable }
            switch value.place {
            case .header(let name): head.headers.add(name, text)
            case .query(let name): query.append("\(name)=\(PercentCoding.segment(text))")
            case .cookie(let name): head.headers.add("Cookie", "\(name)=\(text)")
            }
        }
        if !query.isEmpty { head.target += "?" + query.joined(separator: "&") }
        return Credential(of: head, at: places).map { .found($0) } ?? .unreadable
    }

    /// A string or an integer that a header field or a cookie can hold.
    private static func text(of document: JSONDocument, at place: JSONPlace) -> String? {
        switch document.kind(place) {
        case .string:
            guard let text = try? document.text(place),
                text.utf8.allSatisfy({ 0x21...0x7E ~= $0 && $0 != UInt8(ascii: ";") && $0 != UInt8(ascii: ",") })
            else { return nil }
            return text
        case .number: return document.integer(place).map { "\($0)" }
        case .object, .array, .boolean, .null: return nil
        }
    }
}
