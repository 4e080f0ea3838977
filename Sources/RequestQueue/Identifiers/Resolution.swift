// Turns a request with references into the bytes that go to the backend. These never hold a reference.

/// A request whose references have all been replaced.
public struct ResolvedRequest: Hashable, Sendable {
    /// The method.
    public var method: HTTPMethod
    /// The base URL; nil for the client's.
    public var host: String?
    /// Path and query, percent-encoded, beginning with a slash.
    public var target: String
    /// The header fields, in their order.
    public var headers: [Header]
    /// The body.
    public var body: [UInt8]
    /// The timeout in milliseconds; nil for the client's.
    public var timeoutInterval: Int64?

    /// One header field.
    public struct Header: Hashable, Sendable {
        /// Its name.
        public var name: String
        /// Its value.
        public var value: String

        /// A field, as it is sent.
        public init(_ name: String, _ value: String) { (self.name, self.value) = (name, value) }
    }
}

/// A request cannot be sent yet: the backend has not named this entity.
public struct UnresolvedReference: Error, Equatable, Sendable {
    /// The entity.
    public let reference: EntityReference
}

extension APIRequestConfig {
    /// Encodes the request, with the remote identifier of each entity.
    ///
    /// - Throws: ``UnresolvedReference`` for the first entity without one.
    public func resolved(
        _ remote: @escaping (EntityReference) -> String?
    ) throws(UnresolvedReference) -> ResolvedRequest {
        let resolver = Resolver(remote: remote)
        var target = ""
        for segment in path.segments {
            switch segment {
            case .text(let text): PercentEncoding.path.append(text, to: &target)
            case .reference(let reference): PercentEncoding.unreserved.append(try resolver.name(reference), to: &target)
            case .raw(let text): target += text
            }
        }
        if !target.hasPrefix("/") { target = "/" + target }
        let query = try resolver.form(query)
        if !query.isEmpty { target += (target.contains("?") ? "&" : "?") + query }

        var headers: [ResolvedRequest.Header] = []
        for item in self.headers.items {
            var values: [String] = []
            for element in item.value.elements { values.append(try resolver.text(element)) }
            headers.append(.init(item.name, values.joined(separator: ", ")))
        }
        var bytes: [UInt8] = []
        var kind: String?
        switch body {
        case .rawData(let data): bytes = data
        case .formURLEncoded(let form):
            bytes = Array(try resolver.form(form).utf8)
            kind = "application/x-www-form-urlencoded"
        case .json(let value):
            try resolver.write(value, to: &bytes)
            kind = "application/json"
        case nil: break
        }
        if let kind, !headers.contains(where: { $0.name.lowercased() == "content-type" }) {
            headers.append(.init("Content-Type", kind))
        }
        return ResolvedRequest(
            method: method, host: host, target: target, headers: headers, body: bytes, timeoutInterval: timeoutInterval)
    }
}

private struct Resolver {
    let remote: (EntityReference) -> String?

    func name(_ reference: EntityReference) throws(UnresolvedReference) -> String {
        guard let name = remote(reference) else { throw UnresolvedReference(reference: reference) }
        return name
    }

    func text(_ element: ParameterValue.Element) throws(UnresolvedReference) -> String {
        switch element {
        case .text(let text): text
        case .reference(let reference): try name(reference)
        }
    }

    func form(_ parameters: Parameters) throws(UnresolvedReference) -> String {
        var output = ""
        for item in parameters.items {
            for element in item.value.elements {
                if !output.isEmpty { output += "&" }
                PercentEncoding.unreserved.append(item.name, to: &output)
                output += item.value.isList ? "%5B%5D=" : "="
                PercentEncoding.unreserved.append(try text(element), to: &output)
            }
        }
        return output
    }

    func write(_ value: JSONValue, to output: inout [UInt8]) throws(UnresolvedReference) {
        switch value {
        case .null: output.append(contentsOf: "null".utf8)
        case .bool(let bool): output.append(contentsOf: (bool ? "true" : "false").utf8)
        case .number(let digits): output.append(contentsOf: digits.utf8)
        case .string(let text): JSONText.append(text, to: &output)
        case .reference(let reference): JSONText.append(try name(reference), to: &output)
        case .array(let values):
            output.append(UInt8(ascii: "["))
            for (index, value) in values.enumerated() {
                if index > 0 { output.append(UInt8(ascii: ",")) }
                try write(value, to: &output)
            }
            output.append(UInt8(ascii: "]"))
        case .object(let members):
            output.append(UInt8(ascii: "{"))
            for (index, member) in members.enumerated() {
                if index > 0 { output.append(UInt8(ascii: ",")) }
                JSONText.append(member.name, to: &output)
                output.append(UInt8(ascii: ":"))
                try write(member.value, to: &output)
            }
            output.append(UInt8(ascii: "}"))
        }
    }
}

/// JSON strings (RFC 8259 section 7).
enum JSONText {
    static func append(_ text: String, to output: inout [UInt8]) {
        output.append(UInt8(ascii: "\""))
        for byte in text.utf8 {
            switch byte {
            case UInt8(ascii: "\""), UInt8(ascii: "\\"):
                output.append(UInt8(ascii: "\\"))
                output.append(byte)
            case 0..<0x20:
                output.append(contentsOf: "\\u00".utf8)
                output.append(contentsOf: [
                    PercentEncoding.digits[Int(byte >> 4)], PercentEncoding.digits[Int(byte & 15)],
                ])
            default: output.append(byte)
            }
        }
        output.append(UInt8(ascii: "\""))
    }
}

/// Percent-encoding (RFC 3986 section 2.1): which bytes stay as they are.
enum PercentEncoding {
    /// Unreserved characters only, for a value that must not be read as anything else.
    case unreserved
    /// Characters that a path may have, its slashes, and percent signs that begin an encoded byte.
    case path

    static let digits = Array("0123456789ABCDEF".utf8)

    func append(_ text: String, to output: inout String) {
        guard !text.utf8.allSatisfy(keeps) else {
            output += text
            return
        }
        let bytes = Array(text.utf8)
        var encoded: [UInt8] = []
        encoded.reserveCapacity(bytes.count)
        for (index, byte) in bytes.enumerated() {
            if keeps(byte) || (self == .path && Self.isEncoded(bytes, at: index)) {
                encoded.append(byte)
            } else {
                encoded.append(contentsOf: [
                    UInt8(ascii: "%"), Self.digits[Int(byte >> 4)], Self.digits[Int(byte & 15)],
                ])
            }
        }
        output += String(decoding: encoded, as: UTF8.self)
    }

    private func keeps(_ byte: UInt8) -> Bool {
        switch byte {
        case UInt8(ascii: "a")...UInt8(ascii: "z"), UInt8(ascii: "A")...UInt8(ascii: "Z"),
            UInt8(ascii: "0")...UInt8(ascii: "9"), UInt8(ascii: "-"), UInt8(ascii: "."), UInt8(ascii: "_"),
            UInt8(ascii: "~"):
            true
        case UInt8(ascii: "!"), UInt8(ascii: "$"), UInt8(ascii: "&")...UInt8(ascii: "/"), UInt8(ascii: ":"),
            UInt8(ascii: ";"), UInt8(ascii: "="), UInt8(ascii: "?"), UInt8(ascii: "@"):
            self == .path
        default: false
        }
    }

    private static func isEncoded(_ bytes: [UInt8], at index: Int) -> Bool {
        guard bytes[index] == UInt8(ascii: "%"), index + 2 < bytes.count else { return false }
        return bytes[(index + 1)...(index + 2)].allSatisfy { digits.contains($0) || "abcdef".utf8.contains($0) }
    }
}
